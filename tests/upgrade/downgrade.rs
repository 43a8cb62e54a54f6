//! The first release's binary on stores of later versions: it starts if and only if it may work with them.

use crate::node::UpgradedNode;
use crate::server::StoreServer;
use crate::{FIRST_SCHEMA, first_release, fixtures};
use hookonce::store::schema::{self, Migration};
use std::path::Path;

/// Records that the store has this version, which only newer binaries know. Its tables stay as they are.
async fn pretend(server: &StoreServer, version: u32) {
    let sql =
        format!("insert into schema_migrations (version, name, checksum, applied_at) values ({version}, 'x', 'x', 0)");
    match server {
        StoreServer::Sqlite(dir) => {
            let db = rusqlite::Connection::open(dir.path().join("hookonce.db")).unwrap();
            db.execute_batch(&sql).unwrap();
        }
        StoreServer::Postgres(server, database) => {
            server.client(database).await.batch_execute(&sql).await.unwrap();
        }
        StoreServer::Redis(_) => unreachable!("Redis has no schema"),
    }
}

/// Starts this binary on the store and stops it. The error is its output if it does not start.
fn starts(node: &mut UpgradedNode, binary: &Path) -> Result<(), String> {
    let command = node.command(binary, &["serve"]);
    node.house.try_start_by(command)?;
    assert!(node.house.stop().success());
    Ok(())
}

async fn the_first_release_starts_on_each_later_version_that_lets_it(server: StoreServer, known: &[Migration]) {
    let Some(first) = first_release() else {
        println!("skipped: HOOKONCE_FIRST_RELEASE is not set; ./test --full builds that binary");
        return;
    };
    fixtures::load(&server).await;
    let mut node = UpgradedNode::new(server).await;
    let of_first: u32 = FIRST_SCHEMA.parse().unwrap();
    for Migration { version, name, oldest, .. } in known.iter().filter(|migration| migration.version > of_first) {
        node.run(&["migrate", "up", "--to", &version.to_string()]);
        let came = starts(&mut node, &first);
        assert_eq!(came.is_ok(), schema::first_release_starts(*version), "{name}: {came:?}");
        assert!(came.is_err() || *oldest <= of_first, "{name} is misread by the first release, but it starts");
    }
    // It refuses every version after these.
    pretend(&node.server, schema::latest(known) + 1).await;
    let said = starts(&mut node, &first).err().unwrap_or_default();
    assert!(said.contains("newer hookonce"), "{said}");
    starts(&mut node, Path::new(env!("CARGO_BIN_EXE_hookonce"))).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_release_starts_on_each_later_sqlite_schema_that_allows_it() {
    let known = schema::sqlite::MIGRATIONS;
    the_first_release_starts_on_each_later_version_that_lets_it(StoreServer::sqlite(), known).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_release_starts_on_each_later_postgres_schema_that_allows_it() {
    let known = schema::postgres::MIGRATIONS;
    the_first_release_starts_on_each_later_version_that_lets_it(StoreServer::postgres().await, known).await;
}
