//! `hookonce send`: signs and sends a delivery as its sender would.
pub(crate) mod delivery_builder;
mod key_publisher;
mod preset_source;
mod sender_key_pair;

use super::backend::{AdminClient, BackendArgs, SseReader, short, text};
use super::error::{CommandError, print_error};
use super::pinned_tls;
use super::show::{EventPrinter, OutputExtent};
use super::tail::{TailPrinter, follow_until_ended};
use super::terminal::{OutputFormat, Terminal, one_line, strip_control_chars};
use crate::config::{self, Config, EnvLookup, size_text};
use crate::decide::nearest_name::nearest;
use crate::decide::source::{Intake, Source};
use crate::decide::time::{Duration, Timestamp};
use crate::store::clock::StoreClock;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use delivery_builder::DeliveryBuilder;
use key_publisher::PublishedKeyPair;
use reqwest::Url;
use sender_key_pair::SenderKeyPair;
use serde_json::{Value, json};
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Response timeout: longer than any sender waits.
const ANSWER_TIME: Duration = Duration::from_mins(1);
/// Maximum characters shown of a response that is not ours.
const SHOWN_CHARS: usize = 200;

/// What to send.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// File with the body; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "sample")]
    file: Option<PathBuf>,
    /// Generate a new body that the source accepts
    #[arg(long, conflicts_with = "file")]
    sample: bool,
    /// Source to send to; optional if the config has only one
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Preset to sign as, without a config: with its secret in a variable, or a key pair
    #[arg(long, value_name = "NAME", conflicts_with_all = ["source", "config", "wait"])]
    preset: Option<String>,
    /// With --preset: environment variable with the secret [default: as `hookonce presets NAME` names it]
    #[arg(long, value_name = "NAME", requires = "preset")]
    secret_env: Option<String>,
    /// With --preset: URL that the sender signs, if it signs one [default: the URL to send to]
    #[arg(long, value_name = "URL", requires = "preset")]
    signed_url: Option<String>,
    /// Private key of a sender that signs with one, in PEM; made if there is no such file
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// With --preset: port on 127.0.0.1 where a node fetches the public half, of a sender that publishes its keys
    #[arg(long, value_name = "PORT", requires = "preset", default_value_t = key_publisher::KEYS_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    keys_port: u16,
    /// Set a field of the body, such as tag=main
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// Delivery id [default: a new one]
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// Number of times to send the same delivery
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    times: u16,
    /// URL to send to [default: the config's `listen` address]
    #[arg(long)]
    url: Option<String>,
    /// Wait until the event has ended, and print its output
    #[arg(long)]
    wait: bool,
    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,
    /// Config file [default: `HOOKONCE_CONFIG`, ./hookonce.toml, or /etc/hookonce/hookonce.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// With --wait: URL of the node's admin port [default: from the config]
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// With --wait: environment variable with the admin token
    #[arg(long, value_name = "NAME", default_value = "HOOKONCE_ADMIN_TOKEN")]
    token_env: String,
}

/// The key that a sender signs with, if it has one of its own.
enum SenderKey {
    /// Its public half is in the config.
    Private(SenderKeyPair),
    /// Its public half is published.
    Published(PublishedKeyPair),
}

/// The node's response.
struct SendResponse {
    status: u16,
    body: Vec<u8>,
    events: Vec<String>,
}

/// Sends a delivery, and with `--wait` follows its events.
pub(crate) async fn send(asked: &SendArgs, env: EnvLookup<'_>, out: &mut impl Write) -> Result<u8, CommandError> {
    let (config, given_key) = match &asked.preset {
        Some(name) => preset_source::config(name, asked, env)?,
        None => (config::load(&config::find(asked.config.as_deref(), env)?, env)?, None),
    };
    let source = source(asked, &config)?;
    let key = preset_source::signing_key(asked, &config, &source, given_key)?;
    let clock = StoreClock::wall(Timestamp::default());
    let mut delivery = build_delivery(asked, &config, &source, clock.now())?;
    if let Some(SenderKey::Published(key)) = &key {
        delivery.set_published_proof(&source, clock.now(), key)?;
    }
    let url = address(asked, &config, &source, &delivery)?;
    let terminal = Terminal::stdout(asked.json);
    let mut watch = if asked.wait { Some(CompletionWatcher::begin(asked, env).await?) } else { None };
    let client = reqwest::Client::builder().timeout(ANSWER_TIME).redirect(reqwest::redirect::Policy::none());
    let own = config.tls.as_ref().filter(|_| asked.url.is_none());
    // Plain HTTP must work on a machine without CA certificates.
    let client = match url.scheme() {
        "http" => client.tls_certs_only([]).build(),
        _ => pinned_tls::trusting(client, own)?.build(),
    };
    let client = client.map_err(|error| CommandError::unknown(format!("cannot send: {error}")))?;
    let publisher = match &key {
        Some(SenderKey::Published(key)) => Some(key.publish().await?),
        Some(SenderKey::Private(_)) | None => None,
    };
    let (mut code, mut events) = (0, Vec::new());
    for _ in 0..asked.times {
        let send = async || {
            let headers = delivery.headers(&source, clock.now(), key.as_ref());
            post(&client, (&url, &source), &delivery, &headers).await
        };
        let answer = match &publisher {
            Some(publisher) => publisher.send_until_fetched(send).await?,
            None => send().await?,
        };
        answer.print(&terminal, out)?;
        code = code.max(u8::from(!(200..300).contains(&answer.status)));
        for event in answer.events {
            if !events.contains(&event) {
                events.push(event);
            }
        }
    }
    match &mut watch {
        Some(watch) => Ok(code.max(watch.end(&events, terminal, &clock, out).await?)),
        None => Ok(code),
    }
}

/// Waits for the events of a delivery; subscribed before the delivery is sent.
struct CompletionWatcher {
    port: AdminClient,
    news: SseReader,
}

impl CompletionWatcher {
    async fn begin(asked: &SendArgs, env: EnvLookup<'_>) -> Result<Self, CommandError> {
        let (config, admin, token_env) = (asked.config.clone(), asked.admin.clone(), asked.token_env.clone());
        let port = BackendArgs { config, store: None, admin, token_env }.admin_client(env).await?;
        Ok(Self { news: port.tail(None).await?, port })
    }

    /// Waits until all events have ended; prints how, and returns the exit code.
    async fn end(
        &mut self,
        events: &[String],
        terminal: Terminal,
        clock: &StoreClock,
        out: &mut impl Write,
    ) -> Result<u8, CommandError> {
        if events.is_empty() {
            print_error("there is no event to wait for");
            return Ok(1);
        }
        let mut open = Vec::new();
        for event in events {
            if !self.port.show(event).await?["ended_at"].is_string() {
                open.push(event.clone());
            }
        }
        follow_until_ended(&mut self.news, &open, &mut TailPrinter::new(terminal), out).await?;
        let mut code = 0;
        for event in events {
            let story = self.port.show(event).await?;
            code = code.max(u8::from(text(&story, "state") != "done"));
            if terminal.form == OutputFormat::Json {
                writeln!(out, "{}", json!({ "kind": "end", "end": story }))?;
                continue;
            }
            let mut sheet = EventPrinter { terminal: Terminal { now: clock.now(), ..terminal }, out };
            sheet.print_state(&story)?;
            if !open.contains(event) {
                sheet.attempts(&story, OutputExtent::Tail)?;
            }
        }
        Ok(code)
    }
}

fn source(asked: &SendArgs, config: &Config) -> Result<Arc<Source>, CommandError> {
    let names: Vec<_> = config.sources.iter().map(|source| &*source.name).collect();
    match (&asked.source, &config.sources[..]) {
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(CommandError::unknown(format!(
            "there are several sources; name one with --source: {}",
            names.join(", ")
        ))),
        (Some(name), all) => all.iter().find(|source| *source.name == **name).cloned().ok_or_else(|| {
            let meant = nearest(name, names.iter().copied()).map(|name| format!("; did you mean `{name}`?"));
            let (all, meant) = (names.join(", "), meant.unwrap_or_default());
            CommandError::unknown(format!("the config has no source `{}`: {all}{meant}", one_line(name)))
        }),
    }
}

fn build_delivery(
    asked: &SendArgs,
    config: &Config,
    source: &Source,
    now: Timestamp,
) -> Result<DeliveryBuilder, CommandError> {
    let id = asked.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let mut delivery = if let Some(path) = &asked.file {
        let mut delivery = DeliveryBuilder::of(read(path, source.body_max)?, id);
        delivery.set_time(source, now)?;
        if asked.id.is_some() {
            delivery.set_delivery_id(source)?;
        }
        delivery
    } else {
        let preset = config.notes.get(&source.name).and_then(|notes| notes.preset.as_deref());
        DeliveryBuilder::sample(source, preset, id, now)?
    };
    delivery.set(source, &asked.set)?;
    Ok(delivery)
}

/// The bytes of a file or of standard input, up to the source's body limit.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, CommandError> {
    let name = path.display();
    let cannot = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => CommandError::unknown(format!("there is no file {name}")),
        io::ErrorKind::IsADirectory => CommandError::unknown(format!("{name} is a folder; name a file in it")),
        io::ErrorKind::PermissionDenied => CommandError::unknown(format!("not allowed to read {name}")),
        _ => CommandError::unknown(format!("{name} cannot be read: {error}")),
    };
    let limit = most as u64 + 1;
    let mut body = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut body)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut body))
    };
    read.map_err(|error| cannot(&error))?;
    if body.len() > most {
        return Err(CommandError::unknown(format!("{name} is larger than its source allows: {}", size_text(most))));
    }
    Ok(body)
}

/// The URL to send to: the given one, with the source's path if it has none; else the config's `listen` address.
fn address(
    asked: &SendArgs,
    config: &Config,
    source: &Source,
    delivery: &DeliveryBuilder,
) -> Result<Url, CommandError> {
    let elsewhere = match source.intake {
        Intake::Path => None,
        Intake::Stream(_) => Some(("reads from a", "publish there, or send to the node that fills it")),
        Intake::Poll { .. } => Some(("polls", "nothing can be sent to it; push the image")),
    };
    if let Some((how, hint)) = elsewhere {
        let why = format!("the source {} {how} {}: {hint}", source.name, source.path);
        return Err(CommandError::unknown(why));
    }
    let named = match &asked.url {
        Some(url) => with_scheme(url),
        None if config.listen.first.port() == 0 => {
            return Err(CommandError::unknown("the config has port 0, chosen at start; name the address with --url"));
        }
        None => {
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", crate::cli::backend::connect_address(config.listen.first))
        }
    };
    let cannot = |why: String| {
        // What cannot be read as a URL may have a secret anywhere.
        let is_secret = source.path.is_secret() || named.contains(['?', '@']);
        let shown = if is_secret { "--url".into() } else { one_line(&named) };
        CommandError::unknown(format!("`{shown}` is not a URL to send to: {why}"))
    };
    let mut url = Url::parse(&named).map_err(|error| cannot(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(cannot("expected http:// or https://".into()));
    }
    if matches!(url.path(), "" | "/") {
        let path = source.path.expose().ok_or_else(|| {
            CommandError::unknown(format!("the path of the source {} is secret and not known here", source.name))
        })?;
        url.set_path(path);
    }
    for (name, value) in delivery.query(source) {
        // What is in the URL already is as the user wants it.
        if !url.query_pairs().any(|(known, _)| *known == *name) {
            url.query_pairs_mut().append_pair(&name, &value);
        }
    }
    Ok(url)
}

/// What was given with `--url`, as a URL: `127.0.0.1:3142` is one of `http`.
fn with_scheme(given: &str) -> String {
    if given.contains("://") { given.to_owned() } else { format!("http://{given}") }
}

/// A URL for messages: without what may be a secret in it, such as a token in its query.
fn shown(url: &Url, source: &Source) -> String {
    let origin = url.origin().ascii_serialization();
    if source.path.is_secret() { format!("{origin}{}", source.path) } else { format!("{origin}{}", url.path()) }
}

async fn post(
    client: &reqwest::Client,
    (url, source): (&Url, &Source),
    delivery: &DeliveryBuilder,
    headers: &[(String, String)],
) -> Result<SendResponse, CommandError> {
    let mut request = client.post(url.clone()).body(delivery.body.clone());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let failed = |error: &reqwest::Error| {
        let hint = if error.is_connect() { "; is `hookonce serve` running?" } else { "" };
        let (to, why) = (shown(url, source), crate::cli::backend::root_cause(error));
        CommandError::unknown(format!("could not send to {to}: {why}{hint}"))
    };
    let response = request.send().await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let named = response.headers().get("hookonce-event").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let body = response.bytes().await.map_err(|error| failed(&error))?.to_vec();
    let document: Value = serde_json::from_slice(&body).unwrap_or_default();
    let several = document["events"].as_array().into_iter().flatten();
    let mut events: Vec<String> = Vec::new();
    // The event of the header is in the list as well, if there is one.
    for event in several.filter_map(|id| id.as_str().map(str::to_owned)).chain(named) {
        if !events.contains(&event) {
            events.push(event);
        }
    }
    Ok(SendResponse { status, body, events })
}

impl SendResponse {
    fn print(&self, terminal: &Terminal, out: &mut impl Write) -> io::Result<()> {
        let document = serde_json::from_slice(&self.body).ok();
        if terminal.form == OutputFormat::Json {
            let body = document.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into());
            let answer = json!({ "kind": "answer", "status": self.status, "events": self.events, "answer": body });
            return writeln!(out, "{answer}");
        }
        let code = if (200..300).contains(&self.status) { "32" } else { "31" };
        let status = terminal.paint(code, &self.status.to_string());
        writeln!(out, "{status} {}", self.words(&document.unwrap_or_default()))
    }

    /// Status, event and reason in one line; a foreign response is shown as it is.
    fn words(&self, answer: &Value) -> String {
        let word = text(answer, "status");
        let ids: Vec<_> = self.events.iter().map(|event| short(&json!({ "event": event }))).collect();
        let named = if ids.is_empty() { String::new() } else { format!(" {}", ids.join(" ")) };
        if word.is_empty() {
            let body = String::from_utf8_lossy(&self.body);
            let shown: String = one_line(&strip_control_chars(&body)).chars().take(SHOWN_CHARS).collect();
            return format!("{}{named}", if shown.is_empty() { "without a body" } else { &shown });
        }
        let told =
            ["state", "cause", "how", "same", "field", "reason"].into_iter().filter(|name| answer[name].is_string());
        let told: String = told
            .map(|name| match name {
                "reason" => format!(": {}", one_line(text(answer, name))),
                _ => format!(", {name} {}", one_line(text(answer, name))),
            })
            .collect();
        format!("{word}{named}{told}")
    }
}
