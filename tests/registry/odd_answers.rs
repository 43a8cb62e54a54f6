//! Registries that answer otherwise than Debian's: without a digest, with redirects, with errors, with nonsense. Servers of
//! ours, which answer as the distribution specification allows, or as it does not.

use crate::docker_registry::certificate;
use crate::support::{House, Sent, until};
use crate::{GHCR, IMAGE, deploy, last_why};
use bytes::Bytes;
use http_body_util::Full;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const MANIFEST: &str = r#"{"schemaVersion":2}"#;
const KIND: &str = "application/vnd.oci.image.index.v1+json";
/// The digest of [`MANIFEST`].
const DIGEST: &str = "sha256:bafebd36189ad3688b7b3915ea55d461e0bfcfbdde11e54b0a123999fb6be50f";
const PASSWORD: &str = "canary-odd-password-11aa";

pub(crate) type Answer = http::Response<Full<Bytes>>;

/// A request to a server of ours: method, path with query, and `Authorization`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
}

/// A server of ours.
pub(crate) struct OddRegistry {
    /// Its address, as a config writes it.
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl OddRegistry {
    /// Starts one; over TLS with the certificate in this folder, if it has one.
    pub(crate) async fn start(tls: Option<&Path>, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        let acceptor = tls.map(acceptor);
        let (asked, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let own = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (asked, answer) = (own.clone(), answer.clone());
                match &acceptor {
                    None => drop(tokio::spawn(serve(stream, asked, answer))),
                    Some(acceptor) => {
                        let Ok(stream) = acceptor.accept(stream).await else { continue };
                        tokio::spawn(serve(stream, asked, answer));
                    }
                }
            }
        });
        Self { address, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<impl Fn(&Asked) -> Answer + Send + Sync + 'static>,
) {
    let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let one = Asked {
            method: request.method().to_string(),
            path: request.uri().to_string(),
            authorization: request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned()),
        };
        asked.lock().unwrap().push(one.clone());
        std::future::ready(Ok::<_, std::convert::Infallible>(answer(&one)))
    });
    let io = hyper_util::rt::TokioIo::new(stream);
    hyper::server::conn::http1::Builder::new().serve_connection(io, service).await.ok();
}

fn acceptor(dir: &Path) -> TlsAcceptor {
    let chain = vec![CertificateDer::from_pem_file(dir.join("cert.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join("key.pem")).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}

pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut builder = http::Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

/// A config whose route asks for a fixed image.
fn fixed(address: &str, keys: &str) -> String {
    deploy(address, keys)
        .replace("\"{namespace}/{package}\", tag = \"{tag}\"", &format!("\"{IMAGE}\", tag = \"latest\""))
}

/// What `check --live` finds out about the image in this registry: the digest, or why not.
fn look_up(address: &str, keys: &str, certificates: Option<&Path>) -> Result<String, String> {
    let house = House::empty(&fixed(address, keys));
    let mut command = house.command(&["check", "--live", "--json"]);
    command.env("REGISTRY_PASSWORD", PASSWORD).env_remove("SSL_CERT_DIR");
    if let Some(folder) = certificates {
        command.env("SSL_CERT_FILE", folder.join("cert.pem"));
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(PASSWORD), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let all = report["live"].as_array().unwrap_or_else(|| panic!("{text}"));
    let one = all.iter().find(|one| one["what"] == "registry").unwrap();
    let words = one["words"].as_str().unwrap().to_owned();
    match one["ok"].as_bool() {
        Some(true) => Ok(words.rsplit(' ').next().unwrap().to_owned()),
        _ => Err(words),
    }
}

/// How a registry answers.
type Answers = Box<dyn Fn(&Asked) -> Answer + Send + Sync>;
/// The same, as a function.
type FixedAnswers = fn(&Asked) -> Answer;

const KEYS: &str = ", user = \"bob\", password = { env = \"REGISTRY_PASSWORD\" }";

#[tokio::test(flavor = "multi_thread")]
async fn without_a_digest_in_the_response_our_own_of_the_manifest_counts() {
    let cases: [(&str, FixedAnswers); 3] = [
        ("no digest", |_| answer(200, &[("content-type", KIND)], MANIFEST)),
        ("no HEAD", |asked| match &*asked.method {
            "HEAD" => answer(405, &[], ""),
            _ => answer(200, &[("content-type", &format!("{KIND}; charset=utf-8"))], MANIFEST),
        }),
        ("a digest only for GET", |asked| match &*asked.method {
            "HEAD" => answer(200, &[("content-type", KIND)], ""),
            _ => answer(200, &[("content-type", KIND), ("docker-content-digest", DIGEST)], MANIFEST),
        }),
    ];
    for (name, answers) in cases {
        let registry = OddRegistry::start(None, answers).await;
        assert_eq!(look_up(&registry.address, "", None), Ok(DIGEST.to_owned()), "{name}");
        let methods: Vec<_> = registry.asked().into_iter().map(|asked| asked.method).collect();
        assert_eq!(methods, ["HEAD", "GET"], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_used_says_why() {
    let other = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let always = |status: u16, headers: &'static [(&str, &str)], body: &'static str| -> Answers {
        Box::new(move |_| answer(status, headers, body))
    };
    let cases: Vec<(Answers, &str)> = vec![
        (always(200, &[("content-type", "text/html")], "<p>Please log in</p>"), "its response is not a manifest"),
        (always(200, &[("docker-content-digest", "latest")], ""), "the digest that it states is not one"),
        (always(200, &[("docker-content-digest", "sha256:ABC")], ""), "the digest that it states is not one"),
        (
            Box::new(move |asked| match &*asked.method {
                "HEAD" => answer(200, &[], ""),
                _ => answer(200, &[("content-type", KIND), ("docker-content-digest", other)], MANIFEST),
            }),
            "the digest that it states is not that of the manifest",
        ),
        (
            Box::new(|_| answer(200, &[("content-type", KIND)], &" ".repeat((4 << 20) + 1))),
            "its response is longer than 4194304 bytes",
        ),
        (always(418, &[], ""), "it responded with 418"),
        (always(403, &[], ""), "it responded with 403; it was asked without credentials"),
        (always(404, &[], ""), "may lag behind its own webhook"),
        (always(503, &[], ""), "it responded with 503"),
        (always(401, &[], ""), "offers no known way to authenticate"),
        (always(401, &[("www-authenticate", "Bearer realm=\"x")], ""), "a quoted value does not end"),
        (always(401, &[("www-authenticate", "Bearer realm=\"x\"")], ""), "the URL of its token server is invalid"),
        (always(307, &[], ""), "it redirects to an invalid URL"),
        (always(307, &[("location", "http://192.0.2.1/")], ""), "it redirects to another host without TLS"),
        (always(307, &[("location", "/v2/again")], ""), "it redirects more than 3 times"),
    ];
    for (answers, expected) in cases {
        let registry = OddRegistry::start(None, answers).await;
        let why = look_up(&registry.address, "", None).unwrap_err();
        assert!(why.contains(expected), "{expected}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_never_answers_is_given_up_after_the_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    assert_eq!(look_up(&address, ", timeout = \"200ms\"", None), Err("no answer within 200ms".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_a_registry_asks_to_wait_is_waited() {
    let registry = OddRegistry::start(None, |_| answer(429, &[("retry-after", "3600")], "")).await;
    let house = House::new(&deploy(&registry.address, ""));
    assert_eq!(house.deliver(GHCR, &Sent::package("one", "latest", 1, 1)).await.status, 202);
    until("the attempt to end", || last_why(&house).contains("it responded with 429")).await;
    until("the wait", || house.sql("select state from events") == ["waiting"]).await;
    let wait = "select (wake_at - (select ended_at from attempts)) / 60000000 from events"; // in minutes
    let minutes: i64 = house.sql(wait)[0].parse().unwrap();
    assert!((59..=61).contains(&minutes), "{minutes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_never_go_to_a_token_server_that_is_not_reached_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let thief = OddRegistry::start(None, |_| answer(200, &[], r#"{"token":"t"}"#)).await;
    let challenge = format!("Bearer realm=\"{}/token\",service=\"x\"", thief.address);
    let registry =
        OddRegistry::start(Some(folder.path()), move |_| answer(401, &[("www-authenticate", &challenge)], "")).await;
    let why = look_up(&registry.address, KEYS, Some(folder.path())).unwrap_err();
    assert!(why.contains("its token server 127.0.0.1 is not reached by https"), "{why}");
    assert_eq!(thief.asked(), []);
    assert!(registry.asked().iter().all(|asked| asked.authorization.is_none()), "it did not ask for them");

    // Without TLS, anyone on the way could have named the token server.
    let plain = OddRegistry::start(None, |_| {
        answer(401, &[("www-authenticate", "Bearer realm=\"https://tokens.invalid/token\"")], "")
    })
    .await;
    let why = look_up(&plain.address, KEYS, None).unwrap_err();
    assert!(why.contains("tokens.invalid is on another host, and the registry is reached without TLS"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_host_is_followed_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let mirror =
        OddRegistry::start(Some(folder.path()), |_| answer(200, &[("docker-content-digest", DIGEST)], "")).await;
    let to = format!("{}/elsewhere", mirror.address);
    let registry = OddRegistry::start(Some(folder.path()), move |asked| match &asked.authorization {
        None => answer(401, &[("www-authenticate", "Basic realm=\"x\"")], ""),
        Some(_) if asked.path == "/v2/here" => answer(307, &[("location", &to)], ""),
        Some(_) => answer(307, &[("location", "here")].map(|(name, _)| (name, "/v2/here")), ""),
    })
    .await;
    let found = look_up(&registry.address, KEYS, Some(folder.path()));
    assert_eq!(found, Ok(DIGEST.to_owned()));
    let sent: Vec<_> = registry.asked().into_iter().map(|asked| (asked.path, asked.authorization.is_some())).collect();
    let path = format!("/v2/{IMAGE}/manifests/latest");
    assert_eq!(sent, [(path.clone(), false), (path, true), ("/v2/here".to_owned(), true)]);
    let seen = Asked { method: "HEAD".into(), path: "/elsewhere".into(), authorization: None };
    assert_eq!(mirror.asked(), [seen]);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_never_go_to_a_host_that_a_redirect_names() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let thief =
        OddRegistry::start(Some(folder.path()), |_| answer(401, &[("www-authenticate", "Basic realm=\"x\"")], ""))
            .await;
    let to = format!("{}/v2/", thief.address);
    let registry = OddRegistry::start(Some(folder.path()), move |_| answer(307, &[("location", &to)], "")).await;
    let why = look_up(&registry.address, KEYS, Some(folder.path())).unwrap_err();
    assert!(why.contains("it redirects to another host, which wants credentials"), "{why}");
    assert!(thief.asked().iter().all(|asked| asked.authorization.is_none()), "{:?}", thief.asked());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_a_trusted_certificate_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let registry =
        OddRegistry::start(Some(folder.path()), |_| answer(200, &[("docker-content-digest", DIGEST)], "")).await;
    let why = look_up(&registry.address, KEYS, None).unwrap_err();
    assert!(why.contains("it cannot be connected to") && registry.asked().is_empty(), "{why}");
    assert_eq!(look_up(&registry.address, "", Some(folder.path())), Ok(DIGEST.to_owned()));
}
