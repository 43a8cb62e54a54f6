//! The first visit, and what appears live.

use crate::support::House;
use crate::{DEPLOY, ORDER, config, deploy, order, short, visit};

#[tokio::test]
async fn the_first_visit_says_what_to_do_next_and_then_fills_live() {
    let house = House::new(&config("echo hello"));
    let page = visit(&house, "/").await;
    page.says("hookonce send --sample --source deploys").await;
    page.says(&house.url(DEPLOY)).await;
    page.says(&house.url(ORDER)).await;
    page.shows("#live", "Live").await;
    page.value("window.unloaded = 'no'").await;

    let first = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await;
    page.lacks("#empty").await;
    page.shows(".tile", "Deliveries1").await;
    page.shows(".head p", "Deliveries and charts are from node").await;
    page.shows("#feed", short(&first.event())).await;
    house.quiet().await;
    page.shows("#feed .state-done", "done").await;

    house.deliver(DEPLOY, &deploy("d-2", "shop", "latest", 1)).await;
    page.shows("#feed .verdict-duplicate", "duplicate").await;
    page.shows(".tile.hero", "1 run").await;
    page.says("the same change of its subject").await;
    house.deliver(DEPLOY, &deploy("d-3", "shop", "nightly", 2)).await;
    page.shows("#feed", "tag was \"nightly\"").await;
    house.deliver(ORDER, &order("o-1", "paid", "ada")).await;
    page.until("document.querySelectorAll('table.short tbody tr').length === 2").await;
    page.shows("#feed .state-done", "recorded").await;
    assert_eq!(page.value("window.unloaded").await, "no");
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn title_favicon_and_badge_show_dead_letters_until_none_is_left() {
    let house = House::new(&config("test -e fixed"));
    let page = visit(&house, "/turned-away").await;
    page.until("document.title === 'Turned away · Hookonce'").await;
    page.until("document.getElementById('favicon').href.endsWith('favicon.svg')").await;
    page.shows("#live", "Live").await;

    let event = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    page.until("document.title.startsWith('● 1 dead')").await;
    page.until("document.getElementById('favicon').href.endsWith('favicon-trouble.svg')").await;
    page.shows(".badge", "1").await;
    page.click(".nav a[href='/']").await;
    page.shows("#needs", "1 failed event needs attention").await;

    crate::touch(&house, "fixed");
    page.click("#needs a").await;
    page.shows("tbody tr", short(&event)).await;
    page.click(".replay-one").await;
    page.shows("dialog[open]", short(&event)).await;
    page.click("dialog button[value=yes]").await;
    page.says("No dead letters").await;
    page.until("!document.title.includes('dead ·')").await;
    page.until("document.getElementById('favicon').href.endsWith('favicon.svg')").await;
    page.lacks(".badge").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn rejected_deliveries_are_listed_with_their_reason() {
    let house = House::new(&config("true"));
    let page = visit(&house, "/turned-away").await;
    page.says("Nothing was turned away").await;
    house.deliver(DEPLOY, &deploy("d-night", "shop", "nightly", 2)).await;
    page.shows("tbody tr", "tag was \"nightly\"").await;
    let forged =
        deploy("d-forged", "shop", "latest", 3).with("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)));
    assert_eq!(house.deliver(DEPLOY, &forged).await.status, 401);
    page.shows("tbody tr .verdict-refused", "refused").await;
    page.says("bad signature").await;
    page.click(".tabs button:nth-child(3)").await;
    page.until("location.search === '?verdict=ignored'").await;
    page.lacks("tbody .verdict-refused").await;
    page.shows("tbody .verdict-ignored", "ignored").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn sources_shows_the_config_and_explain_shows_why_a_delivery_is_ignored() {
    let house = House::new(&config("true"));
    let page = visit(&house, "/sources").await;
    page.says(&house.url(DEPLOY)).await;
    page.shows(".card", "a change of app").await;
    page.shows(".card", "tag != \"nightly\"").await;

    page.goes(['g', 'x'], "/explain").await;
    let sent = deploy("d-1", "shop", "nightly", 7);
    let headers: Vec<_> = sent.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    page.choose("select[name=source]", "deploys").await;
    page.paste("textarea[name=headers]", &headers.join("\n")).await;
    page.paste("textarea[name=body]", std::str::from_utf8(&sent.body).unwrap()).await;
    page.click("form button[type=submit]").await;
    page.shows("#would", "It would be ignored").await;
    page.shows(".walk .no", "tag was \"nightly\"").await;
    page.shows(".walk .ok", "Signature").await;

    let body = std::str::from_utf8(&sent.body).unwrap();
    page.choose("select[name=source]", "").await;
    page.click("form button[type=submit]").await;
    page.shows("[role=alert]", "Which source is it for? One of: deploys").await;
    page.until("!document.body.innerText.includes('--source')").await;

    let whole =
        format!("POST {DEPLOY} HTTP/1.1\nhost: here\ncontent-type: application/json\n\n{}", body.replace('7', "9"));
    page.open(&house.admin_url("/explain")).await;
    page.paste("textarea[name=body]", &whole).await;
    page.click("form button[type=submit]").await;
    page.shows(".walk", "listens on /in/deploys").await;

    let event = house.deliver(DEPLOY, &deploy("d-2", "shop", "latest", 8)).await.event();
    house.quiet().await;
    page.open(&house.admin_url(&format!("/explain?event={event}"))).await;
    page.shows("#would", "be a duplicate of").await;
    page.shows(&format!("#would a[href='/events/{event}']"), short(&event)).await;
    assert_eq!(house.sql("select count(*) from events"), ["1"], "explaining writes nothing");
    page.close(&house.admin_url("/")).await;
}
