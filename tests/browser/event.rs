//! An event's page: its timeline, its live output, and its actions.

use crate::support::{House, until};
use crate::{DEPLOY, config, deploy, short, touch, visit};

#[tokio::test]
async fn output_appears_with_its_colours_while_the_command_runs() {
    let step = "printf '\\033[31mred\\033[0m \\033[1;38;2;1;200;3mtrue\\033[0m\\n'; \
                until test -e more; do sleep 0.02; done; printf '10%%\\r99%%\\n\\033[2J\\033[5;5Hplaced\\n'; \
                until test -e go; do sleep 0.02; done; echo bye";
    let house = House::new(&config(step));
    let event = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    until("the command to run", || house.count("running") == 1).await;
    let page = visit(&house, &format!("/events/{}", short(&event))).await;
    page.until(&format!("location.pathname === '/events/{event}'")).await;
    page.shows(".event-head .chip", "running").await;
    page.shows("#live-output[data-state=live]", "Live output").await;
    // Output from before the page was opened is there too.
    page.shows("#live-output pre", "red true").await;
    touch(&house, "more");
    page.shows("#live-output pre", "99%").await;
    page.shows("#live-output pre", "placed").await;
    assert_eq!(page.value("document.querySelector('#live-output pre').textContent.includes('10%')").await, false);
    touch(&house, "go");
    page.shows(".event-head .chip", "done").await;
    page.shows(".timeline .verdict-delivered", "delivered").await;
    page.shows(".output pre", "bye").await;
    let red = "getComputedStyle([...document.querySelectorAll('.output span span')].find((e) => e.textContent === 'red')).color";
    assert_eq!(page.value(red).await, "rgb(255, 127, 117)");
    let exact =
        "getComputedStyle([...document.querySelectorAll('.output span span')].find((e) => e.textContent === 'true'))";
    assert_eq!(page.value(&format!("{exact}.color")).await, "rgb(1, 200, 3)");
    assert_eq!(page.value(&format!("{exact}.fontWeight")).await, "700");

    house.deliver(DEPLOY, &deploy("d-twin", "shop", "latest", 1)).await;
    page.shows(".timeline .t-duplicate", "d-twin").await;
    page.shows(".timeline .t-duplicate", "the same change").await;
    page.shows(".json", "\"app\"").await;
    page.click("#page .tabs button:nth-child(2)").await;
    page.shows(".body-view", "{\"app\":\"shop\"").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn replay_cancel_and_forget_ask_for_confirmation_and_then_run() {
    let house = House::new(&config("until test -e go; do sleep 0.02; done"));
    let event = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    until("the command to run", || house.count("running") == 1).await;
    let page = visit(&house, &format!("/events/{event}")).await;
    page.lacks("#forget").await;
    page.click("#cancel").await;
    page.shows("dialog[open]", "Its command is killed").await;
    page.click("dialog button[value=no]").await;
    page.lacks("dialog").await;
    assert_eq!(house.count("running"), 1);
    page.click("#cancel").await;
    page.click("dialog button[value=yes]").await;
    page.shows(".event-head .chip", "dead · cancelled").await;
    page.shows(".toast", "Cancelled").await;

    touch(&house, "go");
    page.click("#replay").await;
    page.shows("dialog[open]", "with its original body").await;
    page.click("dialog button[value=yes]").await;
    page.shows(".event-head .chip", "done").await;
    page.shows(".timeline", "Replayed: life 2").await;

    page.click("#forget").await;
    page.shows("dialog[open]", "it acts again").await;
    page.click("dialog button[value=yes]").await;
    page.until("location.pathname === '/events'").await;
    page.says("No events yet").await;
    assert_eq!(house.sql("select count(*) from events"), ["0"]);
    page.open(&house.admin_url(&format!("/events/{event}"))).await;
    page.says("There is no such event").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_long_value_is_folded_and_shown_whole_on_request() {
    let house = House::new(&config("true"));
    let long = format!("{}end", "x".repeat(3000));
    let event = house.deliver(DEPLOY, &deploy("d-1", &long, "latest", 1)).await.event();
    house.quiet().await;
    let page = visit(&house, &format!("/events/{event}")).await;
    page.shows(".facts", "3,003 characters").await;
    assert_eq!(page.value("document.querySelector('.facts').textContent.includes('xend')").await, false);
    page.click(".facts button").await;
    page.until("document.querySelector('.facts').textContent.includes('xend')").await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn a_superseded_event_leads_to_its_successor_and_back() {
    let retried = config("test $HOOKONCE_FIELD_BUILD != 1")
        .replace("name = \"run\"", "name = \"run\"\nretry = { attempts = 3, first = \"30s\", longest = \"60s\" }");
    let house = House::new(&retried);
    let old = house.deliver(DEPLOY, &deploy("d-1", "shop", "latest", 1)).await.event();
    until("the first to wait for another attempt", || house.sql("select count(*) from attempts") == ["1"]).await;
    let new = house.deliver(DEPLOY, &deploy("d-2", "shop", "latest", 2)).await.event();
    house.quiet().await;
    let page = visit(&house, &format!("/events/{old}")).await;
    page.shows(".event-head .chip", "superseded").await;
    page.click(&format!(".timeline a[href$='{new}']")).await;
    page.until(&format!("location.pathname === '/events/{new}'")).await;
    page.click(&format!(".facts a[href$='{old}']")).await;
    page.until(&format!("location.pathname === '/events/{old}'")).await;
    page.close(&house.admin_url("/")).await;
}

#[tokio::test]
async fn all_matching_dead_letters_are_counted_and_then_replayed() {
    let house = House::new(&config("test -e fixed"));
    for n in 1..=5 {
        house.deliver(DEPLOY, &deploy(&format!("d-{n}"), &format!("app{n}"), "latest", n)).await;
    }
    house.quiet().await;
    let page = visit(&house, "/dead?cause=failed").await;
    page.until("document.querySelectorAll('tbody tr').length === 5").await;
    let why = "it failed because step 1 of block 1 exited with 1";
    page.until(&format!(
        "[...document.querySelectorAll('[data-why]')].filter((e) => e.textContent.startsWith('{why}')).length === 5"
    ))
    .await;
    touch(&house, "fixed");
    page.click("#replay-all").await;
    page.shows("dialog[open]", "Replay 5 events?").await;
    page.click("dialog button[value=yes]").await;
    page.shows(".toast", "5 events run again").await;
    page.says("No matches").await;
    house.quiet().await;
    assert_eq!(house.count("done"), 5);
    page.close(&house.admin_url("/")).await;
}
