//! An attempt of the sender to deliver, as its API lists it, and whether a source could want that delivery.

use crate::decide::field::FieldLocation;
use crate::decide::filter::Filter;
use crate::decide::limits::CATCH_UP_OVERLAP;
use crate::decide::source::Source;
use crate::decide::time::Timestamp;
use serde::{Deserialize, Serialize};

/// One attempt of the sender to deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedAttempt {
    /// The attempt's own id, by which it is asked for again.
    pub id: u64,
    /// The delivery's id: the same for all attempts at it, and what its receiver sees.
    pub delivery: String,
    /// When it was made, by the sender's clock, if the sender says so.
    pub at: Option<Timestamp>,
    /// The kind of event.
    pub kind: Option<String>,
    /// The member `action` of its body, if the sender lists it.
    pub action: Option<String>,
    /// Whether it was made again, on request.
    pub is_redelivery: bool,
    /// Whether the receiver accepted it.
    pub is_accepted: bool,
}

/// A position in the sender's list of attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct DeliveryMark {
    /// The time of the attempt, by the sender's clock.
    pub at: Option<Timestamp>,
    /// Its id.
    pub id: u64,
}

impl ListedAttempt {
    /// Its position.
    pub fn mark(&self) -> DeliveryMark {
        DeliveryMark { at: self.at, id: self.id }
    }

    /// Whether it lies behind what a complete catch-up has seen. Where the sender states times, the last minutes are
    /// looked at again: an attempt is listed only after it has failed.
    pub fn is_behind(&self, mark: DeliveryMark) -> bool {
        match (self.at, mark.at) {
            (Some(at), Some(seen)) => at < seen - CATCH_UP_OVERLAP,
            _ => self.id <= mark.id,
        }
    }

    /// Whether a route of this source could want the delivery, as far as the list tells: its kind, named by this header,
    /// and its action.
    pub fn may_matter(&self, source: &Source, kind_header: &str) -> bool {
        let required = source.kind.as_ref().filter(|kind| kind.header == kind_header);
        if let (Some(required), Some(kind)) = (required, &self.kind)
            && required.index_of(kind).is_none()
        {
            return false;
        }
        let found = source.fields.read_partly(|at| match at {
            FieldLocation::Header(name) if name == kind_header => self.kind.as_deref(),
            FieldLocation::Body(path) if path.len() == 1 && path[0] == "action" => self.action.as_deref(),
            _ => None,
        });
        let may = |filter: Option<&Filter>| filter.is_none_or(|filter| filter.may_match(&found));
        may(source.require.as_ref())
            && may(source.when.as_ref())
            && source.routes.iter().any(|route| may(route.when.as_ref()))
    }
}
