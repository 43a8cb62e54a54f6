//! `hookonce catch-up`, beside a node and without one.

use crate::sender_api::{SenderApi, Style, TOKEN};
use crate::support::{House, until};
use crate::{GHCR, id, miss, push, runs, source};
use hookonce::decide::time::Duration;
use serde_json::{Value as Json, json};

/// Runs the command; returns its exit code, its output and its errors.
async fn catch_up(house: &House, args: &[&str]) -> (i32, String, String) {
    let mut command = house.command(&[&["catch-up"], args].concat());
    command.env("CATCH_UP_TOKEN", TOKEN);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_prints_what_is_missed_and_changes_nothing_and_the_command_asks_for_it() {
    let api = SenderApi::start(Style::Github).await;
    // The node itself does not catch up, so that the command has something to do.
    let config = source(&api, "");
    let own = config.find("[source.ghcr.catch_up]").unwrap()..config.find("[[source.ghcr.route]]").unwrap();
    let without = format!("{}{}", &config[..own.start], &config[own.end..]);
    let house = House::new(&without);
    api.send_to(&house.url(GHCR));
    assert_eq!(house.deliver(GHCR, &push(3)).await.status, 202);
    until("the first run", || runs(&house).len() == 1).await;
    miss(&api, 0..5, Duration::from_hours(2));
    house.configure(&config);
    let (code, out, errors) = catch_up(&house, &["--dry-run"]).await;
    assert_eq!((code, &*errors), (0, ""), "{out}");
    assert!(out.starts_with("ghcr: 5 attempts listed, 1 had, 4 would be asked for\n"), "{out}");
    let ids: Vec<_> = out.lines().skip(1).map(|line| line.split_whitespace().last().unwrap().to_owned()).collect();
    assert_eq!(ids, [0, 1, 2, 4].map(id), "oldest first");
    assert_eq!((api.asked().len(), runs(&house)), (0, vec![3]));
    let (code, out, _) = catch_up(&house, &["--dry-run", "--json", "--source", "ghcr"]).await;
    let told: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["dry_run"], &told["sources"][0]["had"]), (0, &json!(true), &json!(1)), "{told}");
    assert_eq!(told["sources"][0]["would_ask"][0]["delivery"], json!(id(0)), "{told}");
    assert!(!out.contains(TOKEN));

    let (code, out, _) = catch_up(&house, &["--json"]).await;
    let told: Json = serde_json::from_str(&out).unwrap();
    assert_eq!((code, told["sources"][0]["asked"].as_array().map(Vec::len)), (0, Some(4)), "{told}");
    until("all answers", || api.made_again().len() == 4).await;
    house.quiet().await;
    // The third push is newer than the first three: the order says that they come too late.
    assert_eq!((api.asked(), runs(&house)), ([0, 1, 2, 4].map(id).to_vec(), vec![3, 4]));
    let (_, out, _) = catch_up(&house, &[]).await;
    assert_eq!(out, "ghcr: 9 attempts listed, 1 had, 0 asked for\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_command_cannot_do_it_says() {
    let api = SenderApi::start(Style::Github).await;
    let mut house = House::empty(&source(&api, ""));
    crate::start(&mut house);
    assert!(house.stop().success());
    let mut live = house.command(&["check", "--live"]);
    live.env("CATCH_UP_TOKEN", TOKEN);
    let live = tokio::task::spawn_blocking(move || live.output().unwrap()).await.unwrap();
    let live = String::from_utf8(live.stdout).unwrap();
    assert!(live.contains("ok     catch_up  hook 17 of the repository octo/app: lists its deliveries"), "{live}");
    let (code, _, errors) = catch_up(&house, &["--source", "other"]).await;
    assert_eq!((code, &*errors), (2, "error: the config has no source `other`\n"));
    api.fail_next(404, &[]);
    let (code, _, errors) = catch_up(&house, &[]).await;
    assert_eq!(code, 2);
    assert!(errors.contains("ghcr: hook 17 of the repository octo/app: it responded with 404"), "{errors}");
    api.fail_next(429, &[("retry-after", "3600")]);
    let (code, _, errors) = catch_up(&house, &[]).await;
    assert_eq!(code, 2);
    assert!(errors.contains("run this again in"), "{errors}");
}
