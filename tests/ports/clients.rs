//! Who a client is, which may send, and what refusals cost.

use crate::support::{House, Sent, until};
use crate::{HOOKS, SOURCE, delivery, forged};
use serde_json::Value;

async fn send(house: &House, delivery: &Sent, forwarded: &[(&str, &str)]) -> crate::support::Answer {
    let with = forwarded.iter().fold(delivery.clone(), |sent, (name, value)| {
        let mut headers = sent.headers;
        headers.push(((*name).to_owned(), (*value).to_owned()));
        Sent { headers, body: sent.body }
    });
    house.deliver(HOOKS, &with).await
}

/// The addresses of the deliveries that were refused, the newest first.
async fn refused_from(house: &House) -> Vec<String> {
    let told = house.ask("GET", "/api/deliveries?verdict=refused").await.json();
    let all = told["deliveries"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["from"].as_str().unwrap_or("").to_owned()).collect()
}

#[tokio::test]
async fn what_a_client_says_of_its_address_counts_only_through_a_trusted_proxy() {
    for (config, from) in [("trusted_proxies = [\"127.0.0.1\"]\n", "203.0.113.9"), ("", "127.0.0.1")] {
        let house = House::new(&format!("{config}{SOURCE}"));
        let spoofed = [("x-forwarded-for", "192.30.252.1, 203.0.113.9")];
        assert_eq!(send(&house, &forged("a"), &spoofed).await.status, 401);
        assert_eq!(refused_from(&house).await, [from]);
        until("the line", || house.log().contains(&format!("from={from}"))).await;
        let both = [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=192.30.252.1")];
        assert_eq!(send(&house, &forged("b"), &both).await.status, 401);
        assert_eq!(refused_from(&house).await[0], "127.0.0.1");
    }
}

#[tokio::test]
async fn only_the_networks_of_a_source_may_send_to_it_and_others_are_refused_before_their_body() {
    let house = House::new(&format!(
        "trusted_proxies = [\"127.0.0.1\"]\n{SOURCE}allow_from = [\"192.30.252.0/22\", \"2001:db8::/32\"]\n"
    ));
    for (n, from) in ["192.30.253.7", "2001:db8::7", "::ffff:192.30.252.1"].iter().enumerate() {
        let answer = send(&house, &delivery(&format!("good-{n}")), &[("x-forwarded-for", from)]).await;
        assert_eq!(answer.status, 202, "{from} {answer:?}");
    }
    for from in ["192.30.251.255", "192.31.0.0", "2001:db9::1", "127.0.0.1", "unknown"] {
        let answer = send(&house, &delivery("bad"), &[("x-forwarded-for", from)]).await;
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (403, Some("address")), "{from}");
    }
    // The body of one that is refused is never waited for.
    let address = house.url("").replace("http://", "");
    let mut stream = std::net::TcpStream::connect(address.trim_end_matches('/')).unwrap();
    std::io::Write::write_all(
        &mut stream,
        b"POST /hooks HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
    )
    .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 403"), "{text}");
    until("the line", || house.log().contains("reason=address")).await;
}

#[tokio::test]
async fn behind_the_address_of_an_attacker_a_genuine_delivery_always_gets_in() {
    let house = House::new(&format!("rate_limit = \"5/h\"\n{SOURCE}"));
    let mut statuses = Vec::new();
    for n in 0..40 {
        statuses.push(send(&house, &forged(&format!("f-{n}")), &[]).await.status);
        let answer = send(&house, &delivery(&format!("g-{n}")), &[]).await;
        assert_eq!(answer.status, 202, "{n} {answer:?}");
    }
    assert_eq!(statuses[..5], [401; 5]);
    assert_eq!(statuses[5..], [429; 35]);
    let limited = send(&house, &forged("f"), &[]).await;
    let wait: u64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=721).contains(&wait), "{wait}");
    // Without a signature it is refused before its body; so are unknown paths.
    let unsigned = Sent { headers: Vec::new(), body: b"{}".to_vec() };
    assert_eq!(send(&house, &unsigned, &[]).await.status, 429);
    for n in 0..7 {
        let expected = if n < 5 { 404 } else { 429 };
        assert_eq!(house.deliver("/nowhere", &unsigned).await.status, expected, "{n}");
    }
    // Another address has its own allowance. Of those that were limited, nothing but their number is kept.
    assert_eq!(refused_from(&house).await.len(), 10);
    until("a line for the source, and one for unknown paths", || house.log().matches("WARN limited").count() == 2)
        .await;
    let lines = ["hookonce_deliveries_total{source=\"hooks\",verdict=\"refused\"} 42"];
    house.counted(&lines).await;
}

#[tokio::test]
async fn an_address_has_its_own_allowance_and_an_ipv6_network_has_one() {
    let house = House::new(&format!("trusted_proxies = [\"127.0.0.1\"]\n{SOURCE}rate_limit = \"2/h\"\n"));
    let status =
        async |n: u32, from: &str| send(&house, &forged(&format!("f-{n}")), &[("x-forwarded-for", from)]).await.status;
    for (n, (from, expected)) in [
        ("203.0.113.1", 401),
        ("203.0.113.1", 401),
        ("203.0.113.1", 429),
        ("203.0.113.2", 401),
        ("2001:db8:0:1::1", 401),
        ("2001:db8:0:1::2", 401),
        ("2001:db8:0:1:ffff::3", 429),
        ("2001:db8:0:2::1", 401),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(status(u32::try_from(n).unwrap(), from).await, expected, "{from}");
    }
}

#[test]
fn what_cannot_be_meant_is_reported() {
    let check = |config: &str, words: &str| {
        let house = House::empty(config);
        let output = house.command(&["check", "--json"]).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(told.to_string().contains(words), "{words}: {told}");
    };
    check(&format!("trusted_proxies = [\"10.0.0.1/8\"]\n{SOURCE}"), "not the first address of a /8 range");
    check(&format!("trusted_proxies = [\"0.0.0.0/0\"]\n{SOURCE}"), "trusts every client");
    check(&format!("{SOURCE}allow_from = []\n"), "nobody could send");
    check(&format!("{SOURCE}allow_from = [\"192.30.252.0/22\"]\n"), "refuses every delivery");
    check(&format!("rate_limit = \"5\"\n{SOURCE}"), "expected a number for each s, m or h");
}
