//! A preset whose new version reads its identities from elsewhere: the store remembers the version that made its keys.

use super::server_refusals::on;
use super::store_servers::StoreServer;
use super::support::{House, Sent};

const CONFIG: &str = r#"store = { env = "STORE" }
[source.s]
preset = "acme"
path = "/in"
secret = { env = "SECRET" }
[[source.s.route]]
when = 'key != ""'
run = { steps = [["true"]] }
"#;

fn write_preset(house: &House, version: u32, place: &str) {
    std::fs::create_dir_all(house.path("presets")).unwrap();
    let preset = format!(
        "# Ours.\nverify = {{ scheme = \"github\" }}\n[fields]\nkey = \"body.{place}\"\n[once]\nper = [[\"key\"]]\n\
         [sender]\nname = \"Acme\"\nversion = {version}\nneeds = [\"secret\"]\n"
    );
    std::fs::write(house.path("presets/acme.toml"), preset).unwrap();
}

/// What a command prints, and its exit code.
fn said(house: &House, url: &str, args: &[&str]) -> (Option<i32>, String) {
    let output = on(house, url, args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks that a node and the check that reads this store name a new version of a preset, once.
async fn a_new_version_is_named(url: &str, args: &[&str]) {
    let mut house = House::empty(CONFIG);
    write_preset(&house, 1, "id");
    let serve = on(&house, url, &["serve"]);
    house.try_start_by(serve).unwrap();
    let delivery = |id: &str| Sent::github("push", id, r#"{"id":"1","name":"a"}"#);
    assert_eq!(house.deliver("/in", &delivery("d-1")).await.word(), "accepted");
    let words =
        "the scope `s` has another version of its preset: the preset `acme`: its version was 1, and now it is 2";
    let (code, same) = said(&house, url, args);
    assert!(code == Some(0) && !same.contains("another version"), "{same}");
    assert!(house.stop().success());

    write_preset(&house, 2, "name");
    let (code, told) = said(&house, url, args);
    assert!(code == Some(0) && told.contains(words) && told.contains("may act again"), "{told}");
    let (_, json) = said(&house, url, &[args, &["--json"]].concat());
    assert!(json.contains(words), "{json}");
    let serve = on(&house, url, &["serve"]);
    house.try_start_by(serve).unwrap();
    assert!(house.log().contains(words), "{}", house.log());
    assert!(!said(&house, url, args).1.contains(words), "the store remembers the new version now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_and_serve_name_a_new_version_of_a_preset_on_sqlite() {
    a_new_version_is_named("sqlite:hookonce.db", &["check"]).await;
    a_new_version_is_named("sqlite:hookonce.db", &["check", "--live"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_check_and_serve_name_a_new_version_of_a_preset_on_a_server() {
    for server in [StoreServer::postgres().await, StoreServer::redis().await] {
        a_new_version_is_named(&server.fresh().await, &["check", "--live"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_without_live_says_that_it_compares_nothing_on_a_server() {
    let house = House::empty(CONFIG);
    write_preset(&house, 1, "id");
    let note = "only `check --live` compares it with the events in the store";
    assert!(said(&house, "postgres://nobody@127.0.0.1:1/none", &["check"]).1.contains(note));
    assert!(!said(&house, "sqlite:hookonce.db", &["check"]).1.contains(note));
}
