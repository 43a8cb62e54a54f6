//! A node behind a pooler whose server fails in the middle of a commit.

use crate::failing_pooler::FailingPooler;
use crate::postgres::Server;
use crate::server_refusals::on;
use crate::support::{House, PATIENCE, Sent};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CONFIG: &str = r#"store = { env = "STORE" }
[source.numbers]
path   = "/in"
verify = { scheme = "github", secret = { env = "SECRET" } }
fields = { n = "body.n" }
[[source.numbers.route]]
in_doubt = "hold"
lease    = "20s"
run      = { steps = ["echo $HOOKONCE_FIELD_N >> runs"] }
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_under_hold_runs_once_and_is_not_in_doubt_when_a_pooler_fails_at_the_commit() {
    let server = Server::start().await;
    let database = server.database().await;
    let pooler = FailingPooler::of_every(server.port, 3).await;
    let mut house = House::empty(CONFIG);
    // The tables are there before: creating them through this pooler takes a minute.
    let up = on(&house, &server.url(&database), &["migrate", "up"]).output().unwrap();
    assert!(up.status.success(), "{up:?}");
    let serve = on(&house, &format!("postgres://postgres@127.0.0.1:{}/{database}", pooler.port), &["serve"]);
    house.try_start_by(serve).unwrap();
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
