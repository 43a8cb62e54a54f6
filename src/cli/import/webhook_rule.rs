//! The rules of a hook as ours: what proves the sender becomes `verify`, and the rest an expression with the same
//! meaning, missing values included.
//!
//! Webhook's `and` stops at a missing value, its `or` skips one, and its `not` makes one true, unless it stands in an
//! `and`. So a rule has two conditions: whether it holds, and whether it was evaluated without a missing value.

use super::webhook_hooks::{WebhookHook, WebhookMatch, WebhookParameter, WebhookRule};
use crate::decide::field::FieldLocation;
use crate::store::is_event_column;
use regex::Regex;
use std::fmt::Write as _;

/// What proves who sends.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum WebhookProof {
    /// An HMAC of the body in a header.
    Hmac { header: String, hash: &'static str, secrets: Vec<String> },
    /// A token at a place.
    Token { place: String, secrets: Vec<String> },
    /// Nothing.
    None,
}

/// A hook's rule in our words.
pub(super) struct TranslatedRule {
    pub(super) proof: WebhookProof,
    /// The expression; `None`: always.
    pub(super) when: Option<String>,
    /// What is different, but does not change who may run what.
    pub(super) notes: Vec<String>,
}

/// Fields that an expression or a command names.
#[derive(Default)]
pub(super) struct HookFields {
    list: Vec<HookField>,
    /// Whether the body is a form whose `payload` is JSON.
    pub(super) form_payload: bool,
}

/// A field: its name, where it is, and whether it is empty where it is missing.
pub(super) struct HookField {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) or_empty: bool,
}

/// Words that name a secret. The first seven also count as a part of a longer word, where the only question is whether a
/// value may be copied.
const SECRET_WORDS: [&str; 14] = [
    "token",
    "secret",
    "passw",
    "auth",
    "signature",
    "credential",
    "apikey",
    "pass",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "credentials",
    "key",
];
/// Words before `key` that make it the name of a thing.
const PLAIN_KEYS: [&str; 7] = ["event", "issue", "project", "repo", "repository", "object", "public"];

/// Whether a fixed value of this name may be a secret, so that it is not copied.
pub(super) fn may_name_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS[..7].iter().any(|word| name.contains(word)) || name.ends_with("key") || name == "pass"
}

/// Whether a value of this name is a secret that proves its sender: a whole word says so.
fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<_> = name.split(['-', '_', '.']).collect();
    let before = |at: usize| at.checked_sub(1).map_or("", |at| words[at]);
    words
        .iter()
        .enumerate()
        .any(|(at, word)| SECRET_WORDS.contains(word) && !(*word == "key" && PLAIN_KEYS.contains(&before(at))))
}

impl HookFields {
    pub(super) fn iter(&self) -> impl Iterator<Item = &HookField> {
        self.list.iter()
    }

    /// The name of the field with this value.
    pub(super) fn of(&mut self, parameter: &WebhookParameter, or_empty: bool) -> Result<String, String> {
        let place = place(parameter, self.form_payload)?;
        if let Some(known) = self.list.iter().find(|field| field.place == place && field.or_empty == or_empty) {
            return Ok(known.name.clone());
        }
        let name = self.free_name(&parameter.name);
        self.list.push(HookField { name: name.clone(), place, or_empty });
        Ok(name)
    }

    /// A name that no field has: the last parts of the parameter's own.
    fn free_name(&self, name: &str) -> String {
        let word = |text: &str| -> String {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
            text.chars().map(plain).collect()
        };
        let parts: Vec<_> = name.split('.').map(word).collect();
        let last = parts.len() - 1;
        let mut candidates: Vec<String> = (0..=last).rev().map(|from| parts[from..].join("_")).collect();
        let whole = parts.join("_");
        candidates.extend((2..).take(self.list.len() + 2).map(|n| format!("{whole}_{n}")));
        let fits = |name: &&String| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && !["delivery", "body", "exists", "in", "true", "false", "null"].contains(&name.as_str())
                && !is_event_column(name)
                && !self.list.iter().any(|field| field.name == **name)
        };
        let found = candidates.iter().find(fits).cloned();
        found.unwrap_or_else(|| format!("value_{}", self.list.len() + 1))
    }
}

/// Where a parameter is, as a place of ours.
fn place(parameter: &WebhookParameter, form_payload: bool) -> Result<String, String> {
    let WebhookParameter { source, name, .. } = parameter;
    let place = match source.as_str() {
        "header" => format!("header.{}", name.to_ascii_lowercase()),
        "url" | "query" => format!("query.{name}"),
        "payload" => match name.strip_prefix("payload.").filter(|_| form_payload) {
            Some(inside) => body_place(inside),
            None if form_payload => return Err(format!("{parameter} is in a form, beside its `payload`")),
            None => body_place(name),
        },
        "request" => return Err(format!("{parameter} is not known here")),
        "entire-headers" | "entire-query" => return Err(format!("{parameter} cannot be named as one value here")),
        "entire-payload" | "raw-request-body" => return Err(format!("{parameter} is no field here")),
        other => return Err(format!("webhook does not know the source `{}` either", other.escape_debug())),
    };
    match FieldLocation::parse(&place) {
        Ok(_) => Ok(place),
        Err(why) => Err(format!("{parameter} cannot be a field: {why}")),
    }
}

/// `a.0.b` as `body.a.0.b`, with quotes where a name needs them.
fn body_place(name: &str) -> String {
    let mut place = "body".to_owned();
    for part in name.split('.') {
        if part.is_empty() || part.contains(['"', '[', '\\']) {
            let quoted = part.replace('\\', "\\\\").replace('"', "\\\"");
            write!(place, ".\"{quoted}\"").expect("writing to a string cannot fail");
        } else {
            write!(place, ".{part}").expect("writing to a string cannot fail");
        }
    }
    place
}

/// Translates the rule of a hook, or says why that cannot be.
pub(super) fn translate(hook: &WebhookHook, fields: &mut HookFields) -> Result<TranslatedRule, String> {
    let mut parts = Vec::new();
    hook.rule.iter().for_each(|rule| conjuncts(rule, &mut parts));
    let mut notes = Vec::new();
    hook.rule.as_ref().map_or(Ok(()), |rule| check_negations(rule, 0))?;

    let signed = parts.iter().position(|part| alternatives(part).iter().all(|it| it.is_some_and(is_hmac)));
    let proof = match signed {
        Some(at) => hmac(parts.remove(at), hook.soft_failures, &mut notes)?,
        None => match parts.iter().position(|part| alternatives(part).iter().all(|it| it.is_some_and(is_token))) {
            Some(at) => token(parts.remove(at), fields.form_payload)?,
            None => WebhookProof::None,
        },
    };
    let conditions = parts.iter().map(|part| Condition::inside_and(part, fields)).collect::<Result<Vec<_>, _>>()?;
    // A rule that is not an `and` stands alone: there, a missing value under `not` counts.
    let alone = !matches!(hook.rule, Some(WebhookRule::And(_)));
    let whole = match parts.as_slice() {
        [only] if alone => Condition::of(only, fields)?,
        _ => Condition::all(conditions),
    };
    let when = match whole {
        Condition::Always => None,
        Condition::Never => return Err("its rule is never true, so webhook never ran it".to_owned()),
        other => Some(other.text(false)),
    };
    Ok(TranslatedRule { proof, when, notes })
}

/// Refuses what could be true here under a `not` where it was false for webhook, which compares the text of any value:
/// also of a number, a flag, a list or an object. `nots` is how many a rule stands under.
fn check_negations(rule: &WebhookRule, nots: usize) -> Result<(), String> {
    match rule {
        WebhookRule::And(rules) | WebhookRule::Or(rules) => {
            rules.iter().try_for_each(|rule| check_negations(rule, nots))
        }
        WebhookRule::Not(rule) => check_negations(rule, nots + 1),
        WebhookRule::Match(it) if nots > 0 => check_negated(it, nots),
        WebhookRule::Match(_) | WebhookRule::Never => Ok(()),
    }
}

fn check_negated(it: &WebhookMatch, nots: usize) -> Result<(), String> {
    let why = match it.kind.as_str() {
        "value" | "regex" if it.parameter.source != "payload" => return Ok(()),
        "value" if nots > 1 => "stands under more than one `not`",
        "value" if !may_be_text_of_another(&it.value) => return Ok(()),
        "value" => "is compared under a `not` with what may be the text of a number, a flag, a list or an object",
        "regex" => "is matched under a `not`",
        "ip-whitelist" | "scalr-signature" => return Ok(()),
        kind if hash(kind).is_some() => return Ok(()),
        _ => return Err("a type of rule that webhook does not know stands under a `not`".to_owned()),
    };
    Err(format!(
        "{} {why}; webhook compares the text of any value there, also of one that is no text, so the command would run \
         for more deliveries here: write the rule without `not`",
        it.parameter
    ))
}

/// Whether webhook could make this text of a value of JSON that is no text.
fn may_be_text_of_another(text: &str) -> bool {
    let number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    number
        || text.starts_with(['[', '{'])
        || ["true", "false", "null", "<nil>"].contains(&text)
        || text.starts_with("map[")
}

/// The parts of an `and` at the top, and of those in it.
fn conjuncts<'r>(rule: &'r WebhookRule, into: &mut Vec<&'r WebhookRule>) {
    match rule {
        WebhookRule::And(rules) => rules.iter().for_each(|rule| conjuncts(rule, into)),
        other => into.push(other),
    }
}

/// The matches of an `or`, or the one that a part is.
fn alternatives(part: &WebhookRule) -> Vec<Option<&WebhookMatch>> {
    fn one(rule: &WebhookRule) -> Option<&WebhookMatch> {
        if let WebhookRule::Match(it) = rule { Some(it) } else { None }
    }
    match part {
        WebhookRule::Or(rules) if !rules.is_empty() => rules.iter().map(one).collect(),
        other => vec![one(other)],
    }
}

fn hash(kind: &str) -> Option<&'static str> {
    let name = kind.strip_prefix("payload-hmac-").or_else(|| kind.strip_prefix("payload-hash-"))?;
    ["sha1", "sha256", "sha512"].into_iter().find(|hash| *hash == name)
}

fn is_hmac(it: &WebhookMatch) -> bool {
    hash(&it.kind).is_some()
}

fn is_token(it: &WebhookMatch) -> bool {
    let source = matches!(it.parameter.source.as_str(), "header" | "url" | "query" | "payload");
    it.kind == "value" && source && names_a_secret(&it.parameter.name) && !it.value.is_empty()
}

fn hmac(part: &WebhookRule, soft: bool, notes: &mut Vec<String>) -> Result<WebhookProof, String> {
    let all: Vec<_> = alternatives(part).into_iter().flatten().collect();
    let first = all[0];
    if first.parameter.source != "header" {
        return Err(format!("its signature is in {}, and here signatures are in headers", first.parameter));
    }
    if all.iter().any(|it| it.parameter != first.parameter || hash(&it.kind) != hash(&first.kind)) {
        return Err(
            "an `or` of different signatures: here a source has one kind of signature, with several secrets at \
            most; make a source of each"
                .to_owned(),
        );
    }
    if all.iter().any(|it| it.secret.is_empty()) {
        return Err("a signature has no secret, so webhook refused every delivery".to_owned());
    }
    let mut secrets = distinct(all.iter().map(|it| &it.secret));
    if secrets.len() > 1 && !soft {
        // A bad signature ends the evaluation there, so what only the second secret signs never ran.
        secrets.truncate(1);
        notes.push(
            "only the first of its secrets is taken: without `trigger-signature-soft-failures` webhook refused what the \
             others sign"
                .to_owned(),
        );
    }
    let header = first.parameter.name.clone();
    let hash = hash(&first.kind).unwrap_or("sha256");
    Ok(WebhookProof::Hmac { header, hash, secrets })
}

fn token(part: &WebhookRule, form_payload: bool) -> Result<WebhookProof, String> {
    let all: Vec<_> = alternatives(part).into_iter().flatten().collect();
    if all.iter().any(|it| it.parameter != all[0].parameter) {
        return Err("an `or` of different tokens: here a source has its token at one place".to_owned());
    }
    let place = place(&all[0].parameter, form_payload)?;
    Ok(WebhookProof::Token { place, secrets: distinct(all.iter().map(|it| &it.value)) })
}

fn distinct<'t>(texts: impl Iterator<Item = &'t String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
    all
}

/// An expression, simplified where it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Condition {
    Always,
    Never,
    Term(String),
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

impl Condition {
    fn not(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    fn all(parts: Vec<Self>) -> Self {
        let mut kept = Vec::new();
        for part in parts {
            match part {
                Self::Always => {}
                Self::Never => return Self::Never,
                Self::All(inner) => kept.extend(inner),
                other if kept.contains(&other) => {}
                other => kept.push(other),
            }
        }
        if kept.len() < 2 { kept.pop().unwrap_or(Self::Always) } else { Self::All(kept) }
    }

    fn any(parts: Vec<Self>) -> Self {
        let mut kept = Vec::new();
        for part in parts {
            match part {
                Self::Never => {}
                Self::Always => return Self::Always,
                Self::Any(inner) => kept.extend(inner),
                other if kept.contains(&other) => {}
                other => kept.push(other),
            }
        }
        if kept.len() < 2 { kept.pop().unwrap_or(Self::Never) } else { Self::Any(kept) }
    }

    /// Whether the rule holds, alone or in an `or`.
    fn of(rule: &WebhookRule, fields: &mut HookFields) -> Result<Self, String> {
        Ok(match rule {
            WebhookRule::And(rules) => {
                Self::all(rules.iter().map(|rule| Self::inside_and(rule, fields)).collect::<Result<_, _>>()?)
            }
            WebhookRule::Or(rules) => {
                Self::any(rules.iter().map(|rule| Self::of(rule, fields)).collect::<Result<_, _>>()?)
            }
            WebhookRule::Not(rule) => Self::of(rule, fields)?.not(),
            WebhookRule::Match(it) => comparison(it, fields)?.0,
            WebhookRule::Never => Self::Never,
        })
    }

    /// Whether the rule holds in an `and`: there, a missing value makes it false.
    fn inside_and(rule: &WebhookRule, fields: &mut HookFields) -> Result<Self, String> {
        let holds = Self::of(rule, fields)?;
        match rule {
            WebhookRule::Not(_) => Ok(Self::all(vec![Self::complete(rule, fields)?, holds])),
            _ => Ok(holds),
        }
    }

    /// Whether the rule is evaluated without a missing value.
    fn complete(rule: &WebhookRule, fields: &mut HookFields) -> Result<Self, String> {
        match rule {
            WebhookRule::And(rules) => {
                let mut whole = Self::Always;
                for rule in rules.iter().rev() {
                    let stops = Self::of(rule, fields)?.not();
                    whole = Self::all(vec![Self::complete(rule, fields)?, Self::any(vec![stops, whole])]);
                }
                Ok(whole)
            }
            WebhookRule::Or(_) | WebhookRule::Never => Ok(Self::Always),
            WebhookRule::Not(rule) => Self::complete(rule, fields),
            WebhookRule::Match(it) => Ok(comparison(it, fields)?.1),
        }
    }

    fn text(&self, within: bool) -> String {
        let join = |parts: &[Self], sign: &str| {
            let all: Vec<_> = parts.iter().map(|part| part.text(true)).collect();
            let text = all.join(sign);
            if within { format!("({text})") } else { text }
        };
        match self {
            Self::Always => "true".to_owned(),
            Self::Never => "false".to_owned(),
            Self::Term(text) => text.clone(),
            Self::Not(inner) => format!("!({})", inner.text(false)),
            Self::All(parts) => join(parts, " && "),
            Self::Any(parts) => join(parts, " || "),
        }
    }
}

/// Whether a comparison holds, and whether its value is there.
fn comparison(it: &WebhookMatch, fields: &mut HookFields) -> Result<(Condition, Condition), String> {
    let settled = |holds: bool| (if holds { Condition::Always } else { Condition::Never }, Condition::Always);
    match it.kind.as_str() {
        "value" | "regex" => {}
        "ip-whitelist" => {
            return Err(
                "`ip-whitelist` cannot be checked here, and without it other addresses could run the command: allow only \
                these addresses for its path in the proxy or the firewall, take the rule out, and import it again"
                    .to_owned(),
            );
        }
        "scalr-signature" => {
            return Err(
                "`scalr-signature` signs a date in a form that is not known here; ask Scalr's webhooks for an \
                HMAC of the body"
                    .to_owned(),
            );
        }
        kind if hash(kind).is_some() => {
            return Err(
                "a signature stands beside another one, or inside an `or` or a `not`; here it is verified first, \
                for the whole source: make a source of each"
                    .to_owned(),
            );
        }
        // Webhook takes an unknown type for false.
        _ => return Ok(settled(false)),
    }
    let regex = if it.kind == "regex" { Some(compile(&it.regex)?) } else { None };
    let fits = |text: &str| regex.as_ref().map_or(text == it.value, |regex| regex.is_match(text));
    match (it.parameter.source.as_str(), it.parameter.name.to_ascii_lowercase().as_str()) {
        ("string", _) => return Ok(settled(fits(&it.parameter.name))),
        // Every delivery is a POST here.
        ("request", "method") => return Ok(settled(fits("POST"))),
        _ => {}
    }
    if it.kind == "value" && is_token(it) {
        return Err(format!(
            "{} is compared with what is probably a secret, beside another proof or inside an `or` or a `not`; a secret \
             cannot stand in an expression",
            it.parameter
        ));
    }
    let field = fields.of(&it.parameter, false)?;
    let there = Condition::Term(format!("exists({field})"));
    let holds = if let Some(regex) = &regex {
        Condition::Term(format!("{field}.matches({})", quoted(regex.as_str())))
    } else {
        let text = Condition::Term(format!("{field} == {}", quoted(&it.value)));
        // In JSON it may be a number or a flag; webhook compares texts.
        let scalar = serde_json::from_str::<serde_json::Value>(&it.value).ok();
        let bare =
            scalar.is_some_and(|value| value.is_boolean() || value.is_number() && !it.value.contains(['e', 'E']));
        let bare =
            (bare && it.parameter.source == "payload").then(|| Condition::Term(format!("{field} == {}", it.value)));
        Condition::any([text].into_iter().chain(bare).collect())
    };
    Ok((holds, there))
}

/// Go's expression as one of ours: its classes `\d`, `\s`, `\w` and the border `\b` know ASCII alone. What Go reads
/// otherwise, or not at all, is refused.
fn compile(pattern: &str) -> Result<Regex, String> {
    let shown = pattern.escape_debug();
    let ours = GoPattern::new(pattern)
        .translate()
        .map_err(|what| format!("`{shown}` has {what}, which Go and Hookonce read differently"))?;
    Regex::new(&ours).map_err(|_| format!("`{shown}` is no expression that is known here"))
}

/// An expression of Go that is being translated.
struct GoPattern<'p> {
    rest: &'p str,
    ours: String,
}

impl<'p> GoPattern<'p> {
    fn new(pattern: &'p str) -> Self {
        Self { rest: pattern, ours: String::new() }
    }

    /// Takes a character, if there is one more.
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next();
        self.rest = chars.as_str();
        c
    }

    /// Takes a character over as it is.
    fn keep_next(&mut self) {
        let c = self.next();
        self.ours.extend(c);
    }

    /// The whole expression, or what in it means something else.
    fn translate(mut self) -> Result<String, &'static str> {
        let mut repeated = false;
        while let Some(c) = self.next() {
            let repeats = matches!(c, '*' | '+' | '?' | '{');
            if repeats && repeated {
                return Err("a repetition of a repetition");
            }
            repeated = repeats;
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' => self.count()?,
                other => self.ours.push(other),
            }
            if repeats && self.rest.starts_with('?') {
                self.keep_next();
            }
        }
        Ok(self.ours)
    }

    /// After a backslash.
    fn escape(&mut self, in_class: bool) -> Result<(), &'static str> {
        let ours = match self.next() {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('s') => r"[\t\n\f\r ]",
            Some('S') => r"[^\t\n\f\r ]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            Some('b' | 'B') if in_class => return Err(r"`\b` in a class"),
            Some('b') => r"(?-u:\b)",
            Some('B') => r"(?-u:\B)",
            Some('<' | '>') => return Err(r"`\<` or `\>`"),
            Some('u' | 'U') => return Err(r"`\u`"),
            Some('p' | 'P') => return Err(r"`\p`"),
            other => {
                self.ours.push('\\');
                self.ours.extend(other);
                return Ok(());
            }
        };
        self.ours.push_str(ours);
        Ok(())
    }

    /// After the bracket that begins a class.
    fn class(&mut self) -> Result<(), &'static str> {
        self.ours.push('[');
        if self.rest.starts_with('^') {
            self.keep_next();
        }
        let (mut first, mut after_dash) = (true, false);
        while let Some(c) = self.next() {
            match c {
                ']' if first => return Err("`]` at the beginning of a class"),
                '[' => return Err("`[` in a class"),
                '&' | '-' | '~' if self.rest.starts_with(c) => return Err("`&&`, `--` or `~~` in a class"),
                '\\' if after_dash && self.rest.starts_with(['d', 'D', 's', 'S', 'w', 'W']) => {
                    return Err("a range that ends with a class");
                }
                '\\' => self.escape(true)?,
                other => self.ours.push(other),
            }
            if c == ']' {
                return Ok(());
            }
            after_dash = c == '-' && !first;
            first = false;
        }
        Ok(())
    }

    /// After the bracket that begins a group: Go knows the flags `i`, `m`, `s` and `U`, and names of ASCII.
    fn group(&mut self) -> Result<(), &'static str> {
        self.ours.push('(');
        let Some(inside) = self.rest.strip_prefix('?') else { return Ok(()) };
        let fits = if let Some(named) = inside.strip_prefix("P<") {
            let name = named.split('>').next().unwrap_or_default();
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        } else {
            let flags = inside.split([':', ')']).next().unwrap_or_default();
            let known = |flags: &str| flags.chars().all(|c| "imsU".contains(c));
            match flags.split_once('-') {
                Some((on, off)) => known(on) && known(off) && !off.is_empty(),
                None => known(flags) && (!flags.is_empty() || inside.starts_with(':')),
            }
        };
        if !fits {
            return Err("a group with other flags than `i`, `m`, `s` and `U`");
        }
        self.keep_next();
        Ok(())
    }

    /// After the brace that begins a count: `3}`, `3,}` or `3,5}`, at most 1000.
    fn count(&mut self) -> Result<(), &'static str> {
        let wrong = "braces that are no count of at most 1000";
        let (inside, rest) = self.rest.split_once('}').ok_or(wrong)?;
        let (from, to) = inside.split_once(',').unwrap_or((inside, ""));
        let number = |text: &str| {
            text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u32>().is_ok_and(|number| number <= 1000)
        };
        if !number(from) || !(to.is_empty() || number(to)) {
            return Err(wrong);
        }
        self.ours.extend(["{", inside, "}"]);
        self.rest = rest;
        Ok(())
    }
}

/// A text of an expression.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::import::webhook_hooks;

    fn translated(rule: &str) -> Result<TranslatedRule, String> {
        let text = format!(r#"[{{"id": "a", "trigger-rule": {rule}}}]"#);
        let hooks = webhook_hooks::read(&text).expect("hooks");
        translate(&hooks[0], &mut HookFields::default())
    }

    fn check(rule: &str, when: &str) {
        let found = translated(rule).map(|rule| rule.when.unwrap_or_default());
        assert_eq!(found.as_deref(), Ok(when), "{rule}");
    }

    fn check_refused(rule: &str, why: &str) {
        let found = translated(rule).map(|rule| rule.when);
        assert!(found.as_ref().is_err_and(|error| error.contains(why)), "{rule}: {found:?}");
    }

    fn equal(name: &str, value: &str) -> String {
        let parameter = format!(r#"{{"source": "payload", "name": "{name}"}}"#);
        format!(r#"{{"match": {{"type": "value", "value": "{value}", "parameter": {parameter}}}}}"#)
    }

    const HMAC: &str = r#"{"match": {"type": "payload-hmac-sha256", "secret": "s", "parameter":
        {"source": "header", "name": "X-Hub-Signature-256"}}}"#;

    #[test]
    fn a_missing_value_means_what_it_meant() {
        let (a, b) = (equal("a", "x"), equal("b", "y"));
        check(&a, r#"a == "x""#);
        check(&format!(r#"{{"and": [{a}, {b}]}}"#), r#"a == "x" && b == "y""#);
        check(&format!(r#"{{"or": [{a}, {b}]}}"#), r#"a == "x" || b == "y""#);
        check(&format!(r#"{{"not": {a}}}"#), r#"!(a == "x")"#);
        check(&format!(r#"{{"and": [{{"not": {a}}}, {b}]}}"#), r#"exists(a) && !(a == "x") && b == "y""#);
        check(&format!(r#"{{"and": [{{"not": {a}}}]}}"#), r#"exists(a) && !(a == "x")"#);
        check(&format!(r#"{{"or": [{{"not": {a}}}, {b}]}}"#), r#"!(a == "x") || b == "y""#);
        // An `or` skips what is missing, so nothing is missing after it.
        check(&format!(r#"{{"and": [{{"not": {{"or": [{a}, {b}]}}}}]}}"#), r#"!(a == "x" || b == "y")"#);
        check(
            &format!(r#"{{"and": [{{"not": {{"and": [{a}, {b}]}}}}]}}"#),
            r#"exists(a) && (!(a == "x") || exists(b)) && !(a == "x" && b == "y")"#,
        );
        check(&format!(r#"{{"and": [{HMAC}, {{"not": {a}}}]}}"#), r#"exists(a) && !(a == "x")"#);
    }

    #[test]
    fn what_is_always_the_same_is_settled() {
        check(r#"{"and": []}"#, "");
        check_refused(r#"{"or": []}"#, "never true");
        check_refused("{}", "never true");
        check_refused(r#"{"match": {"type": "vlaue"}}"#, "never true");
        check(r#"{"match": {"type": "value", "value": "x", "parameter": {"source": "string", "name": "x"}}}"#, "");
        check(
            r#"{"match": {"type": "value", "value": "POST", "parameter": {"source": "request", "name": "Method"}}}"#,
            "",
        );
        check(&equal("n", "5"), r#"n == "5" || n == 5"#);
        check(&equal("n", "true"), r#"n == "true" || n == true"#);
    }

    #[test]
    fn a_regular_expression_means_what_it_meant() {
        let regex = |text: &str| {
            format!(
                r#"{{"match": {{"type": "regex", "regex": "{text}", "parameter": {{"source": "url", "name": "q"}}}}}}"#
            )
        };
        check(&regex("v1"), r#"q.matches("v1")"#);
        check(&regex(r"^\\d+[\\w.]\\b"), r#"q.matches("^[0-9]+[[0-9A-Za-z_].](?-u:\\b)")"#);
        check(
            &regex(r"(?i)(?P<n>[^-\\w.]a+?){1,3}[\\]&~-]"),
            r#"q.matches("(?i)(?P<n>[^-[0-9A-Za-z_].]a+?){1,3}[\\]&~-]")"#,
        );
        check(&regex(r"(?:a|b)(?s-m:.)c*"), r#"q.matches("(?:a|b)(?s-m:.)c*")"#);
        check_refused(&regex("("), "no expression");
    }

    #[test]
    fn a_regular_expression_that_go_reads_otherwise_is_refused() {
        for pattern in [
            r"\\<a",
            r"a\\>",
            r"[\\<]",
            "[a&&b]",
            "[+--]",
            "[a~~b]",
            "[a[b]",
            "[[:alpha:]]",
            "(?x)a b",
            "(?x:a b)",
            "(?i-u:a)",
            "(?R)a$",
            "(?ix)a",
            r"[\\b]",
            r"[ -\\d]",
            "[]-a]",
            "a{ 3 }",
            "a{,3}",
            "a{1001}",
            "a**",
            "a{2}{3}",
            "a+?+",
            r"\\u0041",
            r"\\p{Alphabetic}",
            "(?<n>a)",
            "(?P<a.b>c)",
        ] {
            let parameter = r#"{"source": "url", "name": "q"}"#;
            let rule = format!(r#"{{"match": {{"type": "regex", "regex": "{pattern}", "parameter": {parameter}}}}}"#);
            check_refused(&rule, "read differently");
        }
    }

    #[test]
    fn a_value_under_not_is_compared_only_with_what_must_be_a_text() {
        let not = |rule: &str| format!(r#"{{"not": {rule}}}"#);
        for value in ["5", "-1.5e3", "1e999", "true", "false", "null", "<nil>", "[1]", "{}"] {
            check_refused(&not(&equal("a", value)), "under a `not`");
            check_refused(
                &format!(r#"{{"and": [{HMAC}, {{"not": {{"or": [{}]}}}}]}}"#, equal("a", value)),
                "under a `not`",
            );
        }
        check_refused(&not(&equal("a", "x").replace("\"value\", \"value\"", "\"regex\", \"regex\"")), "under a `not`");
        check_refused(&not(&format!(r#"{{"and": [{}]}}"#, not(&equal("a", "x")))), "more than one `not`");
        check_refused(&not(r#"{"match": {"type": "vlaue"}}"#), "does not know");
        for value in ["main", "", "v1.2", "2026-x"] {
            check(&not(&equal("a", value)), &format!(r#"!(a == "{value}")"#));
        }
        check(&not(&equal("a", "5").replace("payload", "header")), r#"!(a == "5")"#);
    }

    #[test]
    fn an_address_range_is_never_left_out() {
        let range = r#"{"match": {"type": "ip-whitelist", "ip-range": "10.0.0.0/8"}}"#;
        check_refused(range, "`ip-whitelist` cannot be checked");
        for beside in [HMAC.to_owned(), equal("token", "x"), equal("a", "x")] {
            check_refused(&format!(r#"{{"and": [{beside}, {range}]}}"#), "`ip-whitelist` cannot be checked");
            check_refused(
                &format!(r#"{{"and": [{beside}, {{"or": [{range}]}}]}}"#),
                "`ip-whitelist` cannot be checked",
            );
        }
    }

    #[test]
    fn only_a_whole_word_names_a_token() {
        for name in ["token", "X-Gitlab-Token", "api_key", "data.secret", "X-Auth", "key", "Authorization", "pass"] {
            assert!(names_a_secret(name), "{name}");
        }
        for name in
            ["X-Event-Key", "x_event_key", "author", "commit.author.name", "monkey", "issue.key", "tokens", "passed"]
        {
            assert!(!names_a_secret(name), "{name}");
        }
        for name in ["API_TOKEN", "PGPASSWORD", "SSHKEY"] {
            assert!(may_name_a_secret(name), "{name}");
        }
    }

    #[test]
    fn one_signature_or_token_of_the_whole_rule_is_the_proof() {
        let proof = |rule: &str| translated(rule).map(|rule| rule.proof).ok();
        let rotated =
            format!(r#"{{"and": [{{"or": [{HMAC}, {}]}}, {}]}}"#, HMAC.replace("\"s\"", "\"t\""), equal("a", "x"));
        let found = proof(&rotated);
        // Without soft failures, a bad first signature is the end.
        assert!(matches!(found, Some(WebhookProof::Hmac { secrets, hash: "sha256", .. }) if secrets == ["s"]));
        let soft = format!(r#"[{{"id": "a", "trigger-signature-soft-failures": true, "trigger-rule": {rotated}}}]"#);
        let hooks = webhook_hooks::read(&soft).expect("hooks");
        let found = translate(&hooks[0], &mut HookFields::default()).map(|rule| rule.proof);
        assert!(matches!(found, Ok(WebhookProof::Hmac { secrets, .. }) if secrets == ["s", "t"]));
        let found = proof(&equal("data.token", "x"));
        assert!(matches!(found, Some(WebhookProof::Token { place, .. }) if place == "body.data.token"));
        assert!(matches!(proof(&equal("ref", "x")), Some(WebhookProof::None)));
        check_refused(&format!(r#"{{"and": [{HMAC}, {HMAC}]}}"#), "beside another one");
        check_refused(&format!(r#"{{"not": {HMAC}}}"#), "inside an `or` or a `not`");
        check_refused(&format!(r#"{{"or": [{HMAC}, {}]}}"#, equal("a", "x")), "inside an `or`");
        check_refused(&format!(r#"{{"or": [{HMAC}, {}]}}"#, HMAC.replace("sha256", "sha1")), "different signatures");
        check_refused(&format!(r#"{{"and": [{HMAC}, {}]}}"#, equal("token", "x")), "cannot stand in an expression");
        check_refused(r#"{"match": {"type": "scalr-signature", "secret": "s"}}"#, "scalr-signature");
        check_refused(&HMAC.replace("\"s\"", "\"\""), "no secret");
        check_refused(&HMAC.replace("\"header\"", "\"url\""), "signatures are in headers");
    }

    #[test]
    fn fields_have_names_of_their_own() {
        let mut fields = HookFields::default();
        let parameter =
            |name: &str| WebhookParameter { source: "payload".into(), name: name.into(), ..Default::default() };
        for (name, field, place) in [
            ("commits.0.id", "commits_0_id", "body.commits.0.id"),
            ("a.ref", "ref", "body.a.ref"),
            ("b.ref", "b_ref", "body.b.ref"),
            ("a.ref", "ref", "body.a.ref"),
            ("x.a[b]", "a_b_", "body.x.\"a[b]\""),
            ("9", "value_5", "body.9"),
        ] {
            assert_eq!(fields.of(&parameter(name), false).as_deref(), Ok(field));
            assert!(fields.iter().any(|made| made.name == field && made.place == place), "{name}");
        }
        assert_eq!(fields.of(&parameter("a.ref"), true).as_deref(), Ok("a_ref"));
    }
}
