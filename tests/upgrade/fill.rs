//! Fills a store through the first release's own interface: an import, deliveries, and a crash at the end.

use crate::deliveries::{Kept, Told, all};
use crate::node::UpgradedNode;
use crate::server::StoreServer;
use crate::support::until;
use std::path::Path;

/// The database of steakpie, with one deployment: the third delivery of the storm.
const STEAKPIE: &str = "create table events (delivery_id text primary key, tag text not null, \
    version_id integer not null, sha text not null, timestamp datetime not null, repository text not null); \
    insert into events values ('f1e8cd20-0440-11f1-8e82-27c317883355', 'latest', 675688875, \
    'sha256:b97c4e077049470ac32d6b8c418eb536fb9856011ac1d6928b80f74926383aab', '2026-02-07 16:20:40+00:00', 'jamiec_ts');";

/// Fills an empty store with this binary, and returns it with the deliveries and their responses.
pub(crate) async fn fill(server: StoreServer, binary: &Path) -> (StoreServer, Vec<Kept>) {
    let mut node = UpgradedNode::new(server).await;
    import(&node, binary);
    node.start_by(binary);
    let mut kept = all();
    for one in &mut kept {
        one.first = Told::of(&node.house.deliver(&one.path, &one.sent()).await);
    }
    let open = |state: &String| state == "waiting" || state == "running";
    // A waiting event fails once in a while: its first failure must be recorded.
    until("all but the waiting events to end", || node.states().values().filter(|state| open(state)).count() == 4)
        .await;
    until("a waiting event to fail", || node.house.log().contains("source=waits attempt=1")).await;
    for one in &mut kept {
        one.repeat = Told::of(&node.house.deliver(&one.path, &one.sent()).await);
        if one.repeat.state == "running" {
            one.repeat.state = "waiting".into(); // which of the two depends on timing
        }
    }
    node.house.kill();
    let UpgradedNode { server, .. } = node;
    (server, kept)
}

/// Runs the import from steakpie into a file, and copies that into the store if it is not a file.
fn import(node: &UpgradedNode, binary: &Path) {
    let run = |args: &[&str]| {
        let done = node.command(binary, args).env("TARGET", node.server.url()).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    };
    rusqlite::Connection::open(node.house.path("db.sqlite")).unwrap().execute_batch(STEAKPIE).unwrap();
    std::fs::write(node.house.path("config.yml"), "jamiec_ts:\n  run:\n    /:\n      - \"true\"\n").unwrap();
    let file = match &node.server {
        StoreServer::Sqlite(dir) => dir.path().join("hookonce.db"),
        StoreServer::Postgres(..) | StoreServer::Redis(_) => node.house.path("imported.db"),
    };
    let file = file.to_str().unwrap();
    run(&["import", "steakpie", "config.yml", "--db", "db.sqlite", "--out", "imported.toml", "--store", file]);
    if !matches!(node.server, StoreServer::Sqlite(_)) {
        run(&["migrate", "copy", "--from", &format!("sqlite:{file}"), "--to", "env:TARGET"]);
    }
}
