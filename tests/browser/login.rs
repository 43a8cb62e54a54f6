//! The login page, where tokens are configured.

use crate::support::House;
use crate::{DEPLOY, config, deploy, visit};

/// A node whose admin port requires a token.
pub(crate) fn guarded() -> House {
    let admin = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken = { env = \"KEY_ALL\" }\ntokens = [{ token = { env = \"KEY_READ\" }, may = \"read\" }, { token = { env = \"KEY_FORGET\" }, may = \"forget\" }]\n";
    let mut house = House::empty(&format!("{admin}{}", config("test -e never")));
    let mut command = house.command(&["serve"]);
    command.env("KEY_ALL", "a token that may do all").env("KEY_READ", "a token that may only read");
    command.env("KEY_FORGET", "a token that may only forget");
    house.try_start_by(command).unwrap();
    house
}

#[tokio::test]
async fn a_wrong_token_is_reported_and_the_right_one_leads_to_the_requested_page() {
    let house = guarded();
    let event = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    let page = visit(&house, &format!("/events/{event}")).await;
    page.shows("form", "This node requires a token").await;
    page.type_in("#token", "a token that may do al").await;
    page.click("form button").await;
    page.shows("[role=alert]", "Wrong token").await;
    assert_eq!(page.value("document.cookie").await, "");
    page.paste("#token", "a token that may only forget").await;
    page.click("form button").await;
    page.shows("[role=alert]", "This token may only delete").await;
    page.paste("#token", "").await;
    page.type_in("#token", "a token that may do all\u{e007}").await;
    page.shows(".event-head .chip", "dead").await;
    page.shows("#replay", "Replay").await;
    assert_eq!(page.value("document.cookie").await, "", "no script sees the cookie");

    page.click("#replay").await;
    page.click("dialog button[value=yes]").await;
    page.shows(".timeline", "life 2").await;
    page.click("#logout").await;
    page.shows("form", "This node requires a token").await;
    page.open(&house.admin_url("/events")).await;
    page.shows("form", "This node requires a token").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_token_that_may_only_read_sees_no_button_that_would_fail() {
    let house = guarded();
    let event = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    house.quiet().await;
    let page = visit(&house, "/login").await;
    page.type_in("#token", "a token that may only read\u{e007}").await;
    page.shows("#needs", "1 failed event").await;
    page.says("read only").await;
    page.click("#needs a").await;
    page.shows("tbody tr", "shop").await;
    page.lacks("#replay-all").await;
    page.lacks(".replay-one").await;
    page.open(&house.admin_url(&format!("/events/{event}"))).await;
    page.shows(".event-head .chip", "dead").await;
    for button in ["#replay", "#cancel", "#forget"] {
        page.lacks(button).await;
    }
    page.press(&['r']).await;
    page.lacks("dialog").await;
    page.open(&house.admin_url(&format!("/explain?event={event}"))).await;
    page.shows("#would", "It would").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn the_redirect_after_the_login_stays_on_this_origin() {
    let house = guarded();
    let page = visit(&house, "/login").await;
    for (next, leads) in [
        ("/%09/elsewhere.invalid/x", "/"),
        ("//elsewhere.invalid/x", "/"),
        ("/%5Celsewhere.invalid/x", "/"),
        ("https://elsewhere.invalid/", "/"),
        ("http://[", "/"),
        ("/login?next=/dead", "/"),
        ("/events?source=orders", "/events?source=orders"),
    ] {
        page.open(&house.admin_url(&format!("/login?next={}", next.replace('?', "%3F")))).await;
        page.type_in("#token", "a token that may do all\u{e007}").await;
        page.until(&format!("location.pathname + location.search === '{leads}'")).await;
        page.click("#logout").await;
        page.shows("form", "This node requires a token").await;
    }
    page.close(&house.admin_url("/")).await;
}
