//! Which ends are told, to whom, and what a notification says.

use super::{NOW, event, seed};
use hookonce::decide::event::{DeathCause, DoneReason, Event, EventState, Origin};
use hookonce::decide::field::FieldValue;
use hookonce::decide::id::{Digest, EventId, Key};
use hookonce::decide::notification::{EndDescription, NotificationKind, NotificationTarget};
use proptest::prelude::*;

const ROLLBACK: Option<Origin> = Some(Origin::Rollback { from: EventId([1; 16]), to: EventId([2; 16]) });

fn target(on: &[NotificationKind]) -> NotificationTarget {
    NotificationTarget {
        route: "notify:ops".into(),
        on: on.to_vec(),
        needs: Vec::new(),
        counted_at: Key([9; 32]),
        per_hour: 20,
        summary: true,
    }
}

fn ended(state: EventState, origin: Option<Origin>) -> Event {
    Event { state, origin, ..event() }
}

fn dead(cause: DeathCause) -> EventState {
    EventState::Dead { cause, at: NOW }
}

fn done(how: DoneReason) -> EventState {
    EventState::Done { how, at: NOW }
}

#[test]
fn each_end_is_told_as_one_kind_and_a_notification_never() {
    let told = [NotificationKind::Dead, NotificationKind::Rollback, NotificationKind::Done];
    let notification = Some(Origin::Notification { of: EventId([3; 16]), kind: NotificationKind::Dead });
    let check = |state: EventState, origin, expected: Option<NotificationKind>| {
        let event = ended(state, origin);
        assert_eq!(event.notification_kind(), expected, "{event:?}");
        assert_eq!(target(&told).tells(&event), expected, "{event:?}");
        assert_eq!(target(&[]).tells(&event), None);
    };
    for cause in DeathCause::ALL {
        check(dead(cause), None, Some(NotificationKind::Dead));
        check(dead(cause), ROLLBACK, Some(NotificationKind::Dead));
        check(dead(cause), notification, None);
    }
    check(done(DoneReason::Acted), None, Some(NotificationKind::Done));
    check(done(DoneReason::Acted), ROLLBACK, Some(NotificationKind::Rollback));
    check(done(DoneReason::Acted), notification, None);
    check(done(DoneReason::Recorded), None, None);
    check(done(DoneReason::Superseded { by: EventId([4; 16]) }), None, None);
    check(EventState::Waiting { due: Some(NOW) }, None, None);
}

#[test]
fn a_target_hears_what_it_asked_for_and_only_if_the_event_has_its_fields() {
    let failed = ended(dead(DeathCause::Failed), None);
    assert_eq!(target(&[NotificationKind::Done]).tells(&failed), None);
    assert_eq!(target(&[NotificationKind::Rollback]).tells(&failed), None);
    let not_back = ended(dead(DeathCause::Failed), ROLLBACK);
    assert_eq!(target(&[NotificationKind::Rollback]).tells(&not_back), Some(NotificationKind::Dead));
    let needs = |name: &str| NotificationTarget { needs: vec![name.into()], ..target(&[NotificationKind::Dead]) };
    assert_eq!(needs("tag").tells(&failed), Some(NotificationKind::Dead));
    assert_eq!(needs("commit").tells(&failed), None);
}

fn values() -> impl Strategy<Value = FieldValue> {
    prop_oneof![
        any::<String>().prop_map(|text| FieldValue::Text(text.into())),
        "-?(0|[1-9][0-9]{0,30})".prop_map(|raw| FieldValue::Number(raw.into())),
        any::<bool>().prop_map(FieldValue::Bool),
    ]
}

proptest! {
    #![proptest_config(seed::cases(128))]

    #[test]
    fn a_notification_says_what_ended_and_its_digest_covers_what_it_tells_of(
        fields in prop::collection::btree_map("[a-z]{1,8}", values(), 0..6),
        source in "[a-z]{1,8}",
        at in 0..1_i64 << 50,
    ) {
        let fields = fields.into_iter().map(|(name, value)| (name.into(), value)).collect();
        let state = EventState::Dead { cause: DeathCause::Unhealthy, at: hookonce::decide::time::Timestamp(at) };
        let of = Event { fields, source: source.as_str().into(), ..ended(state, None) };
        let (notification, payload) = of.test_notification(NotificationKind::Dead, &target(&[]));
        let told = EndDescription::read(&notification, &payload.body).expect("it can be read");
        prop_assert_eq!((told.event, &*told.source, &*told.route), (of.id, &*source, "deploy"));
        prop_assert_eq!((&told.fields, told.ended_at.0, told.death_cause()), (&of.fields, at, Some(DeathCause::Unhealthy)));
        prop_assert_eq!(notification.body_digest, Digest::of(&payload.body));
        prop_assert_eq!(notification.immutable_digest(), notification.digest);
        let other = Event {
            origin: Some(Origin::Notification { of: EventId([8; 16]), kind: NotificationKind::Dead }),
            ..notification.clone()
        };
        prop_assert_ne!(other.immutable_digest(), notification.digest);
        prop_assert_eq!(of.test_notification(NotificationKind::Dead, &target(&[])).0.id, notification.id);
        let next = Event { life: 2, ..of.clone() };
        prop_assert_ne!(next.test_notification(NotificationKind::Dead, &target(&[])).0.id, notification.id);
        prop_assert_ne!(of.test_notification(NotificationKind::Done, &target(&[])).0.id, notification.id);
    }
}
