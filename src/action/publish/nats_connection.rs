//! Connections to NATS, one per server: opened on first use, kept, and reopened when they break.
//!
//! Callers wait for [`NatsConnection::connected`] before they send. Otherwise the client would queue the request and
//! send it after a reconnect, long after the caller has given up.

use crate::action::ActionBuildError;
use crate::action::plan::{NatsCredentials, NatsServer};
use crate::decide::time::Duration;
use crate::observe::log;
use async_nats::client::{Request, RequestError, RequestErrorKind};
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, watch};
use tokio::time::timeout;
use tracing::{info, warn};

/// Connect timeout: DNS, TCP, TLS and authentication.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Timeout of a TCP probe.
const REACH_TIME: Duration = Duration::from_secs(2);
/// Maximum reconnect delay; it starts at a sixteenth of this and doubles.
const RECONNECT_LONGEST: Duration = Duration::from_secs(4);
/// Interval of keep-alive pings.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Capacity of a subscription: more messages than one pull ever requests.
const SUBSCRIPTION_MAX: usize = 4096;

/// Every connection of this node that something uses: one that nothing uses any more is closed.
#[derive(Clone, Default)]
pub struct NatsConnections(Arc<Mutex<HashMap<NatsServer, Weak<NatsConnection>>>>);

impl fmt::Debug for NatsConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "Servers({count})")
    }
}

impl NatsConnections {
    /// The shared connection to this server; does not connect yet.
    pub fn connection(&self, plan: &NatsServer) -> Result<Arc<NatsConnection>, ActionBuildError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, connection| connection.strong_count() > 0);
        if let Some(known) = all.get(plan).and_then(Weak::upgrade) {
            return Ok(known);
        }
        options(plan).map_err(|why| ActionBuildError(why.into()))?;
        addresses(plan).map_err(|why| ActionBuildError(why.into()))?;
        let made = Arc::new(NatsConnection {
            plan: plan.clone(),
            news: Arc::new(watch::Sender::new(())),
            breaks: Arc::new(watch::Sender::new(0)),
            client: OnceCell::new(),
            trouble: Arc::default(),
            told: AtomicBool::new(false),
        });
        all.insert(plan.clone(), Arc::downgrade(&made));
        Ok(made)
    }
}

/// One connection.
pub struct NatsConnection {
    plan: NatsServer,
    /// Signals a change of the connection.
    news: Arc<watch::Sender<()>>,
    /// How often it broke.
    breaks: Arc<watch::Sender<u64>>,
    client: OnceCell<Client>,
    /// Why it is not connected, if known.
    trouble: Arc<Mutex<Option<String>>>,
    told: AtomicBool,
}

impl NatsConnection {
    /// The server's URL for messages.
    pub fn shown(&self) -> &str {
        &self.plan.shown
    }

    /// The connected client; waits at most this long. On error nothing was sent.
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

    /// Waits until the connection breaks after this call, not after the first poll.
    pub fn disconnected(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut breaks = self.breaks.subscribe();
        // The sender is dropped only when the node stops.
        async move { breaks.changed().await.unwrap_or_default() }
    }

    /// Whether this is the first report about the server.
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

/// Sends a request without responders: when the server reports that, it has received everything sent before.
pub(crate) async fn round_trip(client: &Client) -> Result<(), RequestError> {
    match client.send_request(client.new_inbox(), Request::new().timeout(None)).await {
        Err(error) if error.kind() != RequestErrorKind::NoResponders => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The delay before the next reconnect.
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

/// A client event in words. The client does not say why it cannot connect, so the server's address is probed.
async fn describe_event(event: &Event, places: &[(String, u16)]) -> String {
    let Event::ClientError(_) = event else { return event.to_string() };
    for (host, port) in places {
        let why = match timeout(REACH_TIME, TcpStream::connect((host.as_str(), *port))).await {
            Ok(Ok(_)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not respond".into(),
        };
        return format!("{event}: {host}:{port}: {why}");
    }
    event.to_string()
}

/// The options for credentials and TLS; an error contains no secret.
fn options(plan: &NatsServer) -> Result<ConnectOptions, String> {
    let mut options = ConnectOptions::new();
    options = match &plan.who {
        NatsCredentials::Anybody => match user(&plan.url) {
            Some((user, password)) => options.user_and_password(user, password),
            None => options,
        },
        // The client needs the trailing newline, which an external value has lost.
        NatsCredentials::Creds(text) => options.credentials(&format!("{text}\n")).map_err(
            |_| "`creds` is not the content of a .creds file: a JWT and a seed, each between its marker lines",
        )?,
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
    let no_url = |_| format!("`{}` is not the URL of a NATS server", plan.shown);
    plan.url.split(',').map(|url| url.trim().parse().map_err(no_url)).collect()
}

/// The user and password in a URL, which the client ignores.
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

/// The oldest supported server version (Debian 12).
const OLDEST: (u32, u32) = (2, 9);
/// The first server version with several filter subjects per consumer, and with `sync_interval: always`.
const SEVERAL_FILTERS: (u32, u32) = (2, 10);

/// A server's version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NatsServerVersion(String);

impl NatsServerVersion {
    /// The version of the server that this client is connected to.
    pub(crate) fn of(client: &Client) -> Self {
        Self(client.server_info().version)
    }

    /// An error text, if the server is too old.
    pub(crate) fn too_old(&self) -> Option<String> {
        let (major, minor) = OLDEST;
        self.before(OLDEST)
            .then(|| format!("the server is nats-server {self}, but {major}.{minor} or newer is required"))
    }

    /// Whether a consumer can filter by several subjects. An older server ignores the filter and delivers everything.
    pub(crate) fn filters_by_several_subjects(&self) -> bool {
        !self.before(SEVERAL_FILTERS)
    }

    /// Whether its config supports `sync_interval: always`.
    pub(crate) fn can_sync_always(&self) -> bool {
        !self.before(SEVERAL_FILTERS)
    }

    /// An unparsable version counts as new.
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
