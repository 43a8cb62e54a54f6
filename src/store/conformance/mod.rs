//! The conformance suite that every store must pass. A new store begins by making it pass.
//!
//! ```no_run
//! # use hookonce::store::{clock::StoreClock, conformance, memory::MemoryStore};
//! # use hookonce::decide::time::Timestamp;
//! # async fn check() {
//! conformance::run(async || {
//!     let clock = StoreClock::manual(Timestamp(1_750_000_000_000_000));
//!     conformance::StoreUnderTest::by(MemoryStore::new(clock.clone()), &clock)
//! }).await;
//! # }
//! ```
pub(crate) mod claims;
pub(crate) mod clock_jump;
pub(crate) mod deploys;
pub(crate) mod event_builder;
pub(crate) mod groups;
pub(crate) mod list;
pub(crate) mod notifications;
pub(crate) mod queries;
pub(crate) mod registers;
pub(crate) mod retention;
pub(crate) mod rollbacks;
pub(crate) mod sql;
pub(crate) mod start_due;

pub use event_builder::{TestEventBuilder, imported, making};

use super::clock::StoreClock;
use super::{AdvanceResult, DueQuery, ImportCounts, Inspect};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{ClaimResult, DuplicateTarget, MatchedBy, NewEvent};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState, EventStep, Outcome, SucceededBlocks};
use crate::decide::id::{EventId, Key, NodeId};
use crate::decide::retry::{Jitter, RetryPolicy};
use crate::decide::source::{Keep, Retention, Route};
use crate::decide::sql_template::SqlDialect;
use crate::decide::time::{Duration, Timestamp};
use std::pin::Pin;
use std::sync::Arc;

/// One test of the suite; it panics if the store fails it.
pub type ConformanceTest = fn(StoreUnderTest) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! rules {
    ($($module:ident { $($rule:ident)+ })+) => {
        &[$($((stringify!($rule), |fresh| Box::pin($module::$rule(fresh)))),+),+]
    };
}

/// Every test, with its name.
pub const RULES: &[(&str, ConformanceTest)] = rules! {
    claims {
        a_first_claim_is_new_and_stored_when_it_returns
        a_second_claim_is_a_duplicate_by_each_identity
        an_event_without_a_key_is_new_each_time_and_ends_like_any_other
        a_body_key_with_an_unsigned_id_distinguishes_the_same_delivery_from_another
        an_alias_keeps_the_delivery_id_it_came_with
        an_event_claimed_by_id_alone_is_found_after_an_upgrade_and_after_a_downgrade
        a_duplicate_leaves_none_of_its_keys_behind
        the_first_live_match_in_the_order_of_per_is_returned
        the_same_claim_again_is_new_again_even_after_the_event_moved_on
        a_batch_with_two_deliveries_of_one_event_answers_new_and_duplicate
        a_write_that_names_another_revision_is_lost
        times_are_written_by_the_stores_clock
        an_imported_delivery_is_a_duplicate_without_an_event
        an_imported_change_counts_only_while_its_register_is_empty
        an_imported_key_without_a_register_is_known_for_ever
        an_imported_key_is_never_claimed_and_never_forgotten
        a_claimed_key_wins_over_an_imported_one_and_that_over_the_register
        an_imported_duplicate_leaves_nothing_behind
        importing_twice_changes_nothing_and_says_so
    }
    registers {
        another_value_is_new_and_the_same_value_is_a_duplicate
        a_change_a_new_value_and_the_rollback_are_three_events
        where_a_registry_decides_a_newer_delivery_of_the_same_change_is_new_once_it_was_asked
        a_delivery_matched_through_its_register_is_still_a_duplicate_after_the_next_change
        named_fields_leave_no_alias
        an_older_order_is_stale_and_an_equal_one_is_not
        after_a_replay_an_equal_order_is_stale_until_a_newer_one_comes
        a_duplicate_with_a_newer_order_moves_its_event_forward_and_no_running_attempt_loses
        a_first_attempt_runs_even_if_its_event_was_replaced
        a_replaced_event_is_superseded_wherever_it_would_be_retried
        a_waiting_event_with_attempts_ends_when_it_is_replaced_and_hands_its_slot_on
        duplicates_of_a_superseded_event_return_the_current_one
        a_rearm_takes_the_arriving_body
        a_republished_event_takes_the_arriving_body_and_keeps_its_first_end
        an_event_that_is_no_longer_current_is_not_published_again
        each_event_of_a_queue_without_a_subject_is_published_again
        a_duplicate_of_a_done_event_matches_by_its_delivery_id_wherever_per_names_it
        a_register_is_found_by_its_key_and_a_list_may_begin_anywhere
    }
    groups {
        parked_events_get_the_slot_in_the_order_of_their_turns
        a_slot_is_held_across_retries
        done_dead_superseded_and_suspended_events_hand_the_slot_on
        a_replay_takes_a_new_turn_and_makes_its_event_the_current_one
        a_suspended_event_is_skipped_and_queues_again_when_it_resumes
    }
    deploys {
        of_the_waiting_events_of_a_subject_only_the_newest_is_kept
        an_event_that_waits_for_its_next_attempt_is_replaced_and_one_on_another_route_is_not
        a_backlog_from_before_is_thinned_as_each_event_gets_its_turn
        a_replay_replaces_what_waits_and_so_does_a_rearm_in_a_queue_without_a_subject
        the_register_of_a_queue_goes_with_its_last_event
        a_burst_is_waited_for_from_its_first_event
        attempts_beyond_the_budget_wait_without_a_slot_or_are_dropped
        an_event_that_is_parked_instead_of_started_costs_no_budget
        an_attempt_that_ends_before_its_action_begins_costs_no_budget
        a_register_knows_what_was_deployed_and_keeps_that_event
        what_is_deployed_is_unknown_once_another_deploy_has_begun
        what_was_deployed_but_never_checked_is_deployed_again
        a_registry_that_still_has_what_was_deployed_before_an_event_arrived_is_asked_again
        a_deploy_that_was_cancelled_while_it_was_checked_and_one_of_another_route_do_not_count
        after_a_crash_only_the_health_of_a_deploy_is_checked_again
        an_operator_can_set_and_clear_a_register
        a_state_is_replaced_only_if_it_is_still_what_was_read
    }
    rollbacks {
        an_unhealthy_deploy_is_followed_by_the_last_good_one_before_anything_else_of_its_group
        a_newer_event_that_would_deploy_the_unhealthy_again_is_followed_by_the_last_good_one
        if_the_event_after_an_unhealthy_one_dies_the_last_good_one_follows
        if_the_event_after_an_unhealthy_one_fails_in_its_action_the_last_good_one_follows
        a_roll_back_that_waited_while_something_else_became_good_does_not_run
        an_unhealthy_deploy_is_not_followed_by_another_if_there_is_none_or_a_newer_event_waits
    }
    notifications {
        a_notification_is_written_with_the_end_that_it_tells_of_and_once
        a_rollback_is_told_when_it_has_ended
        an_event_that_is_dropped_for_its_budget_is_told_to_many_targets
        a_notification_is_forgotten_with_its_event_and_not_before_it_is_sent
        of_thirty_ends_in_an_hour_twenty_are_told_and_one_message_counts_the_others
        an_overdue_message_that_counts_stays_the_only_one_while_it_waits
    }
    start_due {
        a_batch_start_writes_what_each_step_would_have_written
        events_that_need_an_ordinary_step_are_left_unchanged
        concurrent_starts_get_different_events
    }
    retention {
        an_expired_event_is_forgotten_inside_the_claim
        only_ended_events_expire
        a_registers_current_event_is_not_forgotten
        an_event_that_carries_its_registers_order_is_not_forgotten
        retention_of_a_replaced_event_counts_from_its_replacement
        duplicates_do_not_extend_retention
        the_sweep_frees_bodies_first_and_keys_later
        bodies_that_are_alike_stay_whole_whichever_of_them_are_forgotten
        an_event_and_all_its_keys_go_together
        the_sweep_keeps_to_its_limit_and_gets_through
        concurrent_sweeps_leave_nothing_and_count_each_event_once
        a_recorded_event_may_leave_no_body
        the_count_of_a_groups_budget_goes_with_its_last_event
        what_was_shared_of_an_events_output_goes_with_the_event
        a_delivery_acts_again_after_an_operator_forgot_its_event
        forgetting_a_subjects_current_event_forgets_what_it_was_changed_to
        an_event_that_has_not_ended_cannot_be_forgotten_by_an_operator
        a_source_that_a_node_lacks_is_kept_as_long_as_the_store_says
        a_source_without_retention_is_never_forgotten_by_a_node_that_lacks_it
        the_retention_of_one_source_stays_when_anothers_is_written
        unknown_sources_are_counted
        forgetting_a_source_ends_and_deletes_all_of_its_events_and_nothing_else
    }
    clock_jump {
        a_clock_jump_forgets_nothing_before_it_has_lasted_ten_minutes
        a_clock_that_is_corrected_forgets_nothing_and_proves_nothing
        an_operator_may_confirm_a_jump_and_that_is_dropped_when_the_clock_is_set_back
    }
    sql {
        a_statement_and_its_transition_are_both_written_or_neither
    }
    list {
        every_page_holds_what_checking_each_event_finds
    }
    queries {
        due_events_come_oldest_first_with_the_time_of_the_next
        one_receivers_events_do_not_hide_anothers
        payload_receipt_and_attempts_survive_a_round_trip
        transient_headers_are_removed_when_the_event_ends
        an_attempt_without_a_response_removes_the_earlier_one
        the_retrier_is_stored_and_the_running_attempt_continues
        the_kind_of_action_is_stored_as_long_as_the_lease
        a_duplicate_lookup_returns_what_a_claim_would
        a_large_body_survives_a_round_trip
        duplicates_are_all_counted_and_the_first_few_stored
        events_are_listed_newest_first_and_filtered
        events_are_found_page_by_page_by_cause_field_and_text
        events_are_counted_by_state
        events_are_counted_by_source_and_state
        an_event_is_found_by_its_id_a_suffix_of_it_or_its_delivery_id
        a_damaged_body_is_reported_as_damaged
        recipes_are_stored_until_they_are_replaced
        each_source_quarantines_a_message_once
        a_message_is_quarantined_once_and_the_oldest_are_evicted
    }
};

/// Runs every test, each on a fresh store, and names those that fail.
pub async fn run(fresh: impl AsyncFn() -> StoreUnderTest) {
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        if tokio::spawn(rule(fresh().await)).await.is_err() {
            broken.push(*name);
        }
    }
    assert!(broken.is_empty(), "broken: {broken:#?}");
}

/// An action on the store from outside.
type TestStoreHook<T> = Box<dyn Fn(T) + Send + Sync>;

/// A fresh store, with what can be done to it from outside.
pub struct StoreUnderTest {
    store: Arc<dyn Inspect>,
    wait: TestStoreHook<Duration>,
    set: Option<TestStoreHook<Timestamp>>,
    spoil: Option<TestStoreHook<EventId>>,
    statements: Option<SqlDialect>,
    counts_by_source: bool,
}

impl StoreUnderTest {
    /// This store; `wait` advances its clock.
    pub fn of(store: impl Inspect, wait: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self {
            store: Arc::new(store),
            wait: Box::new(wait),
            set: None,
            spoil: None,
            statements: None,
            counts_by_source: true,
        }
    }

    /// This store, which uses a manual clock.
    pub fn by(store: impl Inspect, clock: &StoreClock) -> Self {
        let (wait, set) = (clock.clone(), clock.clone());
        Self::of(store, move |length| wait.advance(length)).set_by(move |to| set.set(to))
    }

    /// The same, with a clock that can be set without time passing.
    #[must_use]
    pub fn set_by(self, set: impl Fn(Timestamp) + Send + Sync + 'static) -> Self {
        Self { set: Some(Box::new(set)), ..self }
    }

    /// The same, with a way to change an event's stored body behind the store's back.
    #[must_use]
    pub fn spoiled_by(self, spoil: impl Fn(EventId) + Send + Sync + 'static) -> Self {
        Self { spoil: Some(Box::new(spoil)), ..self }
    }

    /// The same, which runs SQL statements of this dialect.
    #[must_use]
    pub fn running(self, statements: SqlDialect) -> Self {
        Self { statements: Some(statements), ..self }
    }

    /// The same, which counts events by state only.
    #[must_use]
    pub fn counting_by_state_only(self) -> Self {
        Self { counts_by_source: false, ..self }
    }

    fn wait(&self, length: Duration) {
        (self.wait)(length);
    }

    fn can_be_set(&self) -> bool {
        self.set.is_some()
    }

    fn set_clock(&self, to: Timestamp) {
        if let Some(set) = &self.set {
            set(to);
        }
    }

    async fn claim(&self, one: TestEventBuilder) -> ClaimResult {
        let new = one.made(self.store.now());
        self.claim_all(vec![new]).await.remove(0)
    }

    async fn claim_all(&self, new: Vec<NewEvent>) -> Vec<ClaimResult> {
        self.store.claim(new.into_iter().map(Arc::new).collect()).await.expect("the store claims")
    }

    async fn claimed(&self, one: TestEventBuilder) -> Event {
        match self.claim(one).await {
            ClaimResult::New { event, .. } => *event,
            other => panic!("not new: {other:?}"),
        }
    }

    async fn duplicate(&self, one: TestEventBuilder) -> (EventId, MatchedBy) {
        match self.claim(one).await {
            ClaimResult::Duplicate {
                event,
                same,
                target: DuplicateTarget::Direct | DuplicateTarget::DirectNotCurrent,
                ..
            } => (event.id, same),
            other => panic!("not a duplicate: {other:?}"),
        }
    }

    async fn stale(&self, one: TestEventBuilder) -> EventId {
        match self.claim(one).await {
            ClaimResult::Stale { of } => of,
            other => panic!("not stale: {other:?}"),
        }
    }

    async fn known(&self, one: TestEventBuilder) -> MatchedBy {
        match self.claim(one).await {
            ClaimResult::Imported { same } => same,
            other => panic!("not imported: {other:?}"),
        }
    }

    async fn import(&self, texts: &[&str]) -> ImportCounts {
        let keys: Vec<Key> = texts.iter().map(|text| imported(text)).collect();
        self.store.import(keys).await.expect("the store imports")
    }

    async fn get(&self, id: EventId) -> Event {
        self.store.get(id).await.expect("the store reads").expect("it is there")
    }

    /// Writes this step of the event's current state.
    async fn step(&self, id: EventId, step: EventStep) -> Event {
        let event = self.get(id).await;
        let change = event.transition(step, &route(), self.store.now()).expect("the step is possible");
        match self.store.advance(vec![change]).await.expect("the store writes").remove(0) {
            AdvanceResult::Written { event, .. } => *event,
            AdvanceResult::Lost => panic!("lost"),
        }
    }

    async fn start(&self, id: EventId) -> Event {
        self.step(id, start()).await
    }

    async fn settle(&self, id: EventId, outcome: Outcome) -> Event {
        self.step(id, EventStep::Settle { outcome, blocks: SucceededBlocks(0), jitter: Jitter(u32::MAX) }).await
    }

    /// One attempt with this outcome.
    async fn attempt(&self, id: EventId, outcome: Outcome) -> Event {
        self.start(id).await;
        self.settle(id, outcome).await
    }

    async fn due(&self) -> Vec<EventId> {
        let mut due = self.store.due(anywhere(), 100).await.expect("the store reads").events;
        due.extend(self.store.due(DueQuery::Leases, 100).await.expect("the store reads").events);
        due.sort_by_key(|event| event.state.wake_at());
        due.into_iter().map(|event| event.id).collect()
    }
}

/// Waiting events of any route.
fn anywhere() -> DueQuery {
    DueQuery::Orphans(Arc::new([]))
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);
const KEPT: Retention =
    Retention { keys: Keep::For(Duration::from_hours(30 * 24)), body: Duration::from_hours(7 * 24) };

/// Three attempts, the next one after at most a second.
fn route() -> Route {
    Route { retry: RetryPolicy { attempts: 3, first: SECOND, longest: SECOND }, ..Route::default() }
}

fn start() -> EventStep {
    EventStep::Start { lasts: 30 * SECOND, by: NodeId("node".into()), action: ActionKind::Run }
}

fn delivered() -> Outcome {
    Outcome::Delivered(None)
}

fn failed() -> Outcome {
    Outcome::Failed { why: "no".into(), retry_after: None, receipt: None }
}

fn rejected() -> Outcome {
    Outcome::Rejected { why: "never".into(), receipt: None }
}

fn superseded_by(event: &Event) -> Option<EventId> {
    match event.state {
        EventState::Done { how: DoneReason::Superseded { by }, .. } => Some(by),
        _ => None,
    }
}

fn dead_of(event: &Event) -> Option<DeathCause> {
    match event.state {
        EventState::Dead { cause, .. } => Some(cause),
        _ => None,
    }
}

fn parked(event: &Event) -> bool {
    event.state == EventState::Waiting { due: None }
}
