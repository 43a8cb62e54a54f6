//! A container registry for one test: Debian's docker-registry, on a free port, in a temporary folder; and images that are
//! pushed to it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test binary uses a part of it")]

use aws_lc_rs::digest::{SHA256, digest};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_mins(2);
/// The user of a registry with a password, and the password.
pub const USER: &str = "bob";
pub const PASSWORD: &str = "correct horse battery staple";
/// Both, as `htpasswd -B` writes them.
const HTPASSWD: &str = "bob:$2b$04$Hnm7JY/WgW9HzeeE85eUleYPqxf.t7Fz0D.fEcZfA5azQV.uP6Qd2\n";

/// Who may use the registry.
pub enum Access<'a> {
    /// Everyone.
    Open,
    /// [`USER`].
    Password,
    /// Those with a token: the settings of `auth.token`.
    Token(&'a str),
}

/// A registry.
pub struct Registry {
    dir: tempfile::TempDir,
    port: u16,
    scheme: &'static str,
    running: Option<Child>,
}

impl Registry {
    /// Starts one without TLS.
    pub fn start(access: &Access<'_>) -> Self {
        let mut registry = Self::stopped(access);
        registry.run();
        registry
    }

    /// The same, not started yet.
    pub fn stopped(access: &Access<'_>) -> Self {
        Self::with(access, "", "http")
    }

    /// Starts one with this key and this certificate.
    pub fn start_tls(access: &Access<'_>, key: &Path, certificate: &Path) -> Self {
        let tls = format!("\n  tls: {{ certificate: {}, key: {} }}", certificate.display(), key.display());
        let mut registry = Self::with(access, &tls, "https");
        registry.run();
        registry
    }

    fn with(access: &Access<'_>, tls: &str, scheme: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = crate::support::free_port();
        std::fs::write(dir.path().join("htpasswd"), HTPASSWD).unwrap();
        let at = dir.path().display();
        let auth = match access {
            Access::Open => String::new(),
            Access::Password => format!("auth: {{ htpasswd: {{ realm: test, path: {at}/htpasswd }} }}\n"),
            Access::Token(settings) => format!("auth: {{ token: {{ {settings} }} }}\n"),
        };
        let config = format!(
            "version: 0.1\nlog: {{ level: error, accesslog: {{ disabled: true }} }}\n\
             storage: {{ filesystem: {{ rootdirectory: {at}/data }} }}\n{auth}\
             http:\n  addr: 127.0.0.1:{port}{tls}\n"
        );
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        Self { dir, port, scheme, running: None }
    }

    /// Starts it on the existing images, and waits until it listens.
    pub fn run(&mut self) {
        assert!(self.running.is_none(), "it is running already");
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(self.dir.path().join("config.yml")).env_remove("REGISTRY_HTTP_ADDR");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = self.running.insert(command.spawn().expect("docker-registry is installed: ./test does that"));
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = child.try_wait().unwrap().is_some();
            let said = || std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            assert!(!ended && begun.elapsed() < PATIENCE, "the registry does not start:\n{}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it; its images are kept.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.running.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// Its host and port.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its address, as a config writes it.
    pub fn address(&self) -> String {
        format!("{}://{}", self.scheme, self.authority())
    }

    /// Pushes an image that differs by this text, and returns the digest of its manifest.
    pub async fn push(&self, name: &str, tag: &str, text: &str) -> String {
        self.push_as(name, tag, text, |request| request).await
    }

    /// The same as [`USER`].
    pub async fn push_with_password(&self, name: &str, tag: &str, text: &str) -> String {
        self.push_as(name, tag, text, |request| request.basic_auth(USER, Some(PASSWORD))).await
    }

    /// The same with this token.
    pub async fn push_with_token(&self, name: &str, tag: &str, text: &str, token: &str) -> String {
        self.push_as(name, tag, text, |request| request.bearer_auth(token)).await
    }

    async fn push_as(
        &self,
        name: &str,
        tag: &str,
        text: &str,
        authorize: impl Fn(reqwest::RequestBuilder) -> reqwest::RequestBuilder,
    ) -> String {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let base = format!("{}/v2/{name}", self.address());
        let config = serde_json::json!({ "architecture": "amd64", "os": "linux", "text": text }).to_string();
        let blob = digest_of(config.as_bytes());
        let begun = authorize(client.post(format!("{base}/blobs/uploads/"))).send().await.unwrap();
        assert_eq!(begun.status().as_u16(), 202, "{begun:?}");
        let mut upload = reqwest::Url::parse(begun.headers()["location"].to_str().unwrap()).unwrap();
        upload.query_pairs_mut().append_pair("digest", &blob);
        let size = config.len();
        let put = authorize(client.put(upload)).body(config).send().await.unwrap();
        assert_eq!(put.status().as_u16(), 201, "{put:?}");
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let config = serde_json::json!({
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": blob, "size": size,
        });
        let manifest =
            serde_json::json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [] }).to_string();
        let found = digest_of(manifest.as_bytes());
        let put = client.put(format!("{base}/manifests/{tag}")).header("content-type", kind).body(manifest);
        let put = authorize(put).send().await.unwrap();
        assert_eq!(put.status().as_u16(), 201, "{put:?}");
        found
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.kill();
    }
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(digest(&SHA256, bytes)))
}

/// Creates a key, and a certificate for 127.0.0.1, in this folder.
pub fn certificate(dir: &Path) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.args(["-subj", "/CN=test", "-keyout", "key.pem", "-out", "cert.pem"]).current_dir(dir);
    assert!(openssl.output().unwrap().status.success());
}
