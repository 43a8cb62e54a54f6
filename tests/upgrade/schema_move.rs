//! A PostgreSQL store of the first release: it stays in its schema until an operator moves it to one of its own.

use crate::node::UpgradedNode;
use crate::server::StoreServer;
use crate::{deliveries, first_release, fixtures, nothing_acts_again, what_is_owed_runs_once};
use std::path::Path;
use tokio_postgres::Client;

/// The newest version that the first release can run beside.
const NEEDED: &str = "8";

/// The tables, sequences and views of this schema.
async fn relations(db: &Client, schema: &str) -> Vec<String> {
    let sql = "select relname::text from pg_class where relnamespace = (select oid from pg_namespace where nspname = $1) \
               and relkind in ('r', 'S', 'v') order by 1";
    db.query(sql, &[&schema]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Whether this binary succeeds with these arguments, and its output.
fn say(node: &UpgradedNode, binary: &Path, args: &[&str]) -> (bool, String) {
    let done = node.command(binary, args).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_the_first_release_stays_in_its_schema_until_it_is_moved_and_nothing_acts_again() {
    let ours = Path::new(env!("CARGO_BIN_EXE_hookonce"));
    let server = StoreServer::postgres().await;
    fixtures::load(&server).await;
    let StoreServer::Postgres(postgres, database) = &server else { unreachable!("it is PostgreSQL") };
    let (db, fresh) = (postgres.client(database).await, postgres.database().await);
    let fresh_url = postgres.url(&fresh);
    let fresh_db = postgres.client(&fresh).await;
    let all = deliveries::kept();
    let mut node = UpgradedNode::new(server).await;
    node.start();
    nothing_acts_again(&node, &all).await;
    assert_eq!(relations(&db, "hookonce").await, [""; 0], "it stays in its schema");
    let before = relations(&db, "public").await;
    assert!(before.contains(&"events".to_owned()), "{before:?}");

    // The move is refused while a node runs, and a URL alone does not start a second store beside it.
    let up = ["migrate", "up", "--schema", "hookonce", "--to", NEEDED];
    let (done, said) = say(&node, ours, &up);
    assert!(!done && said.contains("only while no node runs") && said.contains("127.0.0.1"), "{said}");
    let other = format!("{}?schema=other", node.server.url());
    let done = node.command(ours, &["serve"]).env("STORE", &other).output().unwrap();
    assert!(String::from_utf8_lossy(&done.stderr).contains("migrate up --schema other"), "{done:?}");
    assert_eq!(relations(&db, "public").await, before);
    assert!(node.house.stop().success());

    let said = node.run(&up);
    assert!(said.starts_with("moved from schema \"public\" to schema \"hookonce\"\n"), "{said}");
    assert_eq!(node.run(&up), "nothing to do\n");
    assert_eq!(relations(&db, "hookonce").await, before, "all of it is there");
    assert_eq!(relations(&db, "public").await, ["schema_migrations"], "only a marker is left");

    // The first release does not create an empty store in the old schema.
    if let Some(first) = first_release() {
        let (started, said) = say(&node, &first, &["serve"]);
        assert!(!started && said.contains("use a newer hookonce"), "{said}");
        assert_eq!(relations(&db, "public").await, ["schema_migrations"]);
    }
    node.start();
    nothing_acts_again(&node, &all).await;
    what_is_owed_runs_once(&node).await;
    nothing_acts_again(&node, &all).await;
    assert!(node.house.stop().success());

    // The moved store has the same tables as a new one.
    let done = node.command(ours, &["migrate", "up", "--to", NEEDED]).env("STORE", &fresh_url).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let mut moved = relations(&db, "hookonce").await;
    moved.retain(|name| !name.starts_with("events_"));
    assert_eq!(moved, relations(&fresh_db, "hookonce").await);

    // The way back is the same command.
    let said = node.run(&["migrate", "up", "--schema", "public", "--to", NEEDED]);
    assert!(said.contains("add `schema=public` to the store's URL"), "{said}");
    assert_eq!(relations(&db, "public").await, before);
    assert_eq!(relations(&db, "hookonce").await, ["schema_migrations"]);
    if let Some(first) = first_release() {
        node.start_by(&first);
        nothing_acts_again(&node, &all).await;
        assert!(node.house.stop().success());
    }
}
