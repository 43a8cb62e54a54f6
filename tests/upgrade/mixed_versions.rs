//! Nodes and commands of both versions beside each other, during an upgrade.

use crate::first_release;
use crate::support::{House, Sent, until};
use serde_json::json;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

fn config(admin: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{admin}\
         [source.a]\npath = \"/a\"\nverify = {{ scheme = \"github\", secret = {{ env = \"SECRET\" }} }}\n\
         fields = {{ n = \"body.n\" }}\nwhen = 'n != 2'\n[[source.a.route]]\nrun = {{ steps = [\"true\"] }}\n"
    )
}

/// A node of the first release, if its binary is given.
fn old_node() -> Option<House> {
    let Some(first) = first_release() else {
        println!("skipped: HOOKONCE_FIRST_RELEASE is not set; ./test --full builds that binary");
        return None;
    };
    let mut house = House::empty(&config(""));
    let mut serve = Command::new(first);
    let today = house.command(&[]);
    serve.arg("serve").current_dir(house.dir.path());
    serve.envs(today.get_envs().filter_map(|(name, value)| Some((name, value?))));
    house.try_start_by(serve).unwrap();
    Some(house)
}

fn sent(id: &str, n: u64) -> Sent {
    Sent::github("push", id, &format!("{{\"n\":{n}}}"))
}

#[tokio::test]
async fn a_node_shows_what_a_peer_of_the_first_release_turned_away() {
    let Some(old) = old_node() else { return };
    let house = House::new(&config(&format!("peers = [\"{}\"]\n", old.admin_url(""))));
    old.deliver("/a", &sent("d1", 2)).await;
    for path in
        ["/api/deliveries?verdict=refused,ignored", "/api/deliveries?verdict=ignored,refused", "/api/turned-away"]
    {
        let told = house.ask("GET", path).await.json();
        assert_eq!(told["nodes"][1]["answered"], json!(true), "{path}: {told}");
        let list = told.get("deliveries").unwrap_or(&told["turned_away"]);
        assert_eq!(list[0]["verdict"], json!("ignored"), "{path}: {told}");
    }
}

#[tokio::test]
async fn tail_follows_a_node_of_the_first_release() {
    let Some(old) = old_node() else { return };
    let mut tail = old.command(&["tail", "--admin", &old.admin_url("")]);
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (seen, output) = (lines.clone(), BufReader::new(tail.stdout.take().unwrap()));
    let reader = std::thread::spawn(move || {
        output.lines().map_while(Result::ok).for_each(|line| seen.lock().unwrap().push(line));
    });
    // Sent until it is seen: the stream may begin later.
    for n in 10.. {
        old.deliver("/a", &sent(&format!("d{n}"), n)).await;
        if lines.lock().unwrap().iter().any(|line| line.contains("done")) {
            break;
        }
        assert!(
            n < 3_000 && tail.try_wait().unwrap().is_none(),
            "it ended, or shows nothing: {:?}",
            lines.lock().unwrap()
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    tail.kill().unwrap();
    tail.wait().unwrap();
    until("its output ends", || reader.is_finished()).await;
}
