//! The configuration of one history: drawn once per seed, and then built as the config would build it.

use crate::rng::Rng;
use hookonce::decide::action_kind::ActionKind;
use hookonce::decide::field::{Field, FieldIndex, FieldLocation, FieldSet};
use hookonce::decide::filter::Filter;
use hookonce::decide::limits;
use hookonce::decide::retry::RetryPolicy;
use hookonce::decide::source::{
    ChangeRule, DeduplicationPolicy, DeliveryIdLocation, Fanout, Group, Identity, InDoubtPolicy, Keep,
    RedeliveryPolicy, ResponseMode, Route, Source,
};
use hookonce::decide::time::Duration;
use hookonce::decide::verify::{DescribedSignature, SignedText, SourceSecrets, VerificationScheme};
use std::sync::Arc;

/// One identity of `per`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Per {
    Delivery,
    Body,
    /// Subject and value, as named fields.
    Named,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changes {
    No,
    Unordered,
    Ordered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grouped {
    No,
    BySubject,
    Together,
}

#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) changes: Changes,
    /// Whether the signature covers the delivery id.
    pub(crate) signed: bool,
    pub(crate) per: Vec<Per>,
    pub(crate) grouped: Grouped,
    pub(crate) redelivery: RedeliveryPolicy,
    pub(crate) attempts: u32,
    /// If set, the sender waits for the end; once it got a 202, this many attempts may fail.
    pub(crate) waits: Option<u32>,
    pub(crate) in_doubt: InDoubtPolicy,
    pub(crate) keep: Keep,
    /// Percentages of commands that fail, are rejected, end unknown, or are ended by our own timeout.
    pub(crate) fails: u64,
    pub(crate) rejects: u64,
    pub(crate) unknown: u64,
    pub(crate) timeouts: u64,
    /// Percentage of writes whose response is lost or wrong.
    pub(crate) faults: u64,
    /// Percentage of steps that are crashes and pauses.
    pub(crate) blows: u64,
    pub(crate) route_stays_gone: bool,
    /// Whether the health of what a command deployed is checked.
    pub(crate) checks: bool,
    /// There is only one node: when it starts, it ends the leases of what ended with its predecessor.
    pub(crate) alone: bool,
    /// The kind of its attempts: commands, which end with their node, or requests, which the receiver continues.
    pub(crate) action: ActionKind,
    /// The number of subjects, and of values that they may have.
    pub(crate) subjects: u64,
    pub(crate) values: u64,
    /// Percentage of new changes among what is sent.
    pub(crate) news: u64,
}

pub(crate) const LEASE: Duration = seconds(30);
/// How long a sender waits for the end.
pub(crate) const WITHIN: Duration = seconds(8);
/// The header of an id that the signature covers.
const SIGNED_ID: &str = "x-id";

pub(crate) const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Plan {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        use Per::{Body, Delivery, Named};
        let changes =
            rng.pick(&[Changes::No, Changes::Unordered, Changes::Unordered, Changes::Ordered, Changes::Ordered]);
        let signed = rng.chance(40);
        let per: &[&[Per]] = match (changes, signed) {
            (Changes::No, _) => {
                &[&[Delivery], &[Body], &[Delivery, Body], &[Body, Delivery], &[Named], &[Delivery, Named]]
            }
            // Where only the body is signed, `change` implies the identity `body`.
            (_, false) => &[&[Delivery, Body], &[Body, Delivery], &[Body]],
            (_, true) => &[&[Delivery], &[Delivery, Body], &[Body, Delivery]],
        };
        let grouped: &[Grouped] = match changes {
            Changes::No => &[Grouped::No, Grouped::BySubject, Grouped::Together],
            _ => &[Grouped::BySubject, Grouped::BySubject, Grouped::Together],
        };
        let keep = match (changes, signed) {
            // A captured delivery that is replayed later would look like a rollback.
            (Changes::Unordered, false) => Keep::Forever,
            _ => Keep::For(seconds(rng.pick(&[60, 150, 600]))),
        };
        let redelivery = match rng.below(10) {
            0 | 1 => RedeliveryPolicy::Ignore,
            2 => RedeliveryPolicy::Retry { same_after: Duration::ZERO, other_after: Duration::ZERO },
            3 | 4 => RedeliveryPolicy::Again {
                same_after: limits::REDELIVERY_AFTER,
                other_after: seconds(rng.pick(&[25, 60])),
                published_after: seconds(rng.pick(&[8, 40])),
            },
            _ => RedeliveryPolicy::Retry {
                same_after: limits::REDELIVERY_AFTER,
                other_after: seconds(rng.pick(&[25, 60])),
            },
        };
        Self {
            changes,
            signed,
            per: rng.pick(per).to_vec(),
            grouped: rng.pick(grouped),
            redelivery,
            attempts: u32::try_from(rng.range(1, 3)).expect("small"),
            in_doubt: rng.pick(&[InDoubtPolicy::Retry, InDoubtPolicy::Retry, InDoubtPolicy::Hold]),
            keep,
            fails: rng.pick(&[5, 25, 60]),
            rejects: rng.pick(&[0, 5, 20]),
            unknown: rng.pick(&[0, 5, 20]),
            timeouts: rng.pick(&[0, 5, 20]),
            faults: rng.pick(&[0, 10, 25]),
            blows: rng.pick(&[0, 1, 4]),
            route_stays_gone: rng.chance(10),
            subjects: rng.range(1, 3),
            values: rng.range(1, 3),
            news: rng.pick(&[10, 25, 50]),
            waits: rng.chance(35).then(|| u32::try_from(rng.range(1, 4)).expect("small")),
            alone: rng.chance(30),
            action: rng.pick(&[ActionKind::Run, ActionKind::Forward]),
            checks: false,
        }
        .with_checks(rng.chance(50))
    }

    /// Only where everything is kept: what is deployed is kept for longer than the laws know.
    fn with_checks(self, wanted: bool) -> Self {
        let published = matches!(self.redelivery, RedeliveryPolicy::Again { .. });
        let checks = wanted && self.keep == Keep::Forever && self.waits.is_none() && !published;
        Self { checks, ..self }
    }

    /// How many attempts may fail, and how many may have an unknown outcome.
    pub(crate) fn limits(&self, accepted: bool) -> (u32, u32) {
        let attempts = if accepted { self.waits.unwrap_or(self.attempts) } else { self.attempts };
        match self.in_doubt {
            InDoubtPolicy::Hold => (attempts, 1),
            InDoubtPolicy::Retry | InDoubtPolicy::Never => (attempts, attempts.max(3)),
        }
    }

    pub(crate) fn scheme(&self) -> VerificationScheme {
        let secrets = SourceSecrets::new(vec![b"a secret of this simulation".to_vec()]);
        if !self.signed {
            return VerificationScheme::github(secrets);
        }
        VerificationScheme::new(DescribedSignature {
            over: SignedText::parse("{id}.{body}", None).expect("a template"),
            id: Some(FieldLocation::Header(SIGNED_ID.into())),
            ..DescribedSignature::hmac("x-signature", secrets)
        })
    }

    /// The source with its routes `even` and `odd`, for subjects of even and odd number, as far as they exist.
    pub(crate) fn source(&self, there: [bool; 2]) -> Source {
        let field = |name: &str| Field::at(name, FieldLocation::Body(vec![name.into()]));
        let fields = FieldSet::new(["subject", "to", "order", "n"].map(field).into(), None);
        let [subject, to, order] = [FieldIndex(0), FieldIndex(1), FieldIndex(2)];
        let per = self.per.iter().map(|per| match per {
            Per::Delivery => Identity::Delivery,
            Per::Body => Identity::Body,
            Per::Named => Identity::Named(vec![subject, to]),
        });
        let change = (self.changes != Changes::No).then(|| ChangeRule {
            of: vec![subject],
            to: vec![to],
            order: (self.changes == Changes::Ordered).then_some(order),
        });
        let once = DeduplicationPolicy {
            per: per.collect(),
            change,
            keep: self.keep,
            keep_body: seconds(1_000_000),
            ..DeduplicationPolicy::default()
        };
        let verify = self.scheme();
        let delivery = verify
            .delivery_id()
            .unwrap_or(DeliveryIdLocation { at: FieldLocation::Header(SIGNED_ID.into()), signed: true });
        let routes = [("even", r#"subject in ["s0", "s2"]"#), ("odd", r#"subject == "s1""#)];
        let routes = routes.into_iter().zip(there).filter(|(_, there)| *there).map(|((name, when), _)| {
            let when = Filter::parse(when, &fields).expect("a filter over these fields");
            Arc::new(Route { when: Some(when), ..self.route(name) })
        });
        Source {
            path: hookonce::decide::ingest_path::IngestPath::open("/in"),
            delivery: Some(delivery),
            routes: routes.collect(),
            fields,
            once,
            respond: self.waits.map_or(ResponseMode::Accepted, |_| ResponseMode::WhenDone { within: WITHIN }),
            ..Source::new("sim", verify)
        }
    }

    pub(crate) fn route(&self, name: &str) -> Route {
        Route {
            name: name.into(),
            group: match self.grouped {
                Grouped::No => None,
                Grouped::BySubject => Some(Group::Fields(vec![FieldIndex(0)])),
                Grouped::Together => Some(Group::Fixed("all".into())),
            },
            retry: RetryPolicy { attempts: self.attempts, first: seconds(10), longest: seconds(40) },
            attempts_once_accepted: self.waits,
            in_doubt: self.in_doubt,
            redelivery: self.redelivery,
            lease: LEASE,
            max_concurrency: 2,
            fanout: Fanout::Actions(1),
            ..Route::default()
        }
    }

    /// The policies for events whose route is gone: it is unknown whether they may act twice.
    pub(crate) fn gone() -> Route {
        Route { in_doubt: InDoubtPolicy::Hold, ..Route::default() }
    }
}
