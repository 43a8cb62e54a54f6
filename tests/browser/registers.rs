//! The registers of subjects: the list, and the page of one.

use crate::support::House;
use crate::{DEPLOY, config, deploy, short, visit};

/// A source that is never delivered to.
const PACKAGES: &str = r#"
[source.packages]
preset = "github-package"
secret = { env = "SECRET" }
[source.packages.catch_up]
repository = "octo/app"
hook       = 17
token      = { file = "token" }
api        = "http://127.0.0.1:9"
every      = "2h"
[[source.packages.route]]
name   = "deploy"
lookup = { registry = "http://127.0.0.1:9", image = "{namespace}/{package}", tag = "{tag}" }
run    = { steps = ["true"] }
"#;

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

#[tokio::test]
async fn a_roll_back_is_named_on_its_event_and_its_register_and_sources_shows_what_leads_to_it() {
    let check = r#"{ run = ["sh", "check"], within = "5s", every = "100ms" }"#;
    let notify = r#"[{ name = "desk", on = ["rollback"], run = { steps = ["true"] } }]"#;
    let keys = format!("name = \"run\"\nhealth_check = {check}\non_unhealthy = \"rollback\"\nnotify = {notify}");
    let mut house = House::empty(&(config("true").replace("name = \"run\"", &keys) + PACKAGES));
    std::fs::write(house.path("check"), "test $HOOKONCE_FIELD_BUILD != 2\n").unwrap();
    std::fs::write(house.path("token"), "a-token-of-sixteen-bytes").unwrap();
    house.start();
    house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await;
    house.quiet().await;
    let bad = house.deliver(DEPLOY, &deploy("d-2", "shop", "latest", 2)).await.event();
    house.quiet().await;
    let shown = house.ask("GET", &format!("/api/events/{bad}")).await.json();
    let back = shown["rolled_back_by"]["event"].as_str().unwrap().to_owned();

    let page = visit(&house, &format!("/events/{bad}")).await;
    page.shows(".facts", &format!("rolled back by {} (done)", short(&back))).await;
    page.open(&house.admin_url(&format!("/registers/{bad}"))).await;
    page.shows("[data-which=deployed]", &format!("rolled back by {}", short(&back))).await;
    page.click("[data-which=deployed] div a").await;
    page.until(&format!("location.pathname === '/events/{back}'")).await;
    page.open(&house.admin_url(&format!("/explain?event={back}"))).await;
    page.shows("[role=alert]", "was not made by a delivery").await;

    page.open(&house.admin_url("/sources")).await;
    page.says(r#"["sh", "check"] exits with 0 within 5s, checked every 100ms"#).await;
    page.says("otherwise it is dead, and the last good one is deployed again").await;
    page.says("run (desk) on rollback: true, at most 5 attempts").await;
    page.says("{namespace}/{package}:{tag} in the registry http://127.0.0.1:9").await;
    page.says("hook 17 of the repository octo/app at http://127.0.0.1:9, every 2h").await;
    page.close(&house.admin_url("/")).await;
}
