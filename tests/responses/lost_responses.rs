//! Responses lost on the way: the backend is called again under the same key, and acts once if it honours it.

use crate::backend::{Backend, Does};
use crate::support::{House, SECRET, Sent, until};
use crate::{IN, signed};
use std::sync::Arc;
use tokio::sync::Semaphore;

fn config(url: &str) -> String {
    format!(
        r#"
[source.s]
path    = "{IN}"
verify  = {{ scheme = "hmac", header = "x-sig", secret = {{ env = "SECRET" }} }}
respond = "done"
respond_within = "20s"
fields  = {{ n = "body.n" }}
once    = {{ per = ["n"] }}
[[source.s.route]]
lease   = "4s"
forward = {{ url = "{url}" }}
retry   = {{ first = "100ms" }}
"#
    )
}

fn upload() -> Sent {
    signed("x-sig", SECRET, "{\"n\":1}")
}

#[tokio::test]
async fn a_backend_that_dies_in_the_middle_of_its_response_is_called_again_under_the_same_key() {
    let answer = "{\"id\":7,\"results\":[1,2,3]}";
    let does = vec![Does::Dies(200, answer.into()), Does::Dies(200, answer.into()), Does::Answers(200, answer.into())];
    let backend = Backend::new(does).await;
    let house = House::new(&config(&backend.url));
    let first = house.deliver(IN, &upload()).await;
    assert_eq!((first.status, String::from_utf8_lossy(&first.body)), (200, answer.into()), "{first:?}");
    let again = house.deliver(IN, &upload()).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    let keys: Vec<_> = backend.calls().into_iter().map(|call| call.key).collect();
    assert_eq!(keys, vec![first.header("hookonce-event").unwrap(); 3]);
    assert_eq!(backend.effects(), 1);
}

#[tokio::test]
async fn a_node_killed_between_the_backends_response_and_its_own_calls_again_under_the_same_key() {
    let gate = Arc::new(Semaphore::new(0));
    let backend = Backend::gated(vec![Does::Answers(201, "{\"id\":7}".into())], gate.clone()).await;
    let mut house = House::new(&config(&backend.url));
    let lost = async {
        until("the call", || backend.calls().len() == 1).await;
        // The response arrives, but cannot be stored.
        let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
        other.execute_batch("begin exclusive").unwrap();
        gate.add_permits(1 << 10);
        until("its answer", || backend.answered() == 1).await;
        until("a complaint", || house.log().contains("locked")).await;
        rustix::process::kill_process(house.pid(), rustix::process::Signal::KILL).unwrap();
        other
    };
    let sent = upload();
    let (answer, other) = tokio::join!(house.post(IN, &sent.headers, &sent.body), lost);
    assert!(answer.is_err(), "the sender got no response: {answer:?}");
    house.kill();
    other.execute_batch("rollback").unwrap();
    drop(other);
    house.start();
    let again = house.deliver(IN, &upload()).await;
    assert_eq!((again.status, String::from_utf8_lossy(&again.body)), (201, "{\"id\":7}".into()), "{again:?}");
    let keys: Vec<_> = backend.calls().into_iter().map(|call| call.key).collect();
    assert_eq!(keys, vec![again.header("hookonce-event").unwrap(); 2]);
    assert_eq!(backend.effects(), 1);
}
