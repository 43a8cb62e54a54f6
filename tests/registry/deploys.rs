//! What is deployed is what the tag points to when the attempt begins.

use crate::docker_registry::{Access, Registry};
use crate::odd_answers::OddRegistry;
use crate::polling::{digest, points_to};
use crate::support::{House, Sent, package, until};
use crate::{GHCR, IMAGE, NAMED, deploy, last_why, source};
use axum::Router;
use axum::http::HeaderMap;
use axum::routing::post;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_command_gets_what_the_tag_points_to_now_and_not_what_the_delivery_says() {
    let registry = Registry::start(&Access::Open);
    let first = registry.push(IMAGE, "latest", "first").await;
    let house = House::new(&deploy(&registry.address(), ""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    let other = registry.push(IMAGE, "other", "other").await;
    let second = registry.push(IMAGE, "latest", "second").await;
    assert_eq!(house.deliver(GHCR, &Sent::package("two", "latest", 2, 2)).await.status, 202);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [first.clone(), second.clone()]);
    assert!(first != second && first != other && second != other);
    let line = format!("digest={second}");
    until("the digest in the log", || house.log().lines().any(|l| l.contains("INFO resolved") && l.ends_with(&line)))
        .await;
}

#[tokio::test]
async fn an_owner_with_upper_case_letters_has_images_without() {
    let registry = Registry::start(&Access::Open);
    let digest = registry.push(IMAGE, "latest", "x").await;
    let house = House::new(&deploy(&registry.address(), ""));
    let body = package("latest", 1, 1).replace(r#""namespace":"treejamie""#, r#""namespace":"TreeJamie""#);
    assert!(body.contains("TreeJamie"));
    assert_eq!(house.deliver(GHCR, &Sent::github("registry_package", "one", &body)).await.status, 202);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [digest]);
}

#[tokio::test]
async fn a_receiver_gets_the_digest_as_a_header() {
    let registry = Registry::start(&Access::Open);
    let digest = registry.push(IMAGE, "latest", "x").await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let take = move |headers: HeaderMap| {
        noted.lock().unwrap().push(headers.get("hookonce-digest").map(|value| value.to_str().unwrap().to_owned()));
        std::future::ready("")
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(take))).await });
    let lookup = format!("lookup = {{ registry = \"{}\", {NAMED} }}", registry.address());
    let house = House::new(&source(&format!("{lookup}\nforward = {{ url = \"{url}\" }}")));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    assert_eq!(*seen.lock().unwrap(), [Some(digest)]);
}

#[tokio::test]
async fn a_registry_that_is_down_is_asked_again_until_it_answers() {
    let mut registry = Registry::stopped(&Access::Open);
    let house = House::new(&deploy(&registry.address(), ""));
    assert_eq!(
        house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status,
        202,
        "the sender does not wait"
    );
    until("two attempts", || house.sql("select count(*) from attempts")[0].parse::<u32>().unwrap() >= 2).await;
    let why = last_why(&house);
    let expected =
        format!("the registry {} did not say what {IMAGE}:latest is: it cannot be connected to", registry.address());
    assert!(why.starts_with(&expected), "{why}");
    assert_eq!(house.lines("runs"), [""; 0]);
    registry.run();
    let digest = registry.push(IMAGE, "latest", "x").await;
    house.quiet().await;
    assert_eq!((house.lines("runs"), house.count("done")), (vec![digest], 1));
}

#[tokio::test]
async fn an_image_that_is_not_there_yet_is_asked_for_again() {
    let registry = Registry::start(&Access::Open);
    let house = House::new(&deploy(&registry.address(), ""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    until("an attempt without the image", || last_why(&house).contains("may lag behind its own webhook")).await;
    // The image is there now, but not its tag.
    registry.push(IMAGE, "other", "x").await;
    let before: u32 = house.sql("select count(*) from attempts")[0].parse().unwrap();
    until("more attempts", || house.sql("select count(*) from attempts")[0].parse::<u32>().unwrap() > before + 1).await;
    assert_eq!(house.lines("runs"), [""; 0]);
    let digest = registry.push(IMAGE, "latest", "y").await;
    house.quiet().await;
    assert_eq!((house.lines("runs"), house.count("done")), (vec![digest], 1));
}

#[tokio::test]
async fn a_registry_that_never_answers_is_asked_so_often_and_then_the_event_is_dead() {
    let mut registry = Registry::stopped(&Access::Open);
    let config = deploy(&registry.address(), "").replace("retry = { attempts = 1000, ", "retry = { ");
    let house = House::new(&config);
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    assert_eq!((house.sql("select count(*) from attempts"), house.count("dead")), (vec!["12".to_owned()], 1));
    registry.run();
    let digest = registry.push(IMAGE, "latest", "x").await;
    let event = house.sql("select id from events").pop().unwrap();
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [digest]);
}

#[tokio::test]
async fn a_name_that_no_image_can_have_is_never_asked_for() {
    let registry = Registry::start(&Access::Open);
    let house = House::new(&deploy(&registry.address(), ""));
    for (n, name) in ["../../etc", "a b", "jamiec_ts?x=", "ä", "a//b", "%2e%2e"].into_iter().enumerate() {
        let body = package("latest", 1, 1).replace(r#""name":"jamiec_ts""#, &format!("\"name\":\"{name}\""));
        let answer = house.deliver(GHCR, &Sent::github("registry_package", &format!("d{n}"), &body)).await;
        assert_eq!(answer.status, 202, "{name}: {answer:?}");
    }
    house.quiet().await;
    assert_eq!((house.count("dead"), house.lines("runs").len()), (6, 0));
    let why = last_why(&house);
    assert!(why.contains("`image` ({namespace}/{package}): it is not the name of an image"), "{why}");
    assert_eq!(house.sql("select count(*) from attempts"), ["6"], "a retry would not help");
}

#[tokio::test]
async fn a_node_that_stops_while_it_asks_hands_the_event_back() {
    // It accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let mut house = House::new(&deploy(&address, ", timeout = \"1m\""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    let (connection, _) =
        tokio::task::spawn_blocking(move || silent.accept().map(|(c, _)| (c, silent))).await.unwrap().unwrap();
    let begun = Instant::now();
    assert!(house.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(15), "it does not wait for the registry: {:?}", begun.elapsed());
    drop(connection);
    assert_eq!(house.sql("select state from events"), ["waiting"]);
    assert_eq!(house.sql("select count(*) from attempts"), ["0"], "nothing has happened");
}

#[tokio::test]
async fn what_is_deployed_already_is_not_deployed_again_unless_an_operator_replays_it() {
    let registry = Registry::start(&Access::Open);
    let digest = registry.push(IMAGE, "latest", "x").await;
    let house = House::new(&deploy(&registry.address(), ""));
    let first = house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.event();
    house.quiet().await;
    // The delivery says that there is something newer; the registry says that there is not.
    let second = house.deliver(GHCR, &Sent::package("two", "latest", 2, 2)).await.event();
    house.quiet().await;
    assert_eq!(house.lines("runs"), [&*digest]);
    let shown = house.ask("GET", &format!("/api/events/{second}")).await.json();
    assert_eq!((&shown["how"], &shown["superseded_by"]), (&"superseded".into(), &first.clone().into()), "{shown}");
    assert_eq!(shown["digest"], digest);
    let why = format!("done: superseded by {}, which had deployed the same digest", &first[28..]);
    assert_eq!(shown["why"], why);
    let line = format!("event={} source=ghcr attempt=3 how=superseded by={}", &second[28..], &first[28..]);
    until("its end in the log", || house.log().contains(&line)).await;
    let page = house.command(&["show", &second]).output().unwrap();
    assert!(String::from_utf8_lossy(&page.stdout).contains(&format!("digest      {digest}\n")), "{page:?}");

    assert_eq!(house.ask("POST", &format!("/api/events/{second}/replay")).await.status, 200);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [digest.clone(), digest]);
}

#[tokio::test]
async fn lost_late_replayed_and_reordered_deliveries_do_not_deploy_an_old_image() {
    let registry = Registry::start(&Access::Open);
    let mut house = House::new(&deploy(&registry.address(), ""));
    let mut digests = Vec::new();
    for n in 1..=4 {
        digests.push(registry.push(IMAGE, "latest", &n.to_string()).await);
        // Of these pushes, every other one's delivery is lost.
        if n % 2 == 1 {
            let sent = Sent::package(&format!("d{n}"), "latest", n, u32::try_from(n).unwrap());
            assert_eq!(house.deliver(GHCR, &sent).await.status, 202);
            house.quiet().await;
        }
    }
    assert_eq!(house.lines("runs"), [digests[0].clone(), digests[2].clone()]);
    // The last push comes late, when the image is there for long; and an old one is sent again under another id.
    house.kill();
    house.start();
    for (id, version) in [("d4", 4), ("again", 1), ("d2", 2), ("d4b", 4)] {
        let sent = Sent::package(id, "latest", version, u32::try_from(version).unwrap());
        let status = house.deliver(GHCR, &sent).await.status;
        assert!(matches!(status, 200 | 202), "{id}: {status}");
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), [digests[0].clone(), digests[2].clone(), digests[3].clone()]);
}

#[tokio::test]
async fn a_retry_asks_again_and_does_everything_again_if_the_digest_is_another() {
    let registry = Registry::start(&Access::Open);
    let first = registry.push(IMAGE, "latest", "1").await;
    let run = |steps: &str| format!("[[source.ghcr.route.run]]\nsteps = [\"{steps}\"]\n");
    let lookup = format!("lookup = {{ registry = \"{}\", {NAMED} }}\n", registry.address());
    let blocks = run("echo $HOOKONCE_DIGEST >> first") + &run("echo $HOOKONCE_DIGEST >> second; test -e fixed");
    let house = House::new(&source(&(lookup + &blocks)));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    until("two attempts", || house.lines("second").len() >= 2).await;
    assert_eq!(house.lines("first"), [&*first], "a block that succeeded is not run again");
    let second = registry.push(IMAGE, "latest", "2").await;
    until("an attempt with the new digest", || house.lines("second").contains(&second)).await;
    std::fs::write(house.path("fixed"), "").unwrap();
    house.quiet().await;
    assert_eq!(house.lines("first"), [first, second.clone()]);
    assert_eq!(house.sql("select resolved from events"), [second]);
}

#[tokio::test]
async fn a_registry_that_lags_costs_none_of_the_attempts_of_a_command() {
    let registry = Registry::start(&Access::Open);
    let config = deploy(&registry.address(), "").replace("attempts = 1000", "attempts = 1");
    // It must not give up before the image is there.
    let house = House::new(&config.replace("longest = \"200ms\"", "longest = \"5s\""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    until("some attempts", || house.sql("select failed_lookups >= 3 from events") == ["1"]).await;
    let digest = registry.push(IMAGE, "latest", "x").await;
    house.quiet().await;
    assert_eq!((house.lines("runs"), house.count("done")), (vec![digest], 1));
}

#[tokio::test]
async fn a_roll_back_deploys_the_digest_that_was_last_good_whatever_the_tag_points_to() {
    let registry = Registry::start(&Access::Open);
    let lookup = format!("lookup = {{ registry = \"{}\", {NAMED} }}\n", registry.address());
    let run = "run = { steps = [\"echo $HOOKONCE_DIGEST >> runs\"] }\non_unhealthy = \"rollback\"\n";
    let check = "health_check = { run = [\"sh\", \"check\"], within = \"5s\", every = \"100ms\" }\n";
    let mut house = House::empty(&source(&(lookup + run + check)));
    std::fs::write(house.path("check"), "! grep -qx $HOOKONCE_DIGEST bad\n").unwrap();
    let good = registry.push(IMAGE, "latest", "good").await;
    std::fs::write(house.path("bad"), "none").unwrap();
    house.start();
    house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await;
    house.quiet().await;
    let bad = registry.push(IMAGE, "latest", "bad").await;
    std::fs::write(house.path("bad"), format!("{bad}\n")).unwrap();
    house.deliver(GHCR, &Sent::package("two", "latest", 2, 2)).await;
    house.quiet().await;
    let expected = [good.clone(), bad.clone(), good];
    assert_eq!(house.lines("runs"), expected);
    // A push that names another version, while the tag still points to the bad image, does not deploy it again.
    house.deliver(GHCR, &Sent::package("three", "latest", 3, 3)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), expected);
    assert_eq!(house.count("dead"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn if_the_push_after_an_unhealthy_one_fails_the_last_good_image_is_put_back() {
    let tag = Arc::new(AtomicUsize::new(1));
    let latest = tag.clone();
    let registry = OddRegistry::start(None, move |_| points_to(latest.load(Ordering::SeqCst))).await;
    let lookup = format!("lookup = {{ registry = \"{}\", {NAMED} }}\n", registry.address);
    let run = "run = { steps = [\"sh deploy\"] }\non_unhealthy = \"rollback\"\n";
    let check = "health_check = { run = [\"sh\", \"check\"], within = \"500ms\", every = \"100ms\" }\n";
    let mut house = House::empty(&source(&(lookup + run + check)).replace("attempts = 1000", "attempts = 1"));
    // The second image is not healthy, and takes its time; the third cannot be started.
    let steps = "case $HOOKONCE_DIGEST in\n*2) until test -e go; do sleep 0.05; done ;;\n*3) exit 1 ;;\nesac\n";
    let deploy = format!("echo $HOOKONCE_DIGEST$HOOKONCE_ROLLBACK >> runs\n{steps}");
    std::fs::write(house.path("deploy"), deploy).unwrap();
    std::fs::write(house.path("check"), "case $HOOKONCE_DIGEST in *2) exit 1 ;; esac\n").unwrap();
    house.start();
    let good = house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.event();
    house.quiet().await;
    tag.store(2, Ordering::SeqCst);
    let bad = house.deliver(GHCR, &Sent::package("two", "latest", 2, 2)).await.event();
    until("the second image", || house.lines("runs").contains(&digest(2))).await;
    tag.store(3, Ordering::SeqCst);
    let failing = house.deliver(GHCR, &Sent::package("three", "latest", 3, 3)).await.event();
    std::fs::write(house.path("go"), "").unwrap();
    house.quiet().await;
    assert_eq!(house.lines("runs"), [digest(1), digest(2), digest(3), digest(1) + "1"]);
    for (event, cause) in [(&bad, "unhealthy"), (&failing, "failed")] {
        assert_eq!(house.ask("GET", &format!("/api/events/{event}")).await.json()["cause"], cause);
    }
    let named = format!(" bad={} good={}", &bad[28..], &good[28..]);
    let is_rollback = |line: &str| line.contains("WARN rollback") && line.ends_with(&named);
    until("the roll-back in the log", || house.log().lines().any(is_rollback)).await;
}

#[tokio::test]
async fn an_image_is_deployed_again_if_the_attempt_at_another_failed_after_it() {
    let registry = Registry::start(&Access::Open);
    let first = registry.push(IMAGE, "latest", "1").await;
    let lookup = format!("lookup = {{ registry = \"{}\", {NAMED} }}\n", registry.address());
    // It acts, and fails only then.
    let step = format!("echo $HOOKONCE_DIGEST >> runs; test $HOOKONCE_DIGEST = {first}");
    let config = source(&format!("{lookup}run = {{ steps = [\"{step}\"] }}"));
    let house = House::new(&config.replace("first = \"50ms\", longest = \"200ms\"", "first = \"1h\""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    house.quiet().await;
    let second = registry.push(IMAGE, "latest", "2").await;
    assert_eq!(house.deliver(GHCR, &Sent::package("two", "latest", 2, 2)).await.status, 202);
    until("the failed attempt", || last_why(&house).contains("exit")).await;
    assert_eq!(house.lines("runs"), [first.clone(), second.clone()]);
    // The tag is moved back while the second image waits for its next attempt.
    assert_eq!(registry.push(IMAGE, "latest", "1").await, first);
    assert_eq!(house.deliver(GHCR, &Sent::package("three", "latest", 1, 3)).await.status, 202);
    house.quiet().await;
    assert_eq!(house.lines("runs"), [first.clone(), second, first]);
}

#[tokio::test]
async fn an_image_that_was_put_back_is_deployed_though_its_own_push_had_deployed_another() {
    let registry = Registry::start(&Access::Open);
    let house = House::new(&deploy(&registry.address(), ""));
    let first = registry.push(IMAGE, "latest", "1").await;
    let second = registry.push(IMAGE, "latest", "2").await;
    // The delivery of the first push is late, and those of the second are lost.
    house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await;
    house.quiet().await;
    assert_eq!(house.lines("runs"), [&*second]);
    assert_eq!(registry.push(IMAGE, "latest", "1").await, first);
    let back = house.deliver(GHCR, &Sent::package("two", "latest", 1, 3)).await;
    assert_eq!((back.status, back.word().as_str()), (202, "accepted"));
    house.quiet().await;
    assert_eq!(house.lines("runs"), [&*second, &*first]);
    // The other deliveries of that push ask as well, and run nothing.
    for (id, at) in [("three", 4), ("four", 5), ("five", 5)] {
        house.deliver(GHCR, &Sent::package(id, "latest", 1, at)).await;
        house.quiet().await;
    }
    assert_eq!(house.lines("runs"), [second, first]);
    assert_eq!(house.sql("select cause from events order by id"), ["acted", "acted", "superseded", "superseded"]);
}
