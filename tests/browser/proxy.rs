//! The dashboard behind a proxy.

use crate::browser::Browser;
use crate::login::guarded;
use crate::nginx::{Nginx, documented};
use crate::{DEPLOY, ORDER, deploy, order, short};

#[tokio::test]
async fn login_and_the_live_stream_work_behind_nginx_as_documented() {
    let house = guarded();
    let location = documented("watching.md", "nginx");
    let here = location.replace("http://127.0.0.1:3143", &house.admin_url(""));
    assert_ne!(location, here, "the documented block uses the default admin port");
    let proxy = Nginx::start(&here);
    let page = Browser::new(1280, 900).await;
    page.open(&proxy.url("/")).await;
    page.type_in("#token", "a token that may do all\u{e007}").await;
    page.shows("#live", "Live").await;
    let recorded = house.deliver(ORDER, &order("o-1", "paid", "ada")).await.event();
    page.shows("#feed", short(&recorded)).await;

    let dead = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    page.shows("#needs", "1 failed event").await;
    page.open(&proxy.url(&format!("/events/{dead}"))).await;
    page.click("#replay").await;
    page.click("dialog button[value=yes]").await;
    page.shows(".timeline", "life 2").await;
    page.close(&proxy.url("/")).await;
}

#[tokio::test]
async fn a_proxy_that_does_not_pass_the_host_is_reported_at_the_login() {
    let house = guarded();
    let proxy = Nginx::start(&format!("location / {{ proxy_pass {}; }}", house.admin_url("")));
    let page = Browser::new(1280, 900).await;
    page.open(&proxy.url("/")).await;
    page.type_in("#token", "a token that may do all\u{e007}").await;
    page.shows("[role=alert]", "proxy_set_header Host $http_host;").await;
    assert_eq!(page.value("document.cookie").await, "");
    page.close(&proxy.url("/")).await;
}
