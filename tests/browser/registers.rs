//! The registers of subjects: the list, and the page of one.

use crate::support::House;
use crate::{DEPLOY, config, deploy, short, visit};

#[tokio::test]
async fn a_register_is_found_shown_and_corrected() {
    let house = House::new(&config("test $HOOKONCE_FIELD_BUILD != 3"));
    let mut events = Vec::new();
    for build in 1..=3 {
        events.push(house.deliver(DEPLOY, &deploy(&format!("d-{build}"), "shop", "latest", build)).await.event());
        house.quiet().await;
    }
    house.deliver(DEPLOY, &deploy("d-4", "desk", "latest", 1)).await;
    house.quiet().await;
    let page = visit(&house, "/events").await;
    page.shows("#live", "Live").await;
    page.goes(['g', 'r'], "/registers").await;
    page.until("document.querySelectorAll('tbody tr').length === 2").await;
    page.type_in("[data-search]", "app=shop tag=latest\u{e007}").await;
    page.until("document.querySelectorAll('tbody tr').length === 1").await;
    page.shows("tbody tr", short(&events[2])).await;
    page.shows("tbody tr", "dead · failed").await;
    page.shows("tbody td[data-label=deployed]", short(&events[1])).await;
    page.click("tbody [data-row]").await;
    page.until("document.title.includes('Register shop latest')").await;
    page.shows("[data-which=current]", short(&events[2])).await;
    page.shows("[data-which=good]", short(&events[1])).await;
    page.until("document.querySelectorAll('#candidates tbody tr').length === 3").await;

    page.click(&format!("#candidates tr[data-event='{}'] [data-set=current]", events[1])).await;
    page.shows("dialog[open]", "Nothing runs").await;
    page.click("dialog[open] button[value=yes]").await;
    page.shows("[data-which=current]", short(&events[1])).await;
    page.click("#clear-deployed").await;
    page.click("dialog[open] button[value=yes]").await;
    page.shows("[data-which=deployed]", "none").await;
    page.shows("[data-which=current]", short(&events[1])).await;
    page.click("#clear").await;
    page.shows("dialog[open]", "its next delivery acts").await;
    page.click("dialog[open] button[value=yes]").await;
    page.until("location.pathname === '/registers'").await;
    page.until("document.querySelectorAll('tbody tr').length === 1").await;
    assert_eq!(house.sql("select count(*) from events where life > 1"), ["0"], "nothing ran");
    page.close(&house.admin_url("/")).await;
}
