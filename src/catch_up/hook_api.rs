//! The client of a sender's API: lists the attempts of a hook, and asks for one of them again.
//!
//! It follows no redirect and uses no proxy, so that the credentials reach the configured host alone. The next page is
//! taken from the `Link` header only as a position; its URL is made here.

use super::attempt_list;
use super::catch_up_plan::{CatchUpPlan, HookApiCredentials, SenderHook};
use super::error::{HookApiError, HookApiFailure};
use crate::action::forward::receiver_response::retry_after;
use crate::action::forward::root_cause;
use crate::action::{ActionBuildError, LiveCheck};
use crate::decide::catch_up::ListedPage;
use crate::decide::error_message::ErrorMessage;
use crate::decide::limits::{CATCH_UP_PAGE_BYTES_MAX, CATCH_UP_REQUEST_TIME, CATCH_UP_TEXT_BYTES_MAX};
use crate::decide::source::Source;
use crate::decide::time::{Duration, Timestamp, duration_text};
use crate::store::clock::StoreClock;
use reqwest::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, LINK};
use reqwest::{Client, Method, RequestBuilder, Response, Url, redirect};
use std::sync::Arc;

/// Connect timeout: DNS, TCP and TLS.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Attempts on one page of a list without bodies.
const PER_PAGE: u32 = 100;
/// Attempts on one page of a list with bodies.
const PER_PAGE_WITH_BODIES: u32 = 20;

/// The API of one source's sender.
#[derive(Clone)]
pub(crate) struct HookApi {
    plan: CatchUpPlan,
    source: Arc<Source>,
    http: Client,
}

/// What an API has to say about its list.
pub(crate) enum HookListing {
    /// A page of it.
    Page(ListedPage),
    /// It is as it was.
    Unchanged,
}

impl HookApi {
    pub(crate) fn new(plan: CatchUpPlan, source: Arc<Source>) -> Result<Self, ActionBuildError> {
        let builder = || {
            Client::builder()
                .user_agent(concat!("hookonce/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .no_proxy()
                .tcp_nodelay(true)
                .connect_timeout(CONNECT_TIME)
        };
        let http = match builder().build() {
            // Plain HTTP must work on a machine without CA certificates.
            Err(_) if plan.api.starts_with("http://") => builder().tls_certs_only([]).build(),
            built => built,
        };
        let http = http.map_err(|error| {
            let why = format!("cannot ask {}: {}", plan.api, root_cause(&error));
            ActionBuildError(ErrorMessage::from(why).caused_by(error))
        })?;
        Ok(Self { plan, source, http })
    }

    pub(crate) fn plan(&self) -> &CatchUpPlan {
        &self.plan
    }

    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// A page of the hook's attempts, the newest first. `now` is the wall clock's time.
    pub(crate) async fn list(
        &self,
        cursor: Option<&str>,
        etag: Option<&str>,
        now: Timestamp,
    ) -> Result<HookListing, HookApiError> {
        let mut url = self.url(&[])?;
        let (position, per_page) = match self.plan.hook {
            SenderHook::Project { .. } => ("page", PER_PAGE_WITH_BODIES),
            _ => ("cursor", PER_PAGE),
        };
        url.query_pairs_mut().append_pair("per_page", &per_page.to_string());
        if let Some(cursor) = cursor {
            url.query_pairs_mut().append_pair(position, cursor);
        }
        let mut request = self.request(Method::GET, url, now)?;
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        self.limited(async {
            let response = request.send().await.map_err(|error| unavailable(&error))?;
            if response.status().as_u16() == 304 {
                return Ok(HookListing::Unchanged);
            }
            self.check_status(
                &response,
                if cursor.is_some() { RequestSubject::Position } else { RequestSubject::Hook },
                now,
            )?;
            let next = next_position(response.headers(), position);
            let etag = header(response.headers(), ETAG.as_str()).map(str::to_owned);
            let body = read_body(response).await?;
            let attempts = attempt_list::parse(&self.plan.hook, &self.source, &body)?;
            Ok(HookListing::Page(ListedPage { attempts, next, etag }))
        })
        .await
    }

    /// Reads the first page of the list, to check that the API answers with these credentials.
    pub(crate) async fn check(self) -> LiveCheck {
        let now = StoreClock::wall(Timestamp::default()).wall_time();
        let found = self.list(None, None, now).await.map(|_| "lists its deliveries".to_owned());
        LiveCheck::new("catch_up", self.plan.hook.to_string(), found.map_err(|error| (error.why, String::new())))
    }

    /// Asks for one attempt again.
    pub(crate) async fn redeliver(&self, attempt: u64, now: Timestamp) -> Result<(), HookApiError> {
        let url = self.url(&[&attempt.to_string(), self.plan.hook.again()])?;
        let request = self.request(Method::POST, url, now)?;
        self.limited(async {
            let response = request.send().await.map_err(|error| unavailable(&error))?;
            self.check_status(&response, RequestSubject::Attempt, now)
        })
        .await
    }

    async fn limited<T>(&self, asked: impl Future<Output = Result<T, HookApiError>>) -> Result<T, HookApiError> {
        let late = || {
            let why = format!("no answer within {}", duration_text(CATCH_UP_REQUEST_TIME));
            Err(HookApiError::new(HookApiFailure::Unavailable { retry_after: None }, why))
        };
        tokio::time::timeout(CATCH_UP_REQUEST_TIME, asked).await.unwrap_or_else(|_| late())
    }

    /// The URL of the hook's attempts, with these further parts.
    fn url(&self, further: &[&str]) -> Result<Url, HookApiError> {
        let invalid = || HookApiError::malformed("its URL is invalid");
        let mut url = Url::parse(&self.plan.api).map_err(|_| invalid())?;
        let parts = self.plan.hook.attempts_path();
        url.path_segments_mut().map_err(|()| invalid())?.pop_if_empty().extend(parts).extend(further);
        Ok(url)
    }

    fn request(&self, method: Method, url: Url, now: Timestamp) -> Result<RequestBuilder, HookApiError> {
        let unusable = |why: &str| HookApiError::new(HookApiFailure::Denied, why);
        let token = match &self.plan.credentials {
            HookApiCredentials::Token(token) => token.0.clone(),
            HookApiCredentials::App(key) => {
                key.token(now).ok_or_else(|| unusable("the App's private key signs nothing"))?
            }
            HookApiCredentials::Unknown => return Err(unusable("the credentials are not known")),
        };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| unusable("the token has a character that no header may have"))?;
        value.set_sensitive(true);
        let request = self.http.request(method, url).header(AUTHORIZATION, value);
        Ok(match self.plan.hook {
            SenderHook::Project { .. } => request.header(ACCEPT, "application/json"),
            _ => request.header(ACCEPT, "application/vnd.github+json").header("x-github-api-version", "2022-11-28"),
        })
    }

    fn check_status(&self, response: &Response, subject: RequestSubject, now: Timestamp) -> Result<(), HookApiError> {
        let status = response.status().as_u16();
        let why = format!("it responded with {status}");
        let fail = |kind, why: String| Err(HookApiError::new(kind, why));
        match status {
            200..=299 => Ok(()),
            // GitHub reports too many requests as 403, too.
            403 | 429 if status == 429 || is_rate_limited(response.headers()) => {
                let retry_after = wait_until_allowed(response.headers(), now);
                fail(HookApiFailure::Unavailable { retry_after }, format!("{why}: too many requests"))
            }
            401 | 403 => {
                fail(HookApiFailure::Denied, format!("{why}: may the token read and redeliver {}?", self.plan.hook))
            }
            408 | 425 | 500..=599 => {
                fail(HookApiFailure::Unavailable { retry_after: retry_after(response.headers()) }, why)
            }
            300..=399 => fail(HookApiFailure::Denied, format!("{why}, a redirect; was {} renamed?", self.plan.hook)),
            404 if subject == RequestSubject::Hook => {
                fail(HookApiFailure::Denied, format!("{why}: is there {}, and may the token see it?", self.plan.hook))
            }
            _ if subject == RequestSubject::Hook => fail(HookApiFailure::Malformed, why),
            _ => fail(HookApiFailure::Refused, why),
        }
    }
}

/// What a request is about, and so what an error means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestSubject {
    Hook,
    Position,
    Attempt,
}

/// The error of a request without a response; without the URL.
fn unavailable(error: &reqwest::Error) -> HookApiError {
    let what = if error.is_connect() { "it cannot be connected to" } else { "it did not answer" };
    HookApiError::new(HookApiFailure::Unavailable { retry_after: None }, format!("{what}: {}", root_cause(error)))
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok().map(str::trim).filter(|text| text.len() <= CATCH_UP_TEXT_BYTES_MAX)
}

fn is_rate_limited(headers: &HeaderMap) -> bool {
    headers.contains_key("retry-after") || header(headers, "x-ratelimit-remaining") == Some("0")
}

/// How long to wait: as `Retry-After` says, else until the limit is reset.
fn wait_until_allowed(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let reset = || {
        let second: i64 = header(headers, "x-ratelimit-reset")?.parse().ok()?;
        Some(Timestamp(second.saturating_mul(1_000_000)).since(now))
    };
    retry_after(headers).or_else(reset)
}

/// The position of the next page: this parameter of the URL that the `Link` header names as next.
fn next_position(headers: &HeaderMap, parameter: &str) -> Option<String> {
    // A link contains URLs, so it may be longer than other headers.
    let links = headers.get(LINK)?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    let url = Url::parse(next.split_once('<')?.1.split_once('>')?.0).ok()?;
    let (_, value) = url.query_pairs().find(|(name, _)| name == parameter)?;
    Some(value.into_owned()).filter(|text| !text.is_empty() && text.len() <= CATCH_UP_TEXT_BYTES_MAX)
}

/// Reads a body up to the limit.
async fn read_body(mut response: Response) -> Result<Vec<u8>, HookApiError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unavailable(&error))? {
        if chunk.len() > CATCH_UP_PAGE_BYTES_MAX - body.len() {
            return Err(HookApiError::malformed(format!(
                "its response is longer than {CATCH_UP_PAGE_BYTES_MAX} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
