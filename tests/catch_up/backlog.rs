//! A backlog of missed deliveries: what is asked for, in which order, and what after a crash or on several nodes.

use crate::redis::Server;
use crate::sender_api::{SenderApi, Style, TOKEN, now};
use crate::support::{House, Sent, until};
use crate::{GHCR, KIND, ended, id, miss, push, runs, source, start};
use hookonce::decide::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_7000_missed_deliveries_the_270_that_matter_are_asked_for_oldest_first_and_run_once() {
    let api = SenderApi::start(Style::Github).await;
    let begin = now() - Duration::from_hours(48);
    for n in 0..7_000_u64 {
        let at = begin + Duration::from_secs(n * 20);
        match n % 26 {
            7 if n / 26 < 269 => api.missed(&id(n), KIND, at, push(n)),
            // This one was missed, too, and somebody has asked for it.
            9 if n == 9 => {
                api.attempted("again", KIND, at, 503);
                api.attempted_again("again", KIND, at, 200);
            }
            m if m % 2 == 0 => api.attempted(&format!("other-{n}"), "push", at, 502),
            _ => api.attempted(&format!("other-{n}"), "check_run", at, 0),
        }
    }
    // An attempt of the last one that failed once more: it is asked for once.
    api.missed(&id(6_999), KIND, begin + Duration::from_hours(40), push(6_999));
    api.attempted(&id(6_999), KIND, begin + Duration::from_hours(41), 500);
    api.fail_next(429, &[("retry-after", "1")]);
    let mut house = House::empty(&source(&api, ""));
    start(&mut house);
    api.send_to(&house.url(GHCR));
    until("some deliveries", || api.asked().len() >= 20).await;
    api.fail_next(403, &[("x-ratelimit-remaining", "0"), ("retry-after", "1")]);
    until("the end of the catch-up", || ended(&house) >= 1).await;
    until("all runs", || house.lines("runs").len() >= 270).await;
    house.quiet().await;
    let expected: Vec<_> = (0..269).map(|n| n * 26 + 7).chain([6_999]).collect();
    assert_eq!(runs(&house), expected, "each once");
    assert_eq!(api.asked(), expected.iter().map(|n| id(*n)).collect::<Vec<_>>(), "oldest first, and nothing else");
    assert!(api.lists() <= 75, "{} pages", api.lists());
    assert!(api.requests().len() <= 350, "{} requests", api.requests().len());
    assert!(!house.log().contains(TOKEN), "{}", house.log());
    assert!(house.metrics().await.contains("hookonce_catch_up_asked_total{source=\"ghcr\"} 270"));
    // A second start looks only at what came since.
    let (lists, asked) = (api.lists(), api.asked().len());
    assert!(house.stop().success());
    start(&mut house);
    until("the next catch-up", || ended(&house) >= 1).await;
    assert_eq!(api.asked().len(), asked);
    assert!(api.lists() <= lists + 5, "{} pages", api.lists() - lists);
    assert_eq!(runs(&house), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_killed_goes_on_where_it_stopped() {
    let api = SenderApi::start(Style::Github).await;
    for n in 0..500 {
        api.attempted(&format!("other-{n}"), "push", now() - Duration::from_hours(20), 502);
    }
    miss(&api, 0..60, Duration::from_hours(1));
    api.stop_answering_after(10);
    let mut house = House::empty(&source(&api, ""));
    start(&mut house);
    api.send_to(&house.url(GHCR));
    until("some deliveries", || api.made_again().len() == 10).await;
    // One that runs at the kill may be overtaken by the next before its second attempt.
    until("their ends", || house.count("done") == 10).await;
    house.kill();
    let before = api.requests().len();
    start(&mut house);
    api.send_to(&house.url(GHCR));
    api.stop_answering_after(usize::MAX);
    until("all runs", || runs(&house).len() >= 60).await;
    house.quiet().await;
    assert_eq!(runs(&house), (0..60).collect::<Vec<_>>());
    // The request that was under way at the kill may be made twice.
    assert!(api.asked().len() <= 61, "{:?}", api.asked());
    let next: Vec<_> = api.requests().into_iter().skip(before).map(|request| request.method).collect();
    assert_eq!(next[0], "POST", "the list was read before: {next:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_on_one_store_one_asks() {
    let server = Server::start();
    let api = SenderApi::start(Style::Github).await;
    miss(&api, 0..30, Duration::from_hours(1));
    let config = format!("store = \"{}\"\n{}", server.url("catchup"), source(&api, ""));
    let mut houses = [House::empty(&config), House::empty(&config)];
    for house in &mut houses {
        start(house);
    }
    api.send_to(&houses[1].url(GHCR));
    let all = || houses.iter().map(|house| house.lines("runs").len()).sum::<usize>();
    until("all runs", || all() >= 30).await;
    // Both have asked for a catch-up; the second of them finds nothing to do.
    until("the catch-ups", || houses.iter().map(ended).sum::<usize>() >= 1).await;
    assert_eq!(api.asked(), (0..30).map(id).collect::<Vec<_>>());
    assert_eq!(all(), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_again_each_time_is_not_asked_for_for_ever() {
    let api = SenderApi::start(Style::Github).await;
    let at = now() - Duration::from_hours(1);
    api.missed(&id(1), KIND, at, Sent { body: b"{}".to_vec(), ..push(1) });
    api.missed(&id(2), KIND, at, push(2));
    // It is listed, but cannot be had any more.
    api.attempted("gone", KIND, at, 502);
    let mut house = House::empty(&source(&api, "every = \"50ms\""));
    start(&mut house);
    api.send_to(&house.url(GHCR));
    let first = id(1);
    until("all that is tried", || api.asked().iter().filter(|one| **one == first).count() >= 3).await;
    let before = ended(&house);
    until("many catch-ups", || ended(&house) >= before + 8).await;
    let asked = api.asked();
    let times = |delivery: &str| asked.iter().filter(|one| **one == delivery).count();
    assert_eq!((times(&id(1)), times(&id(2)), times("gone")), (3, 1, 1), "{asked:?}");
    assert_eq!(runs(&house), [2]);
    assert!(house.log().contains("given_up=2"), "{}", house.log());
    let unchanged = api.requests().into_iter().filter(|request| request.status == 304).count();
    assert!(unchanged >= 3, "a list that has not changed is not sent again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_requests_are_made_in_an_hour_than_the_config_allows() {
    let api = SenderApi::start(Style::Github).await;
    miss(&api, 0..30, Duration::from_hours(1));
    let mut house = House::empty(&source(&api, "requests_per_hour = 8"));
    start(&mut house);
    api.send_to(&house.url(GHCR));
    until("what is allowed", || runs(&house).len() >= 7).await;
    assert!(house.stop().success());
    let requested = |house: &House| {
        house.sql("select json_extract(note, '$.requested_at') from registers where note like '%requested_at%'")
    };
    let before = requested(&house);
    start(&mut house);
    until("the catch-up to be due", || requested(&house) != before).await;
    let looks = |house: &House| house.sql("select count(*) from events");
    assert_eq!(looks(&house), ["7"]);
    assert_eq!((api.requests().len(), api.asked()), (8, (0..7).map(id).collect()));
}
