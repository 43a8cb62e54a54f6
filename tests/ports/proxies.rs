//! The snippets of docs/proxies.md, run.

use crate::nginx::{Nginx, documented};
use crate::support::{House, PATIENCE};
use crate::{HOOKS, SOURCE, delivery, forged, request};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Behind a proxy on this machine: a delivery gets in, and the client's address is the proxy's word, not the client's.
async fn check(house: &House, proxy: &str) {
    // Another address than the proxy's.
    let client = reqwest::Client::builder().no_proxy().local_address(std::net::IpAddr::from([127, 0, 0, 2]));
    let client = client.build().unwrap();
    let url = format!("{proxy}{HOOKS}");
    assert_eq!(crate::status(&client, &url, &delivery("through")).await, 202);
    let mut large = delivery("large");
    large.body = vec![b' '; 5 << 20];
    assert_eq!(crate::status(&client, &url, &large).await, 401, "a large body gets to the node");
    for (n, (name, value)) in
        [("x-forwarded-for", "192.30.252.1"), ("forwarded", "for=192.30.252.1"), ("x-real-ip", "192.30.252.1")]
            .into_iter()
            .enumerate()
    {
        let sent = request(&client, &url, &forged(&format!("spoofed-{n}"))).header(name, value).send().await.unwrap();
        assert_eq!(sent.status(), 401, "{name}");
    }
    let both = request(&client, &url, &forged("both")).header("x-forwarded-for", "192.30.252.1");
    assert_eq!(both.header("forwarded", "for=192.30.252.1").send().await.unwrap().status(), 401);
    let told = house.ask("GET", "/api/deliveries?verdict=refused").await.json();
    let all = told["deliveries"].as_array().unwrap();
    assert_eq!(all.len(), 5, "{told}");
    assert!(all.iter().all(|one| one["from"] == "127.0.0.2"), "{told}");
}

fn house() -> House {
    House::new(&format!("{}{SOURCE}", documented("proxies.md", "toml")))
}

/// A snippet with the node's address in place of the default one.
fn snippet(language: &str, house: &House) -> String {
    let text = documented("proxies.md", language);
    let here = house.url("").replace("http://", "");
    let replaced = text.replace("127.0.0.1:3142", here.trim_end_matches('/'));
    assert_ne!(text, replaced, "{language}: the snippet uses the default address");
    replaced
}

#[tokio::test]
async fn deliveries_and_addresses_come_through_nginx_as_documented() {
    let house = house();
    let proxy = Nginx::start(&snippet("nginx", &house));
    check(&house, proxy.url("").trim_end_matches('/')).await;
}

/// A Caddy that is ended with the test.
struct Caddy(Child);

impl Drop for Caddy {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn deliveries_and_addresses_come_through_caddy_as_documented() {
    if Command::new("caddy").arg("version").stdout(Stdio::null()).status().is_err() {
        eprintln!("not tested: caddy is not installed; ./test does that");
        return;
    }
    let house = house();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let text = snippet("caddy", &house).replace("hooks.example.com", &format!("http://{address}"));
    let file = house.path("Caddyfile");
    std::fs::write(&file, format!("{{\n    admin off\n    auto_https off\n}}\n{text}")).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file).current_dir(house.dir.path());
    command
        .env("HOME", house.dir.path())
        .env("XDG_DATA_HOME", house.dir.path())
        .env("XDG_CONFIG_HOME", house.dir.path());
    let _caddy = Caddy(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let patience = Instant::now() + PATIENCE;
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < patience, "caddy does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    check(&house, &format!("http://{address}")).await;
}
