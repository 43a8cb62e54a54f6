//! Receivers: their URLs, the headers they are sent, and which headers of their response are kept.

use super::references;
use crate::action::forward::ip_filter::{IpRange, check_address};
use crate::action::forward::url_template;
use crate::action::plan::{FieldTemplate, FieldTemplatePart, Http2Mode, ReceiverHeaderValue, ReceiverPlan, SigningKey};
use crate::config::fields::SourceFieldScope;
use crate::config::keys::{ConfigValueType, SectionKeys, key};
use crate::config::raw::{ConfigEntry, ConfigNode, ConfigSpan};
use crate::config::resolve::ConfigResolver;
use crate::config::section::ConfigSection;
use crate::decide::limits;
use crate::decide::source::ResponseMode;
use crate::decide::time::{Duration, duration_text};
use crate::decide::verify::{VerificationScheme, is_standard_header};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

pub(super) static FORWARD_KEYS: SectionKeys = SectionKeys {
    name: "forward",
    title: "`forward = { … }`",
    about: "A receiver to forward deliveries to, or a list: one event for each.",
    keys: &[&[
        key(
            "url",
            ConfigValueType::Open,
            "required",
            "The receiver. {field} may be a label of the host, or be in the path or in a value of the query.",
        ),
        key(
            "timeout",
            ConfigValueType::Duration,
            "30s; with respond = \"done\" half a second less than respond_within",
            "Timeout of the receiver. An attempt that takes longer counts against attempts.",
        ),
        key(
            "headers",
            ConfigValueType::Texts,
            "those of the preset's sender with the kind and the id",
            "Headers of the sender to pass on; they are kept until the event ends.",
        ),
        key("set", ConfigValueType::Headers, "none", "Headers to set; values may contain {field}."),
        key("sign", ConfigValueType::Table(&SIGN_KEYS), "none", "Signs requests as Standard Webhooks does."),
        key(
            "allow",
            ConfigValueType::Texts,
            "none",
            "Address ranges besides the public internet that a url with {field} in it may reach, such as [\"10.0.0.0/8\"].",
        ),
        key(
            "http2",
            ConfigValueType::Word(&["auto", "prior"]),
            "auto",
            "\"auto\": if TLS negotiates it; \"prior\": always, also without TLS.",
        ),
        key(
            "at_once",
            ConfigValueType::Count,
            "the route's",
            "Maximum concurrent attempts at this receiver on one node.",
        ),
        key(
            "receipt_headers",
            ConfigValueType::Texts,
            "none",
            "Headers of the response to keep, besides its type, language, location and ids.",
        ),
    ]],
};

pub(super) static SIGN_KEYS: SectionKeys = SectionKeys {
    name: "sign",
    title: "`sign = { … }`",
    about: "Signs what is sent, so that the receiver can verify it.",
    keys: &[&[key("secret", ConfigValueType::Secret, "required", "The secret, whsec_ and base64.")]],
};

const FORWARD_TIMEOUT: Duration = Duration::from_secs(30);
/// With `respond = "done"` the receiver has as long as the sender waits, less this: time to store and return the
/// response.
const ANSWER_TIME: Duration = Duration::from_millis(500);

/// Default timeout of a receiver.
fn default_timeout(respond: ResponseMode) -> Duration {
    match respond {
        ResponseMode::Accepted => FORWARD_TIMEOUT,
        ResponseMode::WhenDone { within } => within.saturating_sub(ANSWER_TIME).max(within / 2),
    }
}

/// Hop-by-hop and framing headers.
const HOP_HEADERS: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];
/// Headers that hookonce sets itself, and their prefix.
const OWN_HEADERS: [&str; 3] = ["idempotency-key", "traceparent", "tracestate"];
const OWN_PREFIX: &str = "hookonce-";
/// Headers whose values are secrets.
const SECRET_HEADERS: [&str; 2] = ["authorization", "cookie"];

impl ConfigResolver<'_> {
    pub(crate) fn forward(
        &mut self,
        route: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        respond: ResponseMode,
    ) -> Option<Vec<ReceiverPlan>> {
        let sections = route.sections("forward");
        self.number_of("forward", sections.len(), route)?;
        if sections.len() > 1 && respond != ResponseMode::Accepted {
            self.diagnostics
                .error("`forward` has several receivers, but the sender waits for one response")
                .at(route.key_place("forward"), "")
                .hint("use one receiver, or respond = \"accepted\"");
        }
        let mut receivers = Vec::new();
        for section in sections {
            let timeout = self.timeout(&section, respond).unwrap_or_else(|| default_timeout(respond));
            let Some(node) = section.node("url") else {
                self.diagnostics.error("`forward` has no `url`").unless(section.misspells("url")).at(section.at, "");
                continue;
            };
            let allow = self.allow(&section);
            let Some((url, shown)) = self.url(node, &allow, names) else { continue };
            if url.fields().next().is_none() && section.has("allow") {
                self.diagnostics
                    .warning("`allow` has no effect")
                    .at(section.key_place("allow"), "`url` has no field in it, so every address is allowed");
            }
            let sign = self.sign(&section);
            receivers.push(ReceiverPlan {
                pass: self.passed(&section, names, sign.is_some()),
                set: self.set(&section, names, sign.is_some()),
                sign,
                allow,
                http2: if section.text("http2") == Some("prior") { Http2Mode::Prior } else { Http2Mode::Negotiated },
                at_once: section.count("at_once").map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
                receipt_headers: self.receipt_headers(&section),
                display: shown,
                ..ReceiverPlan::new(url, timeout)
            });
        }
        Some(receivers)
    }

    /// The URL, and how to show it.
    pub(in crate::config) fn url(
        &mut self,
        node: &ConfigNode,
        allow: &[IpRange],
        names: &SourceFieldScope<'_>,
    ) -> Option<(FieldTemplate, String)> {
        let open = self.text_or_external("url", node)?;
        // An external value is used verbatim: it is a secret and may contain braces.
        let written = open.shown.is_none();
        let template = if written { FieldTemplate(self.pieces(node, names)) } else { FieldTemplate::from(&*open.text) };
        let sample: String =
            template.0.iter().map(|piece| if let FieldTemplatePart::Text(text) = piece { text } else { "x" }).collect();
        let wrong = match reqwest::Url::parse(&sample) {
            Err(_) if !open.text.contains("://") => "it must begin with http:// or https://".to_owned(),
            Err(e) => e.to_string(),
            Ok(url) if !matches!(url.scheme(), "http" | "https") => {
                format!("`{}` is neither http nor https", url.scheme())
            }
            Ok(url) if url.password().is_some() && written => {
                self.diagnostics.conceal(node.at);
                self.diagnostics
                    .error("`url` has a password and is written in the config file")
                    .at(node.at, "a secret must not be in the config file")
                    .hint("put the URL in an environment variable and write url = { env = \"NAME\" }");
                return None;
            }
            Ok(url) => {
                if template.fields().next().is_some() {
                    self.fields_of_url(node, &open.text);
                    self.leads_where_it_may(node.at, &template, &url, allow);
                }
                return Some((template, open.shown.unwrap_or(open.text)));
            }
        };
        self.diagnostics
            .error("`url` is not a valid URL to send to")
            .at(open.at, wrong)
            .hint("url = \"http://127.0.0.1:8080/ingest\"");
        None
    }

    /// Checks that a field cannot choose the scheme, the port, or more than one part of a URL.
    fn fields_of_url(&mut self, node: &ConfigNode, text: &str) {
        for (range, name) in references(text) {
            let next = text[range.end..].chars().next();
            let fits = match url_template::UrlComponent::after(&text[..range.start]) {
                url_template::UrlComponent::Host => url_template::ends_label(next),
                url_template::UrlComponent::Path | url_template::UrlComponent::Query => true,
                url_template::UrlComponent::Other => false,
            };
            if !fits {
                let at = self.inside(node.at, &range);
                self.diagnostics
                    .error(format!("`{{{name}}}` is not allowed there in a URL"))
                    .at(at, "a field may be one whole label of the host, or be in the path or in a value of the query")
                    .hint("url = \"https://{tenant}.example.com/hooks/{repo}?ref={ref}\"");
            }
        }
    }

    /// Checks a host without fields now; others are checked for every event.
    fn leads_where_it_may(&mut self, at: ConfigSpan, template: &FieldTemplate, url: &reqwest::Url, allow: &[IpRange]) {
        if url_template::names_host(template) {
            return;
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let local = host == "localhost" || host.ends_with(".localhost");
        let address = if local { Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { host.parse().ok() };
        if let Some(address) = address
            && let Err(forbidden) = check_address(address, allow)
        {
            self.diagnostics
                .error("`url` has a field in it, and its address is not allowed")
                .at(at, forbidden.why())
                .hint(format!("allow = [\"{address}\"], if this is intended"));
        }
    }

    pub(in crate::config) fn allow(&mut self, section: &ConfigSection<'_>) -> Vec<IpRange> {
        let list = section.node("allow").and_then(ConfigNode::list).unwrap_or(&[]);
        let mut ranges = Vec::new();
        for item in list {
            match item.text().map(str::parse) {
                Some(Ok(range)) => ranges.push(range),
                Some(Err(why)) => {
                    self.diagnostics.error("`allow` cannot be read").at(item.at, why);
                }
                None => {}
            }
        }
        ranges
    }

    fn sign(&mut self, section: &ConfigSection<'_>) -> Option<SigningKey> {
        let inner = section.section("sign")?;
        let Some(node) = inner.node("secret") else {
            self.diagnostics
                .error("`sign` has no `secret`")
                .unless(inner.misspells("secret"))
                .at(inner.at, "")
                .hint("sign = { secret = { env = \"RECEIVER_SECRET\" } }");
            return None;
        };
        let secret = self.secret("secret", node)?.expose().to_vec();
        if let Err(why) = VerificationScheme::standard_webhooks(std::slice::from_ref(&secret), Duration::ZERO) {
            self.diagnostics.error("the secret is not a Standard Webhooks secret").at(node.at, why);
            return None;
        }
        Some(SigningKey(secret))
    }

    /// Reports headers of a preset's sender that must not be passed on by default, or cannot.
    pub(in crate::config) fn check_sender_headers(
        &mut self,
        source: &ConfigSection<'_>,
        scheme: Option<&VerificationScheme>,
    ) {
        let Some(sender) = source.section("sender") else { return };
        let credentials = scheme.map(VerificationScheme::signature_headers).unwrap_or_default();
        let mut known: Vec<String> = Vec::new();
        for key in ["kind_headers", "id_headers"] {
            for item in self.header_list(key, &sender) {
                let Some(name) = self.header(item.text().unwrap_or_default(), item.at, false) else { continue };
                if credentials.contains(&name) || SECRET_HEADERS.contains(&&*name) {
                    self.diagnostics
                        .error(format!("`{name}` holds the sender's credentials"))
                        .at(item.at, "receivers get it only where the `headers` of a `forward` name it")
                        .hint("leave it out");
                } else if known.contains(&name) {
                    self.report_repeated_field(key, item);
                } else {
                    known.push(name);
                }
            }
        }
    }

    fn passed(&mut self, section: &ConfigSection<'_>, names: &SourceFieldScope<'_>, signs: bool) -> Vec<String> {
        if !section.has("headers") {
            return passed_by_default(section, names, signs);
        }
        let list = self.header_list("headers", section);
        let signed = names.scheme.filter(|scheme| names.fields.each().is_some() && scheme.signs_body());
        let proof = signed.map(VerificationScheme::proof_headers).unwrap_or_default();
        let mut passed: Vec<String> = Vec::new();
        for item in list {
            let Some(name) = self.header(item.text().unwrap_or_default(), item.at, signs) else { continue };
            if passed.contains(&name) {
                self.report_repeated_field("headers", item);
            } else if proof.contains(&name) {
                self.diagnostics
                    .error(format!("`{name}` cannot be passed on from a source with `each`"))
                    .at(item.at, "it is a signature over the whole delivery, and the receiver gets one element")
                    .hint("sign = { secret = … } signs what the receiver gets");
            } else {
                passed.push(name);
            }
        }
        passed
    }

    fn set(
        &mut self,
        section: &ConfigSection<'_>,
        names: &SourceFieldScope<'_>,
        signs: bool,
    ) -> Vec<(String, ReceiverHeaderValue)> {
        let entries = section.node("set").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
        self.not_too_many("set", entries.len(), section);
        let passed: Vec<_> = section.node("headers").and_then(ConfigNode::list).unwrap_or(&[]).iter().collect();
        let mut set: Vec<(String, ReceiverHeaderValue)> = Vec::new();
        for entry in entries {
            let Some(name) = self.header(&entry.key, entry.key_at, signs) else { continue };
            let same = |node: &&ConfigNode| node.text().is_some_and(|text| text.eq_ignore_ascii_case(&name));
            if set.iter().any(|(known, _)| *known == name) || passed.iter().copied().any(|node| same(&node)) {
                self.diagnostics
                    .error(format!("the header `{name}` is written twice"))
                    .at(entry.key_at, "it is already passed on or set")
                    .hint("keep one of them");
                continue;
            }
            set.extend(self.header_text(entry, &name, names).map(|text| (name, text)));
        }
        set
    }

    fn header_text(
        &mut self,
        entry: &ConfigEntry,
        name: &str,
        names: &SourceFieldScope<'_>,
    ) -> Option<ReceiverHeaderValue> {
        let node = &entry.node;
        let open = self.text_or_external(name, node)?;
        if open.text.chars().any(char::is_control) {
            self.diagnostics
                .error(format!("`{name}` cannot be a header's value"))
                .at(node.at, "it has a line break or another control character in it");
            return None;
        }
        if open.shown.is_some() {
            return Some(ReceiverHeaderValue::Secret(open.text));
        }
        let template = FieldTemplate(self.pieces(node, names));
        if SECRET_HEADERS.contains(&name) && template.fields().next().is_none() {
            self.diagnostics.conceal(node.at);
            self.diagnostics
                .error(format!("`{name}` is written in the config file"))
                .at(node.at, "a secret must not be in the config file")
                .hint(format!("put it in an environment variable and write {name} = {{ env = \"NAME\" }}"));
            return None;
        }
        Some(ReceiverHeaderValue::Template(template))
    }

    fn receipt_headers(&mut self, section: &ConfigSection<'_>) -> Vec<String> {
        let list = self.header_list("receipt_headers", section);
        let mut kept: Vec<String> = Vec::new();
        for item in list {
            let Some(name) = self.header_name(item.text().unwrap_or_default(), item.at) else { continue };
            if HOP_HEADERS.contains(&&*name) || name == "set-cookie" {
                self.diagnostics
                    .error(format!("`{name}` cannot be kept"))
                    .at(item.at, "a kept header is returned to everyone who repeats the delivery")
                    .hint("leave it out");
            } else if kept.contains(&name) {
                self.report_repeated_field("receipt_headers", item);
            } else {
                kept.push(name);
            }
        }
        kept
    }

    fn header_list<'n>(&mut self, key: &str, section: &ConfigSection<'n>) -> &'n [ConfigNode] {
        let list = section.node(key).and_then(ConfigNode::list).unwrap_or(&[]);
        self.not_too_many(key, list.len(), section);
        list
    }

    fn not_too_many(&mut self, key: &str, count: usize, section: &ConfigSection<'_>) {
        if count > limits::FORWARDED_HEADERS_MAX {
            let label = format!("at most {} are allowed", limits::FORWARDED_HEADERS_MAX);
            self.diagnostics.error(format!("`{key}` has {count} entries")).at(section.key_place(key), label);
        }
    }

    /// The name of a header that may be passed on or set, in lower case.
    fn header(&mut self, text: &str, at: ConfigSpan, signs: bool) -> Option<String> {
        let name = self.header_name(text, at)?;
        let ours = OWN_HEADERS.contains(&&*name) || name.starts_with(OWN_PREFIX);
        let wrong = if HOP_HEADERS.contains(&&*name) {
            "it belongs to one connection and means nothing on the next"
        } else if ours {
            "hookonce sets it itself"
        } else if matches!(&*name, "content-type" | "content-encoding") {
            "the body is sent unchanged, and so is its type and encoding"
        } else if signs && is_standard_header(&name) {
            "it is part of the signature that `sign` creates"
        } else {
            return Some(name);
        };
        self.diagnostics.error(format!("the header `{name}` cannot be sent")).at(at, wrong).hint("leave it out");
        None
    }

    /// The name of a header, in lower case.
    pub(in crate::config) fn header_name(&mut self, text: &str, at: ConfigSpan) -> Option<String> {
        let name = reqwest::header::HeaderName::try_from(text).ok();
        if name.is_none() {
            self.diagnostics
                .error(format!("`{text}` cannot be the name of a header"))
                .at(at, "letters, digits and -, such as \"x-github-event\"");
        }
        name.map(|name| name.as_str().to_owned())
    }
}

/// The headers that say what a delivery is, and its id, as the source's preset knows them. Not those that `set` or
/// `sign` make; and an element of a delivery does not have the delivery's id.
fn passed_by_default(section: &ConfigSection<'_>, names: &SourceFieldScope<'_>, signs: bool) -> Vec<String> {
    let Some(sender) = names.sender else { return Vec::new() };
    let ids = if names.fields.each().is_some() { &[] } else { &*sender.id_headers };
    let set = section.node("set").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
    let made = |name: &str| {
        (signs && is_standard_header(name)) || set.iter().any(|entry| entry.key.eq_ignore_ascii_case(name))
    };
    sender.kind_headers.iter().chain(ids).filter(|name| !made(name)).cloned().collect()
}

/// A receiver as JSON.
pub(super) fn view(receiver: &ReceiverPlan) -> Value {
    json!({
        "url": receiver.display,
        "timeout": duration_text(receiver.timeout),
        "headers": receiver.pass,
        "set": receiver.set.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "signed": receiver.sign.is_some(),
        "allow": receiver.allow.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "http2": match receiver.http2 { Http2Mode::Negotiated => "auto", Http2Mode::Prior => "prior" },
        "at_once": receiver.at_once,
        "receipt_headers": receiver.receipt_headers,
    })
}

/// A receiver in words.
pub(super) fn text(receiver: &ReceiverPlan) -> String {
    let mut text = format!("{}, within {}", receiver.display, duration_text(receiver.timeout));
    // Writing to a string cannot fail.
    if !receiver.pass.is_empty() {
        let _ = write!(text, ", passing {}", receiver.pass.join(", "));
    }
    if !receiver.set.is_empty() {
        let names: Vec<_> = receiver.set.iter().map(|(name, _)| &**name).collect();
        let _ = write!(text, ", setting {}", names.join(", "));
    }
    if receiver.sign.is_some() {
        text += ", signed";
    }
    if receiver.http2 == Http2Mode::Prior {
        text += ", by HTTP/2";
    }
    if let Some(at_once) = receiver.at_once {
        let _ = write!(text, ", {at_once} at once");
    }
    text
}
