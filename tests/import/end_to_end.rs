//! The real binary: import, then deliveries that steakpie had, and others.

use crate::support::{House, Sent, storm, until};
use crate::{BY_CHANGE, BY_ID, check, database, house, start};

const PATH: &str = "/version/1";
/// The image of the burst: one delivery of three was kept, as steakpie keeps one row per content.
const STORM: &str = "'f1e8cd20-0440-11f1-8e82-27c317883355', 'latest', 675688875, \
    'sha256:b97c4e077049470ac32d6b8c418eb536fb9856011ac1d6928b80f74926383aab'";

/// Steakpie's config in this folder: a command that records what it deploys, and one after it.
fn deploys() -> House {
    let house = house("");
    let folder = house.dir.path().display().to_string();
    let yaml = format!(
        "jamiec_ts:\n  run:\n    {folder}:\n      - - echo \"pull $HOOKONCE_FIELD_VERSION_ID\" >> runs\n        - \
         echo up >> runs\n"
    );
    std::fs::write(house.path("config.yml"), yaml).unwrap();
    house
}

#[tokio::test]
async fn a_deployed_push_is_a_duplicate_the_next_one_runs_and_so_does_a_rollback() {
    let mut house = deploys();
    let first = format!("'the first', 'latest', 1, 'sha256:{:064x}'", 1);
    database(&house.path("db.sqlite"), BY_CHANGE, &[&first, STORM]);
    check(&house, &["config.yml", "--db", "db.sqlite"], 0, &["hookonce.db: 4 keys", "wrote hookonce.toml"]);
    start(&mut house);

    let mut words = Vec::new();
    for sent in storm("storm_latest.jsonl") {
        let answer = house.deliver(PATH, &sent).await;
        if answer.word() == "duplicate" {
            assert_eq!(answer.status, 200);
            assert_eq!(answer.body, br#"{"status":"duplicate","state":"done","isDuplicate":true}"#);
            assert_eq!(answer.header("hookonce-event"), None);
        }
        words.push(answer.word());
    }
    assert_eq!(words, ["ignored", "ignored", "duplicate", "duplicate", "duplicate"]);
    until("the log to say so", || house.log().matches("of=imported").count() == 3).await;
    assert!(
        house.log().contains("delivery=f1e8cd20-0440-11f1-8e82-27c317883355 same=delivery of=imported"),
        "{}",
        house.log()
    );
    assert!(
        house.log().contains("delivery=f27359e0-0440-11f1-99be-4d02550d037a same=change of=imported"),
        "{}",
        house.log()
    );
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    assert_eq!(house.lines("runs"), Vec::<String>::new());

    for (id, version, second, word) in [
        ("another of the first", 1, 50, "duplicate"),
        ("next", 700_000_000, 51, "accepted"),
        ("next again", 700_000_000, 51, "duplicate"),
        ("back", 1, 52, "accepted"),
        ("the first", 1, 53, "duplicate"),
    ] {
        let answer = house.deliver(PATH, &Sent::package(id, "latest", version, second)).await;
        assert_eq!(answer.word(), word, "{id}: {answer:?}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), ["pull 700000000", "up", "pull 1", "up"]);
}

#[tokio::test]
async fn delivery_ids_of_the_older_table_are_known() {
    let mut house = deploys();
    database(&house.path("db.sqlite"), BY_ID, &["'d1'", "'d2'"]);
    check(
        &house,
        &["config.yml", "--db", "db.sqlite"],
        0,
        &["2 events, known by delivery id\n", "hookonce.db: 2 keys"],
    );
    start(&mut house);
    for (id, word) in [("d1", "duplicate"), ("d2", "duplicate"), ("d3", "accepted"), ("d1", "duplicate")] {
        assert_eq!(house.deliver(PATH, &Sent::package(id, "latest", 7, 1)).await.word(), word, "{id}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), ["pull 7", "up"]);
}

#[tokio::test]
async fn beside_a_running_node_nothing_is_imported() {
    let mut house = deploys();
    database(&house.path("db.sqlite"), BY_ID, &["'d1'"]);
    check(&house, &["config.yml", "--db", "db.sqlite"], 0, &["hookonce.db: 1 key\n"]);
    start(&mut house);
    database(&house.path("more.sqlite"), BY_ID, &["'d2'"]);
    let args = ["config.yml", "--db", "more.sqlite", "--force"];
    check(&house, &args, 2, &["hookonce.db is in use by another hookonce", "stop that one"]);
    assert_eq!(house.sql("select count(*) from imported"), ["1"]);
    assert_eq!(house.deliver(PATH, &Sent::package("d2", "latest", 7, 1)).await.word(), "accepted");
    house.quiet().await;
    house.stop();
    check(&house, &args, 0, &["hookonce.db: 1 key\n"]);
}
