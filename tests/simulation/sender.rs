//! The senders: a genuine one, which repeats, duplicates and reorders, and an attacker with a captured request.

use crate::plan::{Changes, Plan};
use crate::rng::Rng;
use bytes::Bytes;
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::VerificationScheme;
use std::collections::HashMap;

/// One request as it can be sent, any number of times.
#[derive(Clone)]
pub(crate) struct Sent {
    pub(crate) id: u32,
    /// Equal bytes have equal numbers.
    pub(crate) bytes: u32,
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) subject: u8,
    pub(crate) value: u8,
    pub(crate) order: Option<i64>,
}

/// A request on its way.
pub(crate) struct OnItsWay {
    pub(crate) sent: usize,
    pub(crate) not_before: Timestamp,
}

pub(crate) struct Sender {
    scheme: VerificationScheme,
    plan: Plan,
    pub(crate) sent: Vec<Sent>,
    pub(crate) on_their_way: Vec<OnItsWay>,
    bodies: HashMap<Bytes, u32>,
    ids: u32,
    nonces: u32,
}

impl Sender {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            scheme: plan.scheme(),
            plan: plan.clone(),
            sent: Vec::new(),
            on_their_way: Vec::new(),
            bodies: HashMap::new(),
            ids: 0,
            nonces: 0,
        }
    }

    /// The sender, or the attacker, sends something.
    pub(crate) fn acts(&mut self, rng: &mut Rng, now: Timestamp) {
        let is_new = self.sent.is_empty() || rng.chance(self.plan.news);
        let made = match rng.below(100) {
            _ if is_new => self.change(rng, now),
            0..40 => self.sibling(rng),
            40..70 => rng.index(self.sent.len()),
            70..90 if !self.plan.signed => self.forgery(rng),
            70..90 => self.written_anew(rng),
            _ => self.rollback(rng, now),
        };
        for _ in 0..rng.pick(&[1, 1, 1, 2, 3]) {
            let late = if rng.chance(12) { rng.below(500) } else { rng.below(6) };
            self.send(made, now, late);
        }
    }

    pub(crate) fn send(&mut self, sent: usize, now: Timestamp, late: u64) {
        let not_before = now + crate::plan::seconds(late);
        self.on_their_way.push(OnItsWay { sent, not_before });
    }

    /// A new change: a subject gets a value.
    fn change(&mut self, rng: &mut Rng, now: Timestamp) -> usize {
        let subject = u8::try_from(rng.below(self.plan.subjects)).expect("small");
        let value = u8::try_from(rng.below(self.plan.values)).expect("small");
        let nonce = if rng.chance(75) { self.nonce() } else { 0 };
        let order = self.order(rng, now);
        let id = self.id();
        self.make(id, subject, value, order, nonce)
    }

    /// The same change under another id and with other bytes, as in a burst of copies.
    fn sibling(&mut self, rng: &mut Rng) -> usize {
        let of = self.recent(rng);
        let (id, nonce) = (self.id(), self.nonce());
        let order = of.order.map(|order| order + i64::from(rng.chance(30)));
        self.make(id, of.subject, of.value, order, nonce)
    }

    /// The same id with other bytes of the same meaning: senders do re-serialise.
    fn written_anew(&mut self, rng: &mut Rng) -> usize {
        let of = self.recent(rng);
        let nonce = self.nonce();
        self.make(of.id, of.subject, of.value, of.order, nonce)
    }

    /// A change back to an earlier value, in a new body.
    fn rollback(&mut self, rng: &mut Rng, now: Timestamp) -> usize {
        let of = self.sent[rng.index(self.sent.len())].clone();
        let order = self.order(rng, now);
        let (id, nonce) = (self.id(), self.nonce());
        self.make(id, of.subject, of.value, order, nonce)
    }

    /// A captured body under another id: a new one, or that of a delivery that is still on its way.
    fn forgery(&mut self, rng: &mut Rng) -> usize {
        let of = rng.index(self.sent.len());
        let stolen = if self.on_their_way.is_empty() || rng.chance(30) {
            self.id()
        } else {
            self.sent[self.on_their_way[rng.index(self.on_their_way.len())].sent].id
        };
        self.forge(of, stolen)
    }

    /// The bytes and signature of delivery `of`, under this id.
    pub(crate) fn forge(&mut self, of: usize, id: u32) -> usize {
        let of = self.sent[of].clone();
        self.sign(id, &of)
    }

    fn recent(&self, rng: &mut Rng) -> Sent {
        let back = rng.index(self.sent.len().min(4));
        self.sent[self.sent.len() - 1 - back].clone()
    }

    fn order(&self, rng: &mut Rng, now: Timestamp) -> Option<i64> {
        let drift = i64::try_from(rng.below(4)).expect("small");
        (self.plan.changes == Changes::Ordered).then(|| now.0 / 15_000_000 - drift / 2)
    }

    fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    fn nonce(&mut self) -> u32 {
        self.nonces += 1;
        self.nonces
    }

    pub(crate) fn make(&mut self, id: u32, subject: u8, value: u8, order: Option<i64>, nonce: u32) -> usize {
        let order_text = order.map(|order| format!(r#""order":{order},"#)).unwrap_or_default();
        let body = format!(r#"{{"subject":"s{subject}","to":"v{value}",{order_text}"n":{nonce}}}"#);
        let body = Bytes::from(body);
        let sent = Sent { id, bytes: 0, body, headers: Vec::new(), subject, value, order };
        self.sign(id, &sent)
    }

    fn sign(&mut self, id: u32, of: &Sent) -> usize {
        let fresh = u32::try_from(self.bodies.len()).expect("few");
        let bytes = *self.bodies.entry(of.body.clone()).or_insert(fresh);
        let headers = self.scheme.sign(&format!("d{id}"), Timestamp::default(), &of.body);
        let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        self.sent.push(Sent { id, bytes, headers, ..of.clone() });
        self.sent.len() - 1
    }
}
