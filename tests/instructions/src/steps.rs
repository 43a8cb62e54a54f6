//! The steps of a delivery: judged, claimed in a memory store, found again as a repeat, answered. Each step includes the
//! ones before it. Its body is small, or filled up with what a sender describes beside the fields.

use bytes::Bytes;
use hookonce::decide::claim::{MatchedBy, NewEvent};
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::field::{Field, FieldIndex, FieldLocation, FieldSet};
use hookonce::decide::filter::Filter;
use hookonce::decide::id::EventId;
use hookonce::decide::judge::{Verdict, judge};
use hookonce::decide::response;
use hookonce::decide::source::{DeduplicationPolicy, Fanout, Identity, Route, Source};
use hookonce::decide::time::Timestamp;
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use hookonce::store::batch::Batcher;
use hookonce::store::clock::StoreClock;
use hookonce::store::memory::MemoryStore;
use hookonce::store::{DuplicateLookup, Store as _};
use std::hint::black_box;
use std::sync::Arc;

const AT: Timestamp = Timestamp(1_770_481_240_000_000);

fn github() -> VerificationScheme {
    VerificationScheme::github(SourceSecrets::new(vec![b"a secret that is long enough for anyone".to_vec()]))
}

/// A source with five fields, a filter, and two identities. Its events are only recorded.
fn source() -> Source {
    let fields = ["package", "tag", "version_id", "sha", "updated_at"];
    let place = |name: &str| FieldLocation::parse(&format!("body.{name}")).expect("a place");
    let fields = FieldSet::new(fields.map(|name| Field::at(name, place(name))).into(), None);
    assert_eq!(fields.ix("tag"), Some(FieldIndex(1)));
    let route = Route { name: "recorded".into(), fanout: Fanout::Record, ..Route::default() };
    Source {
        delivery: github().delivery_id(),
        when: Some(Filter::parse(r#"tag == "latest""#, &fields).expect("a filter over these fields")),
        once: DeduplicationPolicy { per: vec![Identity::Delivery, Identity::Body], ..DeduplicationPolicy::default() },
        routes: vec![Arc::new(route)],
        fields,
        ..Source::new("ghcr", github())
    }
}

/// A signed request, the number of which is in its body and in its delivery id.
struct Request {
    headers: Vec<(String, Vec<u8>)>,
    body: Bytes,
    number: u64,
}

impl Request {
    /// `bytes`: the least size of its body.
    fn numbered(number: u64, bytes: usize) -> Self {
        let mut body = format!(
            r#"{{"package":"app","tag":"latest","version_id":1{number:08},"sha":"sha256:{number:064}","updated_at":"2026-02-07T16:20:40Z""#
        );
        let mut place = 0;
        while body.len() < bytes {
            body += &format!(
                r#","member_{place}":{{"id":{place},"url":"https://api.example.com/repos/octocat/app/{place}","private":false,"note":"line\nand \"more\""}}"#
            );
            place += 1;
        }
        let body = Bytes::from(body + "}");
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let signed = github().sign(&id, AT, &body).into_iter().map(|(name, value)| (name, value.into_bytes()));
        let others = [("host", "127.0.0.1"), ("x-github-event", "package")];
        let others = others.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        Self { headers: others.into_iter().chain(signed).collect(), body, number }
    }

    fn judged(&self, source: &Source) -> NewEvent {
        let headers = borrow_headers(&self.headers);
        let delivery = Delivery { path: "/in/ghcr", query: "", headers: &headers, body: &self.body, at: AT, wall: AT };
        let mut id = || EventId((u128::from(self.number) << 64).to_be_bytes());
        match judge(source, black_box(&delivery), &mut id) {
            Verdict::Events(mut events) => events.pop().expect("one event"),
            other => panic!("expected an event, got {other:?}"),
        }
    }
}

/// Takes each of so many deliveries, with bodies of at least so many bytes, to this step.
pub(crate) fn run(step: &str, times: usize, bytes: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let source = source();
        let store = Arc::new(MemoryStore::new(StoreClock::manual(AT)));
        let batch = Batcher::start(store.clone(), Arc::default());
        let known = Request::numbered(0, bytes);
        let of = batch.claim(Arc::new(known.judged(&source)), Box::new(|_| {})).await.expect("it is claimed");
        black_box(of);
        for number in 1..=times {
            // Signing is not counted with a step: it is in `sign` too.
            let number = u64::try_from(number).expect("a small number");
            let request = Request::numbered(if step == "repeat" { 0 } else { number }, bytes);
            if step == "sign" {
                black_box(&request);
                continue;
            }
            let new = request.judged(&source);
            match step {
                "judge" => drop(black_box(new)),
                "claim" => {
                    let claimed = batch.claim(Arc::new(new), Box::new(|event| _ = black_box(event))).await;
                    black_box(claimed.expect("it is claimed"));
                }
                "repeat" => {
                    let new =
                        NewEvent { event: hookonce::decide::event::Event { id: EventId([9; 16]), ..new.event }, ..new };
                    let found = store.find_duplicate(&new, DuplicateLookup::Standing).await.expect("it is looked up");
                    black_box(found.expect("it is known"));
                }
                "answer" => {
                    let id = new.event.id;
                    black_box(response::accepted(black_box(id)));
                    black_box(response::duplicate(black_box(&new.event), &MatchedBy::Delivery));
                }
                other => panic!("there is no step {other}"),
            }
        }
    });
}
