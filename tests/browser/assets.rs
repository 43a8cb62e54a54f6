//! How the dashboard's files are served, without a browser.

use crate::config;
use crate::support::House;

async fn get(house: &House, path: &str, header: Option<(&str, &str)>) -> (u16, reqwest::header::HeaderMap, String) {
    let mut request = reqwest::Client::new().get(house.admin_url(path));
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.headers().clone(), answer.text().await.unwrap())
}

#[tokio::test]
async fn the_document_is_revalidated_and_its_files_are_cached_for_ever() {
    let house = House::new(&config("true"));
    let (status, headers, text) = get(&house, "/", None).await;
    assert_eq!(status, 200);
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["cache-control"], "no-cache");
    let tag = headers["etag"].to_str().unwrap();
    assert_eq!(get(&house, "/", Some(("if-none-match", tag))).await.0, 304);
    for page in [
        "/events",
        "/events/abc",
        "/dead",
        "/turned-away",
        "/registers",
        "/registers/abc",
        "/sources",
        "/explain",
        "/login",
    ] {
        assert_eq!(get(&house, page, None).await.2, text, "{page}");
    }
    let named: Vec<_> = text.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(named.len() > 20, "{named:?}");
    for path in named {
        let (status, headers, _) = get(&house, path, None).await;
        assert_eq!(status, 200, "{path}");
        assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        let other = path.replacen("/assets/", "/assets/0", 1);
        assert_eq!(get(&house, &other, None).await.0, 404, "{other}");
    }
}

#[tokio::test]
async fn the_content_security_policy_allows_no_other_origin_and_no_inline_script() {
    let house = House::new(&config("true"));
    let (_, headers, text) = get(&house, "/events", None).await;
    let policy = headers["content-security-policy"].to_str().unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(!text.contains("<script>") && !text.contains("<style") && !text.contains("style="));
    assert_eq!(headers["x-frame-options"], "DENY");
    assert_eq!(headers["referrer-policy"], "no-referrer");
}
