//! Which keys are looked up for a delivery, and what it says that one of them is held.

use super::ledger::{Held, Row};
use crate::decide::claim::{IdentityKey, New, Same};

/// Why a key is looked up.
#[derive(Clone, Copy)]
pub(super) enum Sought {
    /// It is this delivery's own.
    Own,
    /// An earlier version or config would have claimed it.
    Former,
}

impl Sought {
    /// Does it count that this key is held? A former key of a body only where it was claimed under the same id.
    pub(super) fn counts(self, identity: &IdentityKey, held: &Held) -> bool {
        match self {
            Self::Own => true,
            Self::Former => identity.id_digest.is_none() || identity.id_digest == held.id_digest,
        }
    }
}

/// Every key to look up for this delivery, in the order in which they count.
pub(super) fn sought(new: &New) -> impl Iterator<Item = (&IdentityKey, Sought)> {
    let own = new.keys.iter().map(|identity| (identity, Sought::Own));
    own.chain(new.former.iter().map(|identity| (identity, Sought::Former)))
}

/// Through which identity this delivery is the same. A key that stands for a delivery id too is told by that id: of what
/// the first release wrote, by the id of its event.
pub(super) fn same_by(identity: &IdentityKey, held: &Held, row: &Row, new: &New) -> Same {
    let same_id = match (identity.id_digest, held.id_digest) {
        (None, _) => false,
        (Some(arriving), Some(first)) => arriving == first,
        (Some(_), None) => row.event.delivery_id == new.event.delivery_id,
    };
    if same_id { Same::Delivery } else { identity.same.clone() }
}
