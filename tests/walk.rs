//! The walk from outside: real deliveries to the real binary over a real socket, with SQLite.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod house;

use house::{House, Sent, storm, until};

/// The first user's config; the command writes one line for each run.
const DEPLOY: &str = r#"
[source.ghcr]
preset = "github-package"
path   = "/version/1"
secret = { env = "SECRET" }

[[source.ghcr.route]]
name = "jamiec_ts"
when = 'package == "jamiec_ts"'
run  = { steps = ["echo $HOOKONCE_FIELD_TAG $HOOKONCE_FIELD_VERSION_ID >> runs"] }
"#;

#[tokio::test]
async fn one_image_push_is_one_deploy() {
    for name in ["storm_tags.jsonl", "storm_latest.jsonl"] {
        let house = House::new(DEPLOY);
        for sent in storm(name).iter().chain(&storm(name)) {
            let answer = house.deliver("/version/1", sent).await;
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        }
        house.quiet().await;
        assert_eq!(house.lines("runs"), ["latest 675688875"], "{name}");
        assert_eq!(house.sql("select count(*) from events"), ["1"]);
    }
}

#[tokio::test]
async fn a_roll_back_is_a_deploy_and_a_late_delivery_is_not() {
    let house = House::new(DEPLOY);
    for (id, version, second, word) in [
        ("a", 1, 1, "accepted"),
        ("b", 2, 2, "accepted"),
        ("c", 1, 3, "accepted"),
        ("d", 2, 2, "duplicate"),
        ("e", 9, 1, "stale"),
    ] {
        let id = format!("{id}-delivery");
        let answer = house.deliver("/version/1", &Sent::package(&id, "latest", version, second)).await;
        assert_eq!(answer.word(), word, "{id}: {answer:?}");
        house.quiet().await;
    }
    until("three runs", || house.lines("runs").len() == 3).await;
    assert_eq!(house.lines("runs"), ["latest 1", "latest 2", "latest 1"]);
}
