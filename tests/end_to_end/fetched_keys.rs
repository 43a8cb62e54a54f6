//! Keys that senders publish, fetched by a real node from a server of ours: tokens of an issuer, SNS and PayPal.

use crate::faketime::wrong_clock;
use crate::support::{Answer, House, Sent, until};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

/// A server that publishes documents, and counts who asks for them.
#[derive(Clone)]
struct KeyServer {
    address: String,
    state: Arc<(Mutex<ServerState>, Condvar)>,
}

#[derive(Default)]
struct ServerState {
    /// Status, headers and content by the target of a request.
    documents: HashMap<String, (u16, String, String)>,
    requests: Vec<String>,
    /// Whether responses wait.
    held: bool,
}

impl KeyServer {
    fn start() -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn at(listener: TcpListener) -> Self {
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { address, state: Arc::default() };
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = serving.clone();
                std::thread::spawn(move || server.answer(stream));
            }
        });
        server
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let Some(first) = lines.next() else { return };
        let target = first.split(' ').nth(1).unwrap_or_default().to_owned();
        lines.take_while(|line| !line.is_empty()).for_each(drop);
        let (lock, changed) = &*self.state;
        let mut state = lock.lock().unwrap();
        state.requests.push(target.clone());
        state = changed.wait_while(state, |state| state.held).unwrap();
        let missing = (404, String::new(), String::new());
        let (status, headers, body) = state.documents.get(&target).cloned().unwrap_or(missing);
        drop(state);
        let length = body.len();
        let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    }

    fn publish(&self, target: &str, body: impl Into<String>) {
        self.publish_as(target, 200, "", body.into());
    }

    fn publish_as(&self, target: &str, status: u16, headers: &str, body: String) {
        let document = (status, headers.to_owned(), body);
        self.state.0.lock().unwrap().documents.insert(target.to_owned(), document);
    }

    fn hold(&self, held: bool) {
        self.state.0.lock().unwrap().held = held;
        self.state.1.notify_all();
    }

    /// How often this was asked for.
    fn asked(&self, target: &str) -> usize {
        self.state.0.lock().unwrap().requests.iter().filter(|asked| *asked == target).count()
    }

    /// Publishes these keys as an issuer does.
    fn publish_issuer(&self, keys: &[&IssuerKey]) {
        let configuration = json!({ "issuer": self.address, "jwks_uri": format!("{}/keys", self.address) });
        self.publish("/.well-known/openid-configuration", configuration.to_string());
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
        self.publish("/keys", json!({ "keys": keys }).to_string());
    }
}

/// A key of an issuer.
struct IssuerKey {
    id: &'static str,
    pair: EcdsaKeyPair,
}

impl IssuerKey {
    fn new(id: &'static str) -> Self {
        Self { id, pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap() }
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "kty": "EC", "crv": "P-256", "kid": self.id, "x": number(x), "y": number(y) })
    }

    /// The same without its id.
    fn nameless_jwk(&self) -> Value {
        let mut jwk = self.jwk();
        jwk.as_object_mut().unwrap().remove("kid");
        jwk
    }

    /// A delivery of the job with this token id.
    fn sent(&self, issuer: &KeyServer, jti: &str) -> Sent {
        self.sent_for(issuer, jti, "https://hooks.example.com")
    }

    fn sent_for(&self, issuer: &KeyServer, jti: &str, audience: &str) -> Sent {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let claims = json!({ "iss": issuer.address, "aud": audience, "sub": "repo:owner/name", "jti": jti,
            "repository": "owner/name", "iat": now, "exp": now + 300 });
        let part = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let message = format!("{}.{}", part(json!({ "alg": "ES256", "kid": self.id })), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        let token = format!("Bearer {message}.{}", URL_SAFE_NO_PAD.encode(signature));
        let json = ("content-type".to_owned(), "application/json".to_owned());
        Sent { headers: vec![json, ("authorization".to_owned(), token)], body: br#"{"tag":"latest"}"#.to_vec() }
    }
}

/// A config with a source for the tokens of this issuer, with these keys on the top level.
fn config(issuer: &str, top: &str) -> String {
    format!(
        r#"{top}
[source.ci]
verify   = {{ scheme = "jwt", issuer = "{issuer}", audience = "https://hooks.example.com", claims = {{ repository = ["owner/name", "owner/other"] }} }}
delivery = "claim.jti"
fields   = {{ repository = "claim.repository" }}
[[source.ci.route]]
run = {{ steps = ["echo $HOOKONCE_FIELD_REPOSITORY >> runs"] }}
"#
    )
}

fn check(answer: &Answer, status: u16, word: &str) {
    assert_eq!((answer.status, &*answer.word()), (status, word), "{answer:?}");
}

/// Checks that the sender is told to try again later.
fn check_later(answer: &Answer) {
    check(answer, 503, "unavailable");
    assert!(answer.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()), "{answer:?}");
}

const PATH: &str = "/in/ci";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_an_event_once_and_unknown_keys_cause_one_fetch() {
    let (issuer, key) = (KeyServer::start(), IssuerKey::new("one"));
    issuer.publish_issuer(&[&key]);
    let house = House::new(&config(&issuer.address, ""));
    check(&house.deliver(PATH, &key.sent(&issuer, "jti-1")).await, 202, "accepted");
    house.quiet().await;
    check(&house.deliver(PATH, &key.sent(&issuer, "jti-1")).await, 200, "duplicate");
    assert_eq!(house.lines("runs"), ["owner/name"]);
    check(&house.deliver(PATH, &IssuerKey::new("one").sent(&issuer, "jti-2")).await, 401, "refused");
    let unknown = IssuerKey::new("two");
    let meant_for_others = unknown.sent_for(&issuer, "jti-2", "https://hooks.example.org");
    check(&house.deliver(PATH, &meant_for_others).await, 401, "refused");
    assert_eq!(issuer.asked("/keys"), 1, "a wrong audience asks for no key");
    for n in 0..20 {
        let forged = IssuerKey { id: ["two", "three", "four"][n % 3], pair: IssuerKey::new("").pair };
        check_later(&house.deliver(PATH, &forged.sent(&issuer, "jti-2")).await);
    }
    assert_eq!(issuer.asked("/keys"), 2, "one fetch a minute, whoever asks");
    check(&house.deliver(PATH, &key.sent(&issuer, "jti-2")).await, 202, "accepted");
    house.quiet().await;
    assert_eq!(house.lines("runs").len(), 2);
    assert_eq!(house.sql("SELECT count(*) FROM events"), ["2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_of_the_issuer_counts_with_its_first_delivery() {
    let (issuer, old, new) = (KeyServer::start(), IssuerKey::new("old"), IssuerKey::new("new"));
    issuer.publish_issuer(&[&old]);
    let house = House::new(&config(&issuer.address, ""));
    check(&house.deliver(PATH, &old.sent(&issuer, "jti-1")).await, 202, "accepted");
    issuer.publish_issuer(&[&old, &new]);
    check(&house.deliver(PATH, &new.sent(&issuer, "jti-2")).await, 202, "accepted");
    check(&house.deliver(PATH, &old.sent(&issuer, "jti-3")).await, 202, "accepted");
    assert_eq!(issuer.asked("/keys"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_without_an_id_counts_with_its_first_delivery_and_is_never_refused() {
    let (issuer, old, new) = (KeyServer::start(), IssuerKey::new("old"), IssuerKey::new("new"));
    issuer.publish_issuer(&[&old]);
    let publish = |key: &IssuerKey| issuer.publish("/keys", json!({ "keys": [key.nameless_jwk()] }).to_string());
    publish(&old);
    let house = House::new(&config(&issuer.address, ""));
    check(&house.deliver(PATH, &old.sent(&issuer, "jti-1")).await, 202, "accepted");
    publish(&new);
    check(&house.deliver(PATH, &new.sent(&issuer, "jti-2")).await, 202, "accepted");
    // The one fetch of this minute is used up: its sender is asked to try again.
    let newer = IssuerKey::new("newer");
    publish(&newer);
    check_later(&house.deliver(PATH, &newer.sent(&issuer, "jti-3")).await);
    check(&house.deliver(PATH, &new.sent(&issuer, "jti-4")).await, 202, "accepted");
    assert_eq!(issuer.asked("/keys"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_handshake_whose_key_is_not_at_hand_is_answered_and_no_event() {
    let (issuer, old, new) = (KeyServer::start(), IssuerKey::new("old"), IssuerKey::new("new"));
    issuer.publish_issuer(&[&old]);
    let handshake = "[[source.ci.handshake]]\nwhen = { \"body.challenge\" = \"*\" }\ntext = \"body.challenge\"\n";
    let house = House::new(&format!("{}{handshake}", config(&issuer.address, "")));
    check(&house.deliver(PATH, &old.sent(&issuer, "jti-1")).await, 202, "accepted");
    issuer.publish_issuer(&[&old, &new]);
    let asks = |key: &IssuerKey| Sent { body: br#"{"challenge":"ask me"}"#.to_vec(), ..key.sent(&issuer, "jti-2") };
    let answer = house.deliver(PATH, &asks(&new)).await;
    assert_eq!((answer.status, &*answer.body), (200, &b"ask me"[..]), "{answer:?}");
    check_later(&house.deliver(PATH, &asks(&IssuerKey::new("forged"))).await);
    check(&house.deliver(PATH, &asks(&IssuerKey::new("new"))).await, 401, "refused");
    house.quiet().await;
    assert_eq!(house.sql("SELECT count(*) FROM events"), ["1"]);
}

/// Otherwise anyone could use up each minute's fetch for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_does_not_end_the_fetch_it_caused() {
    let (issuer, old, new) = (KeyServer::start(), IssuerKey::new("old"), IssuerKey::new("new"));
    issuer.publish_issuer(&[&old]);
    let house = House::new(&config(&issuer.address, ""));
    check(&house.deliver(PATH, &old.sent(&issuer, "jti-1")).await, 202, "accepted");
    issuer.publish_issuer(&[&new]);
    issuer.hold(true);
    let forged = IssuerKey::new("forged").sent(&issuer, "jti-2");
    let mut client = TcpStream::connect(house.url("").trim_start_matches("http://")).unwrap();
    let headers =
        forged.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
    let length = forged.body.len();
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    client.write_all(&[head.as_bytes(), &forged.body].concat()).unwrap();
    until("the fetch", || issuer.asked("/.well-known/openid-configuration") == 2).await;
    client.shutdown(std::net::Shutdown::Both).unwrap();
    drop(client);
    issuer.hold(false);
    until("the key set", || issuer.asked("/keys") == 2).await;
    check(&house.deliver(PATH, &new.sent(&issuer, "jti-2")).await, 202, "accepted");
    assert_eq!(issuer.asked("/keys"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_its_issuer_and_takes_deliveries_when_it_is_there() {
    let reserved = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = reserved.local_addr().unwrap();
    drop(reserved);
    let house = House::new(&config(&format!("http://{at}"), ""));
    let key = IssuerKey::new("one");
    let later = KeyServer { address: format!("http://{at}"), state: Arc::default() };
    check_later(&house.deliver(PATH, &key.sent(&later, "jti-1")).await);
    check_later(&house.deliver(PATH, &key.sent(&later, "jti-1")).await);
    until("a line in the log", || house.log().contains("keys")).await;
    let issuer = KeyServer::at(TcpListener::bind(at).unwrap());
    issuer.publish_issuer(&[&key]);
    until("the key set", || issuer.asked("/keys") > 0).await;
    check(&house.deliver(PATH, &key.sent(&issuer, "jti-1")).await, 202, "accepted");
    assert_eq!(house.sql("SELECT count(*) FROM events"), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_redirect_is_followed_and_no_keys_of_another_host_are_taken() {
    let (issuer, other, key) = (KeyServer::start(), KeyServer::start(), IssuerKey::new("one"));
    other.publish_issuer(&[&key]);
    for (target, status, headers, body) in [
        ("/.well-known/openid-configuration", 302, format!("location: {}/keys\r\n", other.address), String::new()),
        (
            "/.well-known/openid-configuration",
            200,
            String::new(),
            json!({ "issuer": issuer.address, "jwks_uri": format!("{}/keys", other.address) }).to_string(),
        ),
        (
            "/.well-known/openid-configuration",
            200,
            String::new(),
            json!({ "issuer": other.address, "jwks_uri": format!("{}/keys", issuer.address) }).to_string(),
        ),
        ("/.well-known/openid-configuration", 200, String::new(), "x".repeat(300 << 10)),
    ] {
        issuer.publish_as(target, status, &headers, body);
        let house = House::new(&config(&issuer.address, ""));
        check_later(&house.deliver(PATH, &key.sent(&issuer, "jti-1")).await);
    }
    assert_eq!(other.state.0.lock().unwrap().requests.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_fetched_through_the_proxy() {
    let (proxy, key) = (KeyServer::start(), IssuerKey::new("one"));
    // Nothing listens there: only the proxy can answer.
    let issuer = KeyServer { address: "http://127.0.0.1:1".to_owned(), state: Arc::default() };
    let configuration = json!({ "issuer": issuer.address, "jwks_uri": format!("{}/keys", issuer.address) });
    proxy.publish("http://127.0.0.1:1/.well-known/openid-configuration", configuration.to_string());
    proxy.publish("http://127.0.0.1:1/keys", json!({ "keys": [key.jwk()] }).to_string());
    let house = House::new(&config(&issuer.address, &format!("proxy = \"{}\"\n", proxy.address)));
    check(&house.deliver(PATH, &key.sent(&issuer, "jti-1")).await, 202, "accepted");
    assert_eq!(proxy.asked("http://127.0.0.1:1/keys"), 1);
}

/// An RSA key with a certificate, made by openssl.
struct CertifiedKey {
    dir: tempfile::TempDir,
}

impl CertifiedKey {
    fn new() -> Self {
        Self::made_by(Command::new("openssl"))
    }

    /// One whose certificate has expired.
    fn expired() -> Self {
        let mut openssl = Command::new("openssl");
        wrong_clock(&mut openssl, "-3d");
        Self::made_by(openssl)
    }

    fn made_by(mut openssl: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = openssl
            .args("req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=sender".split(' '))
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        Self { dir }
    }

    fn certificate(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("cert.pem")).unwrap()
    }

    fn sign(&self, message: &str) -> String {
        let mut openssl = Command::new("openssl")
            .args(["dgst", "-sha256", "-sign", "key.pem"])
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        openssl.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
        let mut signature = Vec::new();
        openssl.stdout.take().unwrap().read_to_end(&mut signature).unwrap();
        assert!(openssl.wait().unwrap().success());
        STANDARD.encode(signature)
    }
}

fn now() -> String {
    let micros = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    hookonce::decide::time::Timestamp(micros).to_string()
}

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:jobs";

/// A message of the topic: of this type, with this id, with these members beside.
fn sns(key: &CertifiedKey, server: &KeyServer, kind: &str, id: &str, more: &Value) -> Sent {
    let mut message = json!({ "Type": kind, "MessageId": id, "TopicArn": TOPIC, "Message": "Hello", "Timestamp": now(),
        "SignatureVersion": "2", "SigningCertURL": format!("{}/a.pem", server.address) });
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let signed = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];
    let text: String =
        signed.iter().filter_map(|name| Some(format!("{name}\n{}\n", message.get(name)?.as_str()?))).collect();
    message["Signature"] = key.sign(&text).into();
    let headers = vec![("content-type".to_owned(), "text/plain; charset=UTF-8".to_owned())];
    Sent { headers, body: message.to_string().into_bytes() }
}

fn sns_house(server: &KeyServer) -> House {
    House::new(&format!(
        "\n[source.sns]\npreset = \"sns\"\ntopic = \"{TOPIC}\"\ncertificates = \"{}\"\n\
         [[source.sns.route]]\nrun = {{ steps = [\"echo $HOOKONCE_FIELD_MESSAGE >> runs\"] }}\n",
        server.address
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_of_a_topic_need_its_certificate_once() {
    let (server, key) = (KeyServer::start(), CertifiedKey::new());
    server.publish("/a.pem", key.certificate());
    let house = sns_house(&server);
    let path = "/in/sns";
    let first = sns(&key, &server, "Notification", "m-1", &json!({}));
    check(&house.deliver(path, &first).await, 202, "accepted");
    house.quiet().await;
    check(&house.deliver(path, &first).await, 200, "duplicate");
    let forged = sns(&CertifiedKey::new(), &server, "Notification", "m-2", &json!({}));
    check(&house.deliver(path, &forged).await, 401, "refused");
    // Anyone can name another certificate: of these none is fetched in the same minute, and the right one stays.
    for n in 0..40 {
        let url = json!({ "SigningCertURL": format!("{}/{n}.pem", server.address) });
        check_later(&house.deliver(path, &sns(&key, &server, "Notification", "m-2", &url)).await);
    }
    for elsewhere in ["http://127.0.0.1:1/a.pem", "https://example.com/a.pem", "file:///etc/passwd"] {
        let url = json!({ "SigningCertURL": elsewhere });
        check(&house.deliver(path, &sns(&key, &server, "Notification", "m-2", &url)).await, 401, "refused");
    }
    check(&house.deliver(path, &sns(&key, &server, "Notification", "m-2", &json!({}))).await, 202, "accepted");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["Hello", "Hello"]);
    assert_eq!(server.state.0.lock().unwrap().requests, ["/a.pem"]);
}

/// Its sender may publish another one at the same URL: what it sends meanwhile must not be refused for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_expired_is_one_that_is_not_at_hand() {
    let (server, expired, key) = (KeyServer::start(), CertifiedKey::expired(), CertifiedKey::new());
    server.publish("/a.pem", expired.certificate());
    let house = sns_house(&server);
    for signed_with in [&expired, &key] {
        check_later(&house.deliver("/in/sns", &sns(signed_with, &server, "Notification", "m-1", &json!({}))).await);
    }
    assert_eq!(server.asked("/a.pem"), 1, "one fetch a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_is_confirmed_once_if_it_is_verified_and_under_the_pinned_host() {
    let (server, other, key) = (KeyServer::start(), KeyServer::start(), CertifiedKey::new());
    server.publish("/a.pem", key.certificate());
    let target = "/?Action=ConfirmSubscription&Token=secret-token";
    for server in [&server, &other] {
        server.publish(target, "<ConfirmSubscriptionResponse/>");
    }
    let house = sns_house(&server);
    let asks = |url: String| json!({ "Token": "secret-token", "SubscribeURL": url });
    let kind = "SubscriptionConfirmation";
    let genuine = asks(format!("{}{target}", server.address));
    let forged = sns(&CertifiedKey::new(), &server, kind, "m-1", &genuine);
    check(&house.deliver("/in/sns", &forged).await, 401, "refused");
    let elsewhere = sns(&key, &server, kind, "m-1", &asks(format!("{}{target}", other.address)));
    let answer = house.deliver("/in/sns", &elsewhere).await;
    assert_eq!((answer.status, &*answer.word()), (200, "ignored"), "{answer:?}");
    let other_path = sns(&key, &server, kind, "m-1", &asks(format!("{}/a.pem?x", server.address)));
    assert_eq!(house.deliver("/in/sns", &other_path).await.status, 200);
    // A notification with such a URL asks for nothing: it is not signed there.
    let mut notification: Value =
        serde_json::from_slice(&sns(&key, &server, "Notification", "m-2", &json!({})).body).unwrap();
    notification["SubscribeURL"] = format!("{}{target}", server.address).into();
    let notification = Sent { headers: forged.headers.clone(), body: notification.to_string().into_bytes() };
    check(&house.deliver("/in/sns", &notification).await, 202, "accepted");
    assert_eq!((server.asked(target), other.asked(target)), (0, 0));
    let genuine = sns(&key, &server, kind, "m-1", &genuine);
    for _ in 0..3 {
        assert_eq!(house.deliver("/in/sns", &genuine).await.status, 200);
    }
    assert_eq!((server.asked(target), other.asked(target)), (1, 0));
    house.quiet().await;
    assert_eq!(house.sql("SELECT count(*) FROM events"), ["1"]);
    assert!(!house.log().contains("secret-token"), "{}", house.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_paypal_is_an_event_once_whatever_its_body_says() {
    let (server, key) = (KeyServer::start(), CertifiedKey::new());
    server.publish("/v1/notifications/certs/CERT-1", key.certificate());
    let house = House::new(&format!(
        "\n[source.paypal]\npreset = \"paypal\"\nwebhook_id = \"WEBHOOK\"\ncertificates = \"{}\"\n\
         [[source.paypal.route]]\nrun = {{ steps = [\"echo run >> runs\"] }}\n",
        server.address
    ));
    let crc32 = |body: &str| {
        let step = |crc: u32, byte: u8| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
        };
        !body.bytes().fold(!0, step)
    };
    let sent = |webhook: &str, id: &str, body: &str| {
        let time = now();
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("paypal-transmission-id", id.to_owned()),
            ("paypal-transmission-time", time.clone()),
            ("paypal-transmission-sig", key.sign(&format!("{id}|{time}|{webhook}|{}", crc32(body)))),
            ("paypal-cert-url", format!("{}/v1/notifications/certs/CERT-1", server.address)),
            ("paypal-auth-algo", "SHA256withRSA".to_owned()),
        ];
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Sent { headers, body: body.as_bytes().to_vec() }
    };
    let path = "/in/paypal";
    check(&house.deliver(path, &sent("WEBHOOK", "t-1", r#"{"id":"WH-1"}"#)).await, 202, "accepted");
    house.quiet().await;
    check(&house.deliver(path, &sent("WEBHOOK", "t-1", r#"{"id":"WH-2"}"#)).await, 200, "duplicate");
    check(&house.deliver(path, &sent("ANOTHER", "t-2", r#"{"id":"WH-1"}"#)).await, 401, "refused");
    let mut forged = sent("WEBHOOK", "t-2", r#"{"id":"WH-1"}"#);
    forged.body[9] = b'9';
    check(&house.deliver(path, &forged).await, 401, "refused");
    assert_eq!(server.state.0.lock().unwrap().requests.len(), 1);
    assert_eq!(house.lines("runs"), ["run"]);
}
