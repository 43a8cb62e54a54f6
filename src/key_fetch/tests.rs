//! What at hand did not do is fetched again: with servers on this machine.

use super::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server that answers each request with the next of these documents, as long as there are some.
fn server(documents: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (document, stream) in documents.into_iter().zip(listener.incoming()) {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let head = format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", document.len());
            stream.write_all(format!("{head}{document}").as_bytes()).unwrap();
        }
    });
    address
}

fn fetcher(origin: KeyOrigin) -> KeyFetcher {
    fetcher_by(origin, KeyFetchWay::default())
}

fn fetcher_by(origin: KeyOrigin, way: KeyFetchWay) -> KeyFetcher {
    let keys = FetchedKeys::new(origin, way);
    keys.attempts.send_replace(1); // the node's own fetch at its start
    KeyFetcher::new("s".into(), keys, &DnsResolver::default()).unwrap()
}

/// A certificate that is valid for so many days.
fn certificate(days: &str) -> String {
    let args =
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null", "-subj", "/CN=s", "-days", days];
    let made = Command::new("openssl").args(args).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap()
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_fetched_again_once_a_minute() {
    let (first, second) = (certificate("2"), certificate("4000"));
    let address = server(vec![second]);
    let fetcher = fetcher(KeyOrigin::Certificates(address.clone()));
    let url = format!("{address}/a.pem");
    fetcher.keys.learn_certificate(&url, first.as_bytes()).unwrap();
    let request = KeyRequest { document: KeyDocument::Certificate(url.into()), id: None };
    let now = Timestamp(i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap());
    let found = |at| fetcher.keys.find(&request, at);
    let before = found(now + Duration::from_hours(1));
    assert_eq!(before.len(), 1);
    let later = now + Duration::from_hours(24 * 1_000);
    assert_eq!(found(later), []);
    assert!(fetcher.obtain(&request, later).await);
    assert_ne!(found(later), before);
    assert_eq!(found(later).len(), 1);
    // Nothing answers any more, and nothing is asked.
    let much_later = now + Duration::from_hours(24 * 5_000);
    assert!(!fetcher.obtain(&request, much_later).await);
    assert_eq!(found(later).len(), 1);
}

#[tokio::test]
async fn a_key_that_did_not_fit_is_fetched_again_even_if_its_id_is_known() {
    let set = |x: u8| {
        let number = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, [x; 32]);
        serde_json::json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": number }] }).to_string()
    };
    let fetcher = fetcher(KeyOrigin::KeySet(server(vec![set(2)])));
    fetcher.keys.learn_key_set(set(1).as_bytes()).unwrap();
    let request = KeyRequest { document: KeyDocument::KeySet, id: Some("a".into()) };
    let found = || fetcher.keys.find(&request, Timestamp(0));
    let before = found();
    // Many deliveries at once cause one fetch.
    let all = futures_util::future::join_all((0..8).map(|_| fetcher.obtain(&request, Timestamp(0)))).await;
    assert_eq!(all, [true; 8]);
    assert_ne!(found(), before);
    assert!(!fetcher.keys.may_have_changed());
}

/// As with `forward`: a name that leads into one's own network is not followed, whoever wrote it.
#[tokio::test]
async fn keys_are_fetched_from_addresses_that_are_not_public_only_where_the_config_allows_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let connected = Arc::new(AtomicUsize::new(0));
    let seen = connected.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            seen.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    let reached = async |origin: KeyOrigin, allow: &[&str]| {
        let before = connected.load(Ordering::SeqCst);
        let allow = allow.iter().map(|range| range.parse().unwrap()).collect();
        let fetched = fetcher_by(origin, KeyFetchWay { proxy: None, allow }).get(&format!("{address}/a.pem")).await;
        let why = fetched.err().map(|KeyFetchError(why)| why).unwrap();
        (connected.load(Ordering::SeqCst) > before, why)
    };
    for origin in [KeyOrigin::Certificates, KeyOrigin::KeySet, KeyOrigin::Issuer].map(|of| of(address.clone())) {
        for allow in [&[][..], &["10.0.0.0/8"]] {
            let (was_reached, why) = reached(origin.clone(), allow).await;
            assert!(!was_reached && why.contains("loopback") && why.contains("allow_keys_from"), "{origin:?}: {why}");
        }
        let (was_reached, why) = reached(origin.clone(), &["127.0.0.0/8", "::1"]).await;
        assert!(was_reached, "{origin:?}: {why}");
    }
}
