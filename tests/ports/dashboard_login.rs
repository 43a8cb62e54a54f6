//! `hookonce open`: a link that logs a browser in, once.

use crate::SOURCE;
use crate::support::House;

fn house(admin: &str) -> House {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    House::new(&format!("{SOURCE}[admin]\nlisten = \"127.0.0.1:{port}\"\n{admin}"))
}

fn open(house: &House, token: &str) -> (Option<i32>, String) {
    let output = house.command(&["open"]).env("HOOKONCE_ADMIN_TOKEN", token).output().unwrap();
    let text = String::from_utf8(if output.status.success() { output.stdout } else { output.stderr }).unwrap();
    (output.status.code(), text.trim().to_owned())
}

fn browser() -> reqwest::Client {
    let accept = [(reqwest::header::ACCEPT, reqwest::header::HeaderValue::from_static("text/html,*/*;q=0.8"))];
    let client = reqwest::Client::builder().default_headers(accept.into_iter().collect());
    client.no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

#[tokio::test]
async fn a_link_logs_a_browser_in_once_with_the_permission_of_its_token() {
    let mut house = House::empty(SOURCE);
    std::fs::write(house.path("reader"), "a token that may only read").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    house.configure(&format!(
        "{SOURCE}[admin]\nlisten = \"127.0.0.1:{port}\"\n\
         tokens = [{{ token = {{ env = \"SECRET\" }}, may = \"all\" }}, {{ token = {{ file = \"reader\" }} }}]\n"
    ));
    house.start();
    for (token, may) in [(crate::support::SECRET, "all"), ("a token that may only read", "read")] {
        let (code, link) = open(&house, token);
        assert_eq!(code, Some(0), "{link}");
        assert!(link.starts_with(&house.admin_url("/open/")), "{link}");
        let client = browser();
        // A preview does not use it up.
        assert_eq!(client.head(&link).send().await.unwrap().status(), 303);
        let answer = client.get(&link).send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (303, "/"));
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let session = client.get(house.admin_url("/api/session")).header("cookie", &cookie).send().await.unwrap();
        let session: serde_json::Value = serde_json::from_str(&session.text().await.unwrap()).unwrap();
        assert_eq!((session["may"].as_str(), session["by"].as_str()), (Some(may), Some("cookie")));
        // Twice is once too often.
        let again = client.get(&link).send().await.unwrap();
        assert_eq!(again.headers()["location"].to_str().unwrap(), "/login?failed=bad_link");
        assert!(!again.headers().contains_key("set-cookie"));
        // A session makes no link, and a stranger none either.
        let by_cookie =
            client.post(house.admin_url("/api/link")).header("cookie", &cookie).header("hookonce-page", "1");
        let by_cookie = by_cookie.header("origin", house.admin_url("").trim_end_matches('/')).send().await.unwrap();
        assert_eq!(by_cookie.status(), 403);
    }
    let client = browser();
    assert_eq!(client.post(house.admin_url("/api/link")).send().await.unwrap().status(), 401);
    let guessed = client.get(house.admin_url(&format!("/open/{}", "0".repeat(64)))).send().await.unwrap();
    assert_eq!(guessed.headers()["location"].to_str().unwrap(), "/login?failed=bad_link");
    // A program is told in JSON.
    let program = reqwest::get(house.admin_url("/open/0")).await.unwrap();
    assert_eq!((program.status().as_u16(), program.text().await.unwrap().contains("bad_link")), (401, true));
    let (code, why) = open(&house, "a wrong token");
    assert_eq!(code, Some(2), "{why}");
}

#[tokio::test]
async fn without_tokens_the_link_is_the_dashboard_itself() {
    let house = house("");
    let (code, link) = open(&house, "");
    assert_eq!((code, link.as_str()), (Some(0), house.admin_url("/").as_str()));
    assert_eq!(browser().get(&link).send().await.unwrap().status(), 200);
    let output = house.command(&["open", "--no-browser"]).env("SSH_CONNECTION", "1 2 3 4").output().unwrap();
    let port = link.trim_end_matches('/').rsplit(':').next().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains(&format!("ssh -L {port}:127.0.0.1:{port}")), "{told}");
}
