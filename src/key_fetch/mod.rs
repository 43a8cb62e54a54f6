//! Fetches the keys that senders publish, and keeps them: key sets of issuers, and certificates at pinned hosts.
//!
//! A key set is fetched when the node starts and again before it gets old; while its server does not answer, the last
//! one is kept. A delivery whose key is not at hand causes a fetch at most once a minute for each source, whoever sends
//! it. One fetch of a source runs at a time, and it goes on if the client that caused it hangs up. Redirects are not
//! followed, documents have a maximum size, and only public addresses are asked, unless the config allows others: as with
//! `forward`, a name is looked up once, and exactly the checked addresses are connected to.
//!
//! A certificate that has expired is not at hand. Nor is the key of a token whose signature no key made, unless the token
//! names one of a set that was fetched within that minute: its issuer may have replaced it.
//!
//! Forged deliveries can use up that one fetch. A key set is fetched whole, so a forged key id delays a new key by a
//! minute at most: the next fetch, whoever causes it, has all keys. Certificates are fetched one by one, so a flood of
//! invented URLs can keep a certificate that is not at hand yet from being fetched. Those at hand stay: only what the
//! pinned host has published is kept. Meanwhile the sender gets 503 and tries again.

use crate::action::ActionBuildError;
use crate::action::forward::ip_filter::{DnsResolver, FilteringResolver, ForbiddenAddressError, IpRange};
use crate::action::forward::{causes, root_cause};
use crate::decide::error_message::ErrorMessage;
use crate::decide::id::Digest;
use crate::decide::limits;
use crate::decide::time::{Duration, Timestamp};
use crate::decide::verify::{KeyDirectory, KeyDocument, KeyRequest, PublishedKey};
use crate::observe::log;
use reqwest::header::CACHE_CONTROL;
use reqwest::{Client, Response, redirect};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Where the keys of a source come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KeyOrigin {
    /// The key set at this URL.
    KeySet(String),
    /// The key set that the issuer's OpenID configuration names, under the same host.
    Issuer(String),
    /// Certificates that deliveries name, at this scheme and host.
    Certificates(String),
}

/// How keys are fetched.
#[derive(Clone, Default)]
pub(crate) struct KeyFetchWay {
    /// The proxy for outbound requests; it may have a password. It looks up names itself.
    pub(crate) proxy: Option<String>,
    /// The ranges of addresses that may be asked although they are not on the public internet.
    pub(crate) allow: Arc<[IpRange]>,
}

/// The published keys of one source, as far as they are at hand.
pub struct FetchedKeys {
    origin: KeyOrigin,
    way: KeyFetchWay,
    state: Mutex<KeyCache>,
    /// Held by the one fetch that runs.
    flight: Arc<tokio::sync::Mutex<()>>,
    /// How often the key set was asked for, successfully or not.
    attempts: watch::Sender<u64>,
}

#[derive(Clone, Default)]
struct KeyCache {
    set: Vec<Arc<PublishedKey>>,
    /// When the key set was learnt.
    learnt: Option<Instant>,
    /// Until when it need not be fetched again.
    fresh_until: Option<Instant>,
    certificates: HashMap<Arc<str>, CachedCertificate>,
    /// When a delivery last caused a fetch.
    asked: Option<Instant>,
    /// When a confirmation was last tried.
    confirming: Option<Instant>,
    /// The URLs that were confirmed, oldest first.
    confirmed: VecDeque<Digest>,
}

#[derive(Clone)]
struct CachedCertificate {
    key: Arc<PublishedKey>,
    learnt: Instant,
    used: Instant,
}

/// Why a document was not fetched, as a sentence.
struct KeyFetchError(String);

impl KeyOrigin {
    pub(crate) fn is_loopback(&self) -> bool {
        // The config accepts plain HTTP for this machine alone.
        let (Self::KeySet(url) | Self::Issuer(url) | Self::Certificates(url)) = self;
        url.starts_with("http://")
    }
}

impl FetchedKeys {
    pub(crate) fn new(origin: KeyOrigin, way: KeyFetchWay) -> Arc<Self> {
        Arc::new(Self { origin, way, state: Mutex::default(), flight: Arc::default(), attempts: watch::Sender::new(0) })
    }

    pub(crate) fn origin(&self) -> &KeyOrigin {
        &self.origin
    }

    /// Takes over what others have of the same origin: keys are not fetched again because the config was loaded again.
    pub(crate) fn inherit(&self, former: &Self) {
        if self.origin == former.origin {
            let known = former.state().clone();
            *self.state() = known;
            self.attempts.send_modify(|attempts| *attempts += *former.attempts.borrow());
        }
    }

    fn state(&self) -> MutexGuard<'_, KeyCache> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a key set as it was published. An error is a sentence.
    pub fn learn_key_set(&self, text: &[u8]) -> Result<(), String> {
        let set = PublishedKey::of_key_set(text)?.into_iter().map(Arc::new).collect();
        let mut state = self.state();
        (state.set, state.learnt) = (set, Some(Instant::now()));
        Ok(())
    }

    /// Takes over the certificate at this URL. An error is a sentence.
    pub fn learn_certificate(&self, url: &str, pem: &[u8]) -> Result<(), String> {
        let (key, now) = (Arc::new(PublishedKey::of_certificate(pem)?), Instant::now());
        let mut state = self.state();
        if state.certificates.len() >= limits::CERTIFICATES_MAX
            && !state.certificates.contains_key(url)
            && let Some(oldest) =
                state.certificates.iter().min_by_key(|(_, known)| known.used).map(|(url, _)| url.clone())
        {
            state.certificates.remove(&oldest);
        }
        state.certificates.insert(url.into(), CachedCertificate { key, learnt: now, used: now });
        Ok(())
    }

    /// When this document was learnt last.
    fn learnt(&self, document: &KeyDocument) -> Option<Instant> {
        let state = self.state();
        match document {
            KeyDocument::KeySet => state.learnt,
            KeyDocument::Certificate(url) => state.certificates.get(url).map(|known| known.learnt),
        }
    }

    /// Whether a delivery may cause a fetch now; it then has.
    fn may_fetch(&self) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let may = state.asked.is_none_or(|asked| now.duration_since(asked) >= limits::UNKNOWN_KEY_EVERY);
        if may {
            state.asked = Some(now);
        }
        may
    }
}

impl KeyDirectory for FetchedKeys {
    fn find(&self, request: &KeyRequest, now: Timestamp) -> Vec<Arc<PublishedKey>> {
        let mut state = self.state();
        match (&request.document, &request.id) {
            (KeyDocument::Certificate(url), _) => {
                let valid = state.certificates.get_mut(url).filter(|known| known.key.is_valid(now));
                let Some(known) = valid else { return Vec::new() };
                known.used = Instant::now();
                vec![known.key.clone()]
            }
            (KeyDocument::KeySet, Some(id)) => {
                // An issuer may publish all its keys without ids.
                let anonymous = state.set.iter().all(|key| key.id.is_none());
                let meant = |key: &&Arc<PublishedKey>| anonymous || key.id.as_ref() == Some(id);
                state.set.iter().filter(meant).cloned().collect()
            }
            (KeyDocument::KeySet, None) => state.set.clone(),
        }
    }

    fn may_have_changed(&self) -> bool {
        let learnt = self.learnt(&KeyDocument::KeySet);
        learnt.is_none_or(|learnt| learnt.elapsed() >= limits::UNKNOWN_KEY_EVERY)
    }

    fn address(&self, document: &KeyDocument) -> String {
        match (document, &self.origin) {
            (KeyDocument::Certificate(url), _) => url.to_string(),
            (KeyDocument::KeySet, KeyOrigin::KeySet(url) | KeyOrigin::Issuer(url)) => url.clone(),
            (KeyDocument::KeySet, KeyOrigin::Certificates(_)) => String::new(),
        }
    }
}

impl fmt::Debug for FetchedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FetchedKeys({:?})", self.origin)
    }
}

/// Fetches the keys of one source.
#[derive(Clone)]
pub(crate) struct KeyFetcher {
    source: Arc<str>,
    keys: Arc<FetchedKeys>,
    http: Client,
}

impl KeyFetcher {
    pub(crate) fn new(
        source: Arc<str>,
        keys: Arc<FetchedKeys>,
        resolver: &DnsResolver,
    ) -> Result<Self, ActionBuildError> {
        let cannot = |error: reqwest::Error| {
            let why = format!("cannot fetch the keys of the source {source}: {}", root_cause(&error));
            ActionBuildError(ErrorMessage::from(why).caused_by(error))
        };
        let mut builder = Client::builder()
            .user_agent(concat!("hookonce/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .no_proxy()
            .https_only(!keys.origin.is_loopback())
            .connect_timeout(limits::KEY_FETCH_TIME)
            .timeout(limits::KEY_FETCH_TIME);
        if let Some(proxy) = &keys.way.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(cannot)?);
        } else if !keys.origin.is_loopback() {
            // Whoever controls the name of a sender's host must not be able to make a node ask a machine of its network.
            let allow = keys.way.allow.clone();
            builder = builder.dns_resolver(Arc::new(FilteringResolver { resolver: resolver.clone(), allow }));
        }
        // Plain HTTP must work on a machine without CA certificates.
        let built = if keys.origin.is_loopback() { builder.tls_certs_only([]).build() } else { builder.build() };
        let http = built.map_err(cannot)?;
        Ok(Self { source, keys, http })
    }

    /// Keeps the key set up to date until the node stops, or is configured anew.
    pub(crate) async fn run(self, draining: CancellationToken) {
        let origin = self.keys.origin.clone();
        if matches!(origin, KeyOrigin::Certificates(_)) {
            return;
        }
        let mut retry = limits::KEY_RETRY_FIRST;
        let fresh = self.keys.state().fresh_until.unwrap_or_else(Instant::now);
        if draining.run_until_cancelled(tokio::time::sleep_until(fresh)).await.is_none() {
            return;
        }
        loop {
            let wait = if let Some(age) = self.refresh().await {
                retry = limits::KEY_RETRY_FIRST;
                age
            } else {
                let wait = retry;
                retry = (retry * 2).min(limits::KEY_RETRY_LONGEST);
                wait
            };
            if draining.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Makes sure that a key which a delivery needs is at hand, if it can be: waits for a fetch that runs, or fetches if
    /// that is allowed again.
    pub(crate) async fn obtain(&self, request: &KeyRequest, now: Timestamp) -> bool {
        tokio::time::timeout(limits::KEY_WAIT, self.look_or_fetch(request, now)).await.unwrap_or(false)
    }

    async fn look_or_fetch(&self, request: &KeyRequest, now: Timestamp) -> bool {
        let asked = Instant::now();
        let at_hand = || !self.keys.find(request, now).is_empty();
        if request.document == KeyDocument::KeySet {
            // The first fetch is the node's own; after that, what fails is tried again without a delivery.
            let mut attempts = self.keys.attempts.subscribe();
            if attempts.wait_for(|attempts| *attempts > 0).await.is_err() {
                return false;
            }
        }
        let flight = self.keys.flight.clone().lock_owned().await;
        // What was at hand did not do. Another delivery may have had it fetched since.
        if self.keys.learnt(&request.document).is_some_and(|learnt| learnt > asked) {
            return at_hand();
        }
        let loaded = request.document != KeyDocument::KeySet || !self.keys.state().set.is_empty();
        if !loaded || !self.keys.may_fetch() {
            return at_hand();
        }
        // On a task of its own: if a client that hangs up could end it, forged deliveries would use up every fetch.
        let (fetcher, document) = (self.clone(), request.document.clone());
        let fetch = tokio::spawn(async move {
            let _one = flight;
            match &document {
                KeyDocument::KeySet => drop(fetcher.fetch_set().await),
                KeyDocument::Certificate(url) => fetcher.fetch_certificate(url).await,
            }
        });
        fetch.await.is_ok() && at_hand()
    }

    /// Visits a URL of a verified delivery, which the scheme has found to be under the pinned host; each once, unless
    /// that failed.
    pub(crate) async fn confirm(&self, url: &str) -> bool {
        let digest = Digest::of(url.as_bytes());
        {
            let (mut state, now) = (self.keys.state(), Instant::now());
            if state.confirmed.contains(&digest) {
                return true;
            }
            if state.confirming.is_some_and(|last| now.duration_since(last) < limits::CONFIRMATION_EVERY) {
                return false;
            }
            state.confirming = Some(now);
        }
        let visited = self.get(url).await;
        self.report(url, visited.as_ref().err());
        if visited.is_ok() {
            let mut state = self.keys.state();
            state.confirmed.push_back(digest);
            if state.confirmed.len() > limits::CONFIRMATIONS_MAX {
                state.confirmed.pop_front();
            }
        }
        visited.is_ok()
    }

    async fn refresh(&self) -> Option<Duration> {
        let _one = self.keys.flight.lock().await;
        self.fetch_set().await
    }

    /// Fetches the key set; how long it can be used, or `None` if it could not be fetched.
    async fn fetch_set(&self) -> Option<Duration> {
        let address = self.keys.address(&KeyDocument::KeySet);
        let fetched = async {
            let url = match &self.keys.origin {
                KeyOrigin::Issuer(issuer) => self.discover(issuer).await?,
                _ => address.clone(),
            };
            let (text, age) = self.get(&url).await?;
            self.keys.learn_key_set(&text).map_err(KeyFetchError)?;
            Ok(age)
        };
        let fetched = fetched.await;
        self.report(&address, fetched.as_ref().err());
        self.keys.attempts.send_modify(|attempts| *attempts += 1);
        if let Ok(age) = &fetched {
            self.keys.state().fresh_until = Some(Instant::now() + *age);
        }
        fetched.ok()
    }

    async fn fetch_certificate(&self, url: &str) {
        let fetched = self.get(url).await;
        let learnt = fetched.and_then(|(pem, _)| self.keys.learn_certificate(url, &pem).map_err(KeyFetchError));
        self.report(url, learnt.err().as_ref());
    }

    /// The URL of the issuer's key set, which must be under its own host.
    async fn discover(&self, issuer: &str) -> Result<String, KeyFetchError> {
        let base = issuer.trim_end_matches('/');
        let (text, _) = self.get(&format!("{base}/.well-known/openid-configuration")).await?;
        let wrong = |what: &str| KeyFetchError(format!("its OpenID configuration {what}"));
        let found: serde_json::Value = serde_json::from_slice(&text).map_err(|_| wrong("is not JSON"))?;
        let member = |name: &str| found.get(name).and_then(serde_json::Value::as_str);
        if member("issuer") != Some(issuer) {
            return Err(wrong("is of another issuer"));
        }
        let url = member("jwks_uri").ok_or_else(|| wrong("names no keys"))?;
        let parsed = |text: &str| reqwest::Url::parse(text).map(|url| url.origin());
        match (parsed(issuer), parsed(url)) {
            (Ok(own), Ok(of_keys)) if own == of_keys => Ok(url.to_owned()),
            _ => Err(wrong("names keys of another host; set `keys`")),
        }
    }

    async fn get(&self, url: &str) -> Result<(Vec<u8>, Duration), KeyFetchError> {
        let failed = |error: reqwest::Error| {
            let forbidden = causes(&error).find_map(|cause| cause.downcast_ref::<ForbiddenAddressError>());
            let why = forbidden.map(|forbidden| {
                format!("{}, and no public address; allow_keys_from permits it, if this is intended", forbidden.why())
            });
            KeyFetchError(why.unwrap_or_else(|| root_cause(&error)))
        };
        let mut response = self.http.get(url).send().await.map_err(failed)?;
        if response.status().as_u16() != 200 {
            return Err(KeyFetchError(format!("it responded with {}", response.status().as_u16())));
        }
        let age = max_age(&response).clamp(limits::KEY_AGE_MIN, limits::KEY_AGE_MAX);
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > limits::KEY_DOCUMENT_BYTES_MAX {
                let most = limits::KEY_DOCUMENT_BYTES_MAX;
                return Err(KeyFetchError(format!("its document is longer than {most} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        // Fetched again before it gets old.
        Ok((body, age * 9 / 10))
    }

    fn report(&self, address: &str, error: Option<&KeyFetchError>) {
        let Some(KeyFetchError(why)) = error else { return };
        let address = address.split('?').next().unwrap_or_default();
        let why = format!("{address}: {why}");
        let source = &*self.source;
        log::rate_limited("keys", &why, |times| warn!(target: "hookonce", source, why = &*why, times, "keys"));
    }
}

/// How long a response says that it may be used; at least a moment.
fn max_age(response: &Response) -> Duration {
    let header = response.headers().get(CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let header = header.to_ascii_lowercase();
    let seconds = header.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok());
    seconds.map_or(limits::KEY_AGE_MIN, Duration::from_secs)
}

#[cfg(test)]
mod tests;
