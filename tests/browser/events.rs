//! The list of events: filters in the URL, pages, live rows, keys.

use crate::browser::{ENTER, ESCAPE, TAB};
use crate::support::{House, Sent};
use crate::{DEPLOY, ORDER, config, deploy, order, short, visit};

const ROWS: &str = "document.querySelectorAll('tbody tr').length";

#[tokio::test]
async fn filters_are_in_the_url_and_the_back_button_undoes_them() {
    let house = House::new(&config("test $HOOKONCE_FIELD_APP != broken"));
    house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await;
    house.deliver(DEPLOY, &deploy("d-2", "broken", "latest", 1)).await;
    house.deliver(ORDER, &order("o-1", "paid", "ada")).await;
    house.deliver(ORDER, &order("o-2", "refunded", "grace")).await;
    house.quiet().await;
    let page = visit(&house, "/events").await;
    page.until(&format!("{ROWS} === 4")).await;

    page.choose("select[name=source]", "orders").await;
    page.until(&format!("{ROWS} === 2 && location.search === '?source=orders'")).await;
    page.type_in("input[name=text]", "GRACE\u{e007}").await;
    page.until(&format!("{ROWS} === 1 && location.search.includes('text=GRACE')")).await;
    page.shows("tbody tr", "refunded").await;
    page.back().await;
    page.until(&format!("{ROWS} === 2 && location.search === '?source=orders'")).await;
    page.back().await;
    page.until(&format!("{ROWS} === 4 && location.search === ''")).await;

    page.choose("select[name=state]", "dead:failed").await;
    page.until(&format!("{ROWS} === 1 && location.search === '?state=dead&cause=failed'")).await;
    page.shows("tbody tr", "broken").await;
    page.open(&house.admin_url("/events?field.customer=ada&last=1h")).await;
    page.until(&format!("{ROWS} === 1")).await;
    assert_eq!(page.value("document.querySelector('input[name=field]').value").await, "customer=ada");
    page.open(&house.admin_url("/events?text=nobody")).await;
    page.says("Nothing matches").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn an_invalid_filter_is_reported_and_nothing_is_listed() {
    let house = House::new(&config("true"));
    house.deliver(ORDER, &order("o-1", "paid", "ada")).await;
    house.quiet().await;
    let page = visit(&house, "/events").await;
    page.until(&format!("{ROWS} === 1")).await;
    for wrong in ["customer:ada", "customer", "customer=", "=ada"] {
        page.paste("input[name=field]", wrong).await;
        page.click(".filters button[type=submit]").await;
        page.shows("label [role=alert]", "name=value").await;
        page.until("document.activeElement.name === 'field'").await;
        assert_eq!(page.value("location.search").await, "", "{wrong}");
        page.type_in("input[name=field]", "x").await;
        page.lacks("label [role=alert]").await;
    }
    page.paste("input[name=field]", "customer = ada").await;
    page.click(".filters button[type=submit]").await;
    page.until(&format!("{ROWS} === 1 && location.search === '?field.customer=ada'")).await;
    for (asked, said) in [
        ("since=garbage", "since=garbage"),
        ("until=&until=13-13-13", "until=13-13-13"),
        ("last=week", "last=week"),
        ("colour=blue", "colour=blue"),
    ] {
        page.open(&house.admin_url(&format!("/events?state=done&{asked}"))).await;
        page.shows("[role=alert]", said).await;
        page.lacks("tbody tr").await;
    }
    page.click("[role=alert] a").await;
    page.until(&format!("{ROWS} === 1 && location.search === '?state=done'")).await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_number_is_shown_as_it_was_written_and_its_filter_finds_it() {
    let house = House::new(&config("false"));
    let page = visit(&house, "/").await;
    page.shows("#live", "Live").await;
    for (id, number) in [("o-1", "12345678901234567890"), ("o-2", "1.50"), ("o-3", "1e21")] {
        let body = format!("{{\"kind\":\"paid\",\"customer\":{number}}}");
        let event = house.deliver(ORDER, &Sent::github("push", id, &body)).await.event();
        page.shows("#feed", number).await;
        page.open(&house.admin_url(&format!("/events/{event}"))).await;
        page.shows(".field-link", number).await;
        page.click("a.field-link[href*='field.customer']").await;
        page.until(&format!("{ROWS} === 1")).await;
        page.shows("tbody tr", number).await;
        page.open(&house.admin_url("/")).await;
        page.shows("#live", "Live").await;
    }
    let body = r#"{"app":"shop","tag":"latest","build":9007199254740993,"at":1}"#;
    house.deliver(DEPLOY, &Sent::github("push", "d-1", body)).await;
    page.shows("#needs", "1 failed event").await;
    page.open(&house.admin_url("/dead")).await;
    page.shows("tbody tr", "9007199254740993").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn an_unknown_url_shows_a_page_that_says_so() {
    let house = House::new(&config("true"));
    let page = visit(&house, "/nowhere").await;
    page.says("Page not found").await;
    page.open(&house.admin_url("/events/")).await;
    page.says("No events yet").await;
    page.until("location.pathname === '/events'").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn the_search_box_finds_a_delivery_with_any_verdict() {
    let house = House::new(&config("true"));
    let event = house.deliver(DEPLOY, &deploy("d-first", "shop", "latest", 5)).await.event();
    house.deliver(DEPLOY, &deploy("d-twin", "shop", "latest", 5)).await;
    house.deliver(DEPLOY, &deploy("d-late", "shop", "latest", 3)).await;
    house.deliver(DEPLOY, &deploy("d-night", "shop", "nightly", 6)).await;
    house.deliver("/in/astray", &deploy("d-astray", "shop", "latest", 7)).await;
    house.quiet().await;
    let page = visit(&house, "/").await;
    page.shows("#feed .verdict-duplicate", "duplicate").await;
    page.press(&['/']).await;
    page.until("document.activeElement.closest('.search')").await;
    page.type_in(".search input", "d-twin\u{e007}").await;
    page.until("location.pathname + location.search === '/events?text=d-twin'").await;
    page.shows("#found", "the same change of its subject").await;
    page.says("No matching event").await;
    page.click("#found a.id").await;
    page.until(&format!("location.pathname === '/events/{event}'")).await;
    for (id, said) in [
        ("d-late", format!("{} is newer", short(&event))),
        ("D-NIGHT", "tag was \"nightly\"".into()),
        ("d-astray", "no source listens there".into()),
    ] {
        page.open(&house.admin_url(&format!("/events?text={id}"))).await;
        page.shows("#found", &said).await;
        page.until("document.querySelectorAll('#found li').length === 1").await;
    }
    page.open(&house.admin_url("/events?text=d-first")).await;
    page.until(&format!("{ROWS} === 1")).await;
    page.lacks("#found").await;
    // A delivery that arrives while the user searches for it.
    page.open(&house.admin_url("/events?text=d-soon")).await;
    page.says("Nothing matches").await;
    page.shows("#live", "Live").await;
    house.deliver(DEPLOY, &deploy("d-soon", "shop", "nightly", 8)).await;
    page.shows("#found", "d-soon").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_filter_keeps_the_focus_and_times_are_right_at_midnight_and_on_other_days() {
    let house = House::new(&config("true"));
    house.deliver(ORDER, &order("o-1", "paid", "ada")).await;
    house.quiet().await;
    let page = visit(&house, "/events").await;
    page.until(&format!("{ROWS} === 1")).await;
    page.choose("select[name=state]", "done").await;
    page.until("location.search === '?state=done' && document.activeElement.name === 'state'").await;
    page.press(&['\u{e00c}']).await;
    page.goes(['g', 'd'], "/dead").await;
    page.until("location.pathname === '/dead' && document.activeElement.id === 'page'").await;

    let times = "document.querySelector('link[href$=\"time.js\"]').href";
    page.value(&format!("(import({times}).then((times) => {{ window.times = times; }}), 1)")).await;
    page.until("window.times").await;
    assert_eq!(page.value("times.clock(new Date(2026, 0, 2, 0, 5, 6))").await, "00:05:06");
    assert_eq!(page.value("times.hour(new Date(2026, 0, 2, 0, 5, 6))").await, "00:05");
    let shown = "times.when(new Date(2026, 0, 2, 0, 5, 6).toISOString(), { form: 'clock' }).textContent";
    assert_eq!(page.value(shown).await, "Jan 2, 00:05:06");
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn new_rows_appear_live_and_do_not_move_what_is_being_read() {
    let house = House::new(&config("true"));
    for n in 0..70 {
        house.deliver(ORDER, &order(&format!("o-{n}"), "paid", &format!("customer {n}"))).await;
    }
    let page = visit(&house, "/events").await;
    page.until(&format!("{ROWS} === 50")).await;
    page.shows("#live", "Live").await;
    let new = house.deliver(ORDER, &order("o-new", "paid", "newcomer")).await.event();
    page.shows("tbody tr:first-child", short(&new)).await;

    page.value("(scrollTo(0, 700), 1)").await;
    page.until("scrollY > 600").await;
    let top = "Math.round(document.querySelectorAll('tbody tr')[20].getBoundingClientRect().top)";
    let before = page.value(top).await;
    let newer = house.deliver(ORDER, &order("o-newer", "paid", "second")).await.event();
    page.shows(".new-rows", "1 new event").await;
    assert_eq!(page.value("document.querySelectorAll('tbody tr').length").await, 51);
    let shift = page.value("document.querySelector('.new-rows').offsetHeight").await.as_i64().unwrap();
    let moved = page.value(top).await.as_i64().unwrap() - before.as_i64().unwrap();
    assert!(moved.abs() <= shift.max(1) && moved.abs() < 60, "the rows moved by {moved}");
    page.value("(scrollTo(0, 0), 1)").await;
    page.click(".new-rows").await;
    page.shows("tbody tr:first-child", short(&newer)).await;
    page.lacks(".new-rows").await;

    page.click(".more button").await;
    page.until(&format!("{ROWS} === 72")).await;
    page.says("72 events").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn the_keyboard_alone_is_enough() {
    let house = House::new(&config("test -e fixed"));
    let mut events = Vec::new();
    for n in 1..=3 {
        events.push(house.deliver(DEPLOY, &deploy(&format!("d-{n}"), &format!("app{n}"), "latest", n)).await.event());
    }
    house.quiet().await;
    let page = visit(&house, "/").await;
    page.shows("#needs", "3 failed events").await;
    // The first focusable element skips the navigation.
    page.press(&[TAB]).await;
    assert_eq!(page.value("document.activeElement.className").await, "skip");
    page.goes(['g', 'e'], "/events").await;
    page.until(&format!("location.pathname === '/events' && {ROWS} === 3")).await;
    page.press(&['/']).await;
    page.until("document.activeElement.name === 'text'").await;
    page.press(&[ESCAPE]).await;
    page.press(&['j', 'j']).await;
    page.until(&format!("document.activeElement.textContent === '{}'", short(&events[1]))).await;
    page.press(&['k', 'j', 'j', 'j']).await;
    page.until(&format!("document.activeElement.textContent === '{}'", short(&events[0]))).await;
    page.press(&[ENTER]).await;
    page.until(&format!("location.pathname === '/events/{}'", events[0])).await;
    page.shows("#replay", "Replay").await;

    page.press(&['r']).await;
    page.shows("dialog[open]", short(&events[0])).await;
    page.press(&[ESCAPE]).await;
    page.lacks("dialog").await;
    assert_eq!(house.sql("select max(life) from events"), ["1"], "Escape cancels");
    crate::touch(&house, "fixed");
    page.press(&['r']).await;
    page.shows("dialog[open]", short(&events[0])).await;
    page.press(&[ENTER]).await;
    page.shows(".event-head .chip", "done").await;
    page.press(&['u']).await;
    page.until("location.pathname === '/events'").await;
    page.press(&['?']).await;
    page.shows("dialog[open]", "next and previous row").await;
    page.press(&[ENTER]).await;
    page.lacks("dialog").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_page_says_that_its_event_was_published_again() {
    let mut house = House::new(&config("true"));
    let event = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    house.quiet().await;
    house.stop();
    // What a node writes when GitHub's Redeliver publishes a message again.
    let db = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    db.execute_batch(
        "update events set published_again = json_object('times', 2, 'last_at', ended_at, \
         'first_ended_at', ended_at, 'attempts_before', 1)",
    )
    .unwrap();
    drop(db);
    house.start();
    let page = visit(&house, &format!("/events/{event}")).await;
    page.shows("#timeline", "Published again: 2 times").await;
    page.shows("#timeline", &format!("{event}.r2")).await;
    page.shows("dl.facts", "published again").await;
    page.shows("#why", "published again 2 times").await;
    page.close(&house.admin_url("/")).await;
}
