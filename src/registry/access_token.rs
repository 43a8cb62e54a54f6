//! Access tokens: a registry that answers 401 names a server, which gives a token for one image.
//!
//! Credentials are sent to the registry's own host, or to the server that it names, over HTTPS. Where the registry is
//! configured without TLS, what it says may come from anyone, so that its token server must be on the same host.

use super::credentials::{self, RegistryCredentials, RegistryLogin};
use super::error::{LookupError, LookupFailure};
use super::{RegistryClient, malformed, read_body, unavailable};
use crate::action::forward::receiver_response::retry_after;
use crate::decide::auth_challenge::{AuthChallenge, parse_challenges};
use crate::decide::image_reference::ImageName;
use crate::decide::limits::{REGISTRY_TOKEN_AGE_MAX, REGISTRY_TOKEN_BYTES_MAX, REGISTRY_TOKENS_MAX};
use crate::decide::registry_address::RegistryTransport;
use crate::decide::time::Duration;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, Url};
use serde::Deserialize;
use std::collections::HashMap;
use tokio::time::Instant;

/// How long a token lasts if its server does not say.
const TOKEN_AGE: Duration = Duration::from_mins(1);
/// How long before its end a token is no longer used.
const TOKEN_MARGIN: Duration = Duration::from_secs(10);

/// The authorizations that a registry has accepted, each for one image.
#[derive(Default)]
pub(super) struct AuthorizationCache(HashMap<ImageName, CachedAuthorization>);

struct CachedAuthorization {
    header: HeaderValue,
    until: Instant,
}

impl AuthorizationCache {
    /// The authorization for an image, unless it has expired.
    pub(super) fn get(&self, image: &ImageName, now: Instant) -> Option<HeaderValue> {
        self.0.get(image).filter(|cached| now < cached.until).map(|cached| cached.header.clone())
    }

    pub(super) fn insert(&mut self, image: ImageName, header: HeaderValue, now: Instant, age: Duration) {
        self.0.retain(|_, cached| now < cached.until);
        if self.0.len() >= REGISTRY_TOKENS_MAX
            && let Some(first) = self.0.iter().min_by_key(|(_, cached)| cached.until).map(|(image, _)| image.clone())
        {
            self.0.remove(&first);
        }
        let until = now + age.min(REGISTRY_TOKEN_AGE_MAX).saturating_sub(TOKEN_MARGIN);
        self.0.insert(image, CachedAuthorization { header, until });
    }

    pub(super) fn remove(&mut self, image: &ImageName) {
        self.0.remove(image);
    }
}

/// An authorization, and how long it can be used.
pub(super) struct Authorization {
    pub(super) header: HeaderValue,
    pub(super) age: Duration,
}

/// The response of a token server.
#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
    expires_in: Option<u64>,
}

impl RegistryClient {
    /// Gets an authorization as the headers of a 401 ask for it. Without an image: only to see whether the credentials
    /// are accepted.
    pub(super) async fn authorize(
        &self,
        headers: &HeaderMap,
        image: Option<&ImageName>,
    ) -> Result<Authorization, LookupError> {
        let login = self.access.credentials.login(&self.access.address).await?;
        let long = |header| Authorization { header, age: REGISTRY_TOKEN_AGE_MAX };
        let unfit = || LookupError::new(LookupFailure::Credentials, "the credentials cannot be sent in a header");
        if let RegistryLogin::RegistryToken(token) = &login {
            return credentials::bearer(&token.0).map(long).ok_or_else(unfit);
        }
        let challenges = challenges(headers)?;
        let bearer = challenges.iter().find_map(|challenge| match challenge {
            AuthChallenge::Bearer { realm, service } => Some((realm, service.as_deref())),
            AuthChallenge::Basic | AuthChallenge::Other => None,
        });
        if let Some((realm, service)) = bearer {
            return self.token(realm, service, &login, image).await;
        }
        match login {
            RegistryLogin::Password(user, password) if challenges.contains(&AuthChallenge::Basic) => {
                credentials::basic(&user, &password).map(long).ok_or_else(unfit)
            }
            _ if challenges.contains(&AuthChallenge::Basic) => Err(self.denied("it wants a user and a password (401)")),
            _ => Err(malformed("it responded with 401 and offers no known way to authenticate")),
        }
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        login: &RegistryLogin,
        image: Option<&ImageName>,
    ) -> Result<Authorization, LookupError> {
        let realm = self.realm(realm)?;
        let host = realm.host_str().unwrap_or_default().to_owned();
        let response = self.token_request(realm, service, login, image).send().await;
        let response = response.map_err(|error| unavailable(&format!("its token server {host}"), &error))?;
        self.check_token_status(&response, &host)?;
        let body = read_body(response, REGISTRY_TOKEN_BYTES_MAX).await?;
        let answer = serde_json::from_slice(&body).ok().and_then(|answer: TokenResponse| {
            let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
            let header = credentials::bearer(Some(token).filter(|token| !token.is_empty())?.as_str())?;
            Some(Authorization { header, age: answer.expires_in.map_or(TOKEN_AGE, Duration::from_secs) })
        });
        answer.ok_or_else(|| malformed(&format!("its token server {host} gave no token")))
    }

    /// The URL of a token server, if it may be asked.
    fn realm(&self, realm: &str) -> Result<Url, LookupError> {
        let address = &self.access.address;
        let url = Url::parse(realm).map_err(|_| malformed("the URL of its token server is invalid"))?;
        let same_host = url.host_str().is_some_and(|host| host.eq_ignore_ascii_case(address.host()));
        let allowed = match (url.scheme(), address.transport()) {
            ("https", RegistryTransport::Tls) => true,
            ("https" | "http", RegistryTransport::Plain) => same_host,
            _ => false,
        };
        if !allowed || !url.username().is_empty() || url.password().is_some() || url.host_str().is_none() {
            let host = url.host_str().unwrap_or_default();
            return Err(malformed(&match address.transport() {
                RegistryTransport::Tls => format!("its token server {host} is not reached by https"),
                RegistryTransport::Plain => {
                    format!("its token server {host} is on another host, and the registry is reached without TLS")
                }
            }));
        }
        Ok(url)
    }

    /// The request for a token that may only pull this image.
    fn token_request(
        &self,
        mut realm: Url,
        service: Option<&str>,
        login: &RegistryLogin,
        image: Option<&ImageName>,
    ) -> RequestBuilder {
        let scope = image.map(|image| format!("repository:{image}:pull"));
        let service = service.map(|service| ("service", service));
        let asked = service.into_iter().chain(scope.as_deref().map(|scope| ("scope", scope)));
        if let RegistryLogin::IdentityToken(token) = login {
            let fixed = [("grant_type", "refresh_token"), ("client_id", "hookonce"), ("refresh_token", &*token.0)];
            let mut form = realm.clone();
            form.query_pairs_mut().clear().extend_pairs(fixed.into_iter().chain(asked));
            let body = form.query().unwrap_or_default().to_owned();
            return self.http.post(realm).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        }
        realm.query_pairs_mut().extend_pairs(asked);
        let request = self.http.get(realm);
        match login {
            RegistryLogin::Password(user, password) => match credentials::basic(user, password) {
                Some(header) => request.header(AUTHORIZATION, header),
                None => request,
            },
            _ => request,
        }
    }

    fn check_token_status(&self, response: &Response, host: &str) -> Result<(), LookupError> {
        let status = response.status().as_u16();
        let why = format!("its token server {host} responded with {status}");
        let retry_after = retry_after(response.headers());
        match status {
            200..=299 => Ok(()),
            429 => Err(LookupError::new(LookupFailure::RateLimited { retry_after }, why)),
            408 | 425 | 500..=599 => Err(LookupError::new(LookupFailure::Unavailable { retry_after }, why)),
            400..=499 => Err(self.denied(&why)),
            _ => Err(malformed(&why)),
        }
    }

    /// The error for refused credentials.
    pub(super) fn denied(&self, why: &str) -> LookupError {
        let super::RegistryAccess { address, credentials } = &self.access;
        LookupError::new(LookupFailure::Denied, format!("{why}; {}", credentials.advice(address)))
    }

    /// Whether there are credentials.
    pub(super) fn has_credentials(&self) -> bool {
        self.access.credentials != RegistryCredentials::Anonymous
    }
}

/// All challenges of a response.
fn challenges(headers: &HeaderMap) -> Result<Vec<AuthChallenge>, LookupError> {
    let mut all = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        let text = value.to_str().map_err(|_| malformed("`WWW-Authenticate` is not text"))?;
        all.extend(parse_challenges(text).map_err(|error| malformed(&error.to_string()))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_forgets_what_has_expired_and_never_grows_beyond_its_limit() {
        let now = Instant::now();
        let image = |n: usize| ImageName::parse(&format!("o/app{n}")).unwrap();
        let mut cache = AuthorizationCache::default();
        for n in 0..REGISTRY_TOKENS_MAX + 10 {
            let age = Duration::from_secs(60 + u64::try_from(n).unwrap());
            cache.insert(image(n), HeaderValue::from_static("x"), now, age);
        }
        assert_eq!(cache.0.len(), REGISTRY_TOKENS_MAX);
        assert!(
            cache.get(&image(0), now).is_none() && cache.get(&image(10), now).is_some(),
            "the first to expire is dropped"
        );
        let last = image(REGISTRY_TOKENS_MAX + 9);
        assert!(cache.get(&last, now + Duration::from_mins(5)).is_some());
        assert!(cache.get(&last, now + Duration::from_mins(6)).is_none(), "it has expired");
        cache.insert(image(0), HeaderValue::from_static("x"), now, Duration::from_hours(1000));
        assert!(cache.get(&image(0), now + REGISTRY_TOKEN_AGE_MAX).is_none(), "no token is used for ever");
        cache.insert(image(1), HeaderValue::from_static("x"), now, Duration::ZERO);
        assert!(cache.get(&image(1), now).is_none(), "it has ended already");
    }
}
