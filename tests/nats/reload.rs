//! Streams follow the config when it is loaded again.

use super::server::Nats;
use super::support::{House, until};
use super::{LONG, message, push, worker};
use std::time::Duration;

const LINES: &str = r#"run = { steps = ["echo \"$HOOKONCE_FIELD_N\" >> lines"] }"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_stream_is_read_a_removed_one_is_left_and_the_others_go_on() {
    let nats = Nats::start();
    nats.stream("GITHUB", LONG).await;
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    let with = worker(&nats.url(), "", LINES);
    let without = "[source.other]\nverify = \"none\"\ndelivery = \"header.x-id\"\n";
    let house = House::new(without);
    let reload = async |config: &str| {
        house.configure(config);
        let answer = house.ask("POST", "/api/reload").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let put = async |n: u64| nats.put("github.push", &message(&push(&format!("d-{n}"), n)), &push("", n).body).await;
    put(1).await;
    reload(&with).await;
    until("the first line", || house.lines("lines") == ["1"]).await;
    // The same stream with another action: nothing is read anew, and the event runs as configured now.
    reload(&with.replace("echo ", "echo again ")).await;
    put(2).await;
    until("the second line", || house.lines("lines") == ["1", "again 2"]).await;
    assert_eq!(house.log().matches(" taking ").count(), 1, "{}", house.log());
    reload(without).await;
    put(3).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(house.lines("lines").len(), 2);
    reload(&with).await;
    until("the third line", || house.lines("lines") == ["1", "again 2", "3"]).await;
}
