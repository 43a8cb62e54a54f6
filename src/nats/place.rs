//! The stream and the consumer: found, or made where the config says so. What is missing is told with the command that
//! makes it.

use crate::config::StreamPlan;
use crate::decide::time::Duration;
use async_nats::Client;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, StorageType, Stream};
use async_nats::jetstream::{self, Context};

/// How long a message may be unanswered: it is answered, or said to be in progress, at a third of that.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// How long a stream that is made here remembers ids: longer than a publisher of ours goes on by default.
const WINDOW: Duration = Duration::from_hours(2);

/// The consumer that all nodes share. An error is a sentence with what to do.
pub(super) async fn consumer(client: &Client, plan: &StreamPlan) -> Result<PullConsumer, String> {
    let context = jetstream::new(client.clone());
    let stream = find_or_make_stream(&context, plan).await?;
    let (name, owner) = (&plan.consumer, &plan.name);
    let info = match stream.consumer_info(&**name).await {
        Ok(info) => info,
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound && plan.create => {
            return stream.create_consumer(made(plan)).await.map_err(|error| format!("cannot make {name}: {error}"));
        }
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {
            return Err(format!(
                "the stream {owner} has no consumer {name}; make it, or write create = true: nats consumer add {owner} \
                 {name} --pull --ack explicit --deliver all --max-deliver=-1 --defaults"
            ));
        }
        Err(error) => return Err(format!("the consumer {name} cannot be seen: {error}")),
    };
    if info.config.deliver_subject.is_some() || info.config.ack_policy != AckPolicy::Explicit {
        return Err(format!(
            "the consumer {name} of {owner} is not one to pull from with explicit acks; name another, or make it anew"
        ));
    }
    stream.get_consumer(name).await.map_err(|error| format!("the consumer {name} cannot be seen: {error}"))
}

/// What about a consumer makes a promise smaller, a sentence each.
pub(super) fn doubts(consumer: &PullConsumer) -> Vec<String> {
    let config = &consumer.cached_info().config;
    let mut doubts = Vec::new();
    if config.max_deliver > 0 {
        doubts.push(format!(
            "the consumer gives a message up after {} deliveries, taken or not; --max-deliver=-1 never does",
            config.max_deliver
        ));
    }
    if config.durable_name.is_none() {
        doubts.push("the consumer is not durable: when nobody takes from it, it forgets where it was".into());
    }
    doubts
}

async fn find_or_make_stream(context: &Context, plan: &StreamPlan) -> Result<Stream, String> {
    let name = &plan.name;
    let error = match context.get_stream(&**name).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    match error.kind() {
        GetStreamErrorKind::JetStream(no) if no.error_code() == jetstream::ErrorCode::STREAM_NOT_FOUND => {
            if plan.create && !plan.subjects.is_empty() {
                let stream = context.create_stream(made_stream(plan)).await;
                stream.map_err(|error| format!("cannot make the stream {name}: {error}"))?;
                let made = context.get_stream(&**name).await;
                return made.map_err(|error| format!("the stream {name} cannot be seen: {error}"));
            }
            let subjects = if plan.subjects.is_empty() { "SUBJECT".to_owned() } else { plan.subjects.join(",") };
            let hint = if plan.create { "write its `subjects`" } else { "write create = true with its `subjects`" };
            Err(format!(
                "there is no stream {name}; make it, or {hint}: nats stream add {name} --subjects '{subjects}' --storage \
                 file --dupe-window 2h --defaults"
            ))
        }
        GetStreamErrorKind::JetStream(no) => Err(format!("the stream {name} cannot be seen: {no}")),
        _ => Err(format!("the server does not answer for streams; does it run with JetStream? {error}")),
    }
}

fn made_stream(plan: &StreamPlan) -> stream::Config {
    stream::Config {
        name: plan.name.to_string(),
        subjects: plan.subjects.clone(),
        storage: StorageType::File,
        duplicate_window: WINDOW,
        ..Default::default()
    }
}

fn made(plan: &StreamPlan) -> pull::Config {
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
