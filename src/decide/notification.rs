//! Notifications: which ends of events people are told about, to which targets, and what is told.
//!
//! A notification is an event of its own ([`Origin::Notification`]), made in the write that ends the event it tells of.
//! It takes a route of its own, one for each target, and carries a description of that end as its body.

use super::claim::Payload;
use super::event::{DeathCause, DoneReason, Event, EventState, Origin, QueueState, RetryOwner, SucceededBlocks};
use super::field::{FieldValue, StoredFields};
use super::id::{Digest, EventId, Key, Revision};
use super::identity::key;
use super::limits;
use super::time::Timestamp;
use bytes::Bytes;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;

/// The prefix of the route of a target's notifications. No route of a config begins with it.
pub const NOTIFY_ROUTE: &str = "notify:";

/// What a notification tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotificationKind {
    /// An event is dead, whatever the cause.
    Dead,
    /// The last good deploy was put back, after one that was not healthy.
    Rollback,
    /// An action has succeeded.
    Done,
    /// There were more notifications than may be sent in an hour.
    Summary,
}

impl NotificationKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Dead, Self::Rollback, Self::Done, Self::Summary];

    /// The kind's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Rollback => "rollback",
            Self::Done => "done",
            Self::Summary => "summary",
        }
    }

    /// The kind with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// Someone who is told about the ends of a route's events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationTarget {
    /// The route of its notifications, such as `notify:ntfy`.
    pub route: Arc<str>,
    /// What it is told about.
    pub on: Vec<NotificationKind>,
    /// Fields without which there is nothing to tell it.
    pub needs: Vec<Arc<str>>,
    /// Where its notifications are counted.
    pub counted_at: Key,
    /// How many it gets in an hour.
    pub per_hour: u32,
    /// Whether it is told how many more there were.
    pub summary: bool,
}

impl NotificationTarget {
    /// What this target is told about an event that has ended; `None`: nothing. A notification is never told about. A
    /// roll-back that has failed is told to those who are told about roll-backs, too.
    pub fn tells(&self, event: &Event) -> Option<NotificationKind> {
        let kind = event.notification_kind()?;
        let wanted = self.on.contains(&kind) || (event.is_rollback() && self.on.contains(&NotificationKind::Rollback));
        let has_fields = self.needs.iter().all(|name| event.fields.get(name).is_some());
        (wanted && has_fields).then_some(kind)
    }
}

impl Event {
    /// Whether it tells people about the end of another event.
    pub fn is_notification(&self) -> bool {
        matches!(self.origin, Some(Origin::Notification { .. }))
    }

    /// Whether it tells how many notifications were not sent.
    pub(crate) fn is_summary(&self) -> bool {
        matches!(self.origin, Some(Origin::Notification { kind: NotificationKind::Summary, .. }))
    }

    /// The kind of notification that its end is; `None`: it has not ended, it only recorded something, it was
    /// superseded, or it is a notification itself.
    pub fn notification_kind(&self) -> Option<NotificationKind> {
        match (&self.state, self.origin) {
            (_, Some(Origin::Notification { .. })) => None,
            (EventState::Dead { .. }, _) => Some(NotificationKind::Dead),
            (EventState::Done { how: DoneReason::Acted, .. }, Some(Origin::Rollback { .. })) => {
                Some(NotificationKind::Rollback)
            }
            (EventState::Done { how: DoneReason::Acted, .. }, None) => Some(NotificationKind::Done),
            (EventState::Done { .. } | EventState::Waiting { .. } | EventState::Running { .. }, _) => None,
        }
    }

    /// A notification of this kind that only tests a target: nothing is written, and it says so.
    pub fn test_notification(&self, kind: NotificationKind, target: &NotificationTarget) -> (Self, Payload) {
        let now = self.received_at;
        let described = EndDescription::of(self, kind, "this is a test", now);
        let (event, payload) = self.notification(kind, target, &EndDescription { test: true, ..described }, now, now);
        (Self { attempt: 1, ..event }, payload)
    }

    /// The notification of this kind for a target, to be written with the end of this event. It is the same each time,
    /// so that it is made once for each life.
    pub(super) fn notification(
        &self,
        kind: NotificationKind,
        target: &NotificationTarget,
        description: &EndDescription,
        due: Timestamp,
        now: Timestamp,
    ) -> (Self, Payload) {
        let payload = description.to_payload();
        let mut event = Self {
            id: key::notification(self, kind.word(), &target.route),
            revision: Revision::FIRST,
            route: target.route.clone(),
            part: 0,
            delivery_id: None,
            received_at: now,
            state: EventState::Waiting { due: Some(due) },
            life: 1,
            attempt: 0,
            doubts: 0,
            failed_lookups: 0,
            blocks: SucceededBlocks::default(),
            queue_state: if due > now { QueueState::OverBudget } else { QueueState::Queued },
            retrier: RetryOwner::Node,
            group: None,
            change: None,
            published_again: None,
            burst_since: None,
            resolved: None,
            origin: Some(Origin::Notification { of: self.id, kind }),
            notifications: Vec::new(),
            body_digest: Digest::of(&payload.body),
            ..self.clone()
        };
        event.digest = event.immutable_digest();
        (event, payload)
    }
}

/// The end of an event, as a notification describes it. Its JSON is the notification's body.
#[derive(Clone, PartialEq, Debug)]
pub struct EndDescription {
    /// What is told.
    pub kind: NotificationKind,
    /// The event that ended.
    pub event: EventId,
    /// Its source.
    pub source: Arc<str>,
    /// Its route.
    pub route: Arc<str>,
    /// `done` or `dead`.
    pub state: Arc<str>,
    /// How it is done, or why it is dead.
    pub cause: Arc<str>,
    /// The reason as a sentence; may be empty.
    pub why: Arc<str>,
    /// Attempts of its last life.
    pub attempt: u32,
    /// When it was received.
    pub received_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Its fields.
    pub fields: StoredFields,
    /// What the registry's tag pointed to.
    pub digest: Option<Arc<str>>,
    /// The event that was not healthy, if this one put another back.
    pub rollback_from: Option<EventId>,
    /// How many more notifications there were, in a summary.
    pub more: u64,
    /// It is only a test: nothing has happened.
    pub test: bool,
}

impl EndDescription {
    /// The description of an event that has just ended. `why` is the reason that its last attempt gave.
    pub(super) fn of(event: &Event, kind: NotificationKind, why: &str, now: Timestamp) -> Self {
        let cause = match &event.state {
            EventState::Done { how, .. } => how.word(),
            EventState::Dead { cause, .. } => cause.word(),
            EventState::Waiting { .. } | EventState::Running { .. } => "",
        };
        let why: String = why.chars().take(limits::NOTIFICATION_WHY_CHARS_MAX).collect();
        Self {
            kind,
            event: event.id,
            source: event.source.clone(),
            route: event.route.clone(),
            state: event.state.word().into(),
            cause: cause.into(),
            why: why.into(),
            attempt: event.attempt,
            received_at: event.received_at,
            ended_at: event.state.ended().unwrap_or(now),
            fields: event.fields.clone(),
            digest: event.resolved.clone(),
            rollback_from: match event.origin {
                Some(Origin::Rollback { from, .. }) => Some(from),
                _ => None,
            },
            more: 0,
            test: false,
        }
    }

    /// The same as a summary that `more` notifications were not sent.
    #[must_use]
    pub(super) fn into_summary(self, more: u64) -> Self {
        Self { kind: NotificationKind::Summary, more, ..self }
    }

    /// Whether the event ended well.
    pub fn is_good(&self) -> bool {
        &*self.state == "done"
    }

    /// Why it is dead.
    pub fn death_cause(&self) -> Option<DeathCause> {
        if self.is_good() { None } else { DeathCause::parse(&self.cause) }
    }

    /// As JSON. Numbers in fields keep their text: those that JSON readers would round are texts.
    pub fn to_json(&self) -> Json {
        let value = |value: &FieldValue| match value {
            FieldValue::Text(text) => Json::from(&**text),
            FieldValue::Bool(flag) => Json::from(*flag),
            FieldValue::Number(raw) => serde_json::from_str::<Json>(raw)
                .ok()
                .filter(|n| *n.to_string() == **raw)
                .unwrap_or_else(|| (**raw).into()),
        };
        let fields: Map<String, Json> = self.fields.iter().map(|(name, of)| (name.to_owned(), value(of))).collect();
        json!({
            "notification": self.kind.word(),
            "event": self.event.to_string(),
            "source": &*self.source,
            "route": &*self.route,
            "state": &*self.state,
            "cause": &*self.cause,
            "why": &*self.why,
            "attempt": self.attempt,
            "received_at": self.received_at.to_string(),
            "ended_at": self.ended_at.to_string(),
            "fields": fields,
            "digest": self.digest.as_deref(),
            "rollback_from": self.rollback_from.map(|from| from.to_string()),
            "more": self.more,
            "test": self.test,
        })
    }

    /// The body of its notification.
    pub fn to_payload(&self) -> Payload {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Payload { headers, body: Bytes::from(self.to_json().to_string()) }
    }

    /// Reads the body of a notification; its fields are those of the notification itself.
    pub fn read(notification: &Event, body: &[u8]) -> Option<Self> {
        let json: Json = serde_json::from_slice(body).ok()?;
        let text = |member: &str| json[member].as_str().map(Arc::<str>::from);
        let time = |member: &str| Timestamp::parse(json[member].as_str()?);
        Some(Self {
            kind: NotificationKind::parse(json["notification"].as_str()?)?,
            event: json["event"].as_str()?.parse().ok()?,
            source: text("source")?,
            route: text("route")?,
            state: text("state")?,
            cause: text("cause")?,
            why: text("why")?,
            attempt: u32::try_from(json["attempt"].as_u64()?).ok()?,
            received_at: time("received_at")?,
            ended_at: time("ended_at")?,
            fields: notification.fields.clone(),
            digest: text("digest"),
            rollback_from: json["rollback_from"].as_str().and_then(|id| id.parse().ok()),
            more: json["more"].as_u64()?,
            test: json["test"].as_bool()?,
        })
    }
}
