//! The admin port of a running node.

use super::{
    ClockConfirmation, CommandOutcome, ambiguous_name, ambiguous_register, no_such_event, no_such_register, read_key,
    text,
};
use crate::admin::{LIST_MAX, orphans};
use crate::cli::error::CommandError;
use crate::cli::pinned_tls;
use crate::cli::terminal::one_line;
use crate::config::TlsFiles;
use crate::decide::id::Key;
use crate::decide::ledger::RegisterEdit;
use crate::decide::limits::HANDSHAKE_WAIT_MAX;
use crate::decide::time::Duration;
use crate::store::EventQuery;
use crate::store::retention::ForgetSourceCounts;
use crate::store::subjects::RegisterQuery;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde_json::Value;

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Timeout of a request; forgetting has its own.
const ANSWER_TIME: Duration = Duration::from_mins(1);
/// Timeout of a health check: its own probes of the store take at most 4 s.
const READY_TIME: Duration = Duration::from_secs(10);
/// Timeout of a request to forget expired events, which may be millions.
const FORGET_TIME: Duration = Duration::from_hours(1);
/// Maximum bytes of one stream event: output comes in pieces of at most 64 KiB, and JSON escapes may grow it sixfold.
const NEWS_BYTES_MAX: usize = 1 << 20;

/// The admin port of a running node.
#[derive(Clone, Debug)]
pub(crate) struct AdminClient {
    base: Url,
    client: Client,
}

/// A parsed response.
struct ApiResponse {
    status: StatusCode,
    body: Value,
}

impl AdminClient {
    /// The port at this address: `http://127.0.0.1:3143`, or only `127.0.0.1:3143`.
    pub(crate) fn new(address: &str, token: Option<&str>) -> Result<Self, CommandError> {
        Self::with_certificate(address, token, None)
    }

    /// The port of the node with this certificate, whatever names the certificate has.
    pub(crate) fn with_certificate(
        address: &str,
        token: Option<&str>,
        files: Option<&TlsFiles>,
    ) -> Result<Self, CommandError> {
        let cannot =
            |why: &str| CommandError::unknown(format!("`{address}` is not the address of an admin port: {why}"));
        let scheme = if files.is_some() { "https" } else { "http" };
        let whole = if address.contains("://") { address.to_owned() } else { format!("{scheme}://{address}") };
        let base = Url::parse(&whole).map_err(|error| cannot(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(cannot("expected a URL such as http://127.0.0.1:3143"));
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| CommandError::unknown("the token has characters that are not allowed in a header"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder().default_headers(headers).connect_timeout(CONNECT_TIME).no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none());
        // Plain HTTP must work on a machine without CA certificates.
        let client = match base.scheme() {
            "http" => client.tls_certs_only([]).build(),
            _ => pinned_tls::trusting(client, files)?.build(),
        };
        Ok(Self { base, client: client.map_err(|error| cannot(&root_cause(&error)))? })
    }

    /// The status of a probe request; `None` if nothing listens there.
    pub(super) async fn probe(&self) -> Option<StatusCode> {
        let mut url = self.url(&["api", "events"]);
        url.set_query(Some("limit=1"));
        let asked = self.client.get(url).timeout(CONNECT_TIME).send();
        asked.await.ok().map(|response| response.status())
    }

    /// Why the node accepts no deliveries; `None` if it does. A node that does not respond accepts none.
    pub(crate) async fn readiness(&self) -> Result<Option<String>, CommandError> {
        let asked = self.client.get(self.url(&["readyz"])).timeout(READY_TIME).send();
        let heard = match asked.await {
            Ok(response) => read(response).await,
            Err(error) => return Err(CommandError::no(self.unreachable(&error).to_string())),
        };
        match (heard.status, text(&heard.body, "status"), text(&heard.body, "reason")) {
            (StatusCode::OK, "ok", _) => Ok(None),
            (StatusCode::SERVICE_UNAVAILABLE, _, reason) if !reason.is_empty() => Ok(Some(one_line(reason))),
            _ => Err(self.not_hookonce()),
        }
    }

    /// A link to the dashboard, and for how many seconds it logs a browser in; `None`: no login is needed.
    pub(crate) async fn login_link(&self) -> Result<(Url, Option<u64>), CommandError> {
        let heard = self.request(Method::POST, self.url(&["api", "link"])).await?;
        let path = heard.body["path"].as_str().filter(|path| path.starts_with('/'));
        match (heard.status, path.and_then(|path| self.base.join(path).ok())) {
            (StatusCode::OK, Some(link)) => Ok((link, heard.body["expires_in_seconds"].as_u64())),
            (StatusCode::OK, None) => Err(self.not_hookonce()),
            _ => Err(self.error_for(&heard)),
        }
    }

    pub(super) async fn list(&self, listing: EventQuery) -> Result<Vec<Value>, CommandError> {
        let mut events: Vec<Value> = Vec::new();
        let mut before = listing.before.map(|id| id.to_string());
        while events.len() < listing.limit {
            let limit = (listing.limit - events.len()).min(LIST_MAX);
            let mut url = self.url(&["api", "events"]);
            url.query_pairs_mut().append_pair("limit", &limit.to_string());
            let asked = [
                ("source", &listing.source),
                ("route", &listing.route),
                ("state", &listing.state),
                ("before", &before),
            ];
            for (name, value) in asked {
                if let Some(value) = value {
                    url.query_pairs_mut().append_pair(name, value);
                }
            }
            let mut heard = self.request(Method::GET, url).await?;
            if heard.status != StatusCode::OK {
                return Err(self.error_for(&heard));
            }
            let Value::Array(page) = heard.body["events"].take() else { return Err(self.not_hookonce()) };
            let full = page.len() >= limit;
            events.extend(page);
            before = events.last().map(|event| text(event, "event").to_owned());
            if !full {
                break;
            }
        }
        Ok(events)
    }

    pub(super) async fn quarantined(&self) -> Result<Vec<Value>, CommandError> {
        let mut heard = self.request(Method::GET, self.url(&["api", "quarantine"])).await?;
        match (heard.status, heard.body["messages"].take()) {
            (StatusCode::OK, Value::Array(messages)) => Ok(messages),
            (StatusCode::OK, _) => Err(self.not_hookonce()),
            _ => Err(self.error_for(&heard)),
        }
    }

    /// The running events of this source.
    pub(crate) async fn running(&self, source: &str) -> Result<Vec<Value>, CommandError> {
        let (source, state) = (Some(source.to_owned()), Some("running".to_owned()));
        self.list(EventQuery { source, state, limit: LIST_MAX, ..EventQuery::default() }).await
    }

    /// The details of the one event with this name.
    pub(crate) async fn show(&self, name: &str) -> Result<Value, CommandError> {
        let mut heard = self.request(Method::GET, self.url(&["api", "events", name])).await?;
        if let Some(told) = heard.body.as_object_mut() {
            told.shift_remove("identities_in_words"); // only a config can tell, and a store has none
        }
        match (heard.status, name_error(name, &heard)) {
            (StatusCode::OK, _) => Ok(heard.body),
            (_, Some(trouble)) => Err(trouble),
            _ => Err(self.error_for(&heard)),
        }
    }

    /// Whether there is an event under this delivery id, of any source.
    pub(super) async fn has_delivery(&self, delivery: &str) -> Result<bool, CommandError> {
        let heard = self.request(Method::GET, self.url(&["api", "events", delivery])).await?;
        match (heard.status, text(&heard.body, "reason")) {
            (StatusCode::OK, _) | (_, "several_events") => Ok(true),
            (_, "unknown_event") => Ok(false),
            _ => Err(self.error_for(&heard)),
        }
    }

    pub(super) async fn replay(&self, name: &str) -> Result<CommandOutcome, CommandError> {
        self.post_command(Method::POST, &["api", "events", name, "replay"], name).await
    }

    pub(super) async fn cancel(&self, name: &str) -> Result<CommandOutcome, CommandError> {
        self.post_command(Method::POST, &["api", "events", name, "cancel"], name).await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<CommandOutcome, CommandError> {
        // Other bodies may have to be packed without this event's first.
        let heard = self.ask_within(FORGET_TIME, Method::DELETE, self.url(&["api", "events", name])).await?;
        self.command_outcome(heard, name)
    }

    pub(super) async fn forget_source(&self, source: &str) -> Result<CommandOutcome, CommandError> {
        let url = self.url(&["api", "sources", source, "events"]);
        let heard = self.ask_within(FORGET_TIME, Method::DELETE, url).await?;
        match (heard.status, text(&heard.body, "reason")) {
            (StatusCode::OK, _) => Ok(CommandOutcome::Done(heard.body)),
            (StatusCode::CONFLICT, reason) => Ok(CommandOutcome::Refused(reason.to_owned())),
            (StatusCode::NOT_FOUND, "unknown_source") => Ok(CommandOutcome::Done(super::local::document(
                orphans::document(source, ForgetSourceCounts::default()),
            ))),
            _ => Err(self.error_for(&heard)),
        }
    }

    pub(super) async fn registers(&self, query: &RegisterQuery) -> Result<(Vec<Value>, Option<Key>), CommandError> {
        let mut url = self.url(&["api", "registers"]);
        url.query_pairs_mut().append_pair("limit", &query.limit.to_string());
        let after = query.after.map(|key| hex::encode(key.0));
        for (name, value) in [("source", &query.source), ("after", &after)] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        for (name, value) in &query.fields {
            url.query_pairs_mut().append_pair(&format!("field.{name}"), value);
        }
        let mut heard = self.request(Method::GET, url).await?;
        let next = heard.body["next"].as_str().and_then(read_key);
        match (heard.status, heard.body["registers"].take()) {
            (StatusCode::OK, Value::Array(page)) => Ok((page, next)),
            (StatusCode::OK, _) => Err(self.not_hookonce()),
            _ => Err(self.error_for(&heard)),
        }
    }

    pub(super) async fn register(&self, name: &str) -> Result<Value, CommandError> {
        let heard = self.request(Method::GET, self.url(&["api", "registers", name])).await?;
        match (heard.status, name_error(name, &heard)) {
            (StatusCode::OK, _) => Ok(heard.body),
            (_, Some(trouble)) => Err(trouble),
            _ => Err(self.error_for(&heard)),
        }
    }

    pub(super) async fn edit_register(&self, key: Key, edit: &RegisterEdit) -> Result<CommandOutcome, CommandError> {
        let key = hex::encode(key.0);
        let mut url = self.url(&["api", "registers", &key]);
        let method = match edit {
            RegisterEdit::Set { current, deployed, good } => {
                for (name, event) in [("current", current), ("deployed", deployed), ("good", good)] {
                    if let Some(event) = event {
                        url.query_pairs_mut().append_pair(name, &event.to_string());
                    }
                }
                Method::POST
            }
            RegisterEdit::ClearDeployed => {
                url.query_pairs_mut().append_pair("deployed", "1");
                Method::DELETE
            }
            RegisterEdit::Clear => Method::DELETE,
        };
        let heard = self.request(method, url).await?;
        self.command_outcome(heard, &key)
    }

    pub(super) async fn forget(&self, says: ClockConfirmation) -> Result<Value, CommandError> {
        let mut url = self.url(&["api", "forget"]);
        if says == ClockConfirmation::ClockIsRight {
            url.query_pairs_mut().append_pair("now", "1");
        }
        let heard = self.ask_within(FORGET_TIME, Method::POST, url).await?;
        if heard.status == StatusCode::OK { Ok(heard.body) } else { Err(self.error_for(&heard)) }
    }

    /// What happens, from now on; to this event alone, on whatever node, if it is given.
    pub(crate) async fn tail(&self, event: Option<&str>) -> Result<SseReader, CommandError> {
        let mut url = self.url(&["api", "live"]);
        url.query_pairs_mut().append_pair("tail", "1");
        if let Some(event) = event {
            url.query_pairs_mut().append_pair("event", event);
        }
        let get = async |url| self.client.get(url).send().await.map_err(|error| self.unreachable(&error));
        let mut response = get(url).await?;
        if response.status() == StatusCode::BAD_REQUEST {
            response = get(self.url(&["api", "tail"])).await?; // a node of 0.1.0
        }
        if response.status() != StatusCode::OK {
            return Err(self.error_for(&read(response).await));
        }
        Ok(SseReader { response, heard: Vec::new() })
    }

    /// Whether the sender of this source may bring something now.
    pub(crate) async fn takes_handshake(&self, source: &str) -> Result<bool, CommandError> {
        let heard = self.request(Method::GET, self.url(&["api", "handshakes"])).await?;
        let Some(all) = heard.body["handshakes"].as_array().filter(|_| heard.status == StatusCode::OK) else {
            return Err(self.error_for(&heard));
        };
        let mut own = all.iter().filter(|one| text(one, "source") == source);
        Ok(own.any(|one| text(one, "brings") == "shown" || one["lacks_secret"].is_string()))
    }

    /// What the sender of this source brings by its handshake, as soon as it does.
    pub(crate) async fn await_handshake(&self, source: &str) -> Result<Value, CommandError> {
        let url = self.url(&["api", "handshakes", source]);
        let heard = self.ask_within(HANDSHAKE_WAIT_MAX + ANSWER_TIME, Method::POST, url).await?;
        match (heard.status, text(&heard.body, "reason"), text(&heard.body, "hint")) {
            (StatusCode::OK, ..) => Ok(heard.body),
            (StatusCode::NOT_FOUND, "unknown_source", _) => {
                Err(CommandError::no(format!("the node has no source `{}`", one_line(source))))
            }
            (StatusCode::CONFLICT, _, hint) => Err(CommandError::no(one_line(hint))),
            _ => Err(self.error_for(&heard)),
        }
    }

    /// Has the node read its config again: its answer, or `Err` with its refusal.
    pub(crate) async fn reload(&self) -> Result<Result<Value, Value>, CommandError> {
        let heard = self.request(Method::POST, self.url(&["api", "reload"])).await?;
        match heard.status {
            StatusCode::OK => Ok(Ok(heard.body)),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => Ok(Err(heard.body)),
            _ => Err(self.error_for(&heard)),
        }
    }

    async fn post_command(&self, method: Method, path: &[&str], name: &str) -> Result<CommandOutcome, CommandError> {
        let heard = self.request(method, self.url(path)).await?;
        self.command_outcome(heard, name)
    }

    fn command_outcome(&self, heard: ApiResponse, name: &str) -> Result<CommandOutcome, CommandError> {
        match (heard.status, name_error(name, &heard)) {
            (StatusCode::OK | StatusCode::ACCEPTED, _) => Ok(CommandOutcome::Done(heard.body)),
            (_, Some(trouble)) => Err(trouble),
            (StatusCode::CONFLICT | StatusCode::GONE, None) => {
                Ok(CommandOutcome::Refused(text(&heard.body, "reason").to_owned()))
            }
            _ => Err(self.error_for(&heard)),
        }
    }

    /// The URL of this path, each segment escaped.
    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    async fn request(&self, method: Method, url: Url) -> Result<ApiResponse, CommandError> {
        self.ask_within(ANSWER_TIME, method, url).await
    }

    async fn ask_within(&self, time: Duration, method: Method, url: Url) -> Result<ApiResponse, CommandError> {
        let asked = self.client.request(method, url).timeout(time).send().await;
        Ok(read(asked.map_err(|error| self.unreachable(&error))?).await)
    }

    fn error_for(&self, heard: &ApiResponse) -> CommandError {
        let base = &self.base;
        match (heard.status, text(&heard.body, "reason")) {
            (StatusCode::UNAUTHORIZED, _) => CommandError::unknown(format!(
                "{base} requires a token; set HOOKONCE_ADMIN_TOKEN, or name its variable with --token-env"
            )),
            (StatusCode::FORBIDDEN, "not_allowed") => {
                CommandError::no(format!("this token has no permission for that at {base}"))
            }
            (StatusCode::NOT_FOUND | StatusCode::FORBIDDEN, _) | (_, "") => self.not_hookonce(),
            (_, reason) => CommandError::unknown(format!("{base} answered {}: {reason}", heard.status.as_u16())),
        }
    }

    fn not_hookonce(&self) -> CommandError {
        CommandError::unknown(format!(
            "{} does not respond like an admin port of hookonce; is the address right?",
            self.base
        ))
    }

    fn unreachable(&self, error: &reqwest::Error) -> CommandError {
        CommandError::unknown(format!("no node responds at {}: {}", self.base, root_cause(error)))
    }
}

/// The error, if the node rejected the name of an event or of a register.
fn name_error(name: &str, heard: &ApiResponse) -> Option<CommandError> {
    match (text(&heard.body, "reason"), heard.body["events"].as_array()) {
        ("unknown_event", _) => Some(no_such_event(name)),
        ("unknown_register", _) => Some(no_such_register(name)),
        ("several_registers", _) => Some(ambiguous_register(name)),
        ("several_events", Some(events)) => Some(ambiguous_name(name, events)),
        _ => None,
    }
}

async fn read(response: Response) -> ApiResponse {
    let status = response.status();
    let body = response.bytes().await.unwrap_or_default();
    ApiResponse { status, body: serde_json::from_slice(&body).unwrap_or_default() }
}

/// The innermost cause of an error, such as "Connection refused".
pub(in crate::cli) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if error.is_timeout() { "it timed out".into() } else { cause.to_string() }
}

/// Server-sent events, one after another.
pub(crate) struct SseReader {
    response: Response,
    heard: Vec<u8>,
}

impl SseReader {
    /// The next: its kind (`state`, `output`, `delivery`, `missed`) and its document. `None`: the node has stopped.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, Value)>, CommandError> {
        loop {
            if let Some(end) = self.heard.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.heard.drain(..end + 2).collect();
                if let Some(news) = parse(&String::from_utf8_lossy(&block)) {
                    return Ok(Some(news));
                }
                continue;
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) if self.heard.len() + chunk.len() <= NEWS_BYTES_MAX => self.heard.extend(chunk),
                Ok(Some(_)) => return Err(CommandError::unknown("the node sent a line without an end")),
                Ok(None) => return Ok(None),
                Err(error) => return Err(CommandError::unknown(format!("the node is gone: {}", root_cause(&error)))),
            }
        }
    }
}

/// Parses one server-sent event; `None` for a keep-alive comment.
fn parse(block: &str) -> Option<(String, Value)> {
    let value = |name: &str| {
        let lines = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    let data = serde_json::from_str(&value("data")).ok()?;
    Some((value("event"), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_news_has_a_kind_and_a_document_and_a_comment_is_none() {
        let news = parse("event: state\ndata: {\"state\":\"done\"}\n\n");
        assert_eq!(news, Some(("state".into(), serde_json::json!({ "state": "done" }))));
        assert_eq!(parse(":\n\n"), None);
        assert_eq!(parse("event: state\n\n"), None);
    }

    #[test]
    fn a_name_cannot_leave_its_place_in_the_path() {
        let port = AdminClient::new("127.0.0.1:3143", None).unwrap();
        let url = port.url(&["api", "events", "../forget?x=1/é"]);
        assert_eq!(url.as_str(), "http://127.0.0.1:3143/api/events/..%2Fforget%3Fx=1%2F%C3%A9");
        for wrong in ["", "ftp://x", "http://", "not an address"] {
            assert!(matches!(AdminClient::new(wrong, None), Err(CommandError::Unknown(_))), "{wrong}");
        }
        assert!(matches!(AdminClient::new("127.0.0.1:1", Some("a\nb")), Err(CommandError::Unknown(_))));
    }
}
