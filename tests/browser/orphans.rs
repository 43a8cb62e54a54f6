//! The overview's facts about the sweep, and about events of sources that no node has.

use crate::support::House;
use crate::{ORDER, config, order, visit};

#[tokio::test]
async fn the_overview_shows_what_was_swept_and_counts_events_of_sources_that_no_node_has() {
    let short = |config: String| config + "[source.orders.once]\nkeep = \"5s\"\nkeep_body = \"0s\"\n";
    let mut house = House::new(&short(config("true")));
    house.deliver(ORDER, &order("o-1", "paid", "ada")).await;
    let begun = std::time::Instant::now();
    while house.ask("POST", "/api/forget").await.json()["forgotten"] != 1 {
        assert!(begun.elapsed() < crate::support::PATIENCE, "it is not forgotten");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let page = visit(&house, "/").await;
    page.shows("dl.facts", "deleted 1 event and 0 bodies").await;
    page.lacks("#orphaned").await;
    page.close(&house.admin_url("/")).await;
    house.deliver(ORDER, &order("o-2", "paid", "ada")).await;
    assert!(house.stop().success());
    house.configure(&config("true").split("[source.orders]").next().unwrap().replace("deploys", "others"));
    house.start();
    let page = visit(&house, "/").await;
    page.shows("#orphaned", "1 event of a source that no node has: orders (1, kept for 5s)").await;
    page.shows("#orphaned", "hookonce forget --source NAME").await;
    page.close(&house.admin_url("/")).await;
}
