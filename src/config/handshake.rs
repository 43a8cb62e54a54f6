//! `handshake`: the questions of a sender that are answered without an event.

use super::external_value::is_short_text;
use super::keys::{ConfigValueType, SectionKeys, key};
use super::raw::{ConfigNode, ConfigSpan};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::field::FieldLocation;
use crate::decide::handshake::{
    HandoverKind, Handshake, HandshakeAnswer, HandshakeHandover, HandshakeMark, HandshakeMethod, HandshakeToken,
    HandshakeValue, is_readable,
};
use crate::decide::response::HOP_HEADERS;
use crate::decide::verify::{SourceSecrets, VerificationScheme};

pub(super) static HANDSHAKE_KEYS: SectionKeys = SectionKeys {
    name: "handshake",
    title: "`[[source.NAME.handshake]]`",
    about: "A question of the sender that is answered at once, without an event. Presets have those of their senders.",
    keys: &[&[
        key("method", ConfigValueType::Word(METHODS), "POST", "The method it comes with."),
        key(
            "signed",
            ConfigValueType::Flag,
            "true for POST, unless it brings a secret",
            "Whether it counts only if it is verified like a delivery.",
        ),
        key(
            "when",
            ConfigValueType::Values,
            "required for POST",
            "What is there in a handshake: places and their values; \"*\" is any value.",
        ),
        key("token", ConfigValueType::Place, "none", "Where the token is that must be equal to verify_token."),
        key("status", ConfigValueType::Count, "200", "The status of the answer."),
        key("text", ConfigValueType::Place, "none", "Answers with the text at this place."),
        key("header", ConfigValueType::Text, "the body", "The header that gets the text instead of the body."),
        key(
            "members",
            ConfigValueType::Values,
            "none",
            "Answers with a JSON object: names, and places or hmac.hex(place), hmac.base64(place).",
        ),
        key("json", ConfigValueType::Text, "none", "Answers with this JSON."),
        key("headers", ConfigValueType::Values, "none", "Further headers of the answer, with their values."),
        key(
            "shows",
            ConfigValueType::Place,
            "none",
            "Where the value is that an operator sees once, by `hookonce handshake` or on the dashboard.",
        ),
        key(
            "takes",
            ConfigValueType::Place,
            "none",
            "Where the source's secret is, which is written to its file while `hookonce handshake` waits for it.",
        ),
    ]],
};

/// Headers by which a browser would do something. What a handshake echoes comes from whoever asks.
const BROWSER_HEADERS: &[&str] =
    &["set-cookie", "clear-site-data", "refresh", "location", "link", "content-type", "x-content-type-options"];

const METHODS: &[&str] = &["POST", "GET", "HEAD", "OPTIONS"];

impl ConfigResolver<'_> {
    /// The handshakes of a source.
    pub(super) fn handshakes(
        &mut self,
        source: &ConfigSection<'_>,
        scheme: Option<&VerificationScheme>,
    ) -> Vec<Handshake> {
        let sections = source.sections("handshake");
        let token = self.verify_token(source, &sections);
        let mut bringing = sections.iter().filter(|section| brings(section));
        if let (Some(_), Some(second)) = (bringing.next(), bringing.next()) {
            self.diagnostics
                .error("two handshakes of a source bring a value")
                .at(second.at, "nobody could tell which one it is");
        }
        sections.iter().filter_map(|section| self.handshake(section, scheme, token.as_ref())).collect()
    }

    /// The token that handshakes must bring.
    fn verify_token(&mut self, source: &ConfigSection<'_>, handshakes: &[ConfigSection<'_>]) -> Option<SourceSecrets> {
        let needed = handshakes.iter().any(|section| section.has("token"));
        match (source.node("verify_token"), needed) {
            (Some(node), true) => {
                let secrets = self.secrets("verify_token", node, is_short_text)?;
                Some(SourceSecrets::new(secrets.iter().map(|secret| secret.expose().to_vec()).collect()))
            }
            (Some(_), false) => {
                self.diagnostics
                    .warning("`verify_token` has no effect")
                    .unless(self.unread.preset)
                    .at(source.key_place("verify_token"), "no handshake asks for a token");
                None
            }
            (None, true) => {
                self.diagnostics
                    .error("a handshake needs `verify_token`, the token that is set at the sender")
                    .unless(source.misspells("verify_token"))
                    .at(source.at, "")
                    .hint("verify_token = { env = \"VERIFY_TOKEN\" }");
                None
            }
            (None, false) => None,
        }
    }

    fn handshake(
        &mut self,
        section: &ConfigSection<'_>,
        scheme: Option<&VerificationScheme>,
        token: Option<&SourceSecrets>,
    ) -> Option<Handshake> {
        let method = section.text("method").and_then(HandshakeMethod::parse).unwrap_or(HandshakeMethod::Post);
        let places_before = self.places.len();
        let when = self.marks(section);
        if method == HandshakeMethod::Post && when.is_empty() {
            self.diagnostics
                .error("a handshake by POST needs `when`")
                .unless(section.misspells("when"))
                .at(section.at, "every delivery would be taken for it")
                .hint("when = { \"body.type\" = \"url_verification\" }");
        }
        let place = section.node("token").map(|node| self.place(node));
        let token = place.zip(token.cloned()).map(|(at, secrets)| HandshakeToken { at, secrets });
        let status = section.count("status").map_or(200, |status| u16::try_from(status).unwrap_or(u16::MAX));
        if !(200..300).contains(&status) {
            self.diagnostics
                .error("`status` is not a success")
                .at(section.place("status"), "a handshake is answered with 200 to 299");
        }
        let answer = self.handshake_answer(section)?;
        if status == 204 && !matches!(answer, HandshakeAnswer::Empty | HandshakeAnswer::Header(..)) {
            self.diagnostics
                .error("a handshake that is answered with 204 has no content")
                .at(section.place("status"), "the sender would not get the answer")
                .hint("status = 200");
        }
        if method == HandshakeMethod::Head && !matches!(answer, HandshakeAnswer::Empty | HandshakeAnswer::Header(..)) {
            self.diagnostics
                .error("the answer to a handshake by HEAD has no content")
                .at(section.at, "the sender would not get the answer")
                .hint("answer with `header`, or with the status alone");
        }
        if answer.is_signed() && scheme.is_some_and(|scheme| !scheme.has_shared_hmac_key()) {
            self.diagnostics
                .error("the answer to a handshake is signed, but this source has no secret to sign with")
                .at(section.place("members"), "");
        }
        let handover = self.handover(section, method, scheme);
        self.check_handshake_places(method, places_before);
        let signed = section.flag("signed").unwrap_or(method == HandshakeMethod::Post && handover.is_none());
        let headers = self.fixed_headers(section);
        Some(Handshake { method, signed, when, token, status, answer, headers, handover })
    }

    /// Reports places of a handshake that are never there: those that were found after the first `before`.
    fn check_handshake_places(&mut self, method: HandshakeMethod, before: usize) {
        let places = self.places.get(before..).unwrap_or_default();
        let never = places.iter().filter_map(|(place, at)| match place {
            FieldLocation::Claim(_) => Some((place, *at, "", "claims are read only of deliveries")),
            place if place.is_in_body() && method != HandshakeMethod::Post => {
                Some((place, *at, method.word(), "a body is read only of a POST"))
            }
            _ => None,
        });
        for (place, at, method, why) in never {
            let by = if method.is_empty() { String::new() } else { format!(" by {method}") };
            self.diagnostics.error(format!("`{place}` is never there in a handshake{by}")).at(at, why);
        }
    }

    /// What a handshake brings.
    fn handover(
        &mut self,
        section: &ConfigSection<'_>,
        method: HandshakeMethod,
        scheme: Option<&VerificationScheme>,
    ) -> Option<HandshakeHandover> {
        let (key, kind) = match (section.has("shows"), section.has("takes")) {
            (true, true) => {
                self.diagnostics
                    .error("a handshake brings two values")
                    .at(section.key_place("takes"), "`shows` is set, too");
                return None;
            }
            (true, false) => ("shows", HandoverKind::Shown),
            (false, true) => ("takes", HandoverKind::Taken),
            (false, false) => return None,
        };
        if method != HandshakeMethod::Post {
            self.diagnostics
                .error(format!("`{key}` is only for a handshake by POST"))
                .at(section.key_place(key), format!("this one comes by {}", method.word()));
        }
        if section.flag("signed") == Some(true) {
            self.diagnostics
                .error(format!("`{key}` is only for a handshake that is not signed"))
                .at(section.place("signed"), "what is signed with a secret brings none")
                .hint("signed = false");
        }
        if kind == HandoverKind::Taken && scheme.is_some_and(|scheme| !scheme.has_shared_hmac_key()) {
            self.diagnostics
                .error("`takes` needs a scheme that signs with a secret")
                .at(section.key_place(key), "the deliveries of this source are verified in another way");
        }
        Some(HandshakeHandover { at: self.place(section.node(key)?), kind })
    }

    /// The further headers of an answer.
    fn fixed_headers(&mut self, section: &ConfigSection<'_>) -> Vec<(String, String)> {
        let entries = section.node("headers").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
        let mut headers = Vec::new();
        for entry in entries {
            let Some(value) = entry.node.text() else { continue };
            let Some(name) = self.header_name(&entry.key, entry.key_at) else { continue };
            self.check_answer_header(&name, entry.key_at);
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
                self.diagnostics
                    .error(format!("the value of the header `{name}` cannot be sent"))
                    .at(entry.node.at, "it may have letters, digits, punctuation and spaces of ASCII");
            }
            headers.push((name, value.to_owned()));
        }
        headers
    }

    /// Reports a header by which a browser would do something, and one that is never sent.
    fn check_answer_header(&mut self, name: &str, at: ConfigSpan) {
        let why = if BROWSER_HEADERS.contains(&name) {
            "a link could set it to anything in a browser"
        } else if name == "connection" || HOP_HEADERS.contains(&name) {
            "it is about the connection, and not sent"
        } else {
            return;
        };
        self.diagnostics.error(format!("the header `{name}` cannot be the answer to a handshake")).at(at, why);
    }

    fn marks(&mut self, section: &ConfigSection<'_>) -> Vec<HandshakeMark> {
        let entries = section.node("when").and_then(ConfigNode::table).map_or(&[][..], |table| &table.entries);
        let mut marks = Vec::new();
        for entry in entries {
            match FieldLocation::parse(&entry.key) {
                Ok(at) => {
                    self.places.push((at.clone(), entry.key_at));
                    let is = entry.node.text().filter(|text| *text != "*").map(str::to_owned);
                    if is.as_deref().is_some_and(|text| !is_readable(text)) {
                        self.diagnostics
                            .error(format!("`{}` never has this value in a handshake", entry.key))
                            .at(
                                entry.node.at,
                                "a value that is read is not empty, not long and has no control characters",
                            )
                            .hint("\"*\" is any value");
                    }
                    marks.push(HandshakeMark { at, is });
                }
                Err(why) => {
                    self.diagnostics
                        .error(format!("`{}` is not a place in a delivery", entry.key))
                        .at(entry.key_at, why);
                }
            }
        }
        marks
    }

    fn handshake_answer(&mut self, section: &ConfigSection<'_>) -> Option<HandshakeAnswer> {
        let written: Vec<_> = ["text", "members", "json"].into_iter().filter(|key| section.has(key)).collect();
        if let [_, second, ..] = written[..] {
            self.diagnostics
                .error("a handshake has two answers")
                .at(section.key_place(second), format!("`{}` is set, too", written[0]));
            return None;
        }
        if section.has("header") && !section.has("text") {
            self.diagnostics
                .error("`header` needs `text`")
                .at(section.key_place("header"), "it says where the text goes");
        }
        if let Some(node) = section.node("text") {
            let at = self.place(node);
            let Some(name) = section.text("header") else { return Some(HandshakeAnswer::Text(at)) };
            let name = self.header_name(name, section.place("header"))?;
            self.check_answer_header(&name, section.place("header"));
            return Some(HandshakeAnswer::Header(name, at));
        }
        if let Some(node) = section.node("json") {
            let text = node.text()?;
            if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
                self.diagnostics.error("`json` is not JSON").at(node.at, error.to_string());
            }
            return Some(HandshakeAnswer::Json(text.to_owned()));
        }
        let Some(table) = section.node("members").and_then(ConfigNode::table) else {
            return Some(HandshakeAnswer::Empty);
        };
        let mut members = Vec::new();
        for entry in &table.entries {
            match entry.node.text().map(HandshakeValue::parse) {
                Some(Ok(value)) => {
                    self.places.push((value.at().clone(), entry.node.at));
                    members.push((entry.key.clone(), value));
                }
                Some(Err(why)) => {
                    self.diagnostics.error(format!("`{}` cannot be read", entry.key)).at(entry.node.at, why);
                }
                None => {}
            }
        }
        Some(HandshakeAnswer::Members(members))
    }
}

/// Whether a handshake brings a value.
pub(super) fn brings(section: &ConfigSection<'_>) -> bool {
    section.has("shows") || section.has("takes")
}

/// Whether something in the answers to a source's handshakes is signed, for whoever asks.
pub(super) fn signs_answers(source: &ConfigSection<'_>) -> bool {
    let is_signed = |text: &str| matches!(HandshakeValue::parse(text), Ok(HandshakeValue::Hmac { .. }));
    let members = |section: &ConfigSection<'_>| {
        let table = section.node("members").and_then(ConfigNode::table);
        table.is_some_and(|table| table.entries.iter().any(|entry| entry.node.text().is_some_and(is_signed)))
    };
    source.sections("handshake").iter().any(members)
}

/// A handshake in words.
pub(super) fn words(handshake: &Handshake) -> String {
    let marks = handshake.when.iter().map(|mark| match &mark.is {
        Some(is) => format!("{} is {is}", mark.at),
        None => format!("{} is there", mark.at),
    });
    let mut words: Vec<_> = marks.collect();
    words.extend(handshake.token.as_ref().map(|token| format!("{} is the token", token.at)));
    let signed = if handshake.signed { ", signed" } else { "" };
    let when = if words.is_empty() { String::new() } else { format!(" if {}", words.join(" and ")) };
    let brings = match &handshake.handover {
        Some(HandshakeHandover { at, kind: HandoverKind::Shown }) => format!(", and an operator may see {at}"),
        Some(HandshakeHandover { at, kind: HandoverKind::Taken }) => {
            format!(", if somebody waits for the secret in {at}")
        }
        None => String::new(),
    };
    format!("{}{signed}{when}: {}{brings}", handshake.method.word(), handshake.status)
}
