//! A node that stops and restarts under an open page.

use crate::support::{House, free_port};
use crate::{DEPLOY, config, deploy, short, visit};

#[tokio::test]
async fn the_page_reconnects_and_shows_what_it_missed() {
    let admin = format!("[admin]\nlisten = \"127.0.0.1:{}\"\n", free_port());
    let mut house = House::new(&format!("{admin}{}", config("true")));
    let page = visit(&house, "/events").await;
    page.says("No events yet").await;
    page.shows("#live", "Live").await;
    page.value("window.unloaded = 'no'").await;
    house.stop();
    page.shows("#live", "Reconnecting").await;
    house.start();
    // Before the page has reconnected.
    let missed = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    page.shows("#live", "Live").await;
    page.shows("tbody tr", short(&missed)).await;
    let live = house.deliver(DEPLOY, &deploy("d-2", "desk", "latest", 1)).await.event();
    page.shows("tbody tr:first-child", short(&live)).await;
    assert_eq!(page.value("window.unloaded").await, "no");
    page.close(&house.admin_url("/")).await;
}
