//! Connections to NATS, one for each server: made when first needed, kept, and made again when they break.
//!
//! What is asked for while there is no connection is not queued here: the client would send it whenever there is one
//! again, long after who asked has gone. So everybody waits for [`NatsConnection::connected`] first.

use crate::action::ActionError;
use crate::action::plan::{NatsCredentials, NatsServer};
use crate::decide::time::Duration;
use crate::observe::log;
use async_nats::client::{Request, RequestError, RequestErrorKind};
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;
use tracing::{info, warn};

/// To connect: name, TCP, TLS and who we are.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// To find out whether anybody is there.
const REACH_TIME: Duration = Duration::from_secs(2);
/// The longest wait before it is tried again; the first is a sixteenth of it, and it doubles.
const RECONNECT_LONGEST: Duration = Duration::from_secs(4);
/// A connection that says nothing for so long is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Messages that wait to be taken by one subscription. More than one pull ever asks for.
const SUBSCRIPTION_MAX: usize = 4096;

/// Every connection of this node.
#[derive(Clone, Default)]
pub struct NatsConnections(Arc<Mutex<HashMap<NatsServer, Arc<NatsConnection>>>>);

impl fmt::Debug for NatsConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "Servers({count})")
    }
}

impl NatsConnections {
    /// The connection to this server, which others may share. Nothing is connected yet.
    pub fn connection(&self, plan: &NatsServer) -> Result<Arc<NatsConnection>, ActionError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(plan) {
            return Ok(known.clone());
        }
        options(plan).map_err(ActionError)?;
        addresses(plan).map_err(ActionError)?;
        let made = Arc::new(NatsConnection {
            plan: plan.clone(),
            news: Arc::new(watch::Sender::new(())),
            breaks: Arc::new(watch::Sender::new(0)),
            client: OnceCell::new(),
            trouble: Arc::default(),
            told: AtomicBool::new(false),
        });
        all.insert(plan.clone(), made.clone());
        Ok(made)
    }
}

/// One connection.
pub struct NatsConnection {
    plan: NatsServer,
    /// Something happened to it.
    news: Arc<watch::Sender<()>>,
    /// How often it broke.
    breaks: Arc<watch::Sender<u64>>,
    client: OnceCell<Client>,
    /// Why it is not there, if the server or the network said.
    trouble: Arc<Mutex<Option<String>>>,
    told: AtomicBool,
}

impl NatsConnection {
    /// The server, as it may be shown.
    pub fn shown(&self) -> &str {
        &self.plan.shown
    }

    /// The client, connected; waits for that at most so long. An error is a sentence, and nothing was sent.
    pub async fn connected(&self, within: Duration) -> Result<Client, String> {
        let until = tokio::time::Instant::now() + within;
        let client = self.client.get_or_try_init(|| self.connect()).await?;
        let mut news = self.news.subscribe();
        while client.connection_state() != State::Connected {
            if tokio::time::timeout_at(until, news.changed()).await.is_err() {
                let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let why = trouble.map(|why| format!(": {why}")).unwrap_or_default();
                return Err(format!("not connected to {}{why}", self.plan.shown));
            }
        }
        Ok(client.clone())
    }

    /// Waits until the connection breaks; counted from the call, not from when it is first waited for.
    pub fn disconnected(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut breaks = self.breaks.subscribe();
        // The sender may be gone with the node: then nobody waits any more.
        async move { breaks.changed().await.unwrap_or_default() }
    }

    /// Is this the first to be told something about the server?
    pub(super) fn claim_sync_warning(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    async fn connect(&self) -> Result<Client, String> {
        let (news, breaks, shown) = (self.news.clone(), self.breaks.clone(), self.plan.shown.clone());
        let (trouble, addresses) = (self.trouble.clone(), addresses(&self.plan)?);
        let places: Arc<[_]> = addresses.iter().map(|one| (one.host().to_owned(), one.port())).collect();
        let options = options(&self.plan)?
            .name("hookonce")
            .retry_on_initial_connect()
            .connection_timeout(CONNECT_TIME)
            .ping_interval(PING_EVERY)
            .subscription_capacity(SUBSCRIPTION_MAX)
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                let (news, breaks, shown) = (news.clone(), breaks.clone(), shown.clone());
                let (trouble, places) = (trouble.clone(), places.clone());
                async move {
                    let is = describe_event(&event, &places).await;
                    log_event(&shown, &event, &is);
                    match &event {
                        Event::Disconnected => breaks.send_modify(|breaks| *breaks += 1),
                        Event::Connected => *trouble.lock().unwrap_or_else(PoisonError::into_inner) = None,
                        Event::ServerError(_) | Event::ClientError(_) => {
                            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(is);
                        }
                        _ => {}
                    }
                    news.send_replace(());
                }
            });
        let connecting = options.connect(addresses);
        connecting.await.map_err(|error| format!("cannot connect to {}: {error}", self.plan.shown))
    }
}

/// Asks the server a question that nobody has an answer to: when it says so, it has taken all that was sent before.
pub(crate) async fn round_trip(client: &Client) -> Result<(), RequestError> {
    match client.send_request(client.new_inbox(), Request::new().timeout(None)).await {
        Err(error) if error.kind() != RequestErrorKind::NoResponders => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// How long to wait before the next try.
fn reconnect_delay(tries: usize) -> Duration {
    let doubled = 1_u32.checked_shl(u32::try_from(tries.saturating_sub(1)).unwrap_or(u32::MAX)).unwrap_or(u32::MAX);
    (RECONNECT_LONGEST / 16).saturating_mul(doubled).min(RECONNECT_LONGEST)
}

fn log_event(server: &str, event: &Event, is: &str) {
    match event {
        Event::Connected | Event::Draining => info!(target: "hookonce", server, is, "nats"),
        // Each try to connect again has the same to tell.
        Event::ClientError(_) | Event::ServerError(_) => {
            log::rate_limited("nats", &format!("{server} {is}"), |times| {
                warn!(target: "hookonce", server, is, times, "nats");
            });
        }
        _ => warn!(target: "hookonce", server, is, "nats"),
    }
}

/// What an event is, in words. Why no connection is made the client keeps to itself: so the places are asked whether
/// anybody is there at all.
async fn describe_event(event: &Event, places: &[(String, u16)]) -> String {
    let Event::ClientError(_) = event else { return event.to_string() };
    for (host, port) in places {
        let why = match timeout(REACH_TIME, TcpStream::connect((host.as_str(), *port))).await {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".into(),
        };
        return format!("{event}: {host}:{port}: {why}");
    }
    event.to_string()
}

/// Who we are and whom we trust; an error is a sentence without a secret in it.
fn options(plan: &NatsServer) -> Result<ConnectOptions, String> {
    let mut options = ConnectOptions::new();
    options = match &plan.who {
        NatsCredentials::Anybody => match user(&plan.url) {
            Some((user, password)) => options.user_and_password(user, password),
            None => options,
        },
        // The client wants the end of the last line, which a value from elsewhere has lost.
        NatsCredentials::Creds(text) => options
            .credentials(&format!("{text}\n"))
            .map_err(|_| "`creds` is not what a .creds file holds: a JWT and a seed, each between its two lines")?,
        NatsCredentials::Nkey(seed) => options.nkey(seed.clone()),
        NatsCredentials::Token(token) => options.token(token.clone()),
        NatsCredentials::User(user, password) => options.user_and_password(user.clone(), password.clone()),
    };
    if let Some(ca) = &plan.ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &plan.certificate {
        options = options.add_client_certificate(certificate.clone(), key.clone()).require_tls(true);
    }
    Ok(options)
}

fn addresses(plan: &NatsServer) -> Result<Vec<ServerAddr>, String> {
    let no_url = |_| format!("`{}` is no URL of a NATS server", plan.shown);
    plan.url.split(',').map(|url| url.trim().parse().map_err(no_url)).collect()
}

/// The user and the password in a URL: the client itself does not look there.
fn user(url: &str) -> Option<(String, String)> {
    let url = reqwest::Url::parse(url.split(',').next()?.trim()).ok()?;
    let plain = |text: &str| {
        let bytes = text.replace('+', "%2B");
        let pairs = format!("x={bytes}");
        let found = reqwest::Url::parse(&format!("x:?{pairs}")).ok()?;
        found.query_pairs().next().map(|(_, value)| value.into_owned())
    };
    Some((plain(url.username()).filter(|user| !user.is_empty())?, plain(url.password()?)?))
}

/// The oldest server that works. Debian 12 has it.
const OLDEST: (u32, u32) = (2, 9);
/// The first server whose consumers filter by several subjects, and that can be told to sync before it acknowledges.
const SEVERAL_FILTERS: (u32, u32) = (2, 10);

/// What a server says of itself when a client connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NatsServerVersion(String);

impl NatsServerVersion {
    /// Of the server that this client is connected to.
    pub(crate) fn of(client: &Client) -> Self {
        Self(client.server_info().version)
    }

    /// A sentence, if it is older than the oldest that works.
    pub(crate) fn too_old(&self) -> Option<String> {
        let (major, minor) = OLDEST;
        self.before(OLDEST).then(|| format!("the server is nats-server {self}, and {major}.{minor} or newer is needed"))
    }

    /// A consumer can filter by more than one subject. An older server ignores such a filter and hands out everything.
    pub(crate) fn filters_by_several_subjects(&self) -> bool {
        !self.before(SEVERAL_FILTERS)
    }

    /// Its config knows `sync_interval: always`.
    pub(crate) fn can_sync_always(&self) -> bool {
        !self.before(SEVERAL_FILTERS)
    }

    /// A version that cannot be read is taken for a new one.
    fn before(&self, wanted: (u32, u32)) -> bool {
        let mut parts = self.0.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
        matches!((parts.next(), parts.next()), (Some(Some(major)), Some(Some(minor))) if (major, minor) < wanted)
    }
}

impl fmt::Display for NatsServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod version_tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let is = |text: &str| {
            let version = NatsServerVersion(text.to_owned());
            (version.too_old().is_some(), version.filters_by_several_subjects())
        };
        assert_eq!(is("2.8.4"), (true, false));
        assert_eq!(is("1.4.1"), (true, false));
        assert_eq!(is("2.9.10"), (false, false));
        assert_eq!(is("2.10.0-beta.1"), (false, true));
        assert_eq!(is("v2.15.1"), (false, true));
        assert_eq!(is("3.0.0"), (false, true));
        assert_eq!(is("devel"), (false, true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_longest() {
        let millis: Vec<_> = [1, 2, 3, 5, 6, 400].map(|tries| reconnect_delay(tries).as_millis()).into();
        assert_eq!(millis, [250, 500, 1000, 4000, 4000, 4000]);
    }

    #[test]
    fn a_user_in_the_url_counts() {
        assert_eq!(user("nats://u:p%40+x@h:1"), Some(("u".into(), "p@+x".into())));
        assert_eq!(user("nats://h:1"), None);
    }
}
