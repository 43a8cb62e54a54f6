//! Servers that require TLS, servers without TLS, and servers whose certificate is not trusted.

use crate::server_refusals::{RECORDS, check_refused, node};
use crate::support::Sent;
use crate::{postgres, redis};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A key, and a certificate for 127.0.0.1.
struct Papers {
    key: PathBuf,
    certificate: PathBuf,
}

fn papers(folder: &Path, name: &str) -> Papers {
    let (key, certificate) = (folder.join(format!("{name}.key")), folder.join(format!("{name}.pem")));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.args(["-subj", &format!("/CN={name}"), "-keyout"]).arg(&key).arg("-out").arg(&certificate);
    assert!(openssl.output().unwrap().status.success());
    Papers { key, certificate }
}

fn refused(url: &str, words: &[&str]) {
    check_refused(RECORDS, url, &["serve"], words);
}

async fn works(url: &str) {
    let house = node(RECORDS, url);
    let one = Sent::github("push", "d1", r#"{"key":"k1"}"#);
    assert_eq!(house.deliver("/in", &one).await.word(), "accepted");
    assert_eq!(house.deliver("/in", &one).await.word(), "duplicate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_with_tls_is_reached_with_its_certificate_and_otherwise_the_error_explains() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (papers(folder.path(), "ours"), papers(folder.path(), "others"));
    let tls = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let [key, certificate] = [&ours.key, &ours.certificate].map(|path| path.display().to_string());
    let port = tls.to_string();
    let words = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let server = redis::Server::with(&redis::redis(), &[&words[..], &["--tls-auth-clients", "no"]].concat());
    let at = |scheme: &str, port: u16, roots: &Path| {
        format!("{scheme}://:hunter2@127.0.0.1:{port}/?prefix=a&roots={}", roots.display())
    };
    works(&at("rediss", tls, &ours.certificate).replace(":hunter2@", "")).await;
    refused(&format!("redis://:hunter2@127.0.0.1:{tls}/"), &["wants TLS", "rediss://"]);
    refused(&at("rediss", tls, &others.certificate), &["certificate is not trusted", "roots="]);
    refused(&format!("rediss://:hunter2@127.0.0.1:{tls}/"), &["certificate is not trusted", "roots="]);
    refused(&at("rediss", server.port, &ours.certificate), &["does not speak TLS", "redis://"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_with_tls_is_reached_with_its_certificate_and_otherwise_the_error_explains() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (papers(folder.path(), "ours"), papers(folder.path(), "others"));
    let mut server = postgres::Server::start().await;
    server.use_tls(&ours.key, &ours.certificate).await;
    let database = server.database().await;
    let db = server.client("postgres").await;
    db.batch_execute(&format!("create role tlsonly login superuser; alter database {database} owner to tlsonly"))
        .await
        .unwrap();
    let url = server.url_of("tlsonly", &database);
    let verified = |papers: &Papers| {
        let roots = papers.certificate.display().to_string().replace('/', "%2F");
        format!("{url}?sslmode=verify-full&sslrootcert={roots}")
    };
    works(&verified(&ours)).await;
    refused(&url, &["wants TLS", "sslmode=require"]);
    refused(&verified(&others), &["no TLS", "certificate", "sslrootcert"]);
    refused(&format!("{url}?sslmode=verify-full"), &["no TLS", "certificate", "sslrootcert"]);
}
