//! A registry that accepts only tokens: Debian's docker-registry, and a token server that signs what it grants.

use crate::docker_registry::{Access, Registry, certificate};
use crate::support::{House, Sent};
use crate::{GHCR, IMAGE, deploy, last_why};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};

const SERVICE: &str = "registry.test";
const USER: &str = "bob";
const PASSWORD: &str = "canary-token-password-2f8e";
const IDENTITY: &str = "canary-identity-token-91ac";

/// What the token server grants, and what it was asked.
struct TokenServer {
    key: EcdsaKeyPair,
    certificate: String,
    /// Whether everyone gets a token that may pull.
    public: bool,
    expires_in: u64,
    asked: Mutex<Vec<String>>,
}

/// The content of a PEM file.
fn pem(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.starts_with("-----")).collect()
}

impl TokenServer {
    /// A token that allows these actions on the image.
    #[expect(clippy::disallowed_methods, reason = "the registry compares it with the machine's clock")]
    fn token(&self, actions: &[&str]) -> String {
        let header = json!({ "typ": "JWT", "alg": "ES256", "x5c": [self.certificate] });
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let access = json!([{ "type": "repository", "name": IMAGE, "actions": actions }]);
        let claims = json!({
            "iss": "tokens.test", "sub": USER, "aud": SERVICE, "exp": now + 300, "nbf": now - 10, "iat": now, "jti": "1",
            "access": if actions.is_empty() { json!([]) } else { access },
        });
        let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn answer(&self, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> (StatusCode, String) {
        let body = String::from_utf8(body.to_vec()).unwrap();
        let asked = if body.is_empty() { uri.query().unwrap_or_default().to_owned() } else { body };
        self.asked.lock().unwrap().push(asked.clone());
        let basic = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let given = headers.get("authorization").map(|value| value.to_str().unwrap());
        let known = given == Some(&*basic) || asked.contains(&format!("refresh_token={IDENTITY}"));
        if given.is_some() && !known {
            return (StatusCode::UNAUTHORIZED, "wrong".to_owned());
        }
        let token = self.token(if known || self.public { &["pull"] } else { &[] });
        (StatusCode::OK, json!({ "token": token, "expires_in": self.expires_in }).to_string())
    }
}

/// Starts a token server and a registry that believes it.
async fn start(public: bool, expires_in: u64) -> (Arc<TokenServer>, Registry) {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let key = STANDARD.decode(pem(&folder.path().join("key.pem"))).unwrap();
    let server = Arc::new(TokenServer {
        key: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key).unwrap(),
        certificate: pem(&folder.path().join("cert.pem")),
        public,
        expires_in,
        asked: Mutex::default(),
    });
    let own = server.clone();
    let answer = move |uri: Uri, headers: HeaderMap, body: Bytes| std::future::ready(own.answer(&uri, &headers, &body));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let realm = format!("http://{}/token", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
    let bundle = folder.path().join("cert.pem").display().to_string();
    let settings = format!("realm: \"{realm}\", service: {SERVICE}, issuer: tokens.test, rootcertbundle: {bundle}");
    (server, Registry::start(&Access::Token(&settings)))
}

/// Deploys these versions of the image, one after the other.
async fn deliver(house: &House, versions: std::ops::RangeInclusive<u32>) {
    for n in versions {
        let sent = Sent::package(&format!("d{n}"), "latest", n.into(), n);
        assert_eq!(house.deliver(GHCR, &sent).await.status, 202);
        house.quiet().await;
    }
}

const SCOPE: &str = "service=registry.test&scope=repository%3Atreejamie%2Fjamiec_ts%3Apull";

#[tokio::test]
async fn a_public_image_is_asked_for_with_a_token_that_everyone_gets_and_that_is_used_again() {
    let (server, registry) = start(true, 300).await;
    let digest = registry.push_with_token(IMAGE, "latest", "x", &server.token(&["pull", "push"])).await;
    let house = House::new(&deploy(&registry.address(), ""));
    deliver(&house, 1..=3).await;
    assert_eq!(house.lines("runs"), [digest], "it is asked for many times, and deployed once");
    assert_eq!(*server.asked.lock().unwrap(), [SCOPE], "one token is enough, and it may only pull");
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_not_used_again() {
    let (server, registry) = start(true, 5).await;
    registry.push_with_token(IMAGE, "latest", "x", &server.token(&["pull", "push"])).await;
    let house = House::new(&deploy(&registry.address(), ""));
    deliver(&house, 1..=2).await;
    assert_eq!(house.count("done"), 2);
    // It was asked for once, and then three times, because the tag might have moved.
    assert_eq!(*server.asked.lock().unwrap(), [SCOPE; 4]);
}

#[tokio::test(flavor = "multi_thread")] // `check` blocks a thread while the token server answers it
async fn a_private_image_needs_the_right_credentials() {
    let (server, registry) = start(false, 300).await;
    let digest = registry.push_with_token(IMAGE, "latest", "x", &server.token(&["pull", "push"])).await;
    let keys = ", user = { env = \"REGISTRY_USER\" }, password = { file = \"password\" }";
    for (password, works) in [(PASSWORD, true), ("not-the-password-of-bob", false)] {
        let mut house = House::empty(&deploy(&registry.address(), keys));
        std::fs::write(house.path("password"), format!("{password}\n")).unwrap();
        let mut command = house.command(&["serve"]);
        command.env("REGISTRY_USER", USER);
        house.try_start_by(command).unwrap();
        deliver(&house, 1..=1).await;
        if works {
            assert_eq!(house.lines("runs"), [&*digest]);
            let live = house.command(&["check", "--live"]).env("REGISTRY_USER", USER).output().unwrap();
            let said = String::from_utf8(live.stdout).unwrap();
            assert!(said.contains("responds, and accepts the credentials"), "{said}");
        } else {
            let why = last_why(&house);
            let expected =
                ["its token server 127.0.0.1 responded with 401", "as user $REGISTRY_USER", "is the password right"];
            assert!(expected.iter().all(|words| why.contains(words)) && !why.contains(password), "{why}");
            assert_eq!((house.count("dead"), house.lines("runs").len()), (1, 0));
        }
    }
}

#[tokio::test]
async fn a_token_without_the_permission_is_refused_with_what_to_do() {
    let (_server, registry) = start(false, 300).await;
    let house = House::new(&deploy(&registry.address(), ""));
    deliver(&house, 1..=1).await;
    let why = last_why(&house);
    assert!(why.contains("it responded with 401") && why.contains("if the image is private"), "{why}");
    assert_eq!(house.count("dead"), 1);
}

#[tokio::test]
async fn the_identity_token_of_docker_buys_an_access_token() {
    let (server, registry) = start(false, 300).await;
    let digest = registry.push_with_token(IMAGE, "latest", "x", &server.token(&["pull", "push"])).await;
    let mut house = House::empty(&deploy(&registry.address(), ", credentials = \"auth.json\""));
    let login = json!({ "auths": { registry.authority(): { "auth": "PHRva2VuPjo=", "identitytoken": IDENTITY } } });
    std::fs::write(house.path("auth.json"), login.to_string()).unwrap();
    house.start();
    deliver(&house, 1..=1).await;
    assert_eq!(house.lines("runs"), [digest]);
    let asked = server.asked.lock().unwrap().clone();
    assert!(
        asked.len() == 1 && asked[0].contains("grant_type=refresh_token") && asked[0].ends_with(SCOPE),
        "{asked:?}"
    );
    assert!(!house.log().contains(IDENTITY));
}
