//! Which deliveries no attempt has delivered, found while the sender's list is read from the newest attempt to the oldest.

use super::listed_attempt::{DeliveryMark, ListedAttempt};
use crate::decide::limits::{CATCH_UP_DELIVERIES_MAX, CATCH_UP_REMEMBERED_MAX};
use serde::{Deserialize, Serialize};

/// A delivery whose every attempt failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissedDelivery {
    /// Its id.
    pub delivery: String,
    /// The newest attempt at it, which is asked for again: the sender keeps that one longest.
    pub attempt: u64,
    /// The oldest attempt at it that was listed. Deliveries are asked for in this order.
    pub first: DeliveryMark,
    /// The kind of event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// The deliveries of a list that no attempt has delivered.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MissedDeliveries {
    /// Those whose every attempt so far failed, in no order.
    missed: Vec<MissedDelivery>,
    /// Those that were delivered, of which older attempts may follow.
    delivered: Vec<String>,
    /// The newest of the deliveries that are kept, once there were too many.
    cut: Option<DeliveryMark>,
}

impl MissedDeliveries {
    /// Takes the next attempt of the list.
    pub fn add(&mut self, attempt: &ListedAttempt) {
        let known = self.missed.iter().position(|one| one.delivery == attempt.delivery);
        if attempt.is_accepted {
            if let Some(known) = known {
                self.missed.swap_remove(known);
            }
            // The first attempt at a delivery is the last that is listed.
            if attempt.is_redelivery && !self.delivered.contains(&attempt.delivery) {
                self.remember(attempt.delivery.clone());
            }
            return;
        }
        match known {
            Some(known) => {
                let one = &mut self.missed[known];
                one.first = one.first.min(attempt.mark());
                one.attempt = one.attempt.max(attempt.id);
            }
            None if self.delivered.contains(&attempt.delivery) => {}
            None => self.insert(attempt),
        }
    }

    fn remember(&mut self, delivery: String) {
        if self.delivered.len() >= CATCH_UP_REMEMBERED_MAX {
            self.delivered.remove(0);
        }
        self.delivered.push(delivery);
    }

    /// Adds a delivery. Of too many the newest goes.
    fn insert(&mut self, attempt: &ListedAttempt) {
        self.missed.push(MissedDelivery {
            delivery: attempt.delivery.clone(),
            attempt: attempt.id,
            first: attempt.mark(),
            kind: attempt.kind.clone(),
        });
        if self.missed.len() > CATCH_UP_DELIVERIES_MAX {
            let newest = self.missed.iter().enumerate().max_by_key(|(_, one)| one.first).map(|(at, _)| at);
            newest.map(|at| self.missed.swap_remove(at));
            self.cut = self.missed.iter().map(|one| one.first).max();
        }
    }

    /// Those that were delivered by an attempt that was made again.
    pub fn delivered(&self) -> &[String] {
        &self.delivered
    }

    /// The deliveries to ask for, the newest first, so that the oldest is at the end; and how far the list is dealt with
    /// by them, if they are not all.
    pub fn into_newest_first(self) -> (Vec<MissedDelivery>, Option<DeliveryMark>) {
        let mut missed = self.missed;
        missed.sort_by_key(|one| std::cmp::Reverse(one.first));
        (missed, self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::time::Timestamp;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn attempt(id: u64, delivery: u64, is_redelivery: bool, is_accepted: bool) -> ListedAttempt {
        let at = Timestamp(i64::try_from(id).unwrap() * 1_000_000);
        let delivery = format!("d{delivery}");
        ListedAttempt { id, delivery, at: Some(at), kind: None, action: None, is_redelivery, is_accepted }
    }

    fn missed(newest_first: impl IntoIterator<Item = ListedAttempt>) -> (Vec<MissedDelivery>, Option<DeliveryMark>) {
        let mut found = MissedDeliveries::default();
        newest_first.into_iter().for_each(|attempt| found.add(&attempt));
        found.into_newest_first()
    }

    #[test]
    fn of_too_many_the_oldest_are_kept_and_the_rest_lies_ahead_of_the_cut() {
        let many = u64::try_from(CATCH_UP_DELIVERIES_MAX).unwrap() + 7;
        let (kept, cut) = missed((0..many).rev().map(|n| attempt(n, n, false, false)));
        let ids: Vec<_> = kept.iter().rev().map(|one| one.attempt).collect();
        assert_eq!(ids, (0..many - 7).collect::<Vec<_>>());
        assert_eq!(cut, Some(attempt(many - 8, 0, false, false).mark()));
    }

    proptest! {
        #[test]
        fn exactly_the_deliveries_without_a_success_are_missed_oldest_last_and_each_once(
            // For each attempt, from the oldest: which delivery, and whether it was accepted.
            attempts in proptest::collection::vec((0_u64..12, proptest::bool::weighted(0.3)), 0..80),
            pages_again in 0_usize..40,
        ) {
            let mut seen = BTreeSet::new();
            let all: Vec<_> = attempts.iter().zip(1..).map(|((delivery, accepted), id)| {
                attempt(id, *delivery, !seen.insert(*delivery), *accepted)
            }).collect();
            let mut expected = BTreeMap::new();
            for one in &all {
                let (first, last, accepted) = expected.entry(one.delivery.clone()).or_insert((one.mark(), one.id, false));
                (*first, *last, *accepted) = ((*first).min(one.mark()), one.id, *accepted || one.is_accepted);
            }
            let listed: Vec<_> = all.iter().rev().cloned().collect();
            // A list that is resumed may show attempts twice.
            let again = listed.iter().take(pages_again).cloned().collect::<Vec<_>>();
            let (found, cut) = missed(again.into_iter().chain(listed.clone()));
            let got: BTreeMap<_, _> = found.iter().map(|one| (one.delivery.clone(), (one.first, one.attempt))).collect();
            expected.retain(|_, (_, _, accepted)| !*accepted);
            let expected: BTreeMap<_, _> =
                expected.into_iter().map(|(name, (first, last, _))| (name, (first, last))).collect();
            prop_assert_eq!(got.len(), found.len());
            prop_assert_eq!(got, expected);
            prop_assert!(found.is_sorted_by(|newer, older| newer.first > older.first) && cut.is_none());
        }
    }
}
