//! The live output of an event, from a node that does not run it.

use crate::server_refusals::on;
use crate::store_servers::StoreServer;
use crate::support::{House, PATIENCE, Sent, until};
use hookonce::decide::id::EventId;
use hookonce::decide::shared_output::SharedOutput;
use hookonce::store::Inspect;
use hookonce::store::open::{OpenPurpose, StoreUrl, open_for};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A command that writes a line, and another one for each file that appears.
fn config(dir: &Path, lease: &str) -> String {
    let step = "echo one; until test -e DIR/two; do sleep 0.02; done; echo two; until test -e DIR/end; do sleep 0.02; done; printf last"
        .replace("DIR", &dir.display().to_string());
    format!(
        r#"
store = {{ env = "STORE" }}
[source.deploys]
path   = "/in"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
once   = {{ per = ["delivery"] }}
[[source.deploys.route]]
lease = "{lease}"
run   = {{ steps = ["{step}"] }}
"#
    )
}

/// A node with this role.
fn node(config: &str, url: &str, role: &str) -> House {
    let mut house = House::empty(config);
    let serve = on(&house, url, &["serve", "--only", role]);
    house.try_start_by(serve).unwrap();
    house
}

async fn looks(url: &str) -> Arc<dyn Inspect> {
    open_for(&StoreUrl::parse(url, Path::new("")).unwrap(), OpenPurpose::Tool).await.unwrap()
}

/// Waits until something is shared of this event, or nothing is.
async fn until_shared(store: &Arc<dyn Inspect>, event: &str, wanted: bool) {
    let key = SharedOutput::key(event.parse::<EventId>().unwrap());
    let begun = Instant::now();
    while store.state(key).await.unwrap().is_some() != wanted {
        assert!(begun.elapsed() < PATIENCE, "something is shared: {}", !wanted);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A client of the live stream of this event, and what it has got.
fn follow(house: &House, event: &str) -> (tokio::task::JoinHandle<()>, Arc<Mutex<String>>) {
    let (url, heard) = (house.admin_url(&format!("/api/live?event={event}")), Arc::<Mutex<String>>::default());
    let got = heard.clone();
    let task = tokio::spawn(async move {
        let mut stream = reqwest::get(url).await.unwrap();
        while let Ok(Some(chunk)) = stream.chunk().await {
            got.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk));
        }
    });
    (task, heard)
}

fn touch(dir: &Path, name: &str) {
    std::fs::write(dir.join(name), "").unwrap();
}

pub(crate) async fn output_is_followed_from_another_node_and_leaves_nothing_behind(store: StoreServer) {
    let (url, dir) = (store.fresh().await, tempfile::tempdir().unwrap());
    let config = config(dir.path(), "60s");
    let [ingest, work] = ["ingest", "work"].map(|role| node(&config, &url, role));
    let store = looks(&url).await;
    let event = ingest.deliver("/in", &Sent::github("push", "d1", "{}")).await.event();
    until("it to run", || work.log().contains(" running ")).await;
    let key = SharedOutput::key(event.parse().unwrap());
    assert_eq!(store.state(key).await.unwrap(), None, "nothing is written while no client watches");

    let (client, heard) = follow(&ingest, &event);
    let receives = |part: &str| heard.lock().unwrap().contains(part);
    until("what was written before", || receives(r#""text":"one\n","so_far":true"#)).await;
    until_shared(&store, &event, true).await;
    let mut tail = ingest.command(&["tail", "--event", &event[28..], "--admin", &ingest.admin_url("")]);
    let printed = dir.path().join("printed");
    let mut tail = tail.stdout(std::fs::File::create(&printed).unwrap()).spawn().unwrap();
    let told = || std::fs::read_to_string(&printed).unwrap();
    until("the command to print it, too", || told().contains(" | one\n")).await;
    touch(dir.path(), "two");
    until("what is written meanwhile", || receives(r#""text":"two\n""#)).await;
    touch(dir.path(), "end");
    until("the end", || receives(r#""text":"last""#) && receives(r#""state":"done""#)).await;
    assert_eq!(heard.lock().unwrap().matches(r#""text":"one"#).count(), 1, "{heard:?}");
    until("the command to end with the event", || told().contains(" done ")).await;
    let ended = tokio::task::spawn_blocking(move || tail.wait()).await.unwrap().unwrap();
    assert!(ended.success());
    let told = told();
    let lines: Vec<_> = told.lines().filter_map(|line| line.split_once(" | ").map(|(_, text)| text)).collect();
    assert_eq!(lines, ["one", "two", "last"], "{told}");
    until_shared(&store, &event, false).await;
    client.abort();
}

pub(crate) async fn what_a_crashed_node_has_shared_is_removed(store: StoreServer) {
    let (url, dir) = (store.fresh().await, tempfile::tempdir().unwrap());
    let config = config(dir.path(), "3s");
    let [ingest, mut work] = ["ingest", "work"].map(|role| node(&config, &url, role));
    let store = looks(&url).await;
    let event = ingest.deliver("/in", &Sent::github("push", "d1", "{}")).await.event();
    let (client, heard) = follow(&ingest, &event);
    until("its output", || heard.lock().unwrap().contains(r#""text":"one\n""#)).await;
    until_shared(&store, &event, true).await;
    client.abort();
    work.kill();
    let _next = node(&config, &url, "work");
    until_shared(&store, &event, false).await;
    touch(dir.path(), "two");
    touch(dir.path(), "end");
}
