//! Authentication: tokens, the login, and other sites' pages.

use crate::support::{self, House};
use crate::{IN, number, numbers, request};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TOKENS: &str = r#"
[admin]
listen = "127.0.0.1:0"
token  = { env = "ALL_TOKEN" }
tokens = [{ token = { env = "READ_TOKEN" }, may = "read" }, { token = { env = "FORGET_TOKEN" }, may = "forget" }]
"#;

/// A node whose admin port requires a token.
fn guarded() -> House {
    guarded_by("all-token-1")
}

/// The same with another token that may do all.
fn guarded_by(all: &str) -> House {
    let mut house = House::empty(&numbers(TOKENS));
    let mut serve = house.command(&["serve"]);
    serve.env("ALL_TOKEN", all).env("READ_TOKEN", "read-token-2").env("FORGET_TOKEN", "forget-token-3");
    house.try_start_by(serve).unwrap();
    house
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const HTML: (&str, &str) = ("accept", "text/html,*/*");

#[tokio::test]
async fn every_response_has_the_security_headers() {
    let house = House::new(&numbers(""));
    for path in ["/api/events", "/healthz", "/nowhere", "/metrics", "/api/openapi.json", "/api/events?x=1"] {
        let answer = house.ask("GET", path).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
    }
}

#[tokio::test]
async fn each_token_may_do_what_it_may_and_nothing_else() {
    let house = guarded();
    let asked = async |token: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        let headers = if token.is_empty() { vec![] } else { vec![("authorization", &*bearer)] };
        request(&house, method, path, &headers, body).await.status
    };
    let explain = r#"{"source":"numbers","body":"{}"}"#;
    for (token, list, explained, forget, cancel) in [
        ("", 401, 401, 401, 401),
        ("wrong", 401, 401, 401, 401),
        ("read-token-2", 200, 200, 403, 403),
        ("forget-token-3", 403, 403, 200, 403),
        ("all-token-1", 200, 200, 200, 404),
    ] {
        assert_eq!(asked(token, "GET", "/api/events", "").await, list, "{token}");
        assert_eq!(asked(token, "GET", "/metrics", "").await, list, "{token}");
        assert_eq!(asked(token, "GET", "/api/live?x=1", "").await == 401, list == 401, "{token}");
        assert_eq!(asked(token, "POST", "/api/explain", explain).await, explained, "{token}");
        assert_eq!(asked(token, "POST", "/api/forget", "").await, forget, "{token}");
        assert_eq!(asked(token, "POST", "/api/events/nobody/cancel", "").await, cancel, "{token}");
        assert_eq!(asked(token, "DELETE", "/api/events/nobody", "").await, cancel, "{token}");
        assert_eq!(asked(token, "GET", "/api/handshakes", "").await, list, "{token}");
        assert_eq!(asked(token, "POST", "/api/handshakes/nobody?wait=0", "").await, cancel, "{token}");
        assert_eq!(asked(token, "GET", "/healthz", "").await, 200);
    }
}

#[tokio::test]
async fn a_login_starts_a_session_that_only_our_own_page_can_use_for_changes_and_a_logout_ends_it() {
    let house = guarded();
    let event = house.deliver(IN, &number("d1", 1, "a")).await.event();
    house.quiet().await;
    let login = request(&house, "POST", "/login", &[FORM, HTML], "token=all-token-1").await;
    assert_eq!((login.status, login.header("location")), (303, Some("/")));
    let cookie = login.header("set-cookie").unwrap().to_owned();
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("all-token-1"));
    let cookie = cookie.split(';').next().unwrap();
    let ours = house.admin_url("");
    let replay = format!("/api/events/{event}/replay");
    let page = ("hookonce-page", "1");
    let asked = async |method: &str, path: &str, more: &[(&str, &str)]| {
        request(&house, method, path, &[&[("cookie", cookie)], more].concat(), "").await
    };
    assert_eq!(asked("GET", "/api/events", &[]).await.status, 200);
    let session = asked("GET", "/api/session", &[]).await.json();
    assert_eq!(
        (&session["may"], &session["by"], &session["header"]),
        (&json!("all"), &json!("cookie"), &json!("hookonce-page"))
    );
    assert_eq!(asked("GET", "/api/events", &[("origin", "http://evil.example")]).await.status, 403);
    for headers in [
        &[][..],
        &[page],
        &[("origin", &*ours)],
        &[("origin", "http://evil.example"), page],
        &[("origin", "null"), page],
    ] {
        let answer = asked("POST", &replay, headers).await;
        assert_eq!((answer.status, answer.json()["reason"].clone()), (403, json!("cross_site")), "{headers:?}");
    }
    assert_eq!(house.sql("select life from events"), ["1"]);
    assert_eq!(asked("POST", &replay, &[("origin", &ours), page]).await.status, 200);
    assert_eq!(asked("POST", "/logout", &[("origin", "http://evil.example")]).await.status, 403);
    assert_eq!(asked("POST", "/logout", &[("origin", &ours), HTML]).await.status, 303);
    assert_eq!(asked("GET", "/api/events", &[]).await.status, 401);
    assert_eq!(asked("GET", "/api/session", &[]).await.json()["may"], json!(null));
}

/// The cookie of a login, made under this host name.
async fn logged_in(house: &House, host: &str, token: &str) -> String {
    let login = request(house, "POST", "/login", &[FORM, ("host", host)], &format!("token={token}")).await;
    assert_eq!(login.status, 200);
    login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_valid_on_every_node_with_its_token_and_has_its_permission_there() {
    let (first, second, changed) = (guarded(), guarded(), guarded_by("all-token-4"));
    let name = ("host", "hooks.example");
    let asked = async |house: &House, cookie: &str, path: &str| {
        request(house, "GET", path, &[name, ("cookie", cookie)], "").await
    };
    let all = logged_in(&first, name.1, "all-token-1").await;
    let read = logged_in(&second, name.1, "read-token-2").await;
    for house in [&first, &second] {
        assert_eq!(asked(house, &all, "/api/events").await.status, 200);
        assert_eq!(asked(house, &all, "/api/session").await.json()["may"], json!("all"));
        assert_eq!(asked(house, &read, "/api/session").await.json()["may"], json!("read"));
        let page = [name, ("cookie", &*read), ("origin", "http://hooks.example"), ("hookonce-page", "1")];
        assert_eq!(request(house, "POST", "/api/forget", &page, "").await.status, 403);
    }
    let ends = asked(&first, &all, "/api/session").await.json()["expires_at"].clone();
    assert!(ends.is_string());
    assert_eq!(asked(&second, &all, "/api/session").await.json()["expires_at"], ends);
    assert_eq!(asked(&changed, &read, "/api/events").await.status, 200);
    assert_eq!(asked(&changed, &all, "/api/events").await.status, 401, "another token is configured here");
    // A change anywhere in it is noticed: its end, its id, its HMAC.
    let value = all.find('=').unwrap() + 1;
    for at in (value..all.len()).step_by(9) {
        let other = if &all[at..=at] == "0" { "1" } else { "0" };
        let forged = format!("{}{other}{}", &all[..at], &all[at + 1..]);
        assert_eq!(asked(&second, &forged, "/api/events").await.status, 401, "{at}");
    }
    assert_eq!(asked(&second, &all[..all.len() - 2], "/api/events").await.status, 401);
    assert_eq!(asked(&second, &format!("{all}00"), "/api/events").await.status, 401);
    // After a logout on one node the session is refused there. The other node, which does not know of it, still accepts
    // a copy of the cookie; the browser has deleted its own.
    let out = request(&first, "POST", "/logout", &[name, ("cookie", &*all)], "").await;
    let given = out.header("set-cookie").unwrap();
    assert!(given.starts_with(&all[..value]) && given.contains("=; ") && given.ends_with("; Max-Age=0"), "{given}");
    assert_eq!(asked(&first, &all, "/api/events").await.status, 401);
    assert_eq!(asked(&first, &read, "/api/events").await.status, 200);
}

#[tokio::test]
async fn nodes_on_one_host_leave_each_other_s_sessions_alone() {
    let (first, second) = (guarded(), guarded());
    let port = |house: &House| house.admin_url("").rsplit(':').next().unwrap().to_owned();
    // A browser keeps one cookie of a name per host, whatever the port, and sends them all.
    let mut kept = std::collections::BTreeMap::new();
    for house in [&first, &second] {
        let cookie = logged_in(house, &format!("localhost:{}", port(house)), "all-token-1").await;
        let (name, value) = cookie.split_once('=').unwrap();
        kept.insert(name.to_owned(), value.to_owned());
    }
    let asked = async |house: &House, kept: &std::collections::BTreeMap<String, String>| {
        let all = kept.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
        let host = format!("localhost:{}", port(house));
        request(house, "GET", "/api/events", &[("host", &host), ("cookie", &all)], "").await.status
    };
    assert_eq!((asked(&first, &kept).await, asked(&second, &kept).await), (200, 200));
    kept.retain(|name, _| !name.contains(&port(&second)));
    assert_eq!((asked(&first, &kept).await, asked(&second, &kept).await), (200, 401));
}

#[tokio::test]
async fn wrong_tokens_are_refused_ever_more_slowly_and_no_client_is_locked_out() {
    let house = guarded();
    let login = async |token: &str, headers: &[(&str, &str)]| {
        request(&house, "POST", "/login", headers, &format!("token={token}")).await
    };
    assert_eq!(login("read-token-2", &[FORM]).await.json()["may"], json!("read"));
    assert_eq!(login("", &[FORM]).await.status, 400);
    assert_eq!(request(&house, "POST", "/login", &[], "token=x").await.status, 415);
    let strange = login("all-token-1", &[FORM, ("origin", "http://hooks.example")]).await;
    assert_eq!((strange.status, &strange.json()["reason"]), (403, &json!("cross_site")));
    let hint = strange.json()["hint"].as_str().unwrap_or("").to_owned();
    assert!(hint.contains("proxy_set_header Host $http_host;"), "{hint}");
    let back = login("wrong", &[FORM, HTML]).await;
    assert_eq!((back.status, back.header("location")), (303, Some("/login?failed=bad_token")));
    // Both ways count together: the sixth refusal of this address takes longer than all before.
    let wrong = [("authorization", "Bearer wrong")];
    for _ in 1..3 {
        assert_eq!(login("wrong", &[FORM]).await.status, 401);
        assert_eq!(request(&house, "GET", "/api/events", &wrong, "").await.status, 401);
    }
    let begun = Instant::now();
    assert_eq!(login("wrong", &[FORM]).await.status, 401);
    assert!(begun.elapsed() > Duration::from_millis(600), "{:?}", begun.elapsed());
    for _ in 0..5 {
        assert_eq!(login("wrong", &[FORM]).await.status, 401);
    }
    assert_eq!(login("all-token-1", &[FORM]).await.status, 200, "no client is locked out");
    support::until("its log", || house.log().contains("WARN admin")).await;
    let log = house.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("WARN admin")).collect();
    assert!(lines[0].contains("reason=bad_token from=127.0.0.1 way=login times=1"), "{log}");
    assert!(!log.contains("wrong "), "{log}");
}

/// Guesses over one connection after another until told to stop; counts the refusals.
async fn guess(address: String, stop: Arc<AtomicBool>, refused: Arc<AtomicUsize>, n: usize) {
    let guess = |n: usize| match n % 3 {
        0 => format!("GET /api/events HTTP/1.1\r\nhost: t\r\nauthorization: Bearer guess-{n}\r\n\r\n"),
        1 => format!("GET /api/session HTTP/1.1\r\nhost: t\r\nauthorization: Bearer guess-{n}\r\n\r\n"),
        _ => {
            let body = format!("token=guess-{n:09}");
            let head = "POST /login HTTP/1.1\r\nhost: t\r\ncontent-type: application/x-www-form-urlencoded";
            format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        }
    };
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(&address).await else { continue };
        let mut scrap = [0; 4096];
        for n in n.. {
            let sent = stream.write_all(guess(n).as_bytes()).await;
            match stream.read(&mut scrap).await {
                Ok(1..) if sent.is_ok() => refused.fetch_add(1, Ordering::Relaxed),
                _ => break, // closed without a response
            };
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_over_many_connections_are_throttled_and_a_right_token_is_accepted_at_once() {
    let house = guarded();
    let address = house.admin_url("").trim_start_matches("http://").to_owned();
    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let guesses =
        (0..100).map(|n| tokio::spawn(guess(address.clone(), stop.clone(), refused.clone(), n))).collect::<Vec<_>>();
    support::until("the guesses are slow", || refused.load(Ordering::Relaxed) > 10).await;
    tokio::time::sleep(Duration::from_secs(2)).await; // the first requests are answered
    let (before, begun) = (refused.load(Ordering::Relaxed), Instant::now());
    let right = [("authorization", "Bearer all-token-1")];
    let mut times = Vec::new();
    while begun.elapsed() < Duration::from_secs(6) {
        let asked = Instant::now();
        assert_eq!(request(&house, "GET", "/api/events", &right, "").await.status, 200);
        assert_eq!(request(&house, "POST", "/login", &[FORM], "token=read-token-2").await.status, 200);
        times.push(asked.elapsed());
    }
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let rate = (refused.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    guesses.iter().for_each(tokio::task::JoinHandle::abort);
    let slow = times.iter().filter(|time| **time > Duration::from_secs(1)).count();
    println!("100 connections: {rate:.1} refusals per second; a right token took {:?} at most", times.iter().max());
    // 16 wait at once, two seconds each.
    assert!(rate <= 10.0, "{rate:.1} refusals per second");
    // A busy machine may delay one. A wrong one waits for two seconds.
    assert!(slow <= times.len() / 10, "right tokens took {times:?}");
    let lines = house.log().lines().filter(|line| line.contains("WARN admin")).count();
    assert!((1..=5).contains(&lines), "{}", house.log());
    let metrics = String::from_utf8(request(&house, "GET", "/metrics", &right, "").await.body).unwrap();
    let metrics = support::without_node(&metrics);
    for way in ["header", "login"] {
        let line = format!("hookonce_admin_auth_failures_total{{way=\"{way}\"}} ");
        let count = metrics.lines().find_map(|metric| metric.strip_prefix(&line)).unwrap();
        assert!(count.parse::<u64>().unwrap() > 5, "{count}");
    }
}

#[tokio::test]
async fn an_unauthenticated_session_says_only_that_a_login_is_needed() {
    let house = guarded();
    for headers in [&[][..], &[("authorization", "Bearer wrong")], &[("cookie", "hookonce=00")]] {
        let session = request(&house, "GET", "/api/session", headers, "").await;
        assert_eq!((session.status, session.json()), (200, json!({ "needs_login": true, "may": null })), "{headers:?}");
    }
    let known = [("authorization", "Bearer forget-token-3")];
    let session = request(&house, "GET", "/api/session", &known, "").await.json();
    assert!(session["node"].is_string() && session["version"].is_string(), "{session}");
}

#[tokio::test]
async fn an_unsupported_method_gets_405_even_without_a_token() {
    let house = guarded();
    let forget = [("authorization", "Bearer forget-token-3")];
    for (method, path, allow) in [
        ("GET", "/api/forget", "POST"),
        ("DELETE", "/api/forget", "POST"),
        ("GET", "/api/events/nobody/replay", "POST"),
        ("GET", "/api/events/nobody/cancel", "POST"),
        ("GET", "/api/replay", "POST"),
        ("GET", "/api/explain", "POST"),
        ("POST", "/api/events", "GET,HEAD"),
        ("POST", "/api/events/nobody", "GET,HEAD,DELETE"),
        ("POST", "/metrics", "GET,HEAD"),
        ("POST", "/readyz", "GET,HEAD"),
        ("PUT", "/logout", "POST"),
    ] {
        for headers in [&forget[..], &[]] {
            let answer = request(&house, method, path, headers, "").await;
            assert_eq!((answer.status, &answer.json()["reason"]), (405, &json!("method")), "{method} {path}");
            assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
        }
    }
    assert_eq!(request(&house, "POST", "/api/forget", &forget, "").await.status, 200);
    assert_eq!(request(&house, "POST", "/api/forget", &[], "").await.status, 401);
}

#[tokio::test]
async fn without_tokens_there_is_nothing_to_log_in_to_and_strangers_are_refused() {
    let house = House::new(&numbers(""));
    assert_eq!(request(&house, "POST", "/login", &[FORM], "token=x").await.status, 400);
    let session = crate::get(&house, "/api/session").await;
    assert_eq!(
        (&session["needs_login"], &session["may"], &session["by"]),
        (&json!(false), &json!("all"), &json!("loopback"))
    );
    for (name, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
        for path in ["/api/events", "/api/session", "/metrics", "/api/live", "/api/overview"] {
            assert_eq!(request(&house, "GET", path, &[(name, value)], "").await.status, 403, "{path} {name}");
        }
        assert_eq!(request(&house, "POST", "/login", &[FORM, (name, value)], "token=x").await.status, 403);
    }
}

#[tokio::test]
async fn an_unknown_path_gives_browsers_a_page_and_programs_json() {
    let house = House::new(&numbers(""));
    for path in ["/nowhere", "/events/a/b", "/metrics/", "//evil.example/"] {
        let page = request(&house, "GET", path, &[HTML], "").await;
        assert_eq!((page.status, page.header("etag")), (404, None), "{path}");
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
    }
    let known = request(&house, "GET", "/", &[HTML], "").await.header("etag").unwrap().to_owned();
    assert_eq!(request(&house, "GET", "/nowhere", &[HTML, ("if-none-match", &known)], "").await.status, 404);
    let slash = request(&house, "GET", "/events/?state=dead", &[HTML], "").await;
    assert_eq!((slash.status, slash.header("location")), (308, Some("/events?state=dead")));
    for (method, path, headers) in [
        ("GET", "/nowhere", &[][..]),
        ("GET", "/api/nowhere", &[HTML]),
        ("GET", "/api", &[HTML]),
        ("POST", "/nowhere", &[HTML]),
        ("GET", "/events/", &[]),
    ] {
        let answer = request(&house, method, path, headers, "").await;
        assert_eq!((answer.status, &answer.json()["reason"]), (404, &json!("unknown_path")), "{method} {path}");
    }
}
