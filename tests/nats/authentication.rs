//! Authentication to the server, and TLS.

use super::server::Nats;
use super::support::{House, until};
use super::{IN, edge, push};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use nkeys::KeyPair;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const JETSTREAM: &str = "jetstream { store_dir: \"data\" }\n";
/// An nkey pair printed in the documentation of NATS: not a secret.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// Publishes one delivery with these credentials, checks that the log does not contain them, and returns the log.
async fn check(nats: &Nats, keys: &str, secret: &str) -> String {
    let mut house = House::empty(&edge(&nats.url(), keys, ""));
    std::fs::write(house.path("secret"), secret).unwrap();
    house.start();
    house.deliver(IN, &push("d-1", 1)).await;
    house.quiet().await;
    assert_eq!(house.count("done"), 1, "{}", house.log());
    let log = house.log();
    assert!(!log.contains(secret), "{log}");
    log
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_a_user_and_an_nkey_are_accepted_by_the_server_and_not_logged() {
    let file = "{ file = \"secret\" }";
    let stream = "accounts { A { jetstream: enabled, users: [";
    for (who, keys) in [
        ("{ user: hook, password: s3cret }".to_owned(), format!(", user = \"hook\", password = {file}")),
        (format!("{{ nkey: {PUBLIC} }}"), format!(", nkey = {file}")),
    ] {
        let admin = "{ user: admin, password: admin }";
        let nats = Nats::with(&format!("{JETSTREAM}{stream}{who}, {admin}] }} }}"));
        nats.as_admin().await;
        let secret = if keys.contains("nkey") { SEED } else { "s3cret" };
        check(&nats, &keys, secret).await;
    }
    let nats = Nats::with(&format!("{JETSTREAM}authorization {{ token: s3cret }}"));
    nats.with_token("s3cret").await;
    check(&nats, &format!(", token = {file}"), "s3cret").await;
}

/// A JWT as NATS uses them: these claims, signed with this key.
fn jwt(by: &KeyPair, about: &KeyPair, claims: &Value) -> String {
    let claims = json!({ "iss": by.public_key(), "sub": about.public_key(), "name": "test", "nats": claims });
    let [head, claims] =
        [json!({ "typ": "JWT", "alg": "ed25519-nkey" }), claims].map(|part| BASE64.encode(part.to_string()));
    let signature = by.sign(format!("{head}.{claims}").as_bytes()).unwrap();
    format!("{head}.{claims}.{}", BASE64.encode(signature))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creds_file_is_accepted_by_a_server_that_trusts_its_operator() {
    let [operator, system, account] = [KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account()];
    let user = KeyPair::new_user();
    let unlimited = |storage: i64| {
        json!({ "type": "account", "version": 2, "limits": {
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
        }})
    };
    let of_operator = jwt(&operator, &operator, &json!({ "type": "operator", "version": 2 }));
    let config = format!(
        "{JETSTREAM}operator: {of_operator}\nsystem_account: {sys}\nresolver: MEMORY\nresolver_preload: {{\n{sys}: {}\n{}: {}\n}}",
        jwt(&operator, &system, &unlimited(0)),
        account.public_key(),
        jwt(&operator, &account, &unlimited(-1)),
        sys = system.public_key(),
    );
    let nats = Nats::with(&config);
    let of_user = jwt(&account, &user, &json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 }));
    let seed = user.seed().unwrap();
    let creds = format!(
        "-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    nats.with_creds(&creds).await;
    let log = check(&nats, ", creds = { file = \"secret\" }", &creds).await;
    assert!(!log.contains(&seed) && !log.contains(&of_user), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_reported_and_not_logged() {
    let nats = Nats::with(&format!("{JETSTREAM}authorization {{ token: s3cret }}"));
    let mut house = House::empty(&edge(&nats.url(), ", token = { file = \"secret\" }", ""));
    std::fs::write(house.path("secret"), "wr0ng").unwrap();
    house.start();
    house.deliver(IN, &push("d-1", 1)).await;
    until("the reason in the log", || house.log().to_lowercase().contains("authorization violation")).await;
    assert!(!house.log().contains("wr0ng"), "{}", house.log());
}

fn openssl(folder: &Path, args: &[&str]) {
    let done = Command::new("openssl").args(args).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tls_is_trusted_by_its_certificate_only() {
    let dir = tempfile::tempdir().unwrap();
    let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
    let mut args = vec!["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key.pem", "-out"];
    args.extend(["cert.pem", "-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl(dir.path(), &[&args[..], &subject].concat());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let tls = format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", path("cert.pem"), path("key.pem"));
    let nats = Nats::with(&format!("{JETSTREAM}{tls}"));
    nats.over_tls(&path("cert.pem")).await;
    check(&nats, &format!(", ca = \"{}\"", path("cert.pem")), "unused-secret").await;

    // Without the certificate, the server is not trusted.
    let house = House::new(&edge(&nats.url().replace("nats:", "tls:"), "", ""));
    house.deliver(IN, &push("d-1", 1)).await;
    until("the error in the log", || house.log().contains("client error")).await;
    assert_eq!(house.count("done"), 0);
}
