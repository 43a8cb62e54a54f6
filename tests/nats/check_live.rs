//! `hookonce check --live`: it inspects servers and streams, and creates none.

use super::server::Nats;
use super::support::{House, free_port};
use super::{LONG, edge, worker};
use std::time::Duration;

#[track_caller]
fn check(config: &str, well: bool, words: &str) {
    let said = House::empty(config).command(&["check", "--live"]).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() == well && text.contains(words), "expected {words:?}:\n{text}");
}

const ACT: &str = "run = { steps = [\"true\"] }";

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_that_is_published_to_is_inspected() {
    let nats = Nats::start();
    let at = format!("github.{{kind}} at {}: ", nats.url());
    let edge = edge(&nats.url(), "", "");
    check(&edge, false, &format!("wrong  publish   {at}no stream has the subject `github.*`"));
    check(&edge, false, "; nats stream add GITHUB --subjects 'github.*'");
    nats.stream("GITHUB", Duration::from_mins(1)).await;
    check(&edge, true, &format!("ok     publish   {at}the stream GITHUB has a duplicate window of 1m, but the last"));
    nats.jetstream().await.delete_stream("GITHUB").await.unwrap();
    nats.stream("GITHUB", LONG).await;
    check(&edge, true, &format!("ok     publish   {at}a stream stores it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_that_is_read_is_inspected_and_not_created() {
    let nats = Nats::start();
    let at = format!("stream GITHUB at {}, consumer hookonce: ", nats.url());
    let bare = worker(&nats.url(), "", ACT);
    let makes = worker(&nats.url(), r#", create = true, subjects = ["github.>"]"#, ACT);
    check(&bare, false, &format!("wrong  stream    {at}there is no stream GITHUB; make it"));
    check(&makes, true, &format!("ok     stream    {at}not there yet; stream and consumer are made"));
    nats.stream("GITHUB", LONG).await;
    check(&bare, false, &format!("wrong  stream    {at}the stream GITHUB has no consumer hookonce"));
    check(&makes, true, &format!("ok     stream    {at}no consumer yet"));
    nats.consumer("GITHUB", Duration::from_secs(30)).await;
    check(&bare, true, &format!("ok     stream    {at}can be read"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_or_refusing_server_is_reported_with_the_reason() {
    let place = format!("127.0.0.1:{}", free_port());
    let refused = format!("not connected to nats://{place}: client error: nats: IO error: {place}: Connection refused");
    check(&edge(&format!("nats://{place}"), "", ""), false, &refused);
    let nats = Nats::with("jetstream { store_dir: \"data\" }\nauthorization { token: s3cret }");
    check(&edge(&nats.url(), "", ""), false, "authorization violation");
}
