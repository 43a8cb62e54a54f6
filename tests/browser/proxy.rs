//! The page behind a proxy.

use crate::browser::Browser;
use crate::login::guarded;
use crate::nginx::{Nginx, documented};
use crate::{DEPLOY, ORDER, deploy, order, short};

#[tokio::test]
async fn behind_nginx_as_documented_one_logs_in_and_sees_what_happens_as_it_happens() {
    let house = guarded();
    let location = documented("watching.md", "nginx");
    let here = location.replace("http://127.0.0.1:3143", &house.admin_url(""));
    assert_ne!(location, here, "the documented block leads to the usual admin port");
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
async fn a_proxy_that_passes_no_name_on_is_told_of_where_one_logs_in() {
    let house = guarded();
    let proxy = Nginx::start(&format!("location / {{ proxy_pass {}; }}", house.admin_url("")));
    let page = Browser::new(1280, 900).await;
    page.open(&proxy.url("/")).await;
    page.type_in("#token", "a token that may do all\u{e007}").await;
    page.shows("[role=alert]", "proxy_set_header Host $http_host;").await;
    assert_eq!(page.value("document.cookie").await, "");
    page.close(&proxy.url("/")).await;
}
