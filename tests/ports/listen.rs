//! Where a port listens: every address, or those of a name.

use crate::support::House;
use crate::{HOOKS, SOURCE, delivery};

#[tokio::test]
async fn a_port_alone_is_every_address_and_localhost_is_both_of_its_addresses() {
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    for listen in [":0", "localhost:0"] {
        let house = House::new(&format!("listen = \"{listen}\"\n{SOURCE}"));
        let shown = house.url("");
        let port = shown.trim_end_matches('/').rsplit(':').next().unwrap();
        for host in ["127.0.0.1", "[::1]"] {
            if host == "[::1]" && !has_ipv6 {
                eprintln!("not tested: this machine has no IPv6");
                continue;
            }
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let url = format!("http://{host}:{port}{HOOKS}");
            assert_eq!(crate::status(&client, &url, &delivery(host)).await, 202, "{listen} {url}");
            let stranger = client.post(&url).body("{}").send().await.unwrap();
            assert_eq!(stranger.status(), 401);
        }
        let told = house.ask("GET", "/api/deliveries?verdict=refused").await.json().to_string();
        assert!(told.contains("\"from\":\"127.0.0.1\"") && !told.contains("::ffff"), "{told}");
    }
}

#[test]
fn an_address_that_cannot_be_read_is_reported_and_every_address_needs_a_token() {
    for (config, words) in [
        (format!("listen = \"3142\"\n{SOURCE}"), "such as \"127.0.0.1:3142\", \":3142\" or \"localhost:3142\""),
        (format!("{SOURCE}[admin]\nlisten = \":3143\"\n"), "can be reached from outside and has no token"),
        (format!("listen = \":4444\"\n{SOURCE}[admin]\nlisten = \"localhost:4444\"\n"), "listen on the same address"),
    ] {
        let output = House::empty(&config).command(&["check"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(told.contains(words), "{words}: {told}");
    }
}
