//! Cancelling an event on a node that does not run it: nothing of its group begins before its command has ended.

use crate::server_refusals::node;
use crate::store_servers::StoreServer;
use crate::support::{House, Sent, until};
use serde_json::json;

/// A config with one command at a time, which records when it begins and when it ends, however it ends.
fn config(dir: &str) -> String {
    format!(
        r#"
store = {{ env = "STORE" }}
[source.deploys]
path   = "/in"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n" }}
once   = {{ per = ["delivery"] }}
[[source.deploys.route]]
group    = "one"
lease    = "6s"
in_doubt = "hold"
run      = {{ steps = ["echo begins $HOOKONCE_FIELD_N >> {dir}/told; trap 'echo ends $HOOKONCE_FIELD_N >> {dir}/told; exit 1' TERM; if test $HOOKONCE_FIELD_N = 1; then for i in $(seq 300); do sleep 0.1; done; fi; echo ends $HOOKONCE_FIELD_N >> {dir}/told"] }}
"#
    )
}

fn deploy(n: u8) -> Sent {
    Sent::github("push", &format!("d{n}"), &json!({ "n": n }).to_string())
}

pub(crate) async fn an_event_cancelled_on_another_node_keeps_its_slot_while_it_runs(store: StoreServer) {
    let (url, dir) = (store.fresh().await, tempfile::tempdir().unwrap());
    let config = config(&dir.path().display().to_string());
    let nodes = [node(&config, &url), node(&config, &url)];
    let told = || std::fs::read_to_string(dir.path().join("told")).unwrap_or_default();
    let first = nodes[0].deliver("/in", &deploy(1)).await.event();
    until("it to run", || told() == "begins 1\n").await;
    nodes[0].deliver("/in", &deploy(2)).await;
    let at = |house: &House| house.log().contains(&format!("running   event={}", &first[first.len() - 8..]));
    until("the log to say which node runs it", || nodes.iter().any(at)).await;
    let (owner, other) = if at(&nodes[0]) { (&nodes[0], &nodes[1]) } else { (&nodes[1], &nodes[0]) };

    let answer = other.ask("POST", &format!("/api/events/{first}/cancel")).await;
    assert_eq!((answer.status, answer.json()["state"].as_str()), (202, Some("running")), "{answer:?}");
    let again = other.ask("POST", &format!("/api/events/{first}/replay")).await;
    assert_eq!(again.status, 409, "it is not over: {again:?}");
    let stands = other.ask("GET", &format!("/api/events/{first}")).await.json();
    assert!(stands["why"].as_str().unwrap().contains("an operator cancelled it; the node"), "{stands}");

    until("the second to run", || told().contains("ends 2")).await;
    assert_eq!(told(), "begins 1\nends 1\nbegins 2\nends 2\n");
    let stands = owner.ask("GET", &format!("/api/events/{first}")).await.json();
    assert_eq!((stands["state"].as_str(), stands["cause"].as_str()), (Some("dead"), Some("cancelled")), "{stands}");
    assert_eq!(stands["attempts"][0]["outcome"], "unknown", "{stands}");
}
