//! A polled source: what is asked for, what the registry said, and when it is asked again.

use crate::support::{House, until};
use crate::visit;
use axum::Router;

const DIGEST: &str = "sha256:0de0000000000000000000000000000000000000000000000000000000000001";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_sources_shows_what_a_polled_tag_points_to() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let registry = format!("http://{}", listener.local_addr().unwrap());
    let says = || std::future::ready([("docker-content-digest", DIGEST)]);
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(says)).await });
    let house = House::new(&format!(
        r#"
[source.app]
poll = {{ registry = "{registry}", image = "octocat/app", tag = "latest", every = "1s", min_age = "1h" }}
[[source.app.route]]
run = {{ steps = ["true"] }}
"#
    ));
    until("an answer", || house.log().contains("INFO polled")).await;
    let page = visit(&house, "/sources").await;
    page.says("octocat/app:latest").await;
    page.says("until a digest was first seen 1h ago").await;
    page.says(DIGEST).await;
    page.says("deployed in 59 m").await;
    page.open(&house.admin_url("/")).await;
    page.says("Each source polls a registry").await;
    page.close(&house.admin_url("/")).await;
}
