//! What every store must do: one suite for all of them. A new store begins by making this green.
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
pub(crate) mod event_builder;
pub(crate) mod groups;
pub(crate) mod list;
pub(crate) mod queries;
pub(crate) mod registers;
pub(crate) mod retention;
pub(crate) mod sql;
pub(crate) mod start_due;

pub use event_builder::{TestEventBuilder, imported, making};

use super::clock::StoreClock;
use super::{AdvanceResult, DueQuery, ImportCounts, Inspect};
use crate::decide::action_kind::ActionKind;
use crate::decide::claim::{Claim, MatchRelation, MatchedBy, NewEvent};
use crate::decide::event::{DeathCause, DoneReason, Event, EventState, EventStep, Outcome, SucceededBlocks};
use crate::decide::id::{EventId, Key, Node};
use crate::decide::retry::{Jitter, RetryPolicy};
use crate::decide::source::{Keep, Retention, Route};
use crate::decide::sql_template::SqlDialect;
use crate::decide::time::{Duration, Timestamp};
use std::pin::Pin;
use std::sync::Arc;

/// One rule: it panics when the store breaks it.
pub type ConformanceTest = fn(StoreUnderTest) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! rules {
    ($($module:ident { $($rule:ident)+ })+) => {
        &[$($((stringify!($rule), |fresh| Box::pin($module::$rule(fresh)))),+),+]
    };
}

/// Every rule, by its sentence.
pub const RULES: &[(&str, ConformanceTest)] = rules! {
    claims {
        a_first_claim_is_new_and_is_there_when_it_returns
        a_second_claim_is_a_duplicate_by_each_identity
        a_body_that_stands_for_an_unsigned_id_tells_the_same_delivery_from_another
        an_alias_knows_the_id_that_brought_it
        what_was_claimed_by_an_id_alone_is_found_by_it_after_an_upgrade_and_the_other_way_round
        a_loser_leaves_none_of_its_keys_behind
        the_first_in_the_order_of_per_that_is_not_dead_is_the_answer
        the_same_claim_again_is_new_again_even_after_the_event_moved_on
        a_batch_with_two_deliveries_of_one_event_answers_new_and_duplicate
        a_write_that_names_another_revision_is_lost
        times_are_written_by_the_stores_clock
        an_imported_delivery_is_a_duplicate_without_an_event
        an_imported_change_counts_only_while_its_register_is_empty
        what_has_no_register_is_known_for_ever
        an_imported_key_is_never_claimed_and_never_forgotten
        an_own_key_comes_before_an_imported_one_and_the_register_after_it
        an_imported_duplicate_leaves_nothing_behind
        importing_twice_changes_nothing_and_says_so
    }
    registers {
        another_value_is_new_and_the_same_value_is_a_duplicate
        a_change_and_its_roll_back_are_three_events
        a_delivery_matched_through_its_register_is_still_a_repeat_after_the_next_change
        named_fields_leave_no_alias
        an_older_order_is_stale_and_an_equal_one_is_not
        after_a_replay_an_equal_order_is_stale_until_a_newer_one_comes
        a_repeat_with_a_newer_order_moves_its_event_forward_and_takes_nobodys_swap
        a_first_attempt_runs_though_it_is_overtaken
        an_overtaken_event_is_superseded_wherever_it_would_be_tried_again
        a_waiting_event_that_was_tried_ends_when_it_is_replaced_and_hands_its_slot_on
        duplicates_of_a_superseded_event_hear_of_the_current_one
        a_rearm_takes_the_arriving_body
        what_is_published_again_takes_the_arriving_body_and_is_kept_from_its_first_end
        what_is_no_longer_current_is_not_published_again
        a_repeat_of_what_is_done_is_told_by_its_delivery_id_wherever_per_names_it
    }
    groups {
        the_others_are_parked_and_get_the_slot_in_the_order_of_their_turns
        a_slot_is_held_across_retries
        done_dead_superseded_and_aside_hand_the_slot_on
        a_replay_takes_a_new_turn_and_makes_its_event_the_current_one
        what_is_set_aside_is_passed_and_lines_up_again_when_it_rejoins
    }
    start_due {
        what_is_started_together_is_what_each_step_would_have_written
        what_needs_an_ordinary_step_is_left_as_it_is
        those_who_start_at_once_each_get_other_events
    }
    retention {
        an_expired_event_is_forgotten_inside_the_claim
        only_what_is_over_expires
        a_registers_current_event_is_not_forgotten
        what_carries_its_registers_order_is_not_forgotten
        what_was_replaced_late_is_kept_from_then
        duplicates_do_not_extend_it
        the_sweep_frees_bodies_first_and_keys_later
        an_event_and_all_its_keys_go_together
        the_sweep_keeps_to_its_limit_and_gets_through
        two_who_sweep_at_once_leave_nothing_and_count_each_event_once
        a_recorded_event_may_leave_no_body
        what_a_person_forgets_acts_again
        forgetting_a_subjects_current_event_forgets_what_it_was_changed_to
        what_is_not_over_is_not_forgotten_by_a_person_either
        a_source_that_a_node_lacks_is_kept_as_long_as_the_store_says
        a_source_without_retention_is_never_forgotten_by_a_node_that_lacks_it
        the_retention_of_one_source_stays_when_anothers_is_written
        sources_that_nobody_knows_are_counted
        a_person_ends_and_forgets_all_of_a_source_and_nothing_else
    }
    clock_jump {
        a_jump_of_the_clock_forgets_nothing_before_it_has_stood_for_ten_minutes
        a_clock_that_is_set_right_again_forgets_nothing_and_proves_nothing
        a_person_may_say_that_a_jump_is_right_and_that_is_forgotten_when_it_is_set_back
    }
    sql {
        a_statement_goes_with_its_change_or_neither_is_written
    }
    list {
        every_page_is_what_looking_at_each_event_finds
    }
    queries {
        what_is_due_comes_oldest_first_with_the_time_of_the_next
        one_receivers_events_do_not_hide_anothers
        payload_receipt_and_attempts_come_back_as_they_were
        headers_that_are_only_passed_on_go_when_the_event_ends
        an_attempt_without_an_answer_takes_the_earlier_one_away
        who_tries_an_event_again_is_kept_and_whoever_runs_it_goes_on
        the_kind_of_action_is_kept_as_long_as_the_lease
        what_is_recalled_is_what_a_claim_would_say
        a_large_body_comes_back_as_it_was
        sightings_are_kept_for_a_few_and_counted_for_all
        events_are_listed_newest_first_and_filtered
        events_are_found_page_by_page_by_cause_field_and_text
        events_are_counted_by_state
        an_event_is_named_by_its_id_the_end_of_it_or_its_delivery_id
        a_damaged_body_is_said_to_be_damaged
        recipes_are_remembered_until_others_are
        each_source_lays_a_message_into_quarantine_once
        a_message_lies_in_quarantine_once_and_the_oldest_make_way
    }
};

/// Runs every rule, each on a store of its own, and names those that are broken.
pub async fn run(fresh: impl AsyncFn() -> StoreUnderTest) {
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        if tokio::spawn(rule(fresh().await)).await.is_err() {
            broken.push(*name);
        }
    }
    assert!(broken.is_empty(), "broken: {broken:#?}");
}

/// Does something to a store from outside.
type TestStoreHook<T> = Box<dyn Fn(T) + Send + Sync>;

/// An empty store, and what can be done to it from outside.
pub struct StoreUnderTest {
    store: Arc<dyn Inspect>,
    wait: TestStoreHook<Duration>,
    set: Option<TestStoreHook<Timestamp>>,
    spoil: Option<TestStoreHook<EventId>>,
    statements: Option<SqlDialect>,
}

impl StoreUnderTest {
    /// This store; `wait` moves its clock on.
    pub fn of(store: impl Inspect, wait: impl Fn(Duration) + Send + Sync + 'static) -> Self {
        Self { store: Arc::new(store), wait: Box::new(wait), set: None, spoil: None, statements: None }
    }

    /// This store, which goes by a clock that is moved by hand.
    pub fn by(store: impl Inspect, clock: &StoreClock) -> Self {
        let (wait, set) = (clock.clone(), clock.clone());
        Self::of(store, move |length| wait.advance(length)).set_by(move |to| set.set(to))
    }

    /// The same, whose clock can be set while no time passes.
    #[must_use]
    pub fn set_by(self, set: impl Fn(Timestamp) + Send + Sync + 'static) -> Self {
        Self { set: Some(Box::new(set)), ..self }
    }

    /// The same, where an event's stored body can be changed behind the store's back.
    #[must_use]
    pub fn spoiled_by(self, spoil: impl Fn(EventId) + Send + Sync + 'static) -> Self {
        Self { spoil: Some(Box::new(spoil)), ..self }
    }

    /// The same, where statements of this kind run.
    #[must_use]
    pub fn running(self, statements: SqlDialect) -> Self {
        Self { statements: Some(statements), ..self }
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

    async fn claim(&self, one: TestEventBuilder) -> Claim {
        let new = one.made(self.store.now());
        self.claim_all(vec![new]).await.remove(0)
    }

    async fn claim_all(&self, new: Vec<NewEvent>) -> Vec<Claim> {
        self.store.claim(new.into_iter().map(Arc::new).collect()).await.expect("the store claims")
    }

    async fn claimed(&self, one: TestEventBuilder) -> Event {
        match self.claim(one).await {
            Claim::New { event, .. } => *event,
            other => panic!("not new: {other:?}"),
        }
    }

    async fn duplicate(&self, one: TestEventBuilder) -> (EventId, MatchedBy) {
        match self.claim(one).await {
            Claim::Duplicate {
                event, same, relation: MatchRelation::Direct | MatchRelation::DirectNotCurrent, ..
            } => (event.id, same),
            other => panic!("not a duplicate: {other:?}"),
        }
    }

    async fn stale(&self, one: TestEventBuilder) -> EventId {
        match self.claim(one).await {
            Claim::Stale { of } => of,
            other => panic!("not stale: {other:?}"),
        }
    }

    async fn known(&self, one: TestEventBuilder) -> MatchedBy {
        match self.claim(one).await {
            Claim::Imported { same } => same,
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

    /// Writes this step of the event as it stands.
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

    /// One attempt that comes to this.
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

/// Among the waiting events of any route.
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
    EventStep::Start { lasts: 30 * SECOND, by: Node("node".into()), action: ActionKind::Run }
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
