//! A subject's register: what the sender last changed it to, and beside it what was last deployed and what was last
//! good. The same rows also hold small states of the nodes, such as budgets and cursors, under keys of their own.

use super::{EventRow, Ledger};
use crate::decide::event::{
    DeathCause, DoneReason, Event, EventState, Origin, QueueState, RetryOwner, SucceededBlocks,
};
use crate::decide::id::{Digest, EventId, Key, Revision};
use crate::decide::time::Timestamp;
use serde_json::{Value as Json, json};
use std::fmt;
use std::sync::Arc;

/// The register of a subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubjectRegister {
    /// The digest of what the subject was last changed to.
    pub value: Digest,
    /// The highest order seen.
    pub order: Option<i64>,
    /// Set by an operator's replay: an equal order is stale too, until a newer one comes.
    pub strict: bool,
    /// The event that changed it: the subject's current event. Zeros in a row that holds a state.
    pub event: EventId,
    /// What was deployed, as JSON ([`SubjectRegister::deployed`]), or a state. `None` in rows of the first release.
    pub note: Option<Arc<str>>,
}

/// What an event deployed: the end of an action that changed its subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// The event.
    pub event: EventId,
    /// What the registry's tag pointed to, where the route looks it up.
    pub digest: Option<Arc<str>>,
    /// When.
    pub at: Timestamp,
}

impl Deployment {
    fn to_json(&self) -> Json {
        json!({ "event": self.event.to_string(), "digest": self.digest.as_deref(), "at": self.at.0 })
    }

    fn read(json: &Json) -> Option<Self> {
        let digest = json["digest"].as_str().map(Into::into);
        Some(Self { event: json["event"].as_str()?.parse().ok()?, digest, at: Timestamp(json["at"].as_i64()?) })
    }
}

/// What a register knows of its subject's deploys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Deployments {
    /// What was last deployed: by the last event of the subject whose action succeeded. `None` while it is unknown,
    /// because a later event that looks up its digest has begun to act, or has failed.
    pub deployed: Option<Deployment>,
    /// What was last good: deployed, and healthy where its route checks that.
    pub good: Option<Deployment>,
    /// What was deployed until that became unknown, if it was not good: it may be unhealthy, and still run.
    pub suspect: Option<Deployment>,
}

impl Deployments {
    /// A note that cannot be read counts as none: then nothing is known to be deployed.
    fn read(note: Option<&str>) -> Self {
        let note: Json = note.and_then(|note| serde_json::from_str(note).ok()).unwrap_or_default();
        let member = |name: &str| Deployment::read(&note[name]);
        Self { deployed: member("deployed"), good: member("good"), suspect: member("suspect") }
    }

    fn to_note(&self) -> Option<Arc<str>> {
        if self.events().is_empty() {
            return None;
        }
        let json = |one: &Option<Deployment>| one.as_ref().map(Deployment::to_json);
        let mut note = json!({ "deployed": json(&self.deployed), "good": json(&self.good) });
        if let Some(suspect) = &self.suspect {
            note["suspect"] = suspect.to_json();
        }
        Some(note.to_string().into())
    }

    /// The events that are referred to.
    fn events(&self) -> Vec<EventId> {
        [&self.deployed, &self.good, &self.suspect].into_iter().flatten().map(|one| one.event).collect()
    }

    /// The same without this event.
    pub(super) fn without(self, event: EventId) -> Self {
        let other = |one: &Deployment| one.event != event;
        let Self { deployed, good, suspect } = self;
        Self { deployed: deployed.filter(other), good: good.filter(other), suspect: suspect.filter(other) }
    }

    /// The same from when another action may have its effect. Without a good one, nothing could be put back.
    fn made_unknown(self) -> Self {
        let is_suspect = |one: &Deployment| self.good.as_ref().is_some_and(|good| good.event != one.event);
        let suspect = self.deployed.filter(is_suspect).or(self.suspect);
        Self { deployed: None, good: self.good, suspect }
    }
}

/// The event of a row that holds a state: none.
const NO_EVENT: EventId = EventId([0; 16]);

impl SubjectRegister {
    /// The register of a subject that this event changes now.
    pub fn new(value: Digest, order: Option<i64>, event: EventId) -> Self {
        Self { value, order, strict: false, event, note: None }
    }

    /// A row that holds a state instead of a register.
    pub fn of_state(state: &str) -> Self {
        Self { note: Some(state.into()), ..Self::new(Digest([0; 32]), None, NO_EVENT) }
    }

    /// Whether this row holds a state instead of a register.
    pub fn is_state(&self) -> bool {
        self.event == NO_EVENT
    }

    /// What it knows of the subject's deploys.
    pub fn deployments(&self) -> Deployments {
        Deployments::read(self.note.as_deref())
    }

    /// What was last deployed ([`Deployments::deployed`]).
    pub fn deployed(&self) -> Option<Deployment> {
        self.deployments().deployed
    }

    /// What was last good ([`Deployments::good`]).
    pub fn good(&self) -> Option<Deployment> {
        self.deployments().good
    }

    /// The same register with other deployments.
    #[must_use]
    pub fn with_deployments(mut self, deployments: &Deployments) -> Self {
        self.note = deployments.to_note();
        self
    }

    /// Whether the register refers to this event: as current, deployed, good or suspect. Such an event is not forgotten.
    pub fn names(&self, event: EventId) -> bool {
        self.event == event || self.deployments().events().contains(&event)
    }

    /// The event before the current one that may be unhealthy and still run, if the current one has deployed nothing.
    fn deployed_before_current(&self) -> Option<EventId> {
        let Deployments { deployed, suspect, .. } = self.deployments();
        deployed.or(suspect).map(|one| one.event)
    }
}

/// Notes in the register what an event has come to since `was`: its action has succeeded, so that its value is deployed;
/// and it is done, so that the value is good. From when its action may begin until it has succeeded it is unknown what is
/// deployed: an action that fails or is cut off may have had its effect.
pub(super) fn note_deployed<L: Ledger>(
    ledger: &mut L,
    was: &Event,
    event: &Event,
    now: Timestamp,
) -> Result<(), L::Error> {
    let is_good = was.state.ended().is_none() && matches!(event.state, EventState::Done { how: DoneReason::Acted, .. });
    let is_deployed = !was.blocks.acted() && (is_good || event.blocks.acted());
    let may_act =
        matches!(event.state, EventState::Running { .. }) && event.resolved.is_some() && !event.blocks.acted();
    let Some(change) = event.explicit_change().filter(|_| is_good || is_deployed || may_act) else { return Ok(()) };
    let Some(register) = ledger.register(&change.subject)? else { return Ok(()) };
    let mut is = register.deployments();
    if may_act && is.deployed.is_none() {
        return Ok(());
    }
    let deployment = Deployment { event: event.id, digest: event.resolved.clone(), at: now };
    if may_act {
        is = is.made_unknown();
    }
    if is_deployed {
        is = Deployments { deployed: Some(deployment.clone()), suspect: None, ..is };
    }
    if is_good {
        is.good = Some(deployment);
    }
    let edited = register.clone().with_deployments(&is);
    write_register(ledger, &change.subject, &register, &edited, now)
}

/// The event that deploys the subject's last good one again, because `ended` turned out to be unhealthy; or because one
/// before it did, was not rolled back for its sake, and `ended` would have deployed the same, or is dead before it has
/// deployed anything. `None` if there is no other good one, if there is such a roll-back, or if another event than `ended`
/// is the subject's current one: then that one comes next. The new event changes no subject.
pub(super) fn rollback_of<L: Ledger>(
    ledger: &mut L,
    ended: &Event,
    now: Timestamp,
) -> Result<Option<EventRow>, L::Error> {
    let Some(change) = ended.explicit_change() else { return Ok(None) };
    let is_unhealthy = |event: &Event| matches!(event.state, EventState::Dead { cause: DeathCause::Unhealthy, .. });
    let Some(register) = ledger.register(&change.subject)?.filter(|register| register.event == ended.id) else {
        return Ok(None);
    };
    let by = match ended.state {
        EventState::Done { how: DoneReason::Superseded { by }, .. } => Some(by),
        EventState::Dead { .. } if !is_unhealthy(ended) => register.deployed_before_current(),
        _ => None,
    };
    let unhealthy = match by {
        Some(by) => ledger.row(by)?.map(|row| row.event),
        None => Some(ended.clone()),
    };
    let Some(unhealthy) = unhealthy.filter(is_unhealthy) else { return Ok(None) };
    if ledger.row(unhealthy.rollback_id())?.is_some() {
        return Ok(None);
    }
    // Where a digest was deployed, only a digest can be put back.
    let can_be_put_back = |good: &Deployment| good.digest.is_some() || unhealthy.resolved.is_none();
    let good = register.good().filter(|good| good.event != unhealthy.id).filter(can_be_put_back);
    let Some(good) = good else { return Ok(None) };
    let Some(EventRow { event: to, .. }) = ledger.row(good.event)? else { return Ok(None) };
    let mut event = Event {
        id: unhealthy.rollback_id(),
        revision: Revision::FIRST,
        delivery_id: None,
        fields: to.fields,
        received_at: now,
        state: EventState::Waiting { due: Some(now) },
        life: 1,
        attempt: 0,
        doubts: 0,
        failed_lookups: 0,
        blocks: SucceededBlocks::default(),
        queue_state: QueueState::Queued,
        retrier: RetryOwner::Node,
        change: None,
        published_again: None,
        burst_since: None,
        resolved: good.digest,
        origin: Some(Origin::Rollback { from: unhealthy.id, to: good.event }),
        notifications: Vec::new(),
        body_digest: to.body_digest,
        ..unhealthy
    };
    event.digest = event.immutable_digest();
    Ok(Some(EventRow { event, keep_from: None }))
}

/// The subject's current event, if this is a roll-back that something else has overtaken: another event is deployed or good
/// by now. One that waits for its budget, or whose route was gone, may start late. An operator's replay always runs.
pub(super) fn outdates_rollback<L: Ledger>(ledger: &mut L, rollback: &Event) -> Result<Option<EventId>, L::Error> {
    let Some(Origin::Rollback { from, to }) = rollback.origin.filter(|_| rollback.life == 1) else { return Ok(None) };
    let Some(change) = ledger.row(from)?.and_then(|row| row.event.explicit_change()) else { return Ok(None) };
    let Some(register) = ledger.register(&change.subject)? else { return Ok(None) };
    let is_still_good = register.good().is_some_and(|good| good.event == to);
    let is_other_deployed = register.deployed().is_some_and(|deployed| ![from, to].contains(&deployed.event));
    Ok(Some(register.event).filter(|_| !is_still_good || is_other_deployed))
}

/// Writes a register over what it was. The retention of each event that it no longer refers to begins.
pub(super) fn write_register<L: Ledger>(
    ledger: &mut L,
    subject: &Key,
    was: &SubjectRegister,
    is: &SubjectRegister,
    now: Timestamp,
) -> Result<(), L::Error> {
    ledger.set_register(subject, is)?;
    let former = [was.event].into_iter().chain(was.deployments().events());
    let mut seen = Vec::new();
    for event in former.filter(|event| !is.names(*event)) {
        if !seen.contains(&event) {
            begin_retention(ledger, event, now)?;
            seen.push(event);
        }
    }
    Ok(())
}

/// Begins the retention of an event that has ended, if it has not begun.
pub(super) fn begin_retention<L: Ledger>(ledger: &mut L, event: EventId, now: Timestamp) -> Result<(), L::Error> {
    let Some(row) = ledger.row(event)? else { return Ok(()) };
    if row.event.state.ended().is_some() && row.keep_from.is_none() {
        ledger.update(&EventRow { keep_from: Some(now), ..row })?;
    }
    Ok(())
}

/// An operator's correction of a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterEdit {
    /// The subject's current, deployed or good event becomes this one, where it is given. Nothing runs.
    Set {
        /// The current event: its value and order become the register's.
        current: Option<EventId>,
        /// The deployed event.
        deployed: Option<EventId>,
        /// The good event.
        good: Option<EventId>,
    },
    /// Nothing is deployed or good any more, as far as is known; the current event stays.
    ClearDeployed,
    /// The register is removed, as if the subject had never been changed.
    Clear,
}

/// Why a register was not edited.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegisterEditError {
    /// There is no such register.
    NoRegister,
    /// There is no such event.
    NoEvent(EventId),
    /// This event changes another subject.
    OtherSubject(EventId),
    /// This event is waiting or running: the register would change under it.
    NotOver(EventId),
}

impl fmt::Display for RegisterEditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRegister => f.write_str("there is no such register"),
            Self::NoEvent(id) => write!(f, "there is no event {id}"),
            Self::OtherSubject(id) => write!(f, "event {id} belongs to another register"),
            Self::NotOver(id) => write!(f, "event {id} is waiting or running; wait for its end, or cancel it"),
        }
    }
}

impl std::error::Error for RegisterEditError {}

/// Edits a register. Returns the register as it is now; `None` once it is removed.
pub fn edit_register<L: Ledger>(
    ledger: &mut L,
    subject: &Key,
    edit: &RegisterEdit,
    now: Timestamp,
) -> Result<Result<Option<SubjectRegister>, RegisterEditError>, L::Error> {
    let Some(was) = ledger.register(subject)?.filter(|register| !register.is_state()) else {
        return Ok(Err(RegisterEditError::NoRegister));
    };
    let mut is = was.clone();
    match edit {
        RegisterEdit::Clear => {
            if let Some(row) = ledger.row(was.event)?
                && row.event.state.ended().is_none()
            {
                return Ok(Err(RegisterEditError::NotOver(was.event)));
            }
            write_register(ledger, subject, &was, &SubjectRegister::of_state(""), now)?;
            ledger.remove_register(subject)?;
            return Ok(Ok(None));
        }
        RegisterEdit::ClearDeployed => is.note = None,
        RegisterEdit::Set { current, deployed, good } => {
            let mut rows = Vec::new();
            for id in [*current, *deployed, *good].into_iter().flatten() {
                match named_event(ledger, subject, id)? {
                    Ok(row) => rows.push(row),
                    Err(error) => return Ok(Err(error)),
                }
            }
            let deployment = |id: &EventId| {
                let row = rows.iter().find(|row| row.event.id == *id)?;
                Some(Deployment { event: *id, digest: row.event.resolved.clone(), at: now })
            };
            if let Some(row) = current.and_then(|id| rows.iter().find(|row| row.event.id == id))
                && let Some(change) = row.event.change
            {
                let order = was.order.max(change.order);
                is = SubjectRegister { value: change.value, order, strict: order.is_some(), event: row.event.id, ..is };
            }
            let mut deployments = was.deployments();
            if let Some(deployed) = deployed.as_ref().and_then(deployment) {
                deployments = Deployments { deployed: Some(deployed), suspect: None, ..deployments };
            }
            deployments.good = good.as_ref().and_then(deployment).or(deployments.good);
            is = is.with_deployments(&deployments);
            for row in rows.into_iter().filter(|row| row.keep_from.is_some()) {
                ledger.update(&EventRow { keep_from: None, ..row })?;
            }
        }
    }
    write_register(ledger, subject, &was, &is, now)?;
    Ok(Ok(Some(is)))
}

/// An event of this subject that has ended.
fn named_event<L: Ledger>(
    ledger: &mut L,
    subject: &Key,
    id: EventId,
) -> Result<Result<EventRow, RegisterEditError>, L::Error> {
    Ok(match ledger.row(id)? {
        None => Err(RegisterEditError::NoEvent(id)),
        Some(row) if row.event.change.is_none_or(|change| change.subject != *subject) => {
            Err(RegisterEditError::OtherSubject(id))
        }
        Some(row) if row.event.state.ended().is_none() => Err(RegisterEditError::NotOver(id)),
        Some(row) => Ok(row),
    })
}

/// The state under this key.
pub fn state_of<L: Ledger>(ledger: &mut L, key: &Key) -> Result<Option<Arc<str>>, L::Error> {
    Ok(ledger.register(key)?.filter(SubjectRegister::is_state).and_then(|row| row.note))
}

/// Replaces the state under this key, if it is still `was`; returns whether it was.
pub fn swap_state<L: Ledger>(ledger: &mut L, key: &Key, was: Option<&str>, is: Option<&str>) -> Result<bool, L::Error> {
    if state_of(ledger, key)?.as_deref() != was {
        return Ok(false);
    }
    set_state(ledger, key, is)?;
    Ok(true)
}

/// Sets or removes the state under this key.
pub(super) fn set_state<L: Ledger>(ledger: &mut L, key: &Key, is: Option<&str>) -> Result<(), L::Error> {
    match is {
        Some(state) => ledger.set_register(key, &SubjectRegister::of_state(state)),
        None => ledger.remove_register(key),
    }
}
