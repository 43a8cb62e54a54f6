//! A node that is killed while it claims the elements of one delivery.

use crate::crash_points::crash;
use crate::rounds;
use crate::support::{House, Sent};

const ELEMENTS: usize = 8;

/// A source whose elements change one register, so that they are claimed one after another.
const CONFIG: &str = r#"
[source.pushes]
path     = "/in"
verify   = { scheme = "github", secret = { env = "SECRET" } }
each     = "body.events"
delivery = "body.id"
fields   = { of = "body.of", to = "body.to" }
once     = { per = ["delivery"], change = { of = ["of"], to = ["to"] } }
[[source.pushes.route]]
name = "record"
"#;

fn envelope() -> Sent {
    let elements: Vec<_> = (0..ELEMENTS).map(|n| format!(r#"{{"id":"id-{n}","of":"x","to":"{n}"}}"#)).collect();
    Sent::github("push", "envelope", &format!(r#"{{"events":[{}]}}"#, elements.join(",")))
}

#[tokio::test]
async fn a_crash_between_elements_leaves_the_first_of_them_and_the_repeat_adds_the_rest() {
    let (mut parts, mut trials) = (0, 0);
    for nth in (1..10_000).step_by(rounds(8, 1)) {
        let mut house = House::empty(CONFIG);
        let send = async |house: &mut House| house.post("/in", &envelope().headers, &envelope().body).await;
        let (answer, died) = crash(&mut house, "pwrite64", nth, send).await;
        let there = house.sql("select delivery_id from events order by 1");
        let first: Vec<_> = (0..there.len()).map(|n| format!("id-{n}")).collect();
        assert_eq!(there, first, "killed at write {nth}");
        if let Some(Ok(answer)) = answer {
            assert!(answer.status >= 400 || there.len() == ELEMENTS, "killed at write {nth}: {answer:?}");
        }
        let repeat = house.post("/in", &envelope().headers, &envelope().body).await.unwrap();
        let told = repeat.json();
        assert!((200..300).contains(&repeat.status), "killed at write {nth}: {repeat:?}");
        assert_eq!(told["new"], ELEMENTS - there.len(), "killed at write {nth}: {repeat:?}");
        assert_eq!(told["duplicate"], there.len());
        let last = format!(r#"{{"events":[{{"id":"again","of":"x","to":"{}"}}]}}"#, ELEMENTS - 1);
        let last = Sent::github("push", "last", &last);
        let known = house.post("/in", &last.headers, &last.body).await.unwrap();
        assert_eq!((known.status, &known.json()["duplicate"]), (200, &1.into()), "the register has the last value");
        trials += 1;
        parts += usize::from(!there.is_empty() && there.len() < ELEMENTS);
        if !died {
            break; // there are no later writes
        }
    }
    assert!(parts > 0, "none of {trials} kills was between two elements");
    println!("{trials} kills, {parts} of them between two elements");
}
