//! Forwarding, from outside: over TLS and HTTP/2, with one receiver down, with one of several down, and what happens to
//! headers that are passed on.

use crate::receiver::Receiver;
use crate::support::{House, PATIENCE, Sent, until};
use crate::{IN, at_once, number, numbers};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Creates a certificate for `localhost` and its authority in this folder.
fn certificate(dir: &Path) {
    let script = "set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out leaf.csr -subj /CN=localhost
printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > leaf.ext
openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile leaf.ext -out cert.pem";
    let made = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

type Seen = Arc<Mutex<Vec<(http::request::Parts, Bytes)>>>;

/// A receiver over TLS that uses the protocol agreed on, of these.
async fn secure(dir: &Path, protocols: &[&str]) -> (String, Seen) {
    certificate(dir);
    let chain = vec![CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/in", listener.local_addr().unwrap().port());
    let seen = Seen::default();
    let noted = seen.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let noted = noted.clone();
            let answer = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let noted = noted.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    noted.lock().unwrap().push((parts, body));
                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from("seen"))))
                }
            });
            let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let io = hyper_util::rt::TokioIo::new(stream);
            if two {
                let executor = hyper_util::rt::TokioExecutor::new();
                tokio::spawn(hyper::server::conn::http2::Builder::new(executor).serve_connection(io, answer));
            } else {
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, answer));
            }
        }
    });
    (url, seen)
}

#[tokio::test]
async fn over_tls_the_verified_bytes_arrive_over_the_negotiated_protocol() {
    for (protocols, version) in [
        (&["h2", "http/1.1"][..], http::Version::HTTP_2),
        (&["http/1.1"], http::Version::HTTP_11),
        (&[], http::Version::HTTP_11),
    ] {
        let keys = tempfile::tempdir().unwrap();
        let (url, seen) = secure(keys.path(), protocols).await;
        let config = format!(
            "[source.s]\npath = \"{IN}\"\nrespond = \"done\"\nverify = {{ scheme = \"github\", secret = {{ env = \"SECRET\" }} }}\n\
             [[source.s.route]]\nforward = {{ url = \"{url}\" }}\n"
        );
        let mut house = House::empty(&config);
        let mut command = house.command(&["serve"]);
        command.env("SSL_CERT_FILE", keys.path().join("ca.pem")).env_remove("SSL_CERT_DIR");
        house.try_start_by(command).unwrap();
        // White space, order and escapes that re-serialised JSON would not keep.
        let body = "{ \"b\" : 1.0,\"a\":\"\\u00e9\\/\" , \"a2\":1e3}\n";
        let sent = Sent::github("push", "one", body).with("content-type", "application/json; charset=utf-8");
        let answer = house.deliver(IN, &sent).await;
        assert_eq!((answer.status, &*answer.body), (200, &b"seen"[..]), "{answer:?} {}", house.log());
        let seen = seen.lock().unwrap();
        let (parts, got) = &seen[0];
        assert_eq!((parts.version, &**got), (version, body.as_bytes()));
        assert_eq!(parts.headers["content-type"], "application/json; charset=utf-8");
        assert_eq!(parts.headers["idempotency-key"], answer.header("hookonce-event").unwrap());
        assert_eq!(parts.headers["hookonce-attempt"], "1");
        assert_eq!(seen.len(), 1);
    }
}

#[tokio::test]
async fn a_receiver_without_a_trusted_certificate_is_not_sent_to() {
    let keys = tempfile::tempdir().unwrap();
    let (url, seen) = secure(keys.path(), &["h2"]).await;
    let house = House::new(&numbers("respond = \"done\"", &format!("forward = {{ url = \"{url}\" }}")));
    let answer = house.deliver(IN, &number("a", 1)).await;
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_receiver_that_is_down_or_hangs_does_not_delay_the_others() {
    let (fine, hangs) = (Receiver::open(&[(200, "ok")]).await, Receiver::new(&[(200, "late")]).await);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let route = format!(
        "at_once = 2\nretry = {{ attempts = 2, first = \"1ms\" }}\n\
         forward = [{{ url = \"http://{closed}/\" }}, {{ url = \"{}\" }}, {{ url = \"{}\", at_once = 1 }}]",
        hangs.url, fine.url
    );
    let house = House::new(&numbers("", &route));
    for n in 0..20 {
        let answer = house.deliver(IN, &number(&format!("d{n}"), n)).await;
        assert_eq!((answer.status, answer.json()["events"].as_array().map(Vec::len)), (202, Some(3)), "{answer:?}");
    }
    until("all of them at the working receiver", || fine.calls().len() == 20).await;
    let done = || house.sql("select count(*) from events where part = 2 and state = 'done'");
    until("all of them to be done", || done() == ["20"]).await;
    until("two calls at the slow receiver", || hangs.calls().len() >= 2).await;
    assert_eq!(hangs.calls().len(), 2, "as many as may run at once");
    hangs.let_go();
    until("all of them at the slow receiver", || hangs.calls().len() == 20).await;
}

#[tokio::test]
async fn the_circuit_of_a_failing_receiver_opens_and_no_event_loses_an_attempt() {
    let answers: Vec<_> = [(503, "no"); 5].into_iter().chain([(200, "ok")]).collect();
    let receiver = Receiver::open(&answers).await;
    let retry = "retry = { attempts = 3, first = \"1ms\", longest = \"1ms\" }";
    let house = House::new(&numbers("", &format!("{retry}\nforward = {{ url = \"{}\" }}", receiver.url)));
    house.deliver(IN, &number("first", 1)).await;
    until("it to fail three times", || house.count("dead") == 1).await;
    house.deliver(IN, &number("second", 2)).await;
    until("five failures in a row", || receiver.calls().len() == 5).await;
    until("the circuit to open", || house.log().contains("failures in a row")).await;
    for n in 3..=12 {
        assert_eq!(house.deliver(IN, &number(&format!("d{n}"), n)).await.status, 202);
    }
    until("all of them to be delivered", || house.count("done") == 11).await;
    assert!(receiver.pause_after(5) > Duration::from_millis(4_500), "called after {:?}", receiver.pause_after(5));
    assert_eq!(receiver.calls().len(), 5 + 11, "each once");
    assert_eq!(house.sql("select attempt from events where delivery_id = 'second'"), ["3"]);
    assert_eq!(house.sql("select max(attempt) from events where state = 'done' and delivery_id <> 'second'"), ["1"]);
    let log = house.log();
    let said = |what: &str| log.matches(what).count();
    assert_eq!((said("failures in a row"), said("the circuit is closed: it responds again")), (1, 1), "{log}");
}

#[tokio::test]
async fn a_receiver_is_probed_in_time_while_deliveries_that_start_nothing_keep_coming() {
    let answers: Vec<_> = [(503, "no"); 5].into_iter().chain([(200, "ok")]).collect();
    let receiver = Receiver::open(&answers).await;
    let retry = "retry = { attempts = 9, first = \"1ms\", longest = \"1ms\" }\ngroup = \"one\"";
    let house = House::new(&numbers("", &format!("{retry}\nforward = {{ url = \"{}\" }}", receiver.url)));
    house.deliver(IN, &number("first", 0)).await;
    until("the circuit to open", || house.log().contains("failures in a row")).await;
    let opened = Instant::now();
    tokio::time::sleep(Duration::from_millis(4_800)).await; // shortly before it may be probed
    let mut n = 0;
    while receiver.calls().len() == 5 {
        let some: Vec<_> = (n + 1..=n + 16).map(|n| number(&format!("d{n}"), n)).collect();
        let taken = at_once(&house, IN, &some).await;
        assert!(taken.iter().all(|answer| answer.status == 202), "each waits for the first");
        n += 16;
        assert!(opened.elapsed() < PATIENCE, "the receiver is not probed; {n} deliveries came meanwhile");
    }
    house.quiet().await;
    assert_eq!(house.sql("select attempt from events where delivery_id = 'first'"), ["6"]);
    assert_eq!(receiver.calls().len() as u64, 5 + 1 + n, "each once");
}

#[tokio::test]
async fn an_error_response_of_a_healthy_receiver_does_not_open_the_circuit() {
    let receiver = Receiver::open(&[(410, "gone")]).await;
    let house = House::new(&numbers("", &format!("forward = {{ url = \"{}\" }}", receiver.url)));
    for n in 0..12 {
        house.deliver(IN, &number(&format!("d{n}"), n)).await;
    }
    house.quiet().await;
    assert_eq!((receiver.calls().len(), house.count("dead")), (12, 12));
    assert!(!house.log().contains("failures in a row"), "{}", house.log());
}

/// The files in the node's folder that contain these bytes.
fn holds(house: &House, canary: &str) -> Vec<String> {
    let files = std::fs::read_dir(house.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let found = files.filter(|path| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(canary.len()).any(|window| window == canary.as_bytes())
    });
    found.map(|path| path.display().to_string()).collect()
}

#[tokio::test]
async fn forwarded_headers_are_masked_while_they_are_kept_and_deleted_when_the_event_ends() {
    let receiver = Receiver::new(&[(200, "ok")]).await;
    let route = format!(
        "forward = {{ url = \"{}\", headers = [\"X-Token\", \"x-long\"], set = {{ x-n = \"n{{n}}\" }} }}",
        receiver.url
    );
    let mut house = House::new(&numbers("", &route));
    let (short, long) = ("canary-5f3a9c1e7b", "canary-0d4b8e2f6a".repeat(600));
    let sent = number("a", 7).with("x-token", short).with("x-long", &long).with("x-other", "canary-never");
    let event = house.deliver(IN, &sent).await.event();
    until("it to be sent", || receiver.calls().len() == 1).await;
    let call = receiver.calls().remove(0);
    assert!(call.contains(&format!("x-token: {short}\r\n")) && call.contains(&long) && call.contains("x-n: n7\r\n"));
    assert!(!call.contains("canary-never"));
    assert_eq!(house.sql("select headers like '%canary%' from payloads"), ["1"], "they are kept for a retry");

    let shown = house.ask("GET", &format!("/api/events/{event}")).await;
    assert_eq!(shown.json()["headers"], serde_json::json!({ "x-token": "•••", "x-long": "•••" }), "{shown:?}");
    let listed = house.ask("GET", "/api/events").await;
    let told = house.command(&["show", &event]).output().unwrap();
    let explained = house.command(&["explain", &event]).output().unwrap();
    let told_text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told_text.contains("x-token  •••"), "{told_text}");
    for said in [&shown.body, &listed.body, &told.stdout, &told.stderr, &explained.stdout, &explained.stderr] {
        assert!(!String::from_utf8_lossy(said).contains("canary"), "{}", String::from_utf8_lossy(said));
    }

    receiver.let_go();
    house.quiet().await;
    assert_eq!(house.sql("select headers from payloads"), ["[[\"content-type\",\"application/json\"]]"]);
    let shown = house.ask("GET", &format!("/api/events/{event}")).await;
    assert!(shown.json().get("headers").is_none() && shown.json()["has_body"] == true, "{shown:?}");
    assert!(!house.log().contains("canary"), "{}", house.log());
    // A replay is sent without them.
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until("its second life", || receiver.calls().len() == 2).await;
    let again = receiver.calls().remove(1);
    assert!(!again.contains("canary") && again.contains(&format!("idempotency-key: {event}.2\r\n")), "{again}");
    house.quiet().await;
    assert!(house.stop().success());
    assert_eq!(holds(&house, "canary-5f3a9c1e7b"), Vec::<String>::new());
    assert_eq!(holds(&house, "canary-0d4b8e2f6a"), Vec::<String>::new());
}

/// A service that GitHub could call itself, behind a config that says nothing about headers.
#[tokio::test]
async fn a_receiver_learns_what_it_got_without_being_configured_to_and_after_a_replay_too() {
    let receiver = Receiver::open(&[(200, "ok")]).await;
    let config = format!(
        "[source.github]\npreset = \"github\"\npath = \"{IN}\"\nsecret = {{ env = \"SECRET\" }}\n\
         [[source.github.route]]\nforward = {{ url = \"{}\" }}\n",
        receiver.url
    );
    let house = House::new(&config);
    let body = r#"{"ref":"refs/heads/main","before":"a","after":"b","commits":[],"pusher":{},"repository":{"full_name":"a/b"},"sender":{}}"#;
    let sent = Sent::github("push", "one-of-github", body);
    let event = house.deliver(IN, &sent).await.event();
    house.quiet().await;
    let call = receiver.calls().remove(0);
    assert!(call.contains("x-github-event: push\r\n"), "{call}");
    assert!(call.contains("x-github-delivery: one-of-github\r\n"), "{call}");
    assert!(!call.contains("x-hub-signature"), "a signature is passed on only where it is asked for: {call}");

    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until("its second life", || receiver.calls().len() == 2).await;
    let again = receiver.calls().remove(1);
    assert!(again.contains("x-github-event: push\r\n"), "{again}");
    // It is not the delivery that GitHub sent, and must not be taken for a repeat of it.
    assert!(!again.contains("one-of-github") && again.contains(&format!("idempotency-key: {event}.2\r\n")), "{again}");

    // The kind is not signed: a captured body does not become another kind on its way.
    let forged = sent.with("x-github-event", "release").with("x-github-delivery", "forged");
    let answer = house.deliver(IN, &forged).await;
    assert_eq!(answer.status, 422, "{answer:?}");
    house.quiet().await;
    assert_eq!(receiver.calls().len(), 2);
}

/// A header with a kind that no field reads is kept for a replay, too.
#[tokio::test]
async fn what_a_preset_calls_a_kind_is_kept_for_a_replay() {
    let receiver = Receiver::open(&[(200, "ok")]).await;
    let config = format!(
        "[preset.acme]\nverify = \"github\"\nsender = {{ kind_headers = [\"X-Acme-Topic\"], id_headers = [\"x-acme-id\"] }}\n\
         [source.acme]\npreset = \"acme\"\npath = \"{IN}\"\nsecret = {{ env = \"SECRET\" }}\n\
         [[source.acme.route]]\nforward = {{ url = \"{}\" }}\n",
        receiver.url
    );
    let house = House::new(&config);
    let sent = number("a", 7).with("x-acme-topic", "orders").with("x-acme-id", "7").with("x-other", "canary");
    let event = house.deliver(IN, &sent).await.event();
    house.quiet().await;
    assert_eq!(house.ask("POST", &format!("/api/events/{event}/replay")).await.status, 200);
    until("its second life", || receiver.calls().len() == 2).await;
    let calls = receiver.calls();
    let topic = calls.iter().filter(|call| call.contains("x-acme-topic: orders\r\n")).count();
    let id = calls.iter().filter(|call| call.contains("x-acme-id: 7\r\n")).count();
    assert_eq!((topic, id), (2, 1), "{calls:?}");
    assert!(calls.iter().all(|call| !call.contains("canary")), "{calls:?}");
}
