//! The events that the suite claims.

use super::KEPT;
use crate::decide::claim::{IdentityKey, ImportedKey, ImportedKeyValidity, MatchedBy, NewEvent, Payload};
use crate::decide::event::{DoneReason, Event, EventState, QueueState, RetryOwner, SubjectChange, SucceededBlocks};
use crate::decide::field::StoredFields;
use crate::decide::id::{DeliveryIdDigest, Digest, EventId, Key, QueueTurn, Revision};
use crate::decide::identity::key;
use crate::decide::identity::key::KeyPart;
use crate::decide::source::{Debounce, Retention, SameChange, WhenBusy};
use crate::decide::time::Timestamp;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};

/// A builder of test deliveries.
#[derive(Clone, Debug)]
pub struct TestEventBuilder {
    event: Event,
    keys: Vec<IdentityKey>,
    former: Vec<IdentityKey>,
    imported: Vec<ImportedKey>,
    payload: Payload,
    kept: Retention,
    when_busy: WhenBusy,
    same_change: SameChange,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A waiting event with an id after all earlier ones, and no key yet.
pub fn making() -> TestEventBuilder {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&0x0190_0000_0000_7000_u64.to_be_bytes());
    id[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let event = Event {
        id: EventId(id),
        revision: Revision::FIRST,
        source: "source".into(),
        route: "1".into(),
        part: 0,
        delivery_id: None,
        fields: StoredFields::from_json(r#"{"tag":"latest","size":9007199254740993,"draft":false}"#).expect("fields"),
        received_at: Timestamp(0),
        state: EventState::Waiting { due: Some(Timestamp(0)) },
        life: 1,
        attempt: 0,
        doubts: 0,
        failed_lookups: 0,
        blocks: SucceededBlocks(0),
        queue_state: QueueState::Queued,
        retrier: RetryOwner::Sender,
        group: None,
        turn: QueueTurn(0),
        change: None,
        published_again: None,
        burst_since: None,
        resolved: None,
        origin: None,
        notifications: Vec::new(),
        body_digest: Digest::of(b""),
        digest: Digest([0; 32]),
    };
    TestEventBuilder {
        event,
        keys: Vec::new(),
        former: Vec::new(),
        imported: Vec::new(),
        payload: Payload::default(),
        kept: KEPT,
        when_busy: WhenBusy::Queue,
        same_change: SameChange::Duplicate,
    }
}

/// A key of this kind and text.
fn key_of(kind: &str, text: &str) -> Key {
    key::key("source", kind, &[KeyPart::text("text", text)])
}

/// The key under which a delivery with this text is imported.
pub fn imported(text: &str) -> Key {
    key_of("imported", text)
}

impl TestEventBuilder {
    /// Under this delivery id, which is one of its identities.
    #[must_use]
    pub fn delivery(mut self, id: &str) -> Self {
        self.event.delivery_id = Some(id.into());
        self.keys.push(IdentityKey::new(MatchedBy::Delivery, key_of("delivery", id)));
        self
    }

    /// With this body, which is one of its identities.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self = self.carrying(body);
        let key = Key(self.event.body_digest.0);
        self.keys.push(IdentityKey::new(MatchedBy::Body, key));
        self
    }

    /// Under this unsigned delivery id, with this body as an identity: one key covers both.
    #[must_use]
    pub fn unsigned(mut self, id: &str, body: impl Into<Bytes>) -> Self {
        self = self.carrying(body);
        self.event.delivery_id = Some(id.into());
        let id_digest = Some(DeliveryIdDigest::of(id));
        let body = IdentityKey::new(MatchedBy::Body, Key(self.event.body_digest.0));
        self.former.push(self.bound(id));
        self.keys.push(IdentityKey { id_digest, ..body });
        self
    }

    /// The same as the first release claimed it where `body` was no identity: by the id together with its body alone.
    #[must_use]
    pub fn unsigned_alone(mut self, id: &str, body: impl Into<Bytes>) -> Self {
        self = self.carrying(body);
        self.event.delivery_id = Some(id.into());
        let body = IdentityKey::new(MatchedBy::Body, Key(self.event.body_digest.0));
        self.former.push(IdentityKey { id_digest: Some(DeliveryIdDigest::of(id)), ..body });
        self.keys.push(self.bound(id));
        self
    }

    fn bound(&self, id: &str) -> IdentityKey {
        let parts = [KeyPart::text("id", id), KeyPart::bytes("body", &self.event.body_digest.0)];
        IdentityKey::new(MatchedBy::Delivery, key::key("source", "delivery", &parts))
    }

    /// With this body, which is not an identity.
    #[must_use]
    pub fn carrying(mut self, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type".into(), "application/json".into()), ("x-\"é\"".into(), "\n".into())];
        self.payload = Payload { headers, body: body.into() };
        self.event.body_digest = Digest::of(&self.payload.body);
        self
    }

    /// With a transient header: kept only to be passed on.
    #[must_use]
    pub fn passing(mut self, name: &str, value: &str) -> Self {
        self.payload.push_transient_header(name, value.to_owned());
        self
    }

    /// For this receiver of its route.
    #[must_use]
    pub fn part(mut self, part: u16) -> Self {
        self.event.part = part;
        self
    }

    /// With a combination of named fields as one of its identities.
    #[must_use]
    pub fn named(mut self, value: &str) -> Self {
        self.keys.push(IdentityKey::new(MatchedBy::Fields("hash".into()), key_of("hash", value)));
        self
    }

    /// A duplicate, if this text was imported.
    #[must_use]
    pub fn known_as(mut self, text: &str, counts: ImportedKeyValidity) -> Self {
        let same = match counts {
            ImportedKeyValidity::Always => MatchedBy::Delivery,
            ImportedKeyValidity::WhileRegisterEmpty => MatchedBy::Change,
        };
        self.imported.push(ImportedKey { same, key: imported(text), counts });
        self
    }

    /// It changes `subject` to `to`, and so is in the subject's group.
    #[must_use]
    pub fn change(mut self, subject: &str, to: &str, order: Option<i64>) -> Self {
        let value = key::value(&[KeyPart::text("to", to)]);
        self.event.change = Some(SubjectChange { subject: key_of("subject", subject), value, order });
        self
    }

    /// In this group.
    #[must_use]
    pub fn group(mut self, name: &str) -> Self {
        self.event.group = Some(key_of("group", name));
        self
    }

    /// It replaces the waiting events of its subject, and waits this long for the next one.
    #[must_use]
    pub fn replacing(mut self, debounce: Option<Debounce>) -> Self {
        self.when_busy = WhenBusy::Replace { debounce };
        self
    }

    /// A registry says what it deploys.
    #[must_use]
    pub fn hinting(mut self) -> Self {
        self.same_change = SameChange::Hint;
        self
    }

    /// It has no subject but its queue.
    #[must_use]
    pub fn in_queue(mut self, name: &str) -> Self {
        self.event.change = Some(SubjectChange::of_queue(key_of("queue", name), self.event.id));
        self
    }

    /// With these fields.
    #[must_use]
    pub fn fields(mut self, json: &str) -> Self {
        self.event.fields = StoredFields::from_json(json).expect("fields");
        self
    }

    /// With an id of this time, as a node makes it.
    #[must_use]
    pub fn dated(mut self, now: Timestamp) -> Self {
        let millis = u64::try_from(now.0 / 1_000).expect("a time after 1970").to_be_bytes();
        self.event.id.0[..6].copy_from_slice(&millis[2..]);
        self
    }

    /// Through this source.
    #[must_use]
    pub fn source(mut self, name: &str) -> Self {
        self.event.source = name.into();
        self
    }

    /// On this route.
    #[must_use]
    pub fn route(mut self, name: &str) -> Self {
        self.event.route = name.into();
        self
    }

    /// It has no action: it is done as soon as it is claimed.
    #[must_use]
    pub fn recorded(mut self) -> Self {
        self.event.state = EventState::Done { how: DoneReason::Recorded, at: Timestamp(0) };
        self
    }

    /// Kept for this long.
    #[must_use]
    pub fn kept(mut self, kept: Retention) -> Self {
        self.kept = kept;
        self
    }

    /// The event's id.
    pub fn id(&self) -> EventId {
        self.event.id
    }

    /// Its body and headers.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// The claim to make when the store's clock shows `now`.
    pub fn made(mut self, now: Timestamp) -> NewEvent {
        self.event.state = self.event.state.shifted(Timestamp(0), now);
        self.event.received_at = now;
        self.event.digest = self.event.immutable_digest();
        let Self { event, keys, former, imported, payload, kept, when_busy, same_change } = self;
        NewEvent { event, keys, former_keys: former, imported, payload, kept, when_busy, same_change }
    }
}
