//! Names under which the dashboard of a node without tokens may be opened: those of this machine, on any port.

use crate::SOURCE;
use crate::support::House;

#[tokio::test]
async fn any_port_of_this_machine_may_be_forwarded_and_no_other_site_gets_in() {
    let house = House::new(SOURCE);
    let admin = house.admin_url("");
    let own = admin.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let port = own.rsplit(':').next().unwrap();
    let local = |name: &str| format!("{name}:{port}");
    let origin = |host: &str| format!("http://{host}");
    let cases: Vec<(String, Option<String>, Option<&str>, u16)> = vec![
        (own.clone(), None, None, 200),
        (local("localhost"), None, None, 200),
        (local("[::1]"), None, None, 200),
        // `ssh -L 18080:127.0.0.1:3143`
        ("localhost:18080".into(), None, None, 200),
        ("localhost:18080".into(), Some(origin("localhost:18080")), Some("same-origin"), 200),
        ("127.0.0.1:18080".into(), Some(origin("127.0.0.1:18080")), None, 200),
        ("localhost:18080".into(), None, Some("none"), 200),
        // Another program on this machine, another name of it, another machine.
        ("localhost:18080".into(), Some(origin("localhost:8000")), None, 403),
        (local("localhost"), Some(origin("localhost")), None, 403),
        (local("localhost"), Some(origin(&local("127.0.0.1"))), None, 403),
        (local("localhost"), Some(origin("evil.example")), None, 403),
        (local("localhost"), Some("null".into()), None, 403),
        (local("localhost"), None, Some("same-site"), 403),
        (local("localhost"), None, Some("cross-site"), 403),
        (local("evil.example"), None, None, 403),
        (local("evil.example"), Some(origin(&local("evil.example"))), Some("same-origin"), 403),
        (local("localhost.evil.example"), None, None, 403),
        (local("0.0.0.0"), None, None, 403),
    ];
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (host, origin, site, expected) in cases {
        for method in [reqwest::Method::GET, reqwest::Method::POST] {
            let path = if method == "GET" { "/api/events" } else { "/api/link" };
            let mut request = client.request(method.clone(), house.admin_url(path)).header("host", &host);
            if let Some(origin) = &origin {
                request = request.header("origin", origin);
            }
            if let Some(site) = site {
                request = request.header("sec-fetch-site", site);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), expected, "{method} {host} {origin:?} {site:?}");
        }
    }
}
