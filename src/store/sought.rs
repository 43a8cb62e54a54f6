//! Which keys are looked up for a delivery, and what it says that one of them is held.

use super::ledger::{EventRow, KeyOwner};
use crate::decide::claim::{IdentityKey, MatchedBy, NewEvent};

/// Why a key is looked up.
#[derive(Clone, Copy)]
pub(super) enum KeyLookupKind {
    /// It is this delivery's own.
    Own,
    /// An earlier version or config would have claimed it.
    Former,
}

impl KeyLookupKind {
    /// Does it count that this key is held? A former key of a body only where it was claimed under the same id.
    pub(super) fn counts(self, identity: &IdentityKey, held: &KeyOwner) -> bool {
        match self {
            Self::Own => true,
            Self::Former => identity.id_digest.is_none() || identity.id_digest == held.id_digest,
        }
    }
}

/// Every key to look up for this delivery, in the order in which they count.
pub(super) fn sought(new: &NewEvent) -> impl Iterator<Item = (&IdentityKey, KeyLookupKind)> {
    let own = new.keys.iter().map(|identity| (identity, KeyLookupKind::Own));
    own.chain(new.former_keys.iter().map(|identity| (identity, KeyLookupKind::Former)))
}

/// Through which identity this delivery is the same. A key that stands for a delivery id too is told by that id: of what
/// the first release wrote, by the id of its event.
pub(super) fn same_by(identity: &IdentityKey, held: &KeyOwner, row: &EventRow, new: &NewEvent) -> MatchedBy {
    let same_id = match (identity.id_digest, held.id_digest) {
        (None, _) => false,
        (Some(arriving), Some(first)) => arriving == first,
        (Some(_), None) => row.event.delivery_id == new.event.delivery_id,
    };
    if same_id { MatchedBy::Delivery } else { identity.matched_by.clone() }
}
