//! Finds the stream and its consumer, or creates them where the config says so. The error for a missing one contains
//! the command that creates it.

use crate::action::publish::NatsServerVersion;
use crate::config::StreamPlan;
use crate::decide::time::Duration;
use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, StorageType, Stream};
use async_nats::jetstream::{self, Context};
use std::collections::BTreeSet;

/// How long a message may be unacknowledged: it is acknowledged, or reported as in progress, at a third of that.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// The deduplication window of a stream that is created here: longer than our own publisher retries by default.
const WINDOW: Duration = Duration::from_hours(2);

/// Which part of a plan does not exist.
enum ConsumerLookupError {
    /// The stream, and with it the consumer.
    Stream(String),
    /// The consumer.
    Consumer(Box<Stream>, String),
    /// It cannot be created either.
    Other(String),
}

/// A consumer, and what is known of its stream.
pub(super) struct BoundConsumer {
    /// The consumer: boxed because it is large.
    pub(super) consumer: Box<PullConsumer>,
    /// The number of replicas of the stream.
    replicas: usize,
}

/// The consumer that all nodes share, created where the config says so. An error is a sentence with what to do.
pub(super) async fn consumer(client: &Client, plan: &StreamPlan) -> Result<BoundConsumer, String> {
    let context = jetstream::new(client.clone());
    let missing = match find(&context, plan).await {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    let stream = match missing {
        ConsumerLookupError::Stream(_) if plan.create && !plan.subjects.is_empty() => make(&context, plan).await?,
        ConsumerLookupError::Consumer(stream, _) if plan.create => {
            can_filter(&NatsServerVersion::of(client), plan, &stream)?;
            *stream
        }
        ConsumerLookupError::Stream(why) | ConsumerLookupError::Consumer(_, why) | ConsumerLookupError::Other(why) => {
            return Err(why);
        }
    };
    let replicas = replicas(&stream);
    let consumer = stream.create_consumer(consumer_config(plan)).await;
    let consumer = consumer.map_err(|error| format!("cannot create the consumer {}: {error}", plan.consumer))?;
    Ok(BoundConsumer { consumer: Box::new(consumer), replicas })
}

fn replicas(stream: &Stream) -> usize {
    stream.cached_info().config.num_replicas
}

/// Looks for the consumer and changes nothing. Returns warnings about it; an error is a sentence with what to do.
pub(crate) async fn check_consumer(client: &Client, plan: &StreamPlan) -> Result<String, String> {
    match find(&jetstream::new(client.clone()), plan).await {
        Ok(found) => Ok(consumer_warnings(client, plan, &found).join("; ")),
        Err(ConsumerLookupError::Stream(_)) if plan.create && !plan.subjects.is_empty() => {
            Ok("not there yet; stream and consumer are made when a node starts".into())
        }
        Err(ConsumerLookupError::Consumer(stream, _)) if plan.create => {
            can_filter(&NatsServerVersion::of(client), plan, &stream)?;
            let made = "no consumer yet; it is made when a node starts".to_owned();
            Ok([made].into_iter().chain(too_few_replicas(plan, replicas(&stream))).collect::<Vec<_>>().join("; "))
        }
        Err(
            ConsumerLookupError::Stream(why) | ConsumerLookupError::Consumer(_, why) | ConsumerLookupError::Other(why),
        ) => Err(why),
    }
}

async fn find(context: &Context, plan: &StreamPlan) -> Result<BoundConsumer, ConsumerLookupError> {
    let stream = find_stream(context, plan).await?;
    let (name, owner) = (&plan.consumer, &plan.name);
    let unseen =
        |error: String| ConsumerLookupError::Other(format!("the consumer {name} cannot be looked up: {error}"));
    let info = match stream.consumer_info(&**name).await {
        Ok(info) => info,
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            let why = format!(
                "the stream {owner} has no consumer {name}; make it, or write create = true: nats consumer add {owner} \
                 {name} --pull --ack explicit --deliver all --max-deliver=-1 --defaults"
            );
            return Err(ConsumerLookupError::Consumer(Box::new(stream), why));
        }
        Err(error) => return Err(unseen(error.to_string())),
    };
    if info.config.deliver_subject.is_some() || info.config.ack_policy != AckPolicy::Explicit {
        return Err(ConsumerLookupError::Other(format!(
            "the consumer {name} of {owner} is not a pull consumer with explicit acks; name another, or create it again"
        )));
    }
    let consumer = stream.get_consumer(name).await.map_err(|error| unseen(error.to_string()))?;
    Ok(BoundConsumer { consumer: Box::new(consumer), replicas: replicas(&stream) })
}

/// Whether a consumer that is created here would deliver exactly the `subjects`. An old server ignores a filter of
/// several subjects; that does no harm if the stream has no others. An error is a sentence with what to do.
fn can_filter(version: &NatsServerVersion, plan: &StreamPlan, stream: &Stream) -> Result<(), String> {
    let wanted: BTreeSet<_> = plan.subjects.iter().collect();
    let all: BTreeSet<_> = stream.cached_info().config.subjects.iter().collect();
    if wanted.len() < 2 || wanted == all || version.filters_by_several_subjects() {
        return Ok(());
    }
    Err(format!(
        "the server is nats-server {version}, and a consumer for several of a stream's subjects needs 2.10; install a newer \
         one, name one subject, or take from the stream once for each subject"
    ))
}

/// A warning if the stream existed before, and so was left as it is, with fewer replicas than configured.
fn too_few_replicas(plan: &StreamPlan, replicas: usize) -> Option<String> {
    let (name, wanted) = (&plan.name, plan.replicas);
    (replicas < wanted).then(|| {
        format!(
            "the stream {name} was made before and has replicas = {replicas}, not {wanted} as the config says; hookonce does \
             not change it: nats stream edit {name} --replicas {wanted}"
        )
    })
}

/// Properties of a consumer, its stream and its server that weaken a guarantee, a sentence each.
pub(super) fn consumer_warnings(client: &Client, plan: &StreamPlan, found: &BoundConsumer) -> Vec<String> {
    let config = &found.consumer.cached_info().config;
    let mut doubts: Vec<_> = NatsServerVersion::of(client).too_old().into_iter().collect();
    doubts.extend(too_few_replicas(plan, found.replicas));
    if config.max_deliver > 0 {
        doubts.push(format!(
            "the consumer gives a message up after {} deliveries, taken or not; --max-deliver=-1 never does",
            config.max_deliver
        ));
    }
    if config.durable_name.is_none() {
        doubts.push("the consumer is not durable: when no node consumes from it, its position is lost".into());
    }
    doubts
}

async fn find_stream(context: &Context, plan: &StreamPlan) -> Result<Stream, ConsumerLookupError> {
    let name = &plan.name;
    let error = match context.get_stream(&**name).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    Err(match error.kind() {
        GetStreamErrorKind::JetStream(no) if no.error_code() == jetstream::ErrorCode::STREAM_NOT_FOUND => {
            let subjects = if plan.subjects.is_empty() { "SUBJECT".to_owned() } else { plan.subjects.join(",") };
            let hint = if plan.create { "write its `subjects`" } else { "write create = true with its `subjects`" };
            ConsumerLookupError::Stream(format!(
                "there is no stream {name}; make it, or {hint}: nats stream add {name} --subjects '{subjects}' --storage \
                 file --dupe-window 2h --defaults"
            ))
        }
        GetStreamErrorKind::JetStream(no) => {
            ConsumerLookupError::Other(format!("the stream {name} cannot be looked up: {no}"))
        }
        _ => ConsumerLookupError::Other(format!(
            "the server does not answer for streams; does it run with JetStream? {error}"
        )),
    })
}

async fn make(context: &Context, plan: &StreamPlan) -> Result<Stream, String> {
    let name = &plan.name;
    let stream = context.create_stream(made_stream(plan)).await;
    stream.map_err(|error| format!("cannot create the stream {name}: {error}"))?;
    let made = context.get_stream(&**name).await;
    made.map_err(|error| format!("the stream {name} cannot be looked up: {error}"))
}

fn made_stream(plan: &StreamPlan) -> stream::Config {
    stream::Config {
        name: plan.name.to_string(),
        subjects: plan.subjects.clone(),
        storage: StorageType::File,
        duplicate_window: WINDOW,
        num_replicas: plan.replicas,
        ..Default::default()
    }
}

fn consumer_config(plan: &StreamPlan) -> pull::Config {
    let (filter_subject, filter_subjects) = match plan.subjects.as_slice() {
        [one] => (one.clone(), Vec::new()),
        several => (String::new(), several.to_vec()),
    };
    pull::Config {
        durable_name: Some(plan.consumer.to_string()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        filter_subject,
        filter_subjects,
        ..Default::default()
    }
}
