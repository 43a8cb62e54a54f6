//! Sources as the config would build them, and deliveries as they would arrive.

use bytes::Bytes;
use hookonce::decide::claim::NewEvent;
use hookonce::decide::delivery::DeliveryRejection;
use hookonce::decide::delivery::{Delivery, borrow_headers};
use hookonce::decide::field::{Field, FieldIndex, FieldLocation, FieldSet};
use hookonce::decide::filter::Filter;
use hookonce::decide::id::EventId;
use hookonce::decide::judge::{Verdict, judge};
use hookonce::decide::source::{
    ChangeRule, DeduplicationPolicy, DeliveryIdLocation, Fanout, Group, Identity, RequiredEventKind, Route, Source,
    WantedKind,
};
use hookonce::decide::time::{Duration, Timestamp};
use hookonce::decide::verify::{SourceSecrets, VerificationScheme};
use std::sync::Arc;

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// A few minutes after the deliveries in the payloads.
pub(crate) fn now() -> Timestamp {
    Timestamp::parse("2026-02-07T16:25:00Z").expect("a time")
}

pub(crate) fn github() -> VerificationScheme {
    VerificationScheme::github(SourceSecrets::new(vec![b"the secret".to_vec()]))
}

pub(crate) fn field(name: &str, at: &str) -> Field {
    Field::at(name, FieldLocation::parse(at).expect(at))
}

/// A source with these fields, without verification and once per body, to start from.
pub(crate) fn source(fields: Vec<Field>) -> Source {
    Source {
        fields: FieldSet::new(fields, None),
        routes: vec![Arc::new(Route { fanout: Fanout::Actions(1), ..Route::default() })],
        ..Source::new("src", VerificationScheme::none())
    }
}

/// The preset `github-package` with a route for one package.
pub(crate) fn github_package() -> Source {
    let package = "body.registry_package";
    let version = "body.registry_package.package_version";
    let fields = vec![
        field("package", &format!("{package}.name")),
        field("tag", &format!("{version}.container_metadata.tag.name")),
        field("version_id", &format!("{version}.id")),
        field("sha", &format!("{version}.version")),
        field("updated_at", &format!("{package}.updated_at")),
    ];
    let shape = vec!["registry_package".to_owned()];
    let fields = FieldSet::new(fields, Some(shape.clone()));
    let [package, tag, version_id, sha, updated_at] = [0, 1, 2, 3, 4].map(FieldIndex);
    let when = |text| Some(Filter::parse(text, &fields).expect("a filter over these fields"));
    let route = Route {
        name: "jamiec_ts".into(),
        when: when(r#"package == "jamiec_ts""#),
        group: Some(Group::Fields(vec![package])),
        fanout: Fanout::Actions(1),
        ..Route::default()
    };
    Source {
        name: "ghcr".into(),
        scope: "ghcr".into(),
        path: hookonce::decide::ingest_path::IngestPath::open("/version/1"),
        verify: github(),
        kind: Some(RequiredEventKind {
            header: "x-github-event".into(),
            any_of: vec![WantedKind { is: "registry_package".into(), shape }],
        }),
        delivery: github().delivery_id(),
        when: when(r#"tag == "latest""#),
        once: DeduplicationPolicy {
            per: vec![Identity::Delivery, Identity::Body],
            change: Some(ChangeRule { of: vec![package, tag], to: vec![version_id, sha], order: Some(updated_at) }),
            imported: Some(vec![tag, version_id, sha]),
            ..DeduplicationPolicy::default()
        },
        routes: vec![Arc::new(route)],
        fields,
        ..source(Vec::new())
    }
}

/// A request: headers as they came, and the body.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn json(body: &str) -> Self {
        let headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
        Self { headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    /// A request signed as GitHub would sign it.
    pub(crate) fn from_github(kind: &str, id: &str, body: &str) -> Self {
        let headers =
            github().sign(id, now(), body.as_bytes()).into_iter().map(|(name, value)| (name, value.into_bytes()));
        let request = Self { headers: headers.collect(), body: Bytes::copy_from_slice(body.as_bytes()) };
        request.with("x-github-event", kind)
    }

    /// The same request with this header replaced.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The source's verdict. Ids are counted from 1.
    pub(crate) fn judged(&self, source: &Source) -> Verdict {
        let delivery = Delivery {
            path: source.path.shown(),
            query: "",
            headers: &borrow_headers(&self.headers),
            body: &self.body,
            at: now(),
            wall: now(),
        };
        let mut ids = 0_u8;
        judge(source, &delivery, &mut || {
            ids = ids.wrapping_add(1); // after 255 they repeat
            EventId([ids; 16])
        })
    }

    pub(crate) fn events(&self, source: &Source) -> Vec<NewEvent> {
        match self.judged(source) {
            Verdict::Events(events) => events,
            other => panic!("expected events, got {other:?}"),
        }
    }

    pub(crate) fn event(&self, source: &Source) -> NewEvent {
        let mut events = self.events(source);
        assert_eq!(events.len(), 1, "one receiver, one event");
        events.remove(0)
    }

    pub(crate) fn refusal(&self, source: &Source) -> DeliveryRejection {
        match self.judged(source) {
            Verdict::Refused(refusal) => refusal,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    pub(crate) fn ignored(&self, source: &Source) -> String {
        match self.judged(source) {
            Verdict::Ignored(why) => why,
            other => panic!("expected it to be ignored, got {other:?}"),
        }
    }
}

/// The deliveries of one of the bursts in `tests/payloads`, signed.
pub(crate) fn storm(file: &str) -> Vec<Request> {
    let text = std::fs::read_to_string(format!("{}/tests/payloads/{file}", env!("CARGO_MANIFEST_DIR"))).expect(file);
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let header = |name: &str| line["headers"][name].as_str().expect("a header").to_owned();
        let body = line["body"].as_str().expect("a body");
        Request::from_github(&header("X-GitHub-Event"), &header("X-GitHub-Delivery"), body)
    };
    text.lines().map(line).collect()
}

pub(crate) fn payload(file: &str) -> String {
    std::fs::read_to_string(format!("{}/tests/payloads/{file}", env!("CARGO_MANIFEST_DIR"))).expect(file)
}

/// A delivery id in a header, signed or not.
pub(crate) fn id_in_header(signed: bool) -> DeliveryIdLocation {
    DeliveryIdLocation { at: FieldLocation::Header("x-id".into()), signed }
}
