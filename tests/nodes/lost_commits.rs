//! A node behind a pooler whose server fails in the middle of a commit.

use crate::failing_pooler::FailingPooler;
use crate::postgres::Server;
use crate::support::{House, PATIENCE, Sent};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_under_hold_runs_once_and_is_not_in_doubt_when_a_pooler_fails_at_the_commit() {
    let server = Server::start().await;
    let database = server.database().await;
    let pooler = FailingPooler::of_every(server.port, 3).await;
    let config = format!(
        r#"store = "postgres://postgres@127.0.0.1:{}/{database}"
[source.numbers]
path   = "/in"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n" }}
[[source.numbers.route]]
in_doubt = "hold"
lease    = "3s"
run      = {{ steps = ["echo $HOOKONCE_FIELD_N >> runs"] }}
"#,
        pooler.port
    );
    let house = House::new(&config);
    let db = server.client(&database).await;
    let events = 24;
    let until = Instant::now() + PATIENCE;
    for n in 0..events {
        let sent = Sent::github("push", &format!("d-{n}"), &format!("{{\"n\":{n}}}"));
        while house.deliver("/in", &sent).await.status >= 300 {
            assert!(Instant::now() < until, "{n} was not accepted: {}", house.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let open = "select count(*) from events where ended_at is null";
    while db.query_one(open, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(Instant::now() < until, "events are stuck: {}", house.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ends = db.query("select state || ' ' || cause || ' ' || attempt from events", &[]).await.unwrap();
    let ends: Vec<String> = ends.iter().map(|row| row.get(0)).collect();
    assert_eq!(ends, vec!["done acted 1"; events], "{}", house.log());
    let mut runs: Vec<usize> = house.lines("runs").iter().map(|line| line.parse().unwrap()).collect();
    runs.sort_unstable();
    assert_eq!(runs, (0..events).collect::<Vec<_>>());
    assert!(pooler.spoilt.load(Ordering::SeqCst) >= 16, "too few commits failed");
}
