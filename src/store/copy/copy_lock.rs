//! The locks of a copy: registers with reserved keys, in the source and in the target, that no subject of a source can
//! have.
//!
//! Every store has registers, and nodes of the first release respect these: on PostgreSQL and Redis they write nothing
//! while `MARK` is set, and do not start.

use crate::decide::id::{Digest, EventId, Key};
use crate::decide::ledger::SubjectRegister;
use crate::decide::time::Timestamp;
use crate::store::StoreError;
use std::fmt;

/// The register that marks a store as part of a copy. No subject of a source can have this key: no scope makes it.
pub(in crate::store) const MARK: Key = Key(*b"hookonce: an unfinished copy    ");
/// The register that records how far a target was filled.
pub(super) const PLACE: Key = Key(*b"hookonce: the place of a copy   ");
/// The register that holds a store's own id, created by its first copy.
pub(super) const STORE_ID: Key = Key(*b"hookonce: the id of this store  ");

/// Whether this register belongs to the copy itself, and so is not copied.
pub(in crate::store) fn is_own(key: &Key) -> bool {
    key.0.starts_with(b"hookonce: ")
}

/// Whether a write checks the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyLockCheck {
    /// It is refused if the store is marked.
    Mark,
    /// It is written anyway: it is the copy's own.
    Nothing,
}

/// The error for a write to a marked store.
pub(in crate::store) fn under_way() -> StoreError {
    StoreError::Down("it is being copied, or was; nothing can be written to it".into())
}

/// The role of a store in a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyRole {
    /// It is being filled from the store with this id.
    Target {
        /// The source.
        from: Digest,
    },
    /// It is being copied into the store with this id.
    Source {
        /// The target.
        to: Digest,
    },
    /// It was copied, and nodes use the other store.
    Retired {
        /// The target.
        to: Digest,
        /// When the copy was finished.
        at: Timestamp,
    },
}

impl CopyRole {
    pub(super) fn register(self) -> SubjectRegister {
        let (value, order) = match self {
            Self::Target { from } => (from, None), // as the first release writes it
            Self::Source { to } => (to, Some(0)),
            Self::Retired { to, at } => (to, Some(at.0)),
        };
        own(value, order)
    }

    /// Decodes a mark.
    pub fn of(register: &SubjectRegister) -> Self {
        match register.order {
            None => Self::Target { from: register.value },
            Some(0) => Self::Source { to: register.value },
            Some(at) => Self::Retired { to: register.value, at: Timestamp(at) },
        }
    }

    /// Why no node may use the store at this address, and what to do.
    pub fn refusal(self, address: &dyn fmt::Display) -> String {
        match self {
            Self::Target { .. } => format!(
                "{address} holds an unfinished copy of another store\n\
                 hint: run `hookonce migrate copy` again to finish it, or begin with an empty store"
            ),
            Self::Source { .. } => format!(
                "{address} is being copied into another store, and that copy did not finish\n\
                 hint: run `hookonce migrate copy` again to finish it, or `hookonce migrate reopen` to give it up and use \
                 this store"
            ),
            Self::Retired { at, .. } => format!(
                "{address} was copied into another store on {at}, and nodes use that one\n\
                 hint: name that store as `store` in the config. To go back to this one, run `hookonce migrate reopen`; \
                 what the other store has done since then would be done again"
            ),
        }
    }
}

/// A register that belongs to the copy itself.
pub(super) fn own(value: Digest, order: Option<i64>) -> SubjectRegister {
    SubjectRegister::new(value, order, EventId([0; 16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mark_survives_its_register_and_its_keys_are_reserved() {
        let id = Digest::of(b"a");
        for mark in [
            CopyRole::Target { from: id },
            CopyRole::Source { to: id },
            CopyRole::Retired { to: id, at: Timestamp(1_750_000_000_000_000) },
        ] {
            assert_eq!(CopyRole::of(&mark.register()), mark);
        }
        assert!([MARK, PLACE, STORE_ID].iter().all(is_own) && !is_own(&Key([0; 32])));
    }
}
