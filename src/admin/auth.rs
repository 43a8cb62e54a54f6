//! Authentication and authorization of the admin port, login and logout, and the security headers of every response.
//!
//! On loopback without tokens: clients on this machine, but no other site's page. With tokens: clients that present
//! one, in a header or once at the login, which starts a session with a cookie (`session.rs`). A wrong token is
//! counted, logged and refused after a delay, in a header and at the login alike.
//!
//! CSRF: a browser sends the cookie with any site's request. A request that changes something and has a cookie must
//! therefore also have an `Origin` equal to its `Host`, and a header that no form of another site can set. Whether a
//! proxy in front uses TLS is not known here (any client can send `X-Forwarded-Proto`), so the cookie is not marked
//! `Secure`.

use super::dashboard;
use super::openapi::{AuthWord, BadRequest, Forbidden, PermissionWord, Unauthorized, WrongMediaType};
use super::session::AdminSessions;
use super::view::{OkView, RefusalView};
use super::{AdminState, refuse, reload};
use crate::config::{AdminConfig, AdminPermission};
use crate::decide::auth_throttle::AuthThrottle;
use crate::decide::id::Digest;
use crate::decide::limits;
use crate::decide::time::Timestamp;
use crate::ingress::accept::PeerAddress;
use crate::ingress::request_body::{BodyError, BodyLimits, read};
use crate::store::Inspect;
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;
use utoipa::ToSchema;

/// The header, with any value, that a request with a cookie must carry to change something.
pub(crate) const PAGE_HEADER: &str = "hookonce-page";
/// The prefix of the cookie's name.
const COOKIE: &str = "hookonce";

/// The content security policy: nothing from another origin, no inline script or style, no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Adds the security headers to every response.
pub(super) async fn security_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The hint for the operator of a proxy in front about `cross_site`.
const KEEP_HOST: &str = "the page's Origin is not the Host of its request; a proxy in front must pass on the name that \
                         the browser asked for, as nginx does with: proxy_set_header Host $http_host;";

/// Refuses a request that may come from another site's page. Behind a proxy that changes `Host`, our own page looks the
/// same.
fn cross_site() -> Response {
    (StatusCode::FORBIDDEN, Json(RefusalView::new("cross_site").hint(KEEP_HOST))).into_response()
}

/// How a client was authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AuthMethod {
    Loopback,
    Token,
    Cookie(Timestamp),
}

/// The result of authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AuthResult {
    /// The client's permission, and how it was authenticated.
    Known(AdminPermission, AuthMethod),
    /// The client presented nothing.
    Stranger,
    /// The client presented a token that is not configured.
    WrongToken,
}

/// Who may do what, as one config says.
#[derive(Clone)]
pub(super) struct AdminAccess {
    admin: Arc<AdminConfig>,
    sessions: Arc<AdminSessions>,
}

impl AdminAccess {
    /// What this config says. The sessions of its tokens that `former` knows go on.
    pub(super) fn new(admin: Arc<AdminConfig>, former: Option<&Self>) -> Self {
        let tokens = admin.tokens.iter().map(|token| (token.secret.expose(), token.may));
        let sessions = match former {
            Some(former) => former.sessions.with_tokens(tokens),
            None => AdminSessions::new(tokens),
        };
        Self { sessions: Arc::new(sessions), admin }
    }
}

/// Passes a request on if its client is allowed to make it, and ends it when its client is not any more, because the
/// config was loaded again.
pub(super) async fn authorize(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let mut access = state.access.subscribe();
    let now = access.borrow_and_update().clone();
    let (who, headers) = match identify(&now, request.headers(), state.store.now()) {
        Ok(who) => (who, request.headers()),
        Err(refusal) => return refusal,
    };
    let (may, by) = match who {
        AuthResult::Known(may, by) => (may, by),
        AuthResult::Stranger => return refuse(StatusCode::UNAUTHORIZED, "bad_token"),
        AuthResult::WrongToken => {
            let refusal = refuse(StatusCode::UNAUTHORIZED, "bad_token");
            return reject_token(&state, peer(request.extensions()), TokenLocation::Header, refusal).await;
        }
    };
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if matches!(by, AuthMethod::Cookie(_))
        && !reads
        && !(same_origin(headers, true) && headers.contains_key(PAGE_HEADER))
    {
        return cross_site();
    }
    let allowed = match (may, request.uri().path()) {
        (AdminPermission::All, _) => true,
        (AdminPermission::Read, path) => reads || path == "/api/explain",
        (AdminPermission::Forget, path) => !reads && path == "/api/forget",
    };
    if !allowed {
        return refuse(StatusCode::FORBIDDEN, "not_allowed");
    }
    if request.uri().path() == reload::PATH {
        return next.run(request).await;
    }
    let mut revoked = Box::pin(revoked(access, request.headers().clone(), may, state.store.clone()));
    tokio::select! {
        biased;
        response = next.run(request) => match response.headers().get(header::CONTENT_TYPE) {
            Some(kind) if kind == "text/event-stream" => {
                response.map(|body| Body::from_stream(body.into_data_stream().take_until(revoked)))
            }
            _ => response,
        },
        () = &mut revoked => refuse(StatusCode::UNAUTHORIZED, "bad_token"),
    }
}

/// Waits until a request with these headers has no longer this permission.
async fn revoked(
    mut access: watch::Receiver<AdminAccess>,
    headers: HeaderMap,
    may: AdminPermission,
    store: Arc<dyn Inspect>,
) {
    while access.changed().await.is_ok() {
        let now = access.borrow_and_update().clone();
        if !matches!(identify(&now, &headers, store.now()), Ok(AuthResult::Known(is, _)) if is == may) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

#[expect(clippy::result_large_err, reason = "it is sent at once")]
fn identify(access: &AdminAccess, headers: &HeaderMap, now: Timestamp) -> Result<AuthResult, Response> {
    let AdminAccess { admin, sessions } = access;
    if admin.tokens.is_empty() {
        let here = is_local_request(headers, admin.listen.port());
        return if here {
            Ok(AuthResult::Known(AdminPermission::All, AuthMethod::Loopback))
        } else {
            Err(refuse(StatusCode::FORBIDDEN, "host_or_origin"))
        };
    }
    if let Some(token) = bearer(headers) {
        return Ok(match find_token(admin, token) {
            Some(place) => AuthResult::Known(admin.tokens[place].may, AuthMethod::Token),
            None => AuthResult::WrongToken,
        });
    }
    if !same_origin(headers, false) {
        return Err(cross_site());
    }
    let session = cookie(headers).and_then(|cookie| sessions.find(cookie, now));
    Ok(session
        .map_or(AuthResult::Stranger, |session| AuthResult::Known(session.may, AuthMethod::Cookie(session.ends_at))))
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<PeerAddress>().map(|peer| peer.0)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let wanted = cookie_name(headers);
    let all = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut each = all.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    each.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// The cookie's name, with the port of the request: browsers send a host's cookies to all its ports, and another node may
/// listen on one of them.
fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    match host.rsplit_once(':').map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(port)) => format!("{COOKIE}-{port}"),
        _ => COOKIE.to_owned(),
    }
}

/// The index of this token among those configured. Digests are compared in constant time, so neither length nor prefix
/// leaks.
fn find_token(admin: &AdminConfig, token: &str) -> Option<usize> {
    let given = Digest::of(token.as_bytes());
    let same =
        |secret: &[u8]| aws_lc_rs::constant_time::verify_slices_are_equal(&given.0, &Digest::of(secret).0).is_ok();
    admin.tokens.iter().position(|token| same(token.secret.expose()))
}

/// Whether `Origin` equals `Host`. Without an `Origin`: whether none is needed.
fn same_origin(headers: &HeaderMap, needed: bool) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    match headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("")) {
        None => !needed,
        Some(origin) => {
            let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            authority.is_some() && authority == host
        }
    }
}

/// Whether the request names this machine by a loopback name, and does not come from another site's page.
fn is_local_request(headers: &HeaderMap, port: u16) -> bool {
    let here = |authority: &str| {
        let name = authority.strip_suffix(&format!(":{port}")).unwrap_or(authority);
        matches!(name, "localhost" | "127.0.0.1" | "[::1]")
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or(""));
    // A browser fetches images and scripts of another site's page without an origin, but with this header.
    let site = headers.get("sec-fetch-site").map(|site| site.to_str().unwrap_or(""));
    host.is_some_and(here)
        && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
        && origin.is_none_or(|origin| {
            origin.strip_prefix("http://").is_some_and(|rest| rest.ends_with(&format!(":{port}")) && here(rest))
        })
}

/// A client's session and permission.
#[derive(Serialize, ToSchema, Default)]
pub(super) struct SessionView {
    /// Tokens are configured: a client without one must log in.
    needs_login: bool,
    /// What the client may do; null: nothing.
    #[schema(required)]
    may: Option<PermissionWord>,
    /// How that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<AuthWord>,
    /// The header, with any value, that a request that changes something must carry beside the cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    header: Option<&'static str>,
    /// The end of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Timestamp>)]
    #[expect(clippy::option_option, reason = "left out, null, or a value")]
    expires_at: Option<Option<Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    version: Option<&'static str>,
}

/// Shows the client's own session and permission.
#[utoipa::path(
    get,
    path = "/api/session",
    operation_id = "session",
    responses(
        (status = 200, body = SessionView,
         description = "Always answered. A client that must log in first gets only `needs_login`, and null for `may`.",
         example = json!({
            "needs_login": false, "may": "all", "by": "loopback", "header": "hookonce-page", "expires_at": null,
            "node": "4f6b3fa9c01e", "version": "0.1.0",
         })),
        Forbidden
    )
)]
pub(super) async fn session(State(state): State<AdminState>, request: Request) -> Response {
    let stranger = || Json(SessionView { needs_login: true, ..SessionView::default() }).into_response();
    let access = state.access.borrow().clone();
    match identify(&access, request.headers(), state.store.now()) {
        Ok(AuthResult::Known(may, by)) => Json(session_view(&state, may, by)).into_response(),
        Ok(AuthResult::Stranger) => stranger(),
        Ok(AuthResult::WrongToken) => {
            reject_token(&state, peer(request.extensions()), TokenLocation::Header, stranger()).await
        }
        Err(refusal) => refusal,
    }
}

fn session_view(state: &AdminState, may: AdminPermission, by: AuthMethod) -> SessionView {
    let (by, expires_at) = match by {
        AuthMethod::Loopback => ("loopback", None),
        AuthMethod::Token => ("token", None),
        AuthMethod::Cookie(ends) => ("cookie", Some(ends)),
    };
    let may = match may {
        AdminPermission::Read => "read",
        AdminPermission::Forget => "forget",
        AdminPermission::All => "all",
    };
    SessionView {
        needs_login: !state.admin.tokens.is_empty(),
        may: Some(may.into()),
        by: Some(by.into()),
        header: Some(PAGE_HEADER),
        expires_at: Some(expires_at),
        node: Some(state.dispatcher.node().to_string()),
        version: Some(env!("CARGO_PKG_VERSION")),
    }
}

/// A login.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    /// One of the config's admin tokens.
    #[schema(min_length = 1)]
    token: String,
}

/// Exchanges a token for a session.
#[utoipa::path(
    post,
    path = "/login",
    operation_id = "login",
    request_body(content(
        (LoginRequest = "application/json", example = json!({ "token": "…" })),
        (LoginRequest = "application/x-www-form-urlencoded")
    )),
    responses(
        (status = 200, body = SessionView,
         description = "To a client that accepts JSON: a session, in a cookie that is SameSite=Strict and HttpOnly.",
         example = json!({
            "needs_login": true, "may": "all", "by": "cookie", "header": "hookonce-page",
            "expires_at": "2026-02-08T03:20:41.000000Z", "node": "4f6b3fa9c01e", "version": "0.1.0",
         })),
        (status = 303, description = "To a browser: the same cookie, and a redirect to `/`; or, if the token is wrong, \
                                      to `/login?failed=bad_token`."),
        BadRequest, Unauthorized, Forbidden, WrongMediaType
    )
)]
pub(super) async fn login(State(state): State<AdminState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let json = wants_json(&parts.headers);
    let AdminAccess { admin, sessions } = state.access.borrow().clone();
    if admin.tokens.is_empty() {
        if !is_local_request(&parts.headers, admin.listen.port()) {
            return refuse(StatusCode::FORBIDDEN, "host_or_origin");
        }
        return refuse(StatusCode::BAD_REQUEST, "no token is configured, so there is no login");
    }
    if !same_origin(&parts.headers, false) {
        return cross_site();
    }
    let token = match read_token(&state, &parts.headers, body).await {
        Ok(token) => token,
        Err(refusal) => return refusal,
    };
    let Some(place) = find_token(&admin, &token) else {
        let refusal = if json { refuse(StatusCode::UNAUTHORIZED, "bad_token") } else { go("/login?failed=bad_token") };
        return reject_token(&state, peer(&parts.extensions), TokenLocation::Login, refusal).await;
    };
    let (held, session) = sessions.open(place, state.store.now());
    let (name, age) = (cookie_name(&parts.headers), limits::SESSION_TIME.as_secs());
    let cookie = format!("{name}={held}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}");
    let session = || Json(session_view(&state, session.may, AuthMethod::Cookie(session.ends_at))).into_response();
    let response = if json { session() } else { go("/") };
    with_cookie(response, &cookie)
}

/// Ends the session on this node, and removes the cookie.
///
/// Another node with the same token still accepts a copy of the cookie until it expires.
#[utoipa::path(
    post,
    path = "/logout",
    operation_id = "logout",
    responses(
        (status = 200, description = "To a client that accepts JSON.", body = OkView, example = json!({ "status": "ok" })),
        (status = 303, description = "To a browser: a redirect to `/login`."),
        Forbidden
    )
)]
pub(super) async fn logout(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    if !same_origin(&headers, false) {
        return cross_site();
    }
    if let Some(cookie) = cookie(&headers) {
        let sessions = state.access.borrow().sessions.clone();
        sessions.close(cookie, state.store.now());
    }
    let response = if wants_json(&headers) { Json(OkView::new()).into_response() } else { go("/login") };
    let name = cookie_name(&headers);
    with_cookie(response, &format!("{name}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"))
}

fn wants_json(headers: &HeaderMap) -> bool {
    !dashboard::is_asked_for(headers)
}

fn go(to: &str) -> Response {
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The response to a request whose body could not be read.
pub(super) fn no_body(error: BodyError) -> Response {
    let reply = crate::ingress::http_response::no_body(error);
    crate::ingress::http_response::response(reply).map(Body::new)
}

/// The token in a form or in JSON; nothing else may be in it.
async fn read_token(state: &AdminState, headers: &HeaderMap, body: Body) -> Result<String, Response> {
    let limits = BodyLimits { bytes: limits::ADMIN_BODY_BYTES_MAX, ..BodyLimits::default() };
    let bytes = read(body, limits, &state.flight).await.map_err(no_body)?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let login: Option<LoginRequest> = match kind.split(';').next().unwrap_or("").trim() {
        "application/x-www-form-urlencoded" => {
            let form = std::str::from_utf8(&bytes).ok().and_then(|form| format!("/?{form}").parse().ok());
            form.and_then(|form| Query::try_from_uri(&form).ok()).map(|Query(login)| login)
        }
        "application/json" => serde_json::from_slice(&bytes).ok(),
        _ => return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type")),
    };
    let token = login.map(|login| login.token).filter(|token| !token.is_empty());
    token.ok_or_else(|| refuse(StatusCode::BAD_REQUEST, "expected one member, `token`"))
}

/// Where a token was presented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenLocation {
    /// In the `Authorization` header.
    Header,
    /// At the login.
    Login,
}

/// Recent wrong tokens by network, with a monotonic origin for their times. The delay of each is decided in
/// [`auth_throttle`](crate::decide::auth_throttle).
#[derive(Debug)]
pub(super) struct TokenThrottle {
    throttle: Mutex<AuthThrottle<IpAddr>>,
    since: Instant,
}

impl Default for TokenThrottle {
    fn default() -> Self {
        Self { throttle: Mutex::default(), since: Instant::now() }
    }
}

impl TokenThrottle {
    fn throttle(&self) -> MutexGuard<'_, AuthThrottle<IpAddr>> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refusal that is being delayed; released on drop, since the client may have gone.
struct DelayedRefusal<'d>(&'d AdminState, IpAddr);

impl Drop for DelayedRefusal<'_> {
    fn drop(&mut self) {
        self.0.refusals.throttle().release(&self.1);
    }
}

/// Counts a wrong token, logs it, and refuses it after a delay.
async fn reject_token(
    state: &AdminState,
    peer: Option<IpAddr>,
    location: TokenLocation,
    refusal: Response,
) -> Response {
    let from = network(peer.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
    let word = match location {
        TokenLocation::Header => "header",
        TokenLocation::Login => "login",
    };
    state.metrics.admin_refused(location == TokenLocation::Login);
    let throttled = state.refusals.throttle().record_failure(&from, state.refusals.since.elapsed());
    if let Some(times) = throttled.say {
        warn!(target: "hookonce", reason = "bad_token", from = %from, way = word, times, "admin");
    }
    match throttled.delay {
        Some(delay) => {
            let _waiting = DelayedRefusal(state, from);
            tokio::time::sleep(delay).await;
            refusal
        }
        None => drop_connection(),
    }
}

/// The network that a client counts as: an IPv6 client can use a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

/// Closes the connection without a response, by a body that fails before its first byte.
fn drop_connection() -> Response {
    let broken = stream::iter([Err::<&[u8], _>(io::Error::other("too many wrong tokens"))]);
    Response::new(Body::from_stream(broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(HeaderName, Option<&str>)]) -> HeaderMap {
        let given =
            all.iter().filter_map(|(name, value)| Some((name.clone(), value.as_ref()?.parse().expect("a header"))));
        given.collect()
    }

    fn check(host: Option<&str>, origin: Option<&str>, expected: bool) {
        let headers = headers(&[(header::HOST, host), (header::ORIGIN, origin)]);
        assert_eq!(is_local_request(&headers, 3143), expected, "{host:?} {origin:?}");
    }

    #[test]
    fn only_this_machine_by_its_loopback_names_and_its_own_pages_are_allowed() {
        for host in ["127.0.0.1:3143", "localhost:3143", "localhost", "[::1]:3143"] {
            check(Some(host), None, true);
            check(Some(host), Some("http://localhost:3143"), true);
            check(Some(host), Some("http://127.0.0.1:3143"), true);
        }
        let strange = ["evil.example:3143", "evil.example", "127.0.0.1.evil.example:3143", "localhost:80", ""];
        for host in strange {
            check(Some(host), None, false);
        }
        check(None, None, false);
        for origin in
            ["https://evil.example", "http://localhost", "http://localhost:80", "null", "", "http://evil.example:3143"]
        {
            check(Some("localhost:3143"), Some(origin), false);
        }
    }

    #[test]
    fn a_cross_site_fetch_without_an_origin_is_recognised() {
        let site = HeaderName::from_static("sec-fetch-site");
        for (said, expected) in [("none", true), ("same-origin", true), ("cross-site", false), ("same-site", false)] {
            let headers = headers(&[(header::HOST, Some("localhost:3143")), (site.clone(), Some(said))]);
            assert_eq!(is_local_request(&headers, 3143), expected, "{said}");
        }
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        let same = |host: Option<&str>, origin: Option<&str>, needed| {
            same_origin(&headers(&[(header::HOST, host), (header::ORIGIN, origin)]), needed)
        };
        assert!(same(Some("hooks.example:3143"), Some("http://hooks.example:3143"), true));
        assert!(same(Some("hooks.example"), Some("https://hooks.example"), true));
        assert!(same(Some("hooks.example"), None, false) && !same(Some("hooks.example"), None, true));
        for origin in
            ["null", "", "hooks.example", "http://evil.example", "http://hooks.example.evil", "ftp://hooks.example"]
        {
            assert!(!same(Some("hooks.example"), Some(origin), false), "{origin}");
        }
        assert!(!same(None, Some("http://hooks.example"), false));
    }

    #[test]
    fn a_cookie_is_found_among_others_by_the_port_of_the_request() {
        let given = "a=b; hookonce=ab12 ; c=d; hookonce-3143=cd34; hookonce-3144=ef56; nothookonce-80=1";
        for (host, expected) in [
            (Some("hooks.example"), Some("ab12")),
            (Some("localhost:3143"), Some("cd34")),
            (Some("[::1]:3144"), Some("ef56")),
            (Some("[::1]"), Some("ab12")),
            (Some("localhost:80"), None),
            (None, Some("ab12")),
        ] {
            let headers = headers(&[(header::HOST, host), (header::COOKIE, Some(given))]);
            assert_eq!(cookie(&headers), expected, "{host:?}");
        }
    }

    #[test]
    fn an_ipv6_network_and_a_mapped_address_count_as_one() {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(network(address).to_string(), expected);
        }
    }
}
