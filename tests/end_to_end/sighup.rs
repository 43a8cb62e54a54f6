//! SIGHUP neither stops a node nor reloads its config.

use super::support::{House, until};
use super::{IN, number, numbers, touch};
use rustix::process::Signal;

#[tokio::test]
async fn a_hangup_under_load_ends_nothing_and_is_logged() {
    let step = "echo $HOOKONCE_FIELD_N >> begun; until test -e go; do sleep 0.01; done; echo $HOOKONCE_FIELD_N >> runs";
    let mut house = House::new(&numbers("", &format!("at_once = 4\nrun = {{ steps = [\"{step}\"] }}")));
    for n in 0..4 {
        house.deliver(IN, &number(&n.to_string(), n)).await;
    }
    until("commands that run", || house.lines("begun").len() == 4).await;
    for count in 1..4 {
        house.signal(Signal::HUP);
        until("the log line", || house.log().matches(" WARN hangup ").count() == count).await;
        let n = 10 + count as u64;
        assert_eq!(house.deliver(IN, &number(&n.to_string(), n)).await.status, 202);
    }
    assert!(house.log().contains("restart"), "{}", house.log());
    assert!(!house.has_ended());
    touch(&house, "go");
    house.quiet().await;
    assert_eq!(house.lines("runs").len(), 7);
    assert_eq!(house.lines("begun").len(), 7, "nothing was run twice");
    assert!(house.stop().success());
}
