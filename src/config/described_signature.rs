//! A signature that `verify` describes: where it is, how it is written, and over what.

use super::raw::ConfigSpan;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::verify::SchemeInput;
use crate::decide::field::FieldLocation;
use crate::decide::verify::{
    DEFAULT_TOLERANCE, DescribedSignature, HmacHash, PublicKeyAlgorithm, PublicKeys, SecretEncoding, SignatureEncoding,
    SignatureEntries, SignatureKeys, SignedPiece, SignedText, SignedUrl, TimestampFormat, TimestampLocation,
    VerificationScheme,
};

impl ConfigResolver<'_> {
    pub(super) fn hmac_signature(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let keys = input.described.then_some(input.keys);
        let word = |key: &str| keys.and_then(|keys| keys.text(key));
        let hash = match word("hash") {
            Some("sha1") => HmacHash::Sha1,
            Some("sha512") => HmacHash::Sha512,
            _ => HmacHash::Sha256,
        };
        let encoding = input.secret_encoding().unwrap_or(SecretEncoding::Text);
        let keys = SignatureKeys::hmac(hash, &input.secrets, encoding).map_err(|why| {
            self.diagnostics
                .error("the secret cannot be decoded, so nothing could be verified")
                .at(input.secret_place(input.keys.place("secret_encoding")), why)
                .hint("secret_encoding says how the sender shows the key");
        });
        self.described(input, keys.ok())
    }

    pub(super) fn public_key_signature(
        &mut self,
        algorithm: PublicKeyAlgorithm,
        input: &SchemeInput<'_>,
    ) -> Option<VerificationScheme> {
        let keys = PublicKeys::new(algorithm, &input.secrets).map_err(|why| self.bad_public_key(input, why));
        self.described(input, keys.ok().map(SignatureKeys::Public))
    }

    /// Reports a public key that cannot be used.
    pub(super) fn bad_public_key(&mut self, input: &SchemeInput<'_>, why: String) {
        let section = if input.keys.has("public_key") { &input.keys } else { input.source };
        self.diagnostics.error("the public key cannot be read").at(section.place("public_key"), why);
    }

    /// The signature with these keys; `None` of them: they are invalid, which has been reported.
    fn described(&mut self, input: &SchemeInput<'_>, keys: Option<SignatureKeys>) -> Option<VerificationScheme> {
        let section = &input.keys;
        let unnamed = || section.node("header").is_none_or(|node| node.list().is_some_and(<[_]>::is_empty));
        let at = if input.described { self.signature_place(section) } else { None };
        if !input.described || at.is_none() && unnamed() {
            self.diagnostics
                .error(format!("scheme `{}` needs the header with the signature", input.name))
                .unless(input.described && section.misspells("header"))
                .at(section.at, "`header` is missing")
                .hint(format!("verify = {{ scheme = \"{}\", secret = …, header = \"x-signature\" }}", input.name));
            return None;
        }
        let place = section.place("header");
        let written = section.texts("header").into_iter().map(|name| self.header_name(name, place));
        let headers = written.collect::<Option<Vec<_>>>()?;
        self.named_once(&headers, place);
        if headers.is_empty() && at.is_none() {
            return None; // validation has reported its type
        }
        let timestamp_format = match section.text("timestamp_format") {
            Some("seconds") => Some(TimestampFormat::Seconds),
            Some("milliseconds") => Some(TimestampFormat::Milliseconds),
            Some("rfc3339") => Some(TimestampFormat::Rfc3339),
            _ => None,
        };
        let over = self.over(section, timestamp_format)?;
        let timestamp = self.timestamp(section, &headers);
        self.signed_time(section, &over, timestamp.as_ref());
        let url = self.signed_url(input, &over);
        self.nothing_in_a_signed_query(input, &over);
        self.signed_once(input, &over);
        if over.has(&SignedPiece::Id) && input.source.has("each") {
            self.diagnostics
                .error("`over` has an {id}, but `each` makes an event of each element")
                .at(section.place("over"), "`delivery` is the id of an element, and that is not what is signed");
        } else if over.has(&SignedPiece::Id) && input.delivery.is_none() {
            self.diagnostics
                .error("`over` has an {id}, but `delivery` is missing")
                .unless(self.unread.delivery)
                .at(section.place("over"), "")
                .hint("set delivery = \"header.x-id\" in the source");
        }
        let entries = section.text("entry").map(|name| SignatureEntries {
            signature: name.to_owned(),
            separator: if section.text("separator") == Some(";") { ';' } else { ',' },
        });
        if entries.is_none() && section.has("separator") {
            self.diagnostics
                .error("`separator` needs `entry`")
                .unless(section.misspells("entry"))
                .at(section.key_place("separator"), "it separates the entries of the header");
        }
        match &entries {
            Some(entries) => self.entries(section, entries, timestamp.as_ref()),
            None if at.is_none() => self.prefix_of_a_header(section),
            None => {}
        }
        Some(VerificationScheme::new(DescribedSignature {
            keys: keys?,
            headers,
            at,
            entries,
            prefix: section.text("prefix").unwrap_or_default().to_owned(),
            encoding: match section.text("encoding") {
                Some("base64") => SignatureEncoding::Base64,
                Some("base64url") => SignatureEncoding::Base64Url,
                _ => SignatureEncoding::Hex,
            },
            id: input.delivery.filter(|_| over.has(&SignedPiece::Id)).cloned(),
            over,
            url: url.map(SignedUrl::new),
            timestamp,
            timestamp_format,
            tolerance: self.positive(section, "tolerance").unwrap_or(DEFAULT_TOLERANCE),
        }))
    }

    /// Reports a header that is named twice: each signature in it would count twice.
    fn named_once(&mut self, headers: &[String], at: ConfigSpan) {
        let twice = |(index, name): &(usize, &String)| headers[..*index].contains(name);
        if let Some((_, name)) = headers.iter().enumerate().find(twice) {
            self.diagnostics
                .error(format!("the header `{name}` is named twice"))
                .at(at, "upper and lower case are the same in the name of a header");
        }
    }

    /// Reports what is looked for in the query where the sender signs its URL: nothing else than the configured query may
    /// be there.
    fn nothing_in_a_signed_query(&mut self, input: &SchemeInput<'_>, over: &SignedText) {
        let named = [(&input.keys, "at"), (&input.keys, "timestamp"), (input.source, "delivery")];
        for (section, key) in named.into_iter().filter(|_| over.has_url()) {
            if section.text(key).is_some_and(|place| place.starts_with("query.")) {
                self.diagnostics
                    .error(format!(
                        "`{key}` is in the query, but the sender signs its URL, so nothing could be verified"
                    ))
                    .at(section.place(key), "the query must be the one in `url`, and nothing else");
            }
        }
    }

    /// Reports a prefix that no header has: blanks around a header's value are not part of it.
    pub(super) fn prefix_of_a_header(&mut self, keys: &ConfigSection<'_>) {
        if keys.text("prefix").is_some_and(|prefix| prefix.starts_with(char::is_whitespace)) {
            self.diagnostics
                .error("`prefix` begins with a blank, so nothing could be verified")
                .at(keys.place("prefix"), "the value of a header never does");
        }
    }

    /// Where the signature is, if it is not in a header.
    fn signature_place(&mut self, keys: &ConfigSection<'_>) -> Option<FieldLocation> {
        let node = keys.node("at")?;
        let place = self.place(node);
        if keys.has("header") || keys.has("entry") {
            let key = if keys.has("header") { "header" } else { "entry" };
            self.diagnostics
                .error("the signature has two places")
                .at(keys.key_place(key), "`at` is set, too")
                .hint("remove one of them");
        }
        // That a claim is never there is reported with all others.
        let is_read = matches!(
            place,
            FieldLocation::Body(_) | FieldLocation::Form(_) | FieldLocation::Query(_) | FieldLocation::Claim(_)
        );
        if !is_read {
            self.diagnostics
                .error("`at` is for a signature in the body or in the query")
                .at(node.at, "for one in a header write header = \"x-signature\"");
        }
        Some(place)
    }

    /// Checks a signature that is not made over the body: it is for an id that is used once, and for a time.
    fn signed_once(&mut self, input: &SchemeInput<'_>, over: &SignedText) {
        let keys = &input.keys;
        let in_body = keys.text("at").is_some_and(|at| ["body.", "form."].iter().any(|part| at.starts_with(part)));
        if over.has(&SignedPiece::Body) {
            if in_body {
                self.diagnostics
                    .error("a signature in the body cannot be over the body")
                    .at(keys.place("at"), "it would have to be part of what it signs")
                    .hint("over = \"{timestamp}{id}\", if the sender signs these");
            }
            return;
        }
        if !over.has(&SignedPiece::Timestamp) {
            self.diagnostics
                .error("`over` has neither {body} nor {timestamp}")
                .at(keys.place("over"), "a captured delivery would count for ever, with anything in its body")
                .hint("over = \"{timestamp}{id}\", if the sender signs these");
        }
    }

    /// The signed content.
    fn over(&mut self, keys: &ConfigSection<'_>, time: Option<TimestampFormat>) -> Option<SignedText> {
        let Some(node) = keys.node("over") else { return Some(SignedText::body()) };
        match SignedText::parse(node.text()?, time) {
            Ok(over) => Some(over),
            Err(why) => {
                self.diagnostics.error("`over` cannot be read").at(node.at, why).hint("over = \"{timestamp}.{body}\"");
                None
            }
        }
    }

    /// Checks that the entries of the header can be told apart.
    fn entries(&mut self, keys: &ConfigSection<'_>, entries: &SignatureEntries, timestamp: Option<&TimestampLocation>) {
        let time = match timestamp {
            Some(TimestampLocation::Entry(name)) => Some(("timestamp", name)),
            Some(TimestampLocation::At(_)) | None => None,
        };
        for (key, name) in [("entry", &entries.signature)].into_iter().chain(time) {
            if name.is_empty() || name.contains(|c: char| c == '=' || c == entries.separator || c.is_whitespace()) {
                self.diagnostics
                    .error(format!("`{name}` cannot be the name of an entry"))
                    .at(keys.place(key), "it is what stands before the `=`")
                    .hint("entry = \"v1\", timestamp = \"entry.t\" for t=…,v1=…");
            }
        }
        if time.is_some_and(|(_, name)| *name == entries.signature) {
            self.diagnostics
                .error("`timestamp` is the entry with the signature")
                .at(keys.place("timestamp"), "a signature is not a time, so nothing could be verified")
                .hint("for t=…,v1=… write entry = \"v1\", timestamp = \"entry.t\"");
        }
        if keys.text("prefix").is_some_and(|prefix| prefix.starts_with(&format!("{}=", entries.signature))) {
            self.diagnostics
                .error("`prefix` repeats the name of the entry, so nothing could be verified")
                .at(keys.place("prefix"), format!("`{0}=` would have to be there twice: {0}={0}=…", entries.signature))
                .hint("remove `prefix`: `entry` says what stands before the signature");
        }
        if keys.text("prefix").is_some_and(|prefix| prefix.contains(entries.separator)) {
            self.diagnostics
                .error("`prefix` contains what separates the entries, so nothing could be verified")
                .at(keys.place("prefix"), "the prefix of the signature itself, after the `=`");
        }
    }

    /// Where the time is: a place in the delivery, or an entry of the header with the signature.
    fn timestamp(&mut self, keys: &ConfigSection<'_>, headers: &[String]) -> Option<TimestampLocation> {
        let node = keys.node("timestamp")?;
        if let Some(entry) = node.text()?.strip_prefix("entry.") {
            if !keys.has("entry") {
                self.diagnostics
                    .error(format!("`timestamp` is the entry `{entry}`, but `entry` does not name the signature's"))
                    .unless(keys.misspells("entry"))
                    .at(node.at, "a header has entries only if `entry` says so")
                    .hint("entry = \"v1\", timestamp = \"entry.t\" for t=…,v1=…");
            }
            return Some(TimestampLocation::Entry(entry.to_owned()));
        }
        let place = self.place(node);
        if matches!(&place, FieldLocation::Header(name) if headers.contains(name)) {
            self.diagnostics
                .error("`timestamp` is the whole header with the signature")
                .at(node.at, "a signature is not a time, so nothing could be verified")
                .hint("for t=…,v1=… write entry = \"v1\", timestamp = \"entry.t\"");
        }
        if place == FieldLocation::Path {
            self.diagnostics
                .error("`timestamp` cannot be in the path")
                .at(node.at, "a source has one path, and it is not a time");
        }
        Some(TimestampLocation::At(place))
    }

    /// Checks that `timestamp` is signed, and that a signed timestamp has a location.
    fn signed_time(&mut self, keys: &ConfigSection<'_>, over: &SignedText, timestamp: Option<&TimestampLocation>) {
        match (over.has(&SignedPiece::Timestamp), timestamp) {
            (true, None) => {
                self.diagnostics
                    .error("`over` has a {timestamp}, but `timestamp` is missing")
                    .unless(keys.misspells("timestamp"))
                    .at(keys.place("over"), "")
                    .hint("set timestamp = \"header.x-time\"");
            }
            (false, Some(place)) if !matches!(place, TimestampLocation::At(at) if at.is_in_body()) => {
                self.diagnostics
                    .error("`timestamp` is not part of `over`")
                    .at(keys.place("timestamp"), "anyone who repeats a delivery could change it")
                    .hint("over = \"{timestamp}.{body}\", if the sender signs both");
            }
            (_, None) if keys.has("timestamp_format") => {
                self.diagnostics
                    .error("`timestamp_format` needs a `timestamp`")
                    .unless(keys.misspells("timestamp"))
                    .at(keys.place("timestamp_format"), "it says how that is written");
            }
            (false, None) if keys.has("tolerance") => {
                self.diagnostics
                    .error("`tolerance` needs a `timestamp`")
                    .unless(keys.misspells("timestamp"))
                    .at(keys.place("tolerance"), "there is no time to compare with");
            }
            _ => {}
        }
    }

    /// The public URL of a source whose sender signs it.
    pub(super) fn required_url(&mut self, input: &SchemeInput<'_>) -> Option<String> {
        let url = input.source.text("url");
        if url.is_none() {
            self.diagnostics
                .error("the sender signs its URL, but `url` is missing")
                .unless(input.source.misspells("url"))
                .at(input.source.at, "")
                .hint("url = \"https://hooks.example.com/in/name\", as it is set at the sender");
        }
        let is_public = |url: &str| {
            let parsed = reqwest::Url::parse(url);
            parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        };
        if let Some(node) = input.source.node("url").filter(|node| node.text().is_some_and(|url| !is_public(url))) {
            self.diagnostics
                .error("`url` is not a URL, so nothing could be verified")
                .at(node.at, "expected https:// with a host, as it is set at the sender")
                .hint("url = \"https://hooks.example.com/in/name\"");
        }
        url.map(str::to_owned)
    }

    /// The public URL, where it is signed.
    fn signed_url(&mut self, input: &SchemeInput<'_>, over: &SignedText) -> Option<String> {
        let url = input.source.text("url");
        if over.has_url() {
            self.required_url(input);
        }
        if let (Some(url), false) = (url, over.has_url()) {
            self.diagnostics
                .warning("`url` has no effect")
                .at(input.source.key_place("url"), format!("the signature does not cover {url}"))
                .hint("remove it");
        }
        url.filter(|_| over.has_url()).map(str::to_owned)
    }
}
