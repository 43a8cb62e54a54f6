//! Hints to other nodes when an event becomes due or ends. They may be lost, and nothing depends on them: polling finds
//! the same a little later.

use super::client::RedisClient;
use super::key_names;
use super::key_names::RedisKeyNames;
use crate::decide::id::EventId;
use crate::decide::ledger::EventRow;
use crate::decide::time::Duration;
use crate::store::ChangeHint;
use futures_util::StreamExt as _;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::time::{sleep, timeout};

/// How many hints a slow listener may fall behind by.
pub(super) const HINTS_HELD: usize = 1_024;
/// Timeout for connecting.
const LISTEN_TIME: Duration = Duration::from_secs(3);
/// The wait after the connection broke.
const LISTEN_PAUSE: Duration = Duration::from_millis(250);

impl ChangeHint {
    /// The hint for this write, if any.
    pub(super) fn of(was: Option<&EventRow>, row: &EventRow) -> Option<Self> {
        let (was, now) = (was.map(|row| &row.event.state), &row.event.state);
        if now.ended().is_some() {
            return was.is_none_or(|was| was.ended().is_none()).then_some(Self::Ended(row.event.id));
        }
        let waits = |state: &crate::decide::event::EventState| match state {
            crate::decide::event::EventState::Waiting { due } => *due,
            _ => None,
        };
        let due = waits(now)?;
        let new = was.and_then(waits) != Some(due);
        new.then(|| Self::Due { source: row.event.source.clone(), route: row.event.route.clone() })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Due { source, route } => [&b"d"[..], &key_names::route(source, route)].concat(),
            Self::Ended(id) => [&b"e"[..], &id.0].concat(),
            Self::Watched(id) => [&b"w"[..], &id.0].concat(),
            Self::Missed => Vec::new(),
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (b'd', route) => {
                let (source, route) = key_names::parse_route(route)?;
                Some(Self::Due { source: source.into(), route: route.into() })
            }
            (b'e', id) => Some(Self::Ended(EventId(id.try_into().ok()?))),
            (b'w', id) => Some(Self::Watched(EventId(id.try_into().ok()?))),
            _ => None,
        }
    }
}

/// Receives hints over a separate connection, until the task is aborted.
pub(super) async fn listen(link: Arc<RedisClient>, names: RedisKeyNames, to: broadcast::Sender<ChangeHint>) {
    loop {
        let connected = timeout(LISTEN_TIME, async {
            let mut heard = link.server().await.ok()?.client().ok()?.get_async_pubsub().await.ok()?;
            heard.subscribe(names.hints()).await.ok()?;
            Some(heard)
        });
        if let Ok(Some(heard)) = connected.await {
            let _ = to.send(ChangeHint::Missed);
            let mut messages = heard.into_on_message();
            while let Some(message) = messages.next().await {
                let _ = ChangeHint::parse(message.get_payload_bytes()).map(|hint| to.send(hint));
            }
            // Other calls report the reason; this makes sure that there is one.
            let _ = link.reach().await;
        }
        sleep(LISTEN_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_survives_a_round_trip() {
        let of_event = [ChangeHint::Ended(EventId([3; 16])), ChangeHint::Watched(EventId([4; 16]))];
        for hint in of_event.into_iter().chain([ChangeHint::Due { source: "a".into(), route: "b".into() }]) {
            assert_eq!(ChangeHint::parse(&hint.bytes()), Some(hint));
        }
        for odd in [&b""[..], b"d", b"e12", b"x"] {
            assert_eq!(ChangeHint::parse(odd), None);
        }
    }
}
