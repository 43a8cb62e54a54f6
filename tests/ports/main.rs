//! The ports of a node as a network sees them: TLS, HTTP/2, proxies in front, addresses, names.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod clients;
mod dashboard_login;
mod hosts;
mod http2;
mod listen;
#[path = "../support/nginx.rs"]
mod nginx;
mod proxies;
#[path = "../support/mod.rs"]
mod support;
mod tls;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{House, Sent};

/// A path with a source that records what GitHub signs.
const HOOKS: &str = "/hooks";
const SOURCE: &str = "[source.hooks]\nverify = { scheme = \"github\", secret = { env = \"SECRET\" } }\npath = \"/hooks\"\n\
                      once = { per = [\"delivery\"] }\n";

fn delivery(id: &str) -> Sent {
    Sent::github("push", id, &format!("{{\"ref\": \"{id}\", \"repository\": {{}}}}"))
}

/// A delivery that nobody has signed.
fn forged(id: &str) -> Sent {
    delivery(id).with("x-hub-signature-256", &format!("sha256={}", "0".repeat(64)))
}

/// An authority of its own, in a folder.
struct Authority {
    dir: PathBuf,
    name: &'static str,
}

impl Authority {
    fn new(dir: &Path, name: &'static str) -> Self {
        let own = Self { dir: dir.to_owned(), name };
        let (key, certificate) = (own.file("ca.key"), own.file("ca.pem"));
        let subject = format!("/CN={name}");
        openssl(
            &["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
                .into_iter()
                .chain(["-keyout", &key, "-out", &certificate, "-subj", &subject])
                .collect::<Vec<_>>(),
        );
        own
    }

    fn file(&self, end: &str) -> String {
        self.dir.join(format!("{}-{end}", self.name)).display().to_string()
    }

    /// Makes a certificate for this machine, as `certificate` and `key` in this folder.
    fn certify(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let (key, request, certificate, names) = (at("key"), at("request"), at("certificate"), at("names"));
        std::fs::write(&names, "subjectAltName=DNS:localhost,DNS:hooks.example,IP:127.0.0.1").unwrap();
        openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            "/CN=localhost",
        ]);
        openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &self.file("ca.pem"),
            "-CAkey",
            &self.file("ca.key"),
            "-out",
            &certificate,
            "-days",
            "30",
            "-extfile",
            &names,
            "-set_serial",
            &std::process::id().to_string(),
        ]);
    }

    /// A client that trusts this authority alone.
    fn client(&self) -> reqwest::ClientBuilder {
        let pem = std::fs::read(self.file("ca.pem")).unwrap();
        let root = reqwest::Certificate::from_pem(&pem).unwrap();
        reqwest::Client::builder().tls_certs_only([root]).no_proxy()
    }
}

fn openssl(args: &[&str]) {
    let output = Command::new("openssl").args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The port for webhooks with TLS.
fn https(house: &House, path: &str) -> String {
    house.url(path).replacen("http://", "https://", 1)
}

/// The same delivery as a request.
fn request(client: &reqwest::Client, url: &str, delivery: &Sent) -> reqwest::RequestBuilder {
    let request = client.post(url).body(delivery.body.clone());
    delivery.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
}

async fn status(client: &reqwest::Client, url: &str, delivery: &Sent) -> u16 {
    request(client, url, delivery).send().await.unwrap().status().as_u16()
}
