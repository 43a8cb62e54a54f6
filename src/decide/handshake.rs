//! Handshakes: the questions by which a sender finds out that an endpoint is there and belongs to who registered it.
//!
//! A handshake is answered without a write. Where its sender signs it, it is answered only if it is signed: otherwise it
//! is judged like any other delivery. What is echoed is short, and never under a type that a browser would run.
//!
//! Some senders bring a secret by their first request, which nothing can sign yet. Such a [`HandshakeHandover`] is only
//! recognised here; whether anyone takes it is decided where somebody may wait for it.

use super::delivery::{Delivery, DeliveryRejection};
use super::field::FieldLocation;
use super::json_walk::JsonScalar;
use super::limits;
use super::response::{HttpResponse, ResponseHeader};
use super::source::Source;
use super::verify::{SignatureEncoding, SourceSecrets, VerifiedDelivery};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::fmt;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Headers that come with any request, so that they do not show that somebody asks for a handshake.
const BROWSER_HEADERS: [&str; 9] =
    ["accept", "accept-encoding", "accept-language", "connection", "cookie", "host", "origin", "referer", "user-agent"];

/// A handshake of a sender: how it is recognised, and its answer.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The method it comes with.
    pub method: HandshakeMethod,
    /// Whether it counts only if it is verified like a delivery.
    pub signed: bool,
    /// What all must be there.
    pub when: Vec<HandshakeMark>,
    /// A token that it must bring.
    pub token: Option<HandshakeToken>,
    /// The status of the answer.
    pub status: u16,
    /// The answer.
    pub answer: HandshakeAnswer,
    /// Further headers of the answer, names in lower case.
    pub headers: Vec<(String, String)>,
    /// A value that it brings for the operator or for the source.
    pub handover: Option<HandshakeHandover>,
}

/// A value that a handshake brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeHandover {
    /// Where it is.
    pub at: FieldLocation,
    /// What becomes of it.
    pub kind: HandoverKind,
}

/// What becomes of a value that a handshake brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandoverKind {
    /// An operator sees it, once.
    Shown,
    /// It is the source's secret, and is written to its file while an operator waits for it.
    Taken,
}

/// A value that a handshake has brought; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BroughtValue {
    /// What becomes of it.
    pub kind: HandoverKind,
    text: String,
}

/// A handshake that is to be answered.
#[derive(Debug)]
pub struct AnsweredHandshake {
    /// The answer.
    pub response: HttpResponse,
    /// What it brings: it is answered only if that is taken.
    pub brings: Option<BroughtValue>,
    /// What proves who asks.
    pub proof: HandshakeProof,
}

/// What proves that a handshake comes from its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeProof {
    /// A signature, or the token that was set at the sender.
    Secret,
    /// Nothing: anyone can ask.
    None,
}

/// A request that asks for a handshake as its sender does, and cannot be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedHandshake {
    /// 401 where it is not what was agreed, 400 where what it asks for cannot be sent back.
    pub status: u16,
    /// What is wrong with it, and where: never a value of it.
    pub why: String,
}

/// The method of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeMethod {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// OPTIONS.
    Options,
    /// POST, as a delivery comes.
    Post,
}

/// A value by which a handshake is recognised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HandshakeMark {
    /// Where.
    pub at: FieldLocation,
    /// The value; `None`: any but an empty one.
    pub is: Option<String>,
}

/// A token that a handshake must bring.
#[derive(Clone, Debug)]
pub struct HandshakeToken {
    /// Where.
    pub at: FieldLocation,
    /// The token.
    pub secrets: SourceSecrets,
}

/// What a handshake is answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandshakeAnswer {
    /// Nothing but the status.
    Empty,
    /// The text at this location.
    Text(FieldLocation),
    /// The text at this location, in a header.
    Header(String, FieldLocation),
    /// A JSON object of these members.
    Members(Vec<(String, HandshakeValue)>),
    /// This JSON text.
    Json(String),
}

/// A member of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HandshakeValue {
    /// The text at this location.
    At(FieldLocation),
    /// An HMAC-SHA256 of it with the source's secret.
    Hmac {
        /// The text before it.
        prefix: String,
        /// How it is written.
        encoding: SignatureEncoding,
        /// What is signed.
        of: FieldLocation,
    },
}

impl HandshakeMethod {
    /// The method of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "OPTIONS" => Self::Options,
            "POST" => Self::Post,
            _ => return None,
        })
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Post => "POST",
        }
    }
}

impl HandoverKind {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Taken => "taken",
        }
    }
}

impl BroughtValue {
    /// A value that was brought.
    pub fn new(kind: HandoverKind, text: String) -> Self {
        Self { kind, text }
    }

    /// The value: a secret, never to be logged.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for BroughtValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BroughtValue({:?}, •••)", self.kind)
    }
}

impl HandshakeAnswer {
    /// Whether something in it is signed with the source's secret.
    pub fn is_signed(&self) -> bool {
        matches!(self, Self::Members(members)
            if members.iter().any(|(_, value)| matches!(value, HandshakeValue::Hmac { .. })))
    }

    /// Where what it sends back is.
    fn places(&self) -> Vec<&FieldLocation> {
        match self {
            Self::Empty | Self::Json(_) => Vec::new(),
            Self::Text(at) | Self::Header(_, at) => vec![at],
            Self::Members(members) => members.iter().map(|(_, value)| value.at()).collect(),
        }
    }
}

impl HandshakeToken {
    /// Whether the delivery brings it.
    fn is_in(&self, delivery: &Delivery<'_>) -> bool {
        text_at(&self.at, delivery).is_some_and(|text| self.secrets.matches_token(text.as_bytes()))
    }
}

impl HandshakeValue {
    /// Parses a place, or `hmac.hex(place)` or `hmac.base64(place)` with any text before it. An error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((prefix, call)) = text.split_once("hmac.") else { return FieldLocation::parse(text).map(Self::At) };
        let (encoding, place) = call
            .strip_suffix(')')
            .and_then(|call| call.split_once('('))
            .ok_or_else(|| format!("`{text}` is not hmac.hex(place) or hmac.base64(place)"))?;
        let encoding = match encoding {
            "hex" => SignatureEncoding::Hex,
            "base64" => SignatureEncoding::Base64,
            _ => return Err(format!("`{encoding}` is neither `hex` nor `base64`")),
        };
        Ok(Self::Hmac { prefix: prefix.into(), encoding, of: FieldLocation::parse(place)? })
    }
}

impl Source {
    /// The answer to a handshake; `None`: this is none, or it is not signed as it must be. One that is signed and asks for
    /// what cannot be answered is refused: it is no event.
    pub fn answer_handshake(
        &self,
        method: HandshakeMethod,
        delivery: &Delivery<'_>,
    ) -> Option<Result<AnsweredHandshake, DeliveryRejection>> {
        let handshake = self.handshake(method, delivery)?;
        if handshake.signed {
            self.verify.verify(delivery).ok()?;
            if let Some(rejection) = handshake.rejection(delivery) {
                return Some(Err(rejection));
            }
        }
        let brings = match &handshake.handover {
            Some(handover) => Some(BroughtValue::new(handover.kind, visible_at(&handover.at, delivery)?.into_owned())),
            None => None,
        };
        let is_signed = handshake.signed && !self.verify.is_none();
        let proof = if is_signed || handshake.token.is_some() { HandshakeProof::Secret } else { HandshakeProof::None };
        Some(Ok(AnsweredHandshake { response: handshake.response(self, delivery)?, brings, proof }))
    }

    /// What the handshakes of its sender bring; `None`: they bring nothing.
    pub fn handover(&self) -> Option<HandoverKind> {
        self.handshakes.iter().find_map(|handshake| handshake.handover.as_ref()).map(|handover| handover.kind)
    }

    /// The handshake that this is, as far as it can be seen without verifying it.
    pub fn handshake(&self, method: HandshakeMethod, delivery: &Delivery<'_>) -> Option<&Handshake> {
        let is_short = delivery.body.len() <= limits::HANDSHAKE_BYTES_MAX;
        self.handshakes.iter().find(|handshake| is_short && handshake.is(method, delivery))
    }

    /// Why a request that is no delivery and was not answered is no handshake, if it brings something that only one of
    /// them has; `None`: it asks for none.
    pub fn refused_handshake(&self, method: HandshakeMethod, request: &Delivery<'_>) -> Option<RefusedHandshake> {
        let asked = self.handshakes.iter().filter(|handshake| handshake.method == method);
        let mut refused: Vec<_> = asked.filter_map(|handshake| handshake.refused(self, request)).collect();
        // Of several that it may be, the one that is right but for what it asks to get back.
        let nearest = refused.iter().position(|refused| refused.status == 400).unwrap_or(0);
        (!refused.is_empty()).then(|| refused.swap_remove(nearest))
    }

    /// Verifies a delivery or rejects it. Where a handshake signs what it is asked, a body that it would sign proves
    /// nothing: anyone could have had it signed.
    pub fn verify_delivery<'d>(&self, delivery: &'d Delivery<'d>) -> Result<VerifiedDelivery<'d>, DeliveryRejection> {
        if self.signs_for_anyone(delivery.body) {
            return Err(DeliveryRejection::BadSignature);
        }
        self.verify.verify(delivery)
    }

    /// Whether a handshake may have signed this text.
    pub fn signs_for_anyone(&self, text: &[u8]) -> bool {
        self.handshakes.iter().any(|handshake| handshake.answer.is_signed()) && is_nonce(text)
    }

    /// The methods of its handshakes, and that of deliveries.
    pub fn methods(&self) -> Vec<&'static str> {
        let mut all = vec![HandshakeMethod::Post.word()];
        for handshake in &self.handshakes {
            if !all.contains(&handshake.method.word()) {
                all.push(handshake.method.word());
            }
        }
        all
    }
}

impl Handshake {
    /// Whether this is the handshake, as far as it can be seen without verifying it.
    fn is(&self, method: HandshakeMethod, delivery: &Delivery<'_>) -> bool {
        self.method == method
            && self.when.iter().all(|mark| {
                text_at(&mark.at, delivery).is_some_and(|text| mark.is.as_ref().is_none_or(|is| *is == text))
            })
            && self.token.as_ref().is_none_or(|token| token.is_in(delivery))
    }

    /// Why a request of its method is not answered; `None`: it has nothing of this handshake, or nothing is wrong with it.
    fn refused(&self, source: &Source, request: &Delivery<'_>) -> Option<RefusedHandshake> {
        let echoed = self.answer.places();
        let marks = self.when.iter().map(|mark| &mark.at);
        let mut places = marks.chain(self.token.as_ref().map(|token| &token.at)).chain(echoed.iter().copied());
        if !places.any(|place| is_brought(place, request)) {
            return None;
        }
        let unauthorized = |place: &FieldLocation, what: &str| {
            Some(RefusedHandshake { status: 401, why: format!("{place} is missing or not {what}") })
        };
        for HandshakeMark { at, is } in &self.when {
            let is_there = text_at(at, request);
            match is {
                Some(is) if is_there.as_deref() != Some(is.as_str()) => return unauthorized(at, "what `when` says"),
                None if is_there.is_none() && !echoed.contains(&at) => return unauthorized(at, "readable"),
                _ => {}
            }
        }
        if let Some(token) = self.token.as_ref().filter(|token| !token.is_in(request)) {
            return unauthorized(&token.at, "the source's verify_token");
        }
        if self.signed && matches!(source.verify.verify(request), Err(DeliveryRejection::BadSignature)) {
            return Some(RefusedHandshake { status: 401, why: source.verify.rejection_reason(request) });
        }
        let place = self.unfit(request)?;
        let why = format!(
            "{place} cannot be sent back: it is missing, there more than once, not of 1 to {} bytes, or has other \
             characters than it may",
            limits::HANDSHAKE_ECHO_BYTES_MAX
        );
        Some(RefusedHandshake { status: 400, why })
    }

    /// Why a signed handshake cannot be answered: what it asks to get back is not there, or may not be sent back.
    pub fn rejection(&self, delivery: &Delivery<'_>) -> Option<DeliveryRejection> {
        let at = self.unfit(delivery).filter(|_| self.signed)?;
        Some(DeliveryRejection::Malformed(format!("this is a handshake, and {at} is nothing that is sent back")))
    }

    /// The place of what it asks to get back, if that is not there or may not be sent back.
    fn unfit(&self, delivery: &Delivery<'_>) -> Option<&FieldLocation> {
        let value = |value: &HandshakeValue| match value {
            HandshakeValue::At(at) => text_at(at, delivery).is_some(),
            HandshakeValue::Hmac { of, .. } => nonce_at(of, delivery).is_some(),
        };
        match &self.answer {
            HandshakeAnswer::Empty | HandshakeAnswer::Json(_) => None,
            HandshakeAnswer::Text(at) => Some(at).filter(|at| text_at(at, delivery).is_none()),
            HandshakeAnswer::Header(_, at) => Some(at).filter(|at| visible_at(at, delivery).is_none()),
            HandshakeAnswer::Members(members) => {
                members.iter().find(|(_, member)| !value(member)).map(|(_, member)| member.at())
            }
        }
    }

    fn response(&self, source: &Source, delivery: &Delivery<'_>) -> Option<HttpResponse> {
        // Discord wants a type even where there is no content.
        let (content_type, body) = match &self.answer {
            HandshakeAnswer::Empty | HandshakeAnswer::Header(..) => (TEXT, String::new()),
            HandshakeAnswer::Text(at) => (TEXT, text_at(at, delivery)?.into_owned()),
            HandshakeAnswer::Members(members) => {
                let value = |value: &HandshakeValue| value.text(source, delivery).map(Json::from);
                let members: Option<Map<_, _>> =
                    members.iter().map(|(name, member)| Some((name.clone(), value(member)?))).collect();
                (JSON, Json::Object(members?).to_string())
            }
            HandshakeAnswer::Json(text) => (JSON, text.clone()),
        };
        let typed = [("x-content-type-options", "nosniff"), ("content-type", content_type)];
        let mut headers: Vec<ResponseHeader> = typed.map(|(name, value)| (name.into(), value.into())).into();
        if let HandshakeAnswer::Header(name, at) = &self.answer {
            headers.push((name.clone().into(), visible_at(at, delivery)?.into_owned().into()));
        }
        headers.extend(self.headers.iter().map(|(name, value)| (name.clone().into(), value.clone().into())));
        Some(HttpResponse { status: self.status, headers, body: body.into_bytes(), word: "handshake" })
    }
}

impl HandshakeValue {
    /// Where it is, or the text that is signed.
    pub fn at(&self) -> &FieldLocation {
        match self {
            Self::At(at) | Self::Hmac { of: at, .. } => at,
        }
    }

    fn text(&self, source: &Source, delivery: &Delivery<'_>) -> Option<String> {
        match self {
            Self::At(at) => text_at(at, delivery).map(Cow::into_owned),
            Self::Hmac { prefix, encoding, of } => {
                let text = nonce_at(of, delivery)?;
                let mac = source.verify.hmac_of(text.as_bytes())?;
                Some(format!("{prefix}{}", encoding.encode(&mac)))
            }
        }
    }
}

/// Whether something is there, readable or not, that a browser would not bring by itself.
fn is_brought(place: &FieldLocation, request: &Delivery<'_>) -> bool {
    match place {
        FieldLocation::Path => false,
        FieldLocation::Header(name) if BROWSER_HEADERS.contains(&name.as_str()) => false,
        place => !matches!(place.read(request, request.body), Ok(None)),
    }
}

/// Whether this may be signed for whoever asks. The secret that signs it also signs deliveries, so [`Source::verify_delivery`]
/// accepts none whose body is such a text: with any other body, what is signed with it is no such text either.
fn is_nonce(text: &[u8]) -> bool {
    text.len() <= limits::HANDSHAKE_NONCE_BYTES_MAX
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_=+/".contains(byte))
}

/// A text that may be signed for whoever asks.
fn nonce_at<'d>(place: &FieldLocation, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
    text_at(place, delivery).filter(|text| is_nonce(text.as_bytes()))
}

/// A text that may be echoed: not empty, not long, without control characters.
fn text_at<'d>(place: &FieldLocation, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
    let text = match place.read(delivery, delivery.body).ok()?? {
        JsonScalar::Text(text) => text,
        JsonScalar::Number(raw) => Cow::Borrowed(raw),
        JsonScalar::Bool(_) => return None,
    };
    is_readable(&text).then_some(text)
}

/// Whether a text of a handshake is read at all: not empty, not long, without control characters.
pub fn is_readable(text: &str) -> bool {
    !text.is_empty() && text.len() <= limits::HANDSHAKE_ECHO_BYTES_MAX && !text.contains(char::is_control)
}

/// A text that may be echoed in a header, or be a secret: visible ASCII, as long as any other echo.
fn visible_at<'d>(place: &FieldLocation, delivery: &'d Delivery<'_>) -> Option<Cow<'d, str>> {
    text_at(place, delivery).filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
}
