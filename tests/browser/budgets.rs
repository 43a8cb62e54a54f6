//! Budgets on the overview, and an event that waits for one.

use crate::support::{House, until};
use crate::{ORDER, config, order, short, visit};

#[tokio::test]
async fn a_budget_that_is_used_up_shows_on_the_overview_and_on_the_event_that_waits() {
    let route = "name = \"record\"\nbudget = { runs = 2, within = \"1h\" }\nrun = { steps = [\"true\"] }";
    let house = House::new(&config("true").replace("name = \"record\"", route));
    let mut events = Vec::new();
    for n in 1..=3 {
        events.push(house.deliver(ORDER, &order(&format!("o-{n}"), "paid", &format!("c{n}"))).await.event());
    }
    let waits = || house.sql("select lower(hex(substr(id, 13))) from events where aside = 'budget'");
    until("one to wait for the budget", || waits().len() == 1).await;
    let page = visit(&house, "/").await;
    page.shows("#budgets tr[data-route=record]", "2 of 2").await;
    page.shows("#budgets tr[data-route=record]", "2 attempts in 1h").await;
    page.shows("#budgets tr[data-route=record]", "in 5").await;
    page.click("#budgets tr[data-route=record] a").await;
    page.shows("tbody tr .chip", "waiting · budget").await;
    let event = events.iter().find(|event| short(event) == waits()[0]).unwrap();
    page.open(&house.admin_url(&format!("/events/{event}"))).await;
    page.shows(".timeline", "its route's budget is used up; the next attempt may begin in 5").await;
    page.open(&house.admin_url("/sources")).await;
    page.says("2 attempts in 1h; what is beyond it waits").await;
    page.close(&house.admin_url("/")).await;
}
