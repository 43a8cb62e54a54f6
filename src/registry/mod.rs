//! Container registries: what does a tag point to now? A client of the OCI distribution API, which only reads.
//!
//! ```text
//! HEAD /v2/NAME/manifests/TAG ─▶ 200 Docker-Content-Digest
//!                              ─▶ 200 without a digest: GET, and our own SHA-256 of the body
//!                              ─▶ 401: access_token.rs, then once more
//!                              ─▶ 404: not there yet, perhaps · 403: denied · 429, 5xx: later
//! ```
//!
//! Everything of one question together has one time limit. A redirect to another host is followed without credentials.
pub(crate) mod access_token;
pub(crate) mod credentials;
pub(crate) mod docker_config;
pub(crate) mod error;
pub(crate) mod lookup_plan;

use crate::action::ActionBuildError;
use crate::action::forward::receiver_response::retry_after;
use crate::action::forward::root_cause;
use crate::decide::error_message::ErrorMessage;
use crate::decide::image_reference::{ImageName, ImageTag, ManifestDigest};
use crate::decide::limits::{MANIFEST_BYTES_MAX, MANIFEST_REDIRECTS_MAX};
use crate::decide::time::{Duration, duration_text};
use access_token::AuthorizationCache;
pub(crate) use credentials::{RegistryAccess, RegistryCredentials, RegistrySecret};
pub(crate) use error::{LookupError, LookupFailure};
pub(crate) use lookup_plan::{LookupPlan, RegistryClients, RegistryLookup};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The media types of manifests and indexes, of OCI and of Docker.
const MANIFEST_TYPES: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
const DIGEST_HEADER: &str = "docker-content-digest";
/// Connect timeout: DNS, TCP and TLS.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// The client of one registry, with one set of credentials.
pub(crate) struct RegistryClient {
    access: RegistryAccess,
    http: Client,
    authorizations: Mutex<AuthorizationCache>,
}

/// A response, and whether it came from the registry itself.
struct RegistryResponse {
    response: Response,
    from_registry: bool,
}

impl RegistryClient {
    pub(crate) fn new(access: RegistryAccess) -> Result<Self, ActionBuildError> {
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
            Err(_) if access.address.base_url().starts_with("http://") => builder().tls_certs_only([]).build(),
            built => built,
        };
        let http = http.map_err(|error| {
            let why = format!("cannot ask the registry {}: {}", access.address, root_cause(&error));
            ActionBuildError(ErrorMessage::from(why).caused_by(error))
        })?;
        Ok(Self { access, http, authorizations: Mutex::default() })
    }

    /// The digest that a tag points to now.
    pub(crate) async fn resolve(
        &self,
        image: &ImageName,
        tag: &ImageTag,
        timeout: Duration,
    ) -> Result<ManifestDigest, LookupError> {
        self.limited(timeout, self.manifest_digest(image, tag)).await
    }

    /// Whether the registry answers, and accepts the credentials: in words. Asks for no image.
    pub(crate) async fn check(&self, timeout: Duration) -> Result<String, LookupError> {
        self.limited(timeout, self.check_login()).await
    }

    async fn limited<T>(
        &self,
        timeout: Duration,
        asked: impl Future<Output = Result<T, LookupError>>,
    ) -> Result<T, LookupError> {
        let late = || {
            let kind = LookupFailure::Unavailable { retry_after: None };
            Err(LookupError::new(kind, format!("no answer within {}", duration_text(timeout))))
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or_else(|_| late())
    }

    async fn manifest_digest(&self, image: &ImageName, tag: &ImageTag) -> Result<ManifestDigest, LookupError> {
        let path = format!("/v2/{image}/manifests/{tag}");
        let response = self.ask(Method::HEAD, &path, image).await?;
        // A registry that does not know HEAD must know GET.
        let no_head = matches!(response.status(), StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED);
        if !no_head {
            self.check_status(&response)?;
            if let Some(digest) = stated_digest(response.headers())? {
                return Ok(digest);
            }
        }
        let response = self.ask(Method::GET, &path, image).await?;
        self.check_status(&response)?;
        let stated = stated_digest(response.headers())?;
        check_type(response.headers())?;
        let digest = ManifestDigest::of(&read_body(response, MANIFEST_BYTES_MAX).await?);
        match stated {
            Some(stated) if stated.as_str().starts_with("sha256:") && stated != digest => {
                Err(malformed("the digest that it states is not that of the manifest"))
            }
            _ => Ok(digest),
        }
    }

    async fn check_login(&self) -> Result<String, LookupError> {
        let base = self.url("/v2/")?;
        let RegistryResponse { response, .. } = self.send(&Method::GET, base.clone(), None).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            self.check_status(&response)?;
            return Ok("responds".to_owned());
        }
        if !self.has_credentials() {
            return Ok("responds; only public images can be asked for without credentials".to_owned());
        }
        // A token server checks the credentials itself; otherwise the registry does.
        let authorization = self.authorize(response.headers(), None).await?;
        if authorization.header.as_bytes().starts_with(b"Basic ") {
            let RegistryResponse { response, .. } = self.send(&Method::GET, base, Some(&authorization.header)).await?;
            self.check_status(&response)?;
        }
        Ok("responds, and accepts the credentials".to_owned())
    }

    /// Sends a request about an image, with an authorization if the registry wants one.
    async fn ask(&self, method: Method, path: &str, image: &ImageName) -> Result<Response, LookupError> {
        let url = self.url(path)?;
        let known = self.authorizations().get(image, Instant::now());
        let RegistryResponse { response, from_registry } = self.send(&method, url.clone(), known.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        if !from_registry {
            return Err(self.denied("it redirects to another host, which wants credentials (401)"));
        }
        self.authorizations().remove(image);
        let authorization = self.authorize(response.headers(), Some(image)).await?;
        let RegistryResponse { response, .. } = self.send(&method, url, Some(&authorization.header)).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            let access_token::Authorization { header, age } = authorization;
            self.authorizations().insert(image.clone(), header, Instant::now(), age);
        }
        Ok(response)
    }

    /// Sends a request, and follows redirects: without the authorization where they leave the registry.
    async fn send(
        &self,
        method: &Method,
        mut url: Url,
        authorization: Option<&HeaderValue>,
    ) -> Result<RegistryResponse, LookupError> {
        let home = url.origin();
        for _ in 0..=MANIFEST_REDIRECTS_MAX {
            let from_registry = url.origin() == home;
            let mut request = self.http.request(method.clone(), url.clone()).header(ACCEPT, MANIFEST_TYPES.join(", "));
            if let Some(authorization) = authorization.filter(|_| from_registry) {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request.send().await.map_err(|error| unavailable("it", &error))?;
            let Some(target) = redirect_target(&url, &response)? else {
                return Ok(RegistryResponse { response, from_registry });
            };
            if target.scheme() != "https" && target.origin() != home {
                return Err(malformed("it redirects to another host without TLS"));
            }
            url = target;
        }
        Err(malformed(&format!("it redirects more than {MANIFEST_REDIRECTS_MAX} times")))
    }

    fn url(&self, path: &str) -> Result<Url, LookupError> {
        let url = format!("{}{path}", self.access.address.base_url());
        Url::parse(&url).map_err(|_| malformed("its URL is invalid"))
    }

    fn check_status(&self, response: &Response) -> Result<(), LookupError> {
        let status = response.status().as_u16();
        let why = format!("it responded with {status}");
        let retry_after = retry_after(response.headers());
        match status {
            200 => Ok(()),
            401 | 403 => Err(self.denied(&why)),
            404 => {
                let why = format!("it does not have it, and may lag behind its own webhook; {why}");
                Err(LookupError::new(LookupFailure::NotFound, why))
            }
            429 => Err(LookupError::new(LookupFailure::RateLimited { retry_after }, why)),
            408 | 425 | 500..=599 => Err(LookupError::new(LookupFailure::Unavailable { retry_after }, why)),
            _ => Err(malformed(&why)),
        }
    }

    fn authorizations(&self) -> MutexGuard<'_, AuthorizationCache> {
        self.authorizations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn malformed(why: &str) -> LookupError {
    LookupError::new(LookupFailure::Malformed, why)
}

/// The error of a request without a response; without the URL.
fn unavailable(server: &str, error: &reqwest::Error) -> LookupError {
    let cause = root_cause(error);
    let what = if error.is_connect() { "cannot be connected to" } else { "did not answer" };
    LookupError::new(LookupFailure::Unavailable { retry_after: None }, format!("{server} {what}: {cause}"))
}

/// The digest that a response states, if it states one.
fn stated_digest(headers: &HeaderMap) -> Result<Option<ManifestDigest>, LookupError> {
    let Some(value) = headers.get(DIGEST_HEADER) else { return Ok(None) };
    let digest = value.to_str().ok().and_then(|text| ManifestDigest::parse(text.trim()).ok());
    digest.map(Some).ok_or_else(|| malformed("the digest that it states is not one"))
}

/// Checks that a response is a manifest, and not the page of a proxy.
fn check_type(headers: &HeaderMap) -> Result<(), LookupError> {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if MANIFEST_TYPES.contains(&&*kind) { Ok(()) } else { Err(malformed("its response is not a manifest")) }
}

/// Where a response redirects to, if it does.
fn redirect_target(from: &Url, response: &Response) -> Result<Option<Url>, LookupError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let target = location.and_then(|location| from.join(location).ok()).filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none()
    });
    target.map(Some).ok_or_else(|| malformed("it redirects to an invalid URL"))
}

/// Reads a body up to a limit.
async fn read_body(mut response: Response, limit: usize) -> Result<Vec<u8>, LookupError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unavailable("it", &error))? {
        if chunk.len() > limit - body.len() {
            return Err(malformed(&format!("its response is longer than {limit} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
