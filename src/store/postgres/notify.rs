//! Notifications between nodes through the server, so that no node waits for its next poll. They are only hints: they
//! are sent after the commit, on a separate connection, because the server serializes commits that notify; what does
//! not fit is dropped. All stores of a database share the channel `hookonce`, as in the first release, and each hint
//! names the schema of its store.

use super::pool::PgPool;
use super::sessions;
use crate::decide::id::EventId;
use crate::decide::time::Duration;
use crate::store::ChangeHint;
use crate::store::schema::postgres::SchemaName;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{broadcast, mpsc};
use tokio_postgres::{AsyncMessage, Error};

/// Maximum number of hints waiting to be sent; further ones are dropped.
const WAITING_MAX: usize = 1024;
/// How many hints a listener may fall behind by.
const HEARD_MAX: usize = 1024;
/// How long hints are collected before they are sent.
const GATHER: Duration = Duration::from_millis(5);
/// The wait before reconnecting.
const AGAIN: Duration = Duration::from_secs(1);
/// PostgreSQL's limit for one notification.
const PAYLOAD_MAX: usize = 7_900;

/// Sends and receives hints.
pub(super) struct PostgresNotifier {
    listens: AtomicBool,
    out: mpsc::Sender<NotifierCommand>,
    heard: broadcast::Sender<ChangeHint>,
}

enum NotifierCommand {
    /// Send these to the other nodes.
    Tell(Vec<ChangeHint>),
    /// Start listening.
    Listen,
}

impl PostgresNotifier {
    /// Connects only once there is something to send, or a listener.
    pub(super) fn start(pool: Arc<PgPool>) -> Self {
        let (out, said) = mpsc::channel(WAITING_MAX);
        let heard = broadcast::Sender::new(HEARD_MAX);
        tokio::spawn(run(pool, said, heard.clone()));
        Self { listens: AtomicBool::new(false), out, heard }
    }

    pub(super) fn tell(&self, hints: Vec<ChangeHint>) {
        if !hints.is_empty() {
            // If it is full, the other nodes find it by polling.
            self.out.try_send(NotifierCommand::Tell(hints)).unwrap_or_default();
        }
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<ChangeHint> {
        if !self.listens.swap(true, Ordering::Relaxed) {
            self.out.try_send(NotifierCommand::Listen).unwrap_or_default();
        }
        self.heard.subscribe()
    }
}

/// Ends when the store is closed.
async fn run(pool: Arc<PgPool>, mut said: mpsc::Receiver<NotifierCommand>, heard: broadcast::Sender<ChangeHint>) {
    let Some(mut first) = said.recv().await else { return };
    loop {
        match session(&pool, first, &mut said, &heard).await.unwrap_or(NotifierSessionEnd::Lost) {
            NotifierSessionEnd::Closed => return,
            // What was missed meanwhile is found by polling.
            NotifierSessionEnd::Lost => tokio::time::sleep(AGAIN).await,
        }
        while said.try_recv().is_ok() {}
        heard.send(ChangeHint::Missed).unwrap_or_default();
        first = NotifierCommand::Listen;
    }
}

/// How a connection ended.
enum NotifierSessionEnd {
    /// The store is closed.
    Closed,
    /// The server is gone.
    Lost,
}

/// The lifetime of one connection.
async fn session(
    pool: &PgPool,
    first: NotifierCommand,
    said: &mut mpsc::Receiver<NotifierCommand>,
    heard: &broadcast::Sender<ChangeHint>,
) -> Result<NotifierSessionEnd, Error> {
    let (client, mut connection) = pool.address.config.connect(pool.address.tls.clone()).await?;
    let (told, mut notified) = mpsc::channel(HEARD_MAX);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(said) = message {
                // If the channel is full, the rest is found by polling.
                told.try_send(said).unwrap_or_default();
            }
        }
    });
    client.batch_execute("set synchronous_commit = off; set statement_timeout = '15s'; listen hookonce").await?;
    let schema = pool.schema();
    sessions::hold_schema_lock(&client, &schema).await?;
    let ours: i32 = client.query_one("select pg_backend_pid()", &[]).await?.try_get(0)?;
    let notify = client.prepare("select pg_notify('hookonce', $1)").await?;
    let mut waiting = vec![first];
    loop {
        let payload = payload(&mut waiting, &schema);
        if let Some(payload) = payload {
            client.query(&notify, &[&payload]).await?;
            tokio::time::sleep(GATHER).await;
        }
        tokio::select! {
            one = said.recv() => match one {
                Some(one) => waiting.push(one),
                None => return Ok(NotifierSessionEnd::Closed),
            },
            one = notified.recv() => match one {
                Some(one) if one.process_id() != ours => {
                    for hint in read(one.payload(), &schema) {
                        heard.send(hint).map(drop).unwrap_or_default();
                    }
                }
                Some(_) => {}
                None => return Ok(NotifierSessionEnd::Lost),
            },
        }
        while let Ok(one) = said.try_recv() {
            waiting.push(one);
        }
    }
}

/// All of these in one notification; `None` if there is nothing to send.
fn payload(waiting: &mut Vec<NotifierCommand>, schema: &SchemaName) -> Option<String> {
    let tell = |said| match said {
        NotifierCommand::Tell(hints) => hints,
        NotifierCommand::Listen => Vec::new(),
    };
    let hints: BTreeSet<ChangeHint> = waiting.drain(..).flat_map(tell).collect();
    let (mut due, mut ended, mut watched) = (Vec::new(), Vec::new(), Vec::new());
    for hint in &hints {
        match hint {
            ChangeHint::Due { source, route } => due.push(json!([**source, **route])),
            ChangeHint::Ended(id) => ended.push(id.to_string()),
            ChangeHint::Watched(id) => watched.push(id.to_string()),
            ChangeHint::Missed => {}
        }
    }
    let mut text = json!({ "schema": schema.as_str(), "due": due, "ended": ended });
    if !watched.is_empty() {
        text["watched"] = watched.into();
    }
    let text = text.to_string();
    (!hints.is_empty()).then_some(if text.len() > PAYLOAD_MAX { String::new() } else { text })
}

/// Decodes a notification. Any client may have sent it: an invalid one is only a reason to poll. The first release
/// names no schema.
fn read(payload: &str, schema: &SchemaName) -> Vec<ChangeHint> {
    let Ok(said) = serde_json::from_str::<Json>(payload) else { return vec![ChangeHint::Missed] };
    if said["schema"].as_str().is_some_and(|other| other != schema.as_str()) {
        return Vec::new();
    }
    let list = |name: &str| said[name].as_array().cloned().unwrap_or_default();
    let due = list("due")
        .into_iter()
        .filter_map(|pair| Some(ChangeHint::Due { source: pair[0].as_str()?.into(), route: pair[1].as_str()?.into() }));
    let events = |name: &str| list(name).into_iter().filter_map(|id| id.as_str()?.parse::<EventId>().ok());
    due.chain(events("ended").map(ChangeHint::Ended)).chain(events("watched").map(ChangeHint::Watched)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hints: &[ChangeHint], expected: &[ChangeHint]) {
        let mut waiting =
            vec![NotifierCommand::Tell(hints.to_vec()), NotifierCommand::Listen, NotifierCommand::Tell(hints.to_vec())];
        let ours = SchemaName::default();
        let payload = payload(&mut waiting, &ours).expect("there is something to say");
        assert!(payload.len() <= PAYLOAD_MAX && waiting.is_empty());
        assert_eq!(read(&payload, &ours), expected);
    }

    #[test]
    fn hints_survive_a_round_trip_once_and_too_many_become_missed() {
        let due = ChangeHint::Due { source: "a\"é".into(), route: "1".into() };
        let ended = ChangeHint::Ended(EventId([7; 16]));
        let watched = ChangeHint::Watched(EventId([8; 16]));
        check(&[watched.clone(), ended.clone(), due.clone()], &[due, ended, watched]);
        let many: Vec<_> = (0..=255).map(|n| ChangeHint::Ended(EventId([n; 16]))).collect();
        check(&many, &[ChangeHint::Missed]);
        assert_eq!(payload(&mut vec![NotifierCommand::Listen], &SchemaName::default()), None);
        assert_eq!(read("not ours", &SchemaName::default()), [ChangeHint::Missed]);
    }

    #[test]
    fn a_hint_of_another_store_is_ignored_and_one_of_the_first_release_is_not() {
        let told = payload(
            &mut vec![NotifierCommand::Tell(vec![ChangeHint::Ended(EventId([7; 16]))])],
            &SchemaName::default(),
        );
        let two = SchemaName::parse("two").expect("a name");
        assert_eq!(read(&told.expect("there is something to say"), &two), []);
        let first_release = json!({ "due": [["s", "1"]], "ended": [] }).to_string();
        assert_eq!(read(&first_release, &two), [ChangeHint::Due { source: "s".into(), route: "1".into() }]);
    }
}
