//! Budgets: what a route has used, and what waits for it.

use crate::support::{House, until};
use crate::{IN, get, number, numbers};
use serde_json::json;

fn with_route(keys: &str) -> House {
    House::new(&numbers("").replace("name = \"act\"", &format!("name = \"act\"\n{keys}")))
}

fn waits(house: &House, many: usize) -> impl Fn() -> bool {
    move || house.sql("select count(*) from events where aside = 'budget'") == [many.to_string()]
}

#[tokio::test]
async fn the_overview_and_the_metrics_show_what_is_used_and_when_the_next_attempt_may_begin() {
    let house = with_route("budget = { runs = 2, within = \"1h\" }");
    let budget = async || get(&house, "/api/overview").await["budgets"][0].clone();
    assert_eq!(
        budget().await,
        json!({
            "source": "numbers", "route": "act", "runs": 2, "within": "1h", "per": "route", "exceeded": "wait",
            "used": 0, "next_at": null, "waiting": 0,
        })
    );
    let mut events = Vec::new();
    for n in 1..=4 {
        events.push(house.deliver(IN, &number(&format!("d{n}"), n, "a")).await.event());
    }
    until("two to wait for the budget", waits(&house, 2)).await;
    let begun = std::time::Instant::now();
    let full = loop {
        let told = budget().await;
        if told["waiting"] == 2 || begun.elapsed() > crate::support::PATIENCE {
            break told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!((&full["used"], &full["waiting"]), (&json!(2), &json!(2)));
    let listed = get(&house, "/api/events?state=waiting").await;
    let event = &listed["events"][0];
    assert_eq!((&event["waiting_for"], &event["due"]), (&json!("budget"), &full["next_at"]));
    let done = get(&house, &format!("/api/events/{}", events[0])).await;
    assert_eq!(done.get("waiting_for"), None);
    let metrics = house.metrics().await;
    for line in [
        "hookonce_budget_attempts_used{source=\"numbers\",route=\"act\"} 2",
        "hookonce_budget_attempts{source=\"numbers\",route=\"act\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    let list = house.command(&["list", "--state", "waiting"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.lines().all(|line| line.contains("\twaiting\tbudget\t")), "{list}");
}

#[tokio::test]
async fn of_a_budget_per_group_the_events_that_wait_are_shown() {
    let house = with_route("group = [\"tag\"]\nbudget = { runs = 1, within = \"1h\", per = \"group\" }");
    for (n, tag) in [(1, "a"), (2, "a"), (3, "b")] {
        house.deliver(IN, &number(&format!("d{n}"), n, tag)).await;
    }
    until("one to wait for the budget", waits(&house, 1)).await;
    until("the others to end", || house.count("done") == 2).await;
    let begun = std::time::Instant::now();
    let told = loop {
        let told = get(&house, "/api/overview").await["budgets"][0].clone();
        if told["waiting"] == 1 || begun.elapsed() > crate::support::PATIENCE {
            break told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!((&told["per"], &told["used"], &told["waiting"]), (&json!("group"), &json!(null), &json!(1)));
    assert!(told["next_at"].is_string(), "{told}");
}
