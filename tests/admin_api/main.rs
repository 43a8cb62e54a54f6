//! The admin port of a node: the API, authentication, metrics, and what must never be shown.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod auth;
mod budgets;
mod events;
mod metrics;
mod million_events;
mod openapi;
mod other_nodes;
#[path = "../support/postgres.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
mod postgres;
#[path = "../support/redis.rs"]
mod redis;
mod registers;
mod secret_leaks;
#[path = "../support/seed.rs"]
mod seed;
mod streams;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "otel")]
mod traces;

use serde_json::Value;
use support::{Answer, House, Sent};

/// Where deliveries arrive.
const IN: &str = "/in";

/// A source of bodies such as `{"n":1,"tag":"a"}`, whose command fails for 13.
fn numbers(admin: &str) -> String {
    // If the admin port has a fixed section, the webhook port needs a free address, too.
    let listen = if admin.is_empty() { "" } else { "listen = \"127.0.0.1:0\"" };
    format!(
        r#"
{listen}
{admin}
[source.numbers]
path   = "{IN}"
verify = {{ scheme = "github", secret = {{ env = "SECRET" }} }}
fields = {{ n = "body.n", tag = "body.tag", agent = "header.user-agent" }}
when   = 'tag != "no"'
once   = {{ per = ["delivery", ["n", "tag"]] }}
[[source.numbers.route]]
name = "act"
run  = {{ steps = ["echo out of $HOOKONCE_FIELD_N; test $HOOKONCE_FIELD_N != 13"] }}
"#
    )
}

fn number(id: &str, n: u64, tag: &str) -> Sent {
    Sent::github("push", id, &format!("{{\"n\":{n},\"tag\":\"{tag}\"}}"))
}

/// A request to the admin port with these headers and this body.
async fn request(house: &House, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let mut request = client.request(method.parse().unwrap(), house.admin_url(path)).body(body.to_owned());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    let headers = response.headers().iter().map(text).collect();
    Answer { status, headers, body: response.bytes().await.unwrap().to_vec() }
}

/// A server that responds to everything with this, for as long as the test lasts; returns its address.
async fn parrot(answer: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = answer.to_owned();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 8 << 10]).await;
                let _ = socket.write_all(answer.as_bytes()).await;
                let _ = socket.shutdown().await;
                let _ = socket.read(&mut [0; 1]).await;
            });
        }
    });
    address
}

/// An HTTP response with this body.
fn http(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// The document at this path.
async fn get(house: &House, path: &str) -> Value {
    let answer = house.ask("GET", path).await;
    assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}
