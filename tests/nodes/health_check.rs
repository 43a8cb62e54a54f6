//! The health of a deploy on several nodes: a node that is killed while it checks leaves the check to another.

use crate::server_refusals::node;
use crate::store_servers::StoreServer;
use crate::support::{Sent, until};
use serde_json::json;

/// A config whose deploys may take this long until they are healthy.
fn config(dir: &str, within: &str) -> String {
    format!(
        r#"
store = {{ env = "STORE" }}
[source.deploys]
path   = "/in"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n", app = "body.app" }}
once   = {{ per = ["delivery"], change = {{ of = ["app"], to = ["n"] }} }}
[[source.deploys.route]]
lease    = "5s"
retry    = {{ first = "10ms" }}
run      = {{ dir = "{dir}", steps = ["cat >> bodies; echo $HOOKONCE_FIELD_N rollback=$HOOKONCE_ROLLBACK >> runs"] }}
health_check = {{ run = ["sh", "check"], within = "{within}", every = "100ms" }}
on_unhealthy = "rollback"
"#
    )
}

fn deploy(n: u8) -> Sent {
    Sent::github("push", &format!("d{n}"), &json!({ "n": n, "app": "a" }).to_string())
}

pub(crate) async fn a_check_that_dies_with_its_node_is_repeated_by_another_and_then_rolled_back(store: StoreServer) {
    let (url, dir) = (store.fresh().await, tempfile::tempdir().unwrap());
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    write("check", "echo $HOOKONCE_FIELD_N $PPID >> checks\ntest $HOOKONCE_FIELD_N = 1\n");
    // The first node would check for minutes, and dies meanwhile; the second one soon knows that it is not healthy.
    let [patient, hasty] = ["10m", "1s"].map(|within| config(&dir.path().display().to_string(), within));
    let mut first = node(&patient, &url);
    let good = first.deliver("/in", &deploy(1)).await.event();
    until("the first to be deployed", || first.log().contains("INFO done")).await;
    let bad = first.deliver("/in", &deploy(2)).await.event();
    until("a check of the second", || read("checks").contains("\n2 ")).await;
    until("the log to say so", || first.log().contains(&format!("deployed  event={}", &bad[28..]))).await;
    let other = node(&hasty, &url);
    first.kill();
    until("the roll-back", || other.log().contains("WARN rollback") && read("runs").contains("1 rollback=1")).await;
    assert_eq!(read("runs"), "1 rollback=\n2 rollback=\n1 rollback=1\n", "the command is not run again");
    assert_eq!(read("bodies").matches("\"n\":1").count(), 2);
    let shown = other.ask("GET", &format!("/api/events/{bad}")).await.json();
    assert_eq!((&shown["cause"], &shown["doubts"]), (&json!("unhealthy"), &json!(1)), "{shown}");
    let listed = other.ask("GET", "/api/events").await.json();
    let back = listed["events"].as_array().unwrap().iter().find(|event| event["rollback"].is_object());
    assert_eq!(back.map(|event| &event["rollback"]), Some(&json!({ "from": bad, "to": good })), "{listed}");
}
