//! TLS on the ports themselves, and certificates that change.

use crate::support::{House, until};
use crate::{Authority, HOOKS, SOURCE, delivery, https, request, status};
use reqwest::Version;
use std::process::Command;

const TLS: &str = "tls = { certificate = \"tls/certificate\", key = \"tls/key\" }\n";

/// A node with a certificate of this authority; `tls` is a link to the folder, as certbot and Kubernetes have it.
fn house(authority: &mut Option<Authority>, admin: &str) -> House {
    let mut house = House::empty(&format!("{TLS}{SOURCE}{admin}"));
    let own = authority.insert(Authority::new(house.dir.path(), "first"));
    own.certify(&house.path("one"));
    std::os::unix::fs::symlink("one", house.path("tls")).unwrap();
    house.start();
    house
}

/// Puts another folder in the place of the one that the config names, at once.
fn swap(house: &House, folder: &str) {
    std::os::unix::fs::symlink(folder, house.path("next")).unwrap();
    std::fs::rename(house.path("next"), house.path("tls")).unwrap();
}

#[tokio::test]
async fn deliveries_are_taken_over_tls_by_http1_and_by_http2() {
    let mut authority = None;
    let house = house(&mut authority, "");
    let authority = authority.unwrap();
    let url = https(&house, HOOKS);
    let clients = [
        (authority.client().build().unwrap(), Version::HTTP_2),
        (authority.client().http1_only().build().unwrap(), Version::HTTP_11),
    ];
    for (n, (client, version)) in clients.iter().enumerate() {
        for again in 0..3 {
            let answer = request(client, &url, &delivery(&format!("{n}-{again}"))).send().await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (202, *version));
        }
        assert_eq!(status(client, &url, &crate::forged("f")).await, 401);
        assert_eq!(status(client, &https(&house, "/nowhere"), &delivery("x")).await, 404);
    }
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let mut curl = Command::new("curl");
        curl.args(["-sS", option, "--cacert", &authority.file("ca.pem"), "-w", "%{http_version} %{http_code}"]);
        let told = curl.arg(https(&house, "/healthz")).output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.ends_with(&format!("{version} 200")), "{told}");
    }
    for old in ["--tlsv1.0", "--tlsv1.1"] {
        let mut curl = Command::new("curl");
        curl.args(["-sk", old, "--tls-max", &old[6..], "--ciphers", "DEFAULT@SECLEVEL=0", &https(&house, "/healthz")]);
        assert!(!curl.output().unwrap().status.success(), "{old}");
    }
    let plain = reqwest::get(house.url(HOOKS)).await.unwrap();
    assert_eq!(plain.status(), 400);
    assert!(plain.text().await.unwrap().contains("speaks HTTPS"));
    house.quiet().await;
    assert_eq!(house.count("done"), 6);
}

#[tokio::test]
async fn a_renewed_certificate_is_used_by_new_connections_and_open_ones_go_on() {
    let mut authority = None;
    let house = house(&mut authority, "");
    let first = authority.unwrap();
    let url = https(&house, "/healthz");
    let get = async |client: &reqwest::Client| client.get(&url).send().await.map(|answer| answer.status().as_u16());
    let opened: Vec<_> = [first.client(), first.client().http1_only()].map(|client| client.build().unwrap()).into();
    for client in &opened {
        assert_eq!(get(client).await.unwrap(), 200);
    }
    let second = Authority::new(house.dir.path(), "second");
    second.certify(&house.path("two"));
    swap(&house, "two");
    until("the new certificate", || house.log().contains("INFO certificate")).await;
    for client in &opened {
        assert_eq!(get(client).await.unwrap(), 200, "an open connection goes on");
    }
    assert!(get(&first.client().build().unwrap()).await.is_err(), "the old certificate is gone");
    assert_eq!(get(&second.client().build().unwrap()).await.unwrap(), 200);

    // A key that is not the certificate's, then none, then a file that is none of both: the last good pair stays.
    for (n, wrong) in ["another key", "no key", "no certificate"].into_iter().enumerate() {
        let folder = format!("wrong-{n}");
        first.certify(&house.path(&folder));
        match wrong {
            "another key" => drop(std::fs::copy(house.path("two/key"), house.path(&folder).join("key")).unwrap()),
            "no key" => std::fs::remove_file(house.path(&folder).join("key")).unwrap(),
            _ => std::fs::write(house.path(&folder).join("certificate"), "hello").unwrap(),
        }
        swap(&house, &folder);
        until(wrong, || house.log().matches("WARN certificate").count() > n).await;
        assert_eq!(get(&second.client().build().unwrap()).await.unwrap(), 200, "{wrong}");
    }
    // In place, one file after the other, as a script would.
    first.certify(&house.path("three"));
    swap(&house, "two");
    for file in ["certificate", "key"] {
        std::fs::copy(house.path("three").join(file), house.path("two").join(file)).unwrap();
    }
    until("the first authority again", || house.log().matches("INFO certificate").count() == 2).await;
    assert_eq!(get(&first.client().build().unwrap()).await.unwrap(), 200);
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_certificate_is_reported_once_in_a_while() {
    let mut authority = None;
    let house = house(&mut authority, "");
    let stranger = Authority::new(house.dir.path(), "stranger").client().build().unwrap();
    for _ in 0..5 {
        assert!(stranger.get(https(&house, "/healthz")).send().await.is_err());
    }
    until("the line", || house.log().contains("WARN tls")).await;
    assert_eq!(house.log().matches("WARN tls").count(), 1, "{}", house.log());
}

#[tokio::test]
async fn commands_reach_an_admin_port_with_tls_by_its_own_certificate() {
    let mut authority = None;
    let admin = format!("[admin]\nlisten = \"127.0.0.1:{}\"\n{TLS}", free_port());
    let house = house(&mut authority, &admin);
    let authority = authority.unwrap();
    request(&authority.client().build().unwrap(), &https(&house, HOOKS), &delivery("a")).send().await.unwrap();
    house.quiet().await;
    let run = |args: &[&str]| {
        let output = house.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["list", "--json"]).contains("\"delivery\": \"a\""), "{}", run(&["list", "--json"]));
    let link = run(&["open", "--no-browser"]);
    assert!(link.starts_with("https://127.0.0.1:"), "{link}");
    assert_eq!(run(&["healthcheck"]), "ready\n");
    run(&["reload"]);
    // Another certificate than that of the config is another node.
    Authority::new(house.dir.path(), "other").certify(&house.path("four"));
    let text = std::fs::read_to_string(house.path("hookonce.toml")).unwrap();
    std::fs::write(house.path("hookonce.toml"), text.replace("\"tls/", "\"four/")).unwrap();
    let output = house.command(&["open", "--no-browser"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_certificate_that_cannot_be_used_is_reported_with_its_place() {
    let house = House::empty(&format!("{TLS}{SOURCE}"));
    let check = |expected: &[&str]| {
        let output = house.command(&["check"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        for words in expected {
            assert!(told.contains(words), "{words}: {told}");
        }
    };
    check(&["the certificate of the port cannot be used", "hookonce.toml:2:", "there is no such file"]);
    let authority = Authority::new(house.dir.path(), "first");
    authority.certify(&house.path("tls"));
    authority.certify(&house.path("other"));
    std::fs::copy(house.path("other/key"), house.path("tls/key")).unwrap();
    check(&["it is not the key of the certificate in"]);
    std::fs::copy(house.path("tls/certificate"), house.path("tls/key")).unwrap();
    check(&["there is no private key in PEM in it"]);
    house.configure(&format!("tls = {{ certificate = \"tls/certificate\" }}\n{SOURCE}"));
    check(&["`tls` has no `key`"]);
}
