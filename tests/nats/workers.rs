//! Patchwork's setup as they would run it: GitHub's deliveries at the edge, a stream, and three workers on one
//! PostgreSQL. One consumer writes into the database in the commit of the event's end; a second one posts comments,
//! which cannot be undone. Deliveries come twice and forged, and a worker dies during a comment.

use super::postgres::Server;
use super::server::{Nats, until_async};
use super::support::{House, until};
use super::{IN, LONG, edge, full, message, push};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The config of a worker whose comment on the number `fatal` never ends.
fn worker(nats: &Nats, store: &str, comments: &Path, fatal: u64) -> String {
    let (url, comments) = (nats.url(), comments.display());
    format!(
        r#"
store = "{store}"
[source.index]
from   = {{ nats = "{url}", stream = "GITHUB", consumer = "index" }}
verify = {{ scheme = "carried", of = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n", kind = "header.x-github-event" }}
[[source.index.route]]
name  = "write"
lease = "3s"
sql   = {{ statement = "insert into pushes values (:delivery, :event_id, :n, :kind)", timeout = "2s" }}

[source.bot]
from   = {{ nats = "{url}", stream = "GITHUB", consumer = "bot" }}
verify = {{ scheme = "carried", of = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n" }}
[[source.bot.route]]
name     = "comment"
in_doubt = "hold"
lease    = "3s"
run      = {{ steps = ["""
echo "$HOOKONCE_FIELD_N" >> '{comments}/begun'
if [ "$HOOKONCE_FIELD_N" = {fatal} ]; then echo $PPID > '{comments}/fatal'; sleep 600; fi
echo "$HOOKONCE_FIELD_N" >> '{comments}/posted'"""] }}
"#
    )
}

fn lines(folder: &Path, name: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_workers_behind_an_edge_and_a_stream_write_once_and_comment_once() {
    let all: u64 = if full() { 2000 } else { 60 };
    let fatal = all - all / 10;
    let (nats, server) = (Nats::start(), Server::start().await);
    nats.stream("GITHUB", LONG).await;
    for consumer in ["index", "bot"] {
        nats.named_consumer("GITHUB", consumer, Duration::from_secs(3)).await;
    }
    let database = server.database().await;
    let store = server.url(&database);
    let sql = server.client(&database).await;
    sql.batch_execute("create table pushes (delivery text, event text, n bigint, kind text)").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let edge = House::new(&edge(&nats.url(), "", ""));
    let mut workers: Vec<_> = (0..3).map(|_| House::new(&worker(&nats, &store, folder.path(), fatal))).collect();

    for n in 1..=all {
        let real = push(&format!("g-{n}"), n);
        // First comes a sender that knows the id of a delivery, but not the secret: at the edge, and bypassing it.
        let mut forged = push(&format!("g-{n}"), n).with("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)));
        forged.body = format!("{{\"n\":{}}}", n + all).into();
        if n % 10 == 1 {
            assert_eq!(edge.deliver(IN, &forged).await.status, 401);
            nats.put("github.push", &message(&forged), &forged.body).await;
        }
        assert_eq!(edge.deliver(IN, &real).await.word(), "accepted");
        if n % 3 == 0 {
            assert_eq!(edge.deliver(IN, &real).await.word(), "duplicate");
        }
        // The same delivery once more, bypassing the edge and the stream's own deduplication.
        if n % 4 == 0 {
            nats.put("github.push", &message(&real), &real.body).await;
        }
    }
    // The worker that comments on the fatal number is killed and started again.
    until("the fatal comment to begin", || !lines(folder.path(), "fatal").is_empty()).await;
    let guard = lines(folder.path(), "fatal")[0];
    let dies = workers.iter_mut().find(|worker| is_below(guard, worker.pid())).expect("one of them runs it");
    dies.kill();
    dies.start();

    until_async("all to be acknowledged", async || {
        nats.left("GITHUB", "index").await == (0, 0) && nats.left("GITHUB", "bot").await == (0, 0)
    })
    .await;
    let count = async |query: &str| {
        let count: i64 = sql.query_one(&format!("select count(*) from {query}"), &[]).await.unwrap().get(0);
        u64::try_from(count).unwrap()
    };
    until_async("every event to end", async || count("events where ended_at is not null").await == 2 * all).await;

    let rows = sql.query("select delivery, n, kind from pushes order by n", &[]).await.unwrap();
    let rows: Vec<(String, i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let expected = (1..=all).map(|n| (format!("g-{n}"), i64::try_from(n).unwrap(), "push".to_owned()));
    assert_eq!(rows, expected.collect::<Vec<_>>(), "one row for each delivery, and none for a forged one");
    let (begun, posted) = (lines(folder.path(), "begun"), lines(folder.path(), "posted"));
    assert_eq!(begun.len(), begun.iter().collect::<BTreeSet<_>>().len(), "no comment was begun twice");
    let query = "select fields->>'n' from events where source = 'bot' and state = 'dead' and cause = 'in_doubt'";
    let held = sql.query(query, &[]).await.unwrap();
    let held: BTreeSet<u64> = held.iter().map(|row| row.get::<_, String>(0).parse().unwrap()).collect();
    assert!(held.contains(&fatal) && !posted.contains(&fatal), "{held:?}");
    let done = count("events where state = 'done'").await;
    assert_eq!(done + held.len() as u64, 2 * all, "every event that is not done is held for the operator");
    let known: BTreeSet<_> = posted.iter().copied().chain(held.iter().copied()).collect();
    assert_eq!(known, (1..=all).collect(), "every comment was posted, or is held for the operator");
    let forged = all.div_ceil(10);
    for source in ["index", "bot"] {
        let lie = count(&format!("quarantine where source = '{source}'")).await;
        assert_eq!(lie, forged, "every forged message of {source} is quarantined");
    }
    println!(
        "the whole setup: N = {all} deliveries, {forged} forged before, {} repeated: {} rows, {} comments, {} held",
        all / 3 + all / 4,
        rows.len(),
        posted.len(),
        held.len()
    );
}

/// Whether this process is the other or a descendant of it.
fn is_below(mut pid: u64, of: rustix::process::Pid) -> bool {
    let of = u64::from(of.as_raw_nonzero().get().unsigned_abs());
    while pid > 1 {
        if pid == of {
            return true;
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        pid = parent.unwrap_or(0);
    }
    false
}
