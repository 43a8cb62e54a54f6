//! Many copies at once, against a slow backend: ours acts once. The usual order of steps (check, act, record) does not,
//! as this test shows.

use crate::backend::{Backend, Does};
use crate::support::{Answer, House, SECRET, Sent, until};
use crate::{IN, signed};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const COPIES: usize = 200;

fn upload() -> Sent {
    signed("x-sig", SECRET, "{\"event\":{\"hash\":\"a1b2\"}}")
}

fn config(url: &str) -> String {
    format!(
        r#"
[source.s]
path    = "{IN}"
verify  = {{ scheme = "hmac", header = "x-sig", secret = {{ env = "SECRET" }} }}
respond = "done"
respond_within = "30s"
fields  = {{ hash = "body.event.hash" }}
once    = {{ per = ["hash"] }}
[[source.s.route]]
forward = {{ url = "{url}", timeout = "1m" }}
"#
    )
}

/// Sends this many at once.
async fn storm(copies: usize, send: impl AsyncFn() -> Answer) -> Vec<Answer> {
    futures_util::future::join_all((0..copies).map(|_| send())).await
}

#[tokio::test]
async fn two_hundred_copies_of_one_upload_are_one_call_and_two_hundred_equal_responses() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![Does::Answers(201, "{\"id\":7}".into())], gate.clone()).await;
    let house = House::new(&config(&backend.url));
    let sent = upload();
    let (answers, ()) = tokio::join!(storm(COPIES, async || house.deliver(IN, &sent).await), async {
        until("the others to join", || house.log().matches(" duplicate ").count() == COPIES - 1).await;
        gate.add_permits(COPIES);
    });
    assert_eq!(backend.calls().len(), 1);
    let said: HashSet<_> = answers
        .iter()
        .map(|answer| (answer.status, answer.body.clone(), answer.header("hookonce-event").map(str::to_owned)))
        .collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((answers[0].status, &*answers[0].body), (201, &b"{\"id\":7}"[..]));
    let replayed = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_some()).count();
    assert_eq!(replayed, COPIES - 1);
}

/// All waiting requests share the limit for bodies in flight: a request that only waits must not count against it.
#[tokio::test]
async fn a_hundred_copies_of_a_large_upload_wait_without_their_bodies() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![Does::Answers(201, "{\"id\":7}".into())], gate.clone()).await;
    let house = House::new(&config(&backend.url));
    // Together more than the limit.
    let body = format!("{{\"event\":{{\"hash\":\"a1b2\"}},\"report\":\"{}\"}}", "x".repeat(700 << 10));
    let sent = signed("x-sig", SECRET, &body);
    let joined = |count: usize| house.log().matches(" duplicate ").count() >= count;
    let waves = (0..10_usize).map(async |wave| {
        until("those before to join", || joined((wave * 10).saturating_sub(1))).await;
        storm(10, async || house.deliver(IN, &sent).await).await
    });
    let (answers, ()) = tokio::join!(futures_util::future::join_all(waves), async {
        until("all to join", || joined(99)).await;
        gate.add_permits(COPIES);
    });
    let answers: Vec<_> = answers.into_iter().flatten().map(|answer| (answer.status, answer.body)).collect();
    assert_eq!((backend.calls().len(), answers.len()), (1, 100));
    assert!(answers.iter().all(|answer| *answer == (201, b"{\"id\":7}".to_vec())), "{:?}", &answers[..3]);
}

/// A service with the usual steps: is it known? Act. Record it.
struct ByTheGuide {
    url: String,
    acted: Arc<Mutex<usize>>,
    serving: tokio::task::JoinHandle<()>,
}

impl ByTheGuide {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (known, acted) = (Arc::<Mutex<HashSet<Vec<u8>>>>::default(), Arc::<Mutex<usize>>::default());
        let count = acted.clone();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (known, count) = (known.clone(), count.clone());
                tokio::spawn(async move {
                    let mut request = vec![0; 4096];
                    let read = stream.read(&mut request).await.unwrap_or(0);
                    let hash = request[..read].split(|byte| *byte == b'{').next_back().unwrap_or_default().to_vec();
                    let is_known = known.lock().unwrap().contains(&hash);
                    if !is_known {
                        *count.lock().unwrap() += 1;
                        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                        known.lock().unwrap().insert(hash);
                    }
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await;
                });
            }
        });
        Self { url, acted, serving }
    }
}

#[tokio::test]
async fn check_act_record_acts_twice_under_concurrency_and_claim_act_settle_does_not() {
    let (guide, backend) = (ByTheGuide::start().await, Backend::answers(200, "{}").await);
    let house = House::new(&config(&backend.url));
    let (client, sent) = (reqwest::Client::new(), upload());
    let theirs = storm(40, async || {
        let answer = client.post(&guide.url).body(sent.body.clone()).send().await.unwrap();
        Answer { status: answer.status().as_u16(), headers: Vec::new(), body: Vec::new() }
    });
    let (theirs, ours) = tokio::join!(theirs, storm(40, async || house.deliver(IN, &sent).await));
    assert!(theirs.iter().chain(&ours).all(|answer| answer.status == 200));
    let doubled = *guide.acted.lock().unwrap();
    println!("40 copies at once: check, act, record acted {doubled} times; hookonce {}", backend.calls().len());
    assert!(doubled > 1, "the copies came too slowly to show anything");
    assert_eq!(backend.calls().len(), 1);
    // After the burst both know it: a test that sends one after the other shows nothing.
    let before = *guide.acted.lock().unwrap();
    client.post(&guide.url).body(sent.body.clone()).send().await.unwrap();
    assert_eq!(*guide.acted.lock().unwrap(), before);
    guide.serving.abort();
}
