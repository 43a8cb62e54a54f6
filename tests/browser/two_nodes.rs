//! A page of one node, while another one acts.

use crate::support::House;
use crate::{DEPLOY, config, deploy, redis, short, touch, visit};

/// A node with only one role, on this server.
fn half(server: &redis::Server, step: &str, half: &str) -> House {
    let mut house = House::empty(&format!("store = {{ env = \"STORE\" }}\n{}", config(step)));
    let mut serve = house.command(&["serve", "--only", half]);
    serve.env("STORE", server.url("pages"));
    house.try_start_by(serve).unwrap();
    house
}

#[tokio::test]
async fn changes_by_another_node_show_on_the_page_and_in_the_count_of_dead_letters() {
    let server = redis::Server::start();
    let step = "until test -e $HOOKONCE_FIELD_APP; do sleep 0.02; done; test $HOOKONCE_FIELD_APP = shop";
    let [ingest, work] = ["ingest", "work"].map(|name| half(&server, step, name));
    let page = visit(&ingest, "/events").await;
    page.shows("#live", "Live").await;
    let done = ingest.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    let dead = ingest.deliver(DEPLOY, &deploy("d-2", "desk", "latest", 1)).await.event();
    page.shows("tbody tr:first-child", short(&dead)).await;
    // A focused row stays where it is, and is updated there.
    page.value("document.querySelector('tbody tr:last-child [data-row]').focus()").await;
    touch(&work, "shop");
    page.shows("tbody tr:last-child .chip", "done").await;
    page.until(&format!("document.activeElement.closest('tr')?.dataset.event === '{done}'")).await;
    page.shows("tbody tr:first-child", short(&dead)).await;

    page.open(&ingest.admin_url("/dead")).await;
    page.says("No dead letters").await;
    page.shows("#live", "Live").await;
    touch(&work, "desk");
    page.shows("tbody tr", short(&dead)).await;
    page.shows(".nav .badge", "1").await;

    page.open(&ingest.admin_url(&format!("/events/{dead}"))).await;
    page.shows(".event-head .chip", "dead").await;
    page.shows("#live", "Live").await;
    assert_eq!(work.ask("POST", &format!("/api/events/{dead}/replay")).await.status, 200);
    page.shows(".timeline", "life 2").await;
    page.close(&ingest.admin_url("/")).await;
}

#[tokio::test]
async fn changes_without_a_hint_show_on_the_page_a_little_later() {
    let server = redis::Server::start();
    let step = "until test -e go; do sleep 0.02; done";
    let ingest = half(&server, step, "ingest");
    let event = ingest.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    let page = visit(&ingest, &format!("/events/{event}")).await;
    page.shows("#live", "Live").await;
    page.shows(".event-head .chip", "waiting").await;
    // It starts there, for which no node sends a hint.
    let _work = half(&server, step, "work");
    page.shows(".event-head .chip", "running").await;
    page.close(&ingest.admin_url("/")).await;
}

#[tokio::test]
async fn the_output_of_another_nodes_command_appears_while_it_runs() {
    let server = redis::Server::start();
    let step =
        "echo from afar; until test -e more; do sleep 0.02; done; echo and more; until test -e go; do sleep 0.02; done";
    let [ingest, work] = ["ingest", "work"].map(|name| half(&server, step, name));
    let event = ingest.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    let page = visit(&ingest, &format!("/events/{event}")).await;
    page.shows("#live-output", "from afar").await;
    touch(&work, "more");
    page.shows("#live-output", "and more").await;
    page.shows("#live-output .output-head", "2 lines").await;
    touch(&work, "go");
    page.shows(".event-head .chip", "done").await;
    page.close(&ingest.admin_url("/")).await;
}
