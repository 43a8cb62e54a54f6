//! Sports data, once per `event.hash`: `preset = "sports-stack"`, on every store, also when it fails in between.

use crate::backend::Backend;
use crate::house::{House, SECRET, Sent, payload};
use crate::{IN, signed};

/// Takes a store away, and says how to give it back.
type Outage = fn(&House) -> Box<dyn FnOnce()>;

/// A store, and how it is taken away from its node for a while; `None`: it is a part of the node.
struct On {
    store: &'static str,
    outage: Option<Outage>,
}

/// Every store there is.
const STORES: &[On] =
    &[On { store: "memory:", outage: None }, On { store: "sqlite:hookonce.db", outage: Some(locked) }];

/// Somebody else writes into the database, and does not stop.
fn locked(house: &House) -> Box<dyn FnOnce()> {
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin exclusive").unwrap();
    Box::new(move || other.execute_batch("rollback").unwrap())
}

fn change(hash: &str, seen: u32) -> Sent {
    let mut body: serde_json::Value = serde_json::from_str(&payload("sportsstack.json")).unwrap();
    body["event"]["hash"] = hash.into();
    body["delivered"] = seen.into();
    signed("x-sportsstack-signature", SECRET, &body.to_string())
}

#[tokio::test]
async fn each_change_acts_once_on_every_store_and_a_store_that_fails_in_between_loses_and_doubles_nothing() {
    for on in STORES {
        let backend = Backend::answers(200, "{\"status\":\"ok\"}").await;
        let house = House::new(&format!(
            "store = \"{}\"\n[source.sports]\npreset = \"sports-stack\"\npath = \"{IN}\"\nsecret = {{ env = \"SECRET\" }}\n\
             [[source.sports.route]]\nforward = {{ url = \"{}\" }}\n",
            on.store, backend.url
        ));
        // The first and its repeats hear 200, whatever else is in their bodies.
        for seen in 0..3 {
            let answer = house.deliver(IN, &change("first", seen)).await;
            assert_eq!((answer.status, &*answer.body), (200, &b"{\"status\":\"ok\"}"[..]), "{}: {answer:?}", on.store);
            assert_eq!(answer.header("idempotent-replayed"), (seen > 0).then_some("true"));
        }
        assert_eq!(backend.calls().len(), 1, "{}", on.store);
        let forged = change("first", 9).with("x-sportsstack-signature", &"0".repeat(64));
        assert_eq!(house.deliver(IN, &forged).await.status, 401);
        let none = signed("x-sportsstack-signature", SECRET, "{\"event\":{}}");
        assert_eq!(house.deliver(IN, &none).await.status, 422, "a change without a hash is refused");
        if let Some(outage) = on.outage {
            let over = outage(&house);
            for _ in 0..2 {
                let away = house.deliver(IN, &change("second", 0)).await;
                assert_eq!((away.status, away.header("retry-after")), (503, Some("5")), "{}: {away:?}", on.store);
            }
            assert_eq!(backend.calls().len(), 1, "{}: nothing is done without its store", on.store);
            over();
        }
        for seen in 0..3 {
            assert_eq!(house.deliver(IN, &change("second", seen)).await.status, 200, "{}", on.store);
        }
        assert_eq!((backend.calls().len(), backend.effects()), (2, 2), "{}", on.store);
        if on.store.starts_with("sqlite:") {
            let columns = "select hash || ' ' || resource_type || ' ' || common_model_id from events order by id";
            let model = "player 550e8400-e29b-41d4-a716-446655440000";
            assert_eq!(house.sql(columns), [format!("first {model}"), format!("second {model}")]);
        }
    }
}
