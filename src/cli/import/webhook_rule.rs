//! The rules of a hook as ours: what proves the sender becomes `verify`, and the rest an expression with the same
//! meaning, missing values included.
//!
//! Webhook's `and` stops at a missing value, its `or` skips one, and its `not` makes one true, unless it stands in an
//! `and`. So a rule has two conditions: whether it holds, and whether it was evaluated without a missing value.

use super::go_pattern;
use super::webhook_hooks::{FORM, WebhookHook, WebhookMatch, WebhookParameter, WebhookRule};
use super::webhook_secrets::{is_flag, is_token, may_be_a_secret, names_a_token};
use crate::decide::field::FieldLocation;
use crate::store::is_event_column;
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

impl WebhookProof {
    /// Whether it is GitHub's signature, which signs JSON and forms with JSON in `payload`.
    pub(super) fn is_of_github(&self) -> bool {
        let name = "x-hub-signature-256";
        matches!(self, Self::Hmac { header, hash: "sha256", .. } if header.eq_ignore_ascii_case(name))
    }
}

/// A hook's rule in our words.
pub(super) struct TranslatedRule {
    pub(super) proof: WebhookProof,
    /// The expression; `None`: always.
    pub(super) when: Option<String>,
    /// Headers without which it never holds, in small letters.
    pub(super) needed_headers: Vec<String>,
    /// What is different, but does not change who may run what.
    pub(super) notes: Vec<String>,
}

/// Fields that an expression or a command names.
#[derive(Default)]
pub(super) struct HookFields {
    list: Vec<HookField>,
    /// Whether the body is a form whose `payload` is JSON.
    pub(super) form_payload: bool,
    /// Payload values without which a `not` in an `and` is false.
    needed_by_not: Vec<String>,
}

/// A field: its name, where it is, and whether it is empty where it is missing.
pub(super) struct HookField {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) or_empty: bool,
}

impl HookFields {
    pub(super) fn iter(&self) -> impl Iterator<Item = &HookField> {
        self.list.iter()
    }

    /// The name of a payload value inside its body.
    fn name_in_body<'p>(&self, parameter: &'p WebhookParameter) -> &'p str {
        let name = parameter.name.as_str();
        name.strip_prefix("payload.").filter(|_| self.form_payload).unwrap_or(name)
    }

    /// Refuses payload values that webhook finds elsewhere: it puts a list at the top of a body under `root`, and finds
    /// numbers there only as names.
    pub(super) fn check_place(&self, parameter: &WebhookParameter) -> Result<(), String> {
        let first = self.name_in_body(parameter).split('.').next().unwrap_or_default();
        let number = !first.is_empty() && first.bytes().all(|c| c.is_ascii_digit());
        if parameter.source != "payload" || !(number || first == "root" && !self.form_payload) {
            return Ok(());
        }
        Err(format!(
            "{parameter} may be in a list at the top of the body, which webhook calls `root`: write the source yourself, with \
             a field such as `body.0.id`"
        ))
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
        FORM => format!("form.{name}"),
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
    hook.rule.as_ref().map_or(Ok(()), |rule| check_negations(rule, fields, 0))?;
    notes.extend(hook.rule.iter().flat_map(matches).filter(|it| may_match_a_list(it)).map(|it| {
        format!(
            "a list, an object or null never fits the expression for {}; webhook matched its JSON, and `<nil>` for null",
            it.parameter
        )
    }));
    let needed_headers = parts.iter().filter_map(|part| needed_header(part)).collect();

    let position = |of: fn(&WebhookMatch) -> bool| {
        parts.iter().position(|part| alternatives(part).iter().all(|it| it.is_some_and(of)))
    };
    let proof = match (position(is_hmac), position(is_token)) {
        (Some(at), _) => hmac(parts.remove(at), hook.soft_failures, &mut notes)?,
        (None, Some(at)) => token(parts.remove(at), fields.form_payload)?,
        (None, None) => match unnamed_token(&parts)? {
            Some(at) => {
                let part = parts.remove(at);
                notes.extend(alternatives(part).first().copied().flatten().map(|it| {
                    format!("{} is taken for the token of its sender: what lacks it is answered with 401", it.parameter)
                }));
                token(part, fields.form_payload)?
            }
            None => WebhookProof::None,
        },
    };
    // A rule that is not an `and` stands alone: there, a missing value under `not` counts.
    let alone = !matches!(hook.rule, Some(WebhookRule::And(_)));
    let whole = match parts.as_slice() {
        [only] if alone => Condition::of(only, fields)?,
        _ => {
            Condition::all(parts.iter().map(|part| Condition::inside_and(part, fields)).collect::<Result<Vec<_>, _>>()?)
        }
    };
    let when = match whole {
        Condition::Always => None,
        Condition::Never if hook.rule.iter().flat_map(matches).any(is_of_method) => {
            return Err("its rule is never true of a POST, and every delivery is a POST here".to_owned());
        }
        Condition::Never => return Err("its rule is never true, so webhook never ran it".to_owned()),
        other => Some(other.text(false)),
    };
    notes.extend(fields.needed_by_not.iter().map(|parameter| {
        format!(
            "under `not` in an `and`, {parameter} is missing if it is null, a list or an object, and the command does not \
             run; webhook compared its text, such as `<nil>`, and ran it"
        )
    }));
    Ok(TranslatedRule { proof, when, needed_headers, notes })
}

/// Every comparison of a rule.
fn matches(rule: &WebhookRule) -> Vec<&WebhookMatch> {
    match rule {
        WebhookRule::And(rules) | WebhookRule::Or(rules) => rules.iter().flat_map(matches).collect(),
        WebhookRule::Not(rule) => matches(rule),
        WebhookRule::Match(it) => vec![it],
        WebhookRule::Never => Vec::new(),
    }
}

fn is_of_method(it: &WebhookMatch) -> bool {
    it.parameter.source == "request" && it.parameter.name.eq_ignore_ascii_case("method")
}

/// The header that this part of an `and` needs, if it is about one.
fn needed_header(part: &WebhookRule) -> Option<String> {
    let all = alternatives(part).into_iter().collect::<Option<Vec<_>>>()?;
    let parameter = &all.first()?.parameter;
    let about_it = |it: &&WebhookMatch| matches!(it.kind.as_str(), "value" | "regex") && it.parameter == *parameter;
    (parameter.source == "header" && all.iter().all(about_it)).then(|| parameter.name.to_ascii_lowercase())
}

/// Whether an expression may match the JSON of a list or an object: if it must match the beginning of a text, and that is
/// a letter, a digit or a slash, it cannot.
fn may_match_a_list(it: &WebhookMatch) -> bool {
    let begin = it.regex.strip_prefix('^').filter(|_| !it.regex.contains('|')).unwrap_or_default();
    let class = [r"\d", r"\w", "[0-9]", "[a-z]"].into_iter().find_map(|class| begin.strip_prefix(class));
    let after = class.or_else(|| begin.strip_prefix(|c: char| c.is_ascii_alphanumeric() || c == '/'));
    let anchored = after.is_some_and(|rest| !rest.starts_with(['*', '?', '{']));
    it.kind == "regex" && it.parameter.source == "payload" && !anchored
}

/// The part that proves the sender where no name says so: the only comparison with a value of a header or the query that
/// may be a secret.
fn unnamed_token(parts: &[&WebhookRule]) -> Result<Option<usize>, String> {
    let all: Vec<_> = parts.iter().flat_map(|part| required(part)).filter(|it| may_be_a_secret(it)).collect();
    let Some(first) = all.first() else { return Ok(None) };
    let alone = |part: &&WebhookRule| {
        let of_part = alternatives(part);
        of_part.len() == all.len() && of_part.iter().all(|it| it.is_some_and(may_be_a_secret))
    };
    match parts.iter().position(alone) {
        Some(at) => Ok(Some(at)),
        None => Err(format!(
            "{} is compared with what may be a secret, beside another such value or inside an `or`; a secret cannot \
             stand in an expression: call the value that proves the sender `token`",
            first.parameter
        )),
    }
}

/// The comparisons of a rule that stand under no `not`.
fn required(rule: &WebhookRule) -> Vec<&WebhookMatch> {
    match rule {
        WebhookRule::And(rules) | WebhookRule::Or(rules) => rules.iter().flat_map(required).collect(),
        WebhookRule::Match(it) => vec![it],
        WebhookRule::Not(_) | WebhookRule::Never => Vec::new(),
    }
}

/// Refuses what could be true here under a `not` where it was false for webhook, which compares the text of any value:
/// also of a number, a flag, a list or an object. `nots` is how many a rule stands under.
fn check_negations(rule: &WebhookRule, fields: &HookFields, nots: usize) -> Result<(), String> {
    match rule {
        WebhookRule::And(rules) | WebhookRule::Or(rules) => {
            rules.iter().try_for_each(|rule| check_negations(rule, fields, nots))
        }
        WebhookRule::Not(rule) => check_negations(rule, fields, nots + 1),
        WebhookRule::Match(it) if nots > 0 => check_negated(it, fields, nots),
        WebhookRule::Match(_) | WebhookRule::Never => Ok(()),
    }
}

fn check_negated(it: &WebhookMatch, fields: &HookFields, nots: usize) -> Result<(), String> {
    let why = match it.kind.as_str() {
        "value" | "regex" if it.parameter.source != "payload" => return Ok(()),
        "value" | "regex" if fields.name_in_body(&it.parameter).contains('.') => {
            return Err(format!(
                "{} stands under a `not`; webhook looks for a key with that dot in it first, so the command would run for \
                 more deliveries here: write the rule without `not`",
                it.parameter
            ));
        }
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
    number || is_flag(text) || text == "null" || is_text_of_no_scalar(text)
}

/// Whether webhook could make this text of a list, an object or null.
fn is_text_of_no_scalar(text: &str) -> bool {
    text.starts_with(['[', '{']) || text.starts_with("map[") || text == "<nil>"
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
            WebhookRule::Match(it) => {
                let (_, there) = comparison(it, fields)?;
                let name = it.parameter.to_string();
                let depends = it.parameter.source == "payload" && there != Self::Always;
                if depends && !fields.needed_by_not.contains(&name) {
                    fields.needed_by_not.push(name);
                }
                Ok(there)
            }
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
                "`ip-whitelist` cannot be checked in a rule here, and without it other addresses could run the command: \
                take the rule out, import it again, and write these addresses into its source as `allow_from`"
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
    let regex = if it.kind == "regex" { Some(go_pattern::compile(&it.regex)?) } else { None };
    let fits = |text: &str| regex.as_ref().map_or(text == it.value, |regex| regex.is_match(text));
    match (it.parameter.source.as_str(), it.parameter.name.to_ascii_lowercase().as_str()) {
        ("string", _) => return Ok(settled(fits(&it.parameter.name))),
        // Every delivery is a POST here.
        ("request", "method") => return Ok(settled(fits("POST"))),
        _ => {}
    }
    if regex.is_some() && names_a_token(it, |_| true) {
        return Err(format!(
            "{} is matched with an expression that is probably of secrets; a secret cannot stand in an expression: \
             compare it with `value`",
            it.parameter
        ));
    }
    let from_body = it.parameter.source == "payload";
    if from_body && regex.is_none() && is_text_of_no_scalar(&it.value) {
        return Err(format!(
            "{} is compared with the text of a list, an object or null, which is no value here",
            it.parameter
        ));
    }
    if is_token(it) {
        return Err(format!(
            "{} is compared with what is probably a secret, beside another proof or inside an `or` or a `not`; a secret \
             cannot stand in an expression",
            it.parameter
        ));
    }
    let field = fields.of(&it.parameter, false)?;
    let there = Condition::Term(format!("exists({field})"));
    // In JSON it may be a number or a flag; webhook compares texts.
    let scalar = regex.is_some() || is_flag(&it.value) || it.value.parse::<serde_json::Number>().is_ok();
    let text = if from_body && scalar { format!("string({field})") } else { field };
    let holds = match &regex {
        Some(regex) => format!("{text}.matches({})", quoted(regex.as_str())),
        None => format!("{text} == {}", quoted(&it.value)),
    };
    Ok((Condition::Term(holds), there))
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
        check_refused(
            r#"{"match": {"type": "value", "value": "GET", "parameter": {"source": "request", "name": "method"}}}"#,
            "never true of a POST",
        );
    }

    #[test]
    fn what_may_be_a_number_or_a_flag_is_compared_as_the_text_that_was_sent() {
        for value in ["5", "1.50", "1e3", "-0", "true"] {
            check(&equal("n", value), &format!(r#"string(n) == "{value}""#));
        }
        for value in ["05", "5 ", "null", "main"] {
            check(&equal("n", value), &format!(r#"n == "{value}""#));
        }
        check(&equal("n", "5").replace("payload", "url"), "");
        check(&equal("n", "^[0-9]+$").replace("value\"", "regex\""), r#"string(n).matches("^[0-9]+$")"#);
        for value in ["[1]", "{}", "map[a:b]", "<nil>"] {
            check_refused(&equal("n", value), "the text of a list");
        }
    }

    #[test]
    fn an_expression_that_may_match_a_list_is_noted() {
        let noted = |regex: &str| {
            let rule = equal("labels", regex).replace("value\"", "regex\"");
            translated(&rule).map(|rule| rule.notes.iter().any(|note| note.contains("webhook matched its JSON")))
        };
        for (regex, expected) in [
            ("urgent", true),
            ("^a*", true),
            ("^a|b", true),
            ("^[^x]", true),
            ("^refs/heads/", false),
            ("^[0-9]+$", false),
        ] {
            assert_eq!(noted(regex), Ok(expected), "{regex}");
        }
    }

    #[test]
    fn a_null_a_list_and_an_object_under_not_in_an_and_are_noted() {
        let noted = |rule: &str| {
            let notes = translated(rule).map(|rule| rule.notes).expect("a rule");
            let of = |name: &str| {
                notes.iter().any(|note| note.contains(&format!("`{name}` of payload is missing if it is null")))
            };
            (of("a"), of("b"))
        };
        let (a, b) = (equal("a", "x"), equal("b", "y"));
        for (rule, expected) in [
            (a.clone(), (false, false)),
            (format!(r#"{{"not": {a}}}"#), (false, false)),
            (format!(r#"{{"or": [{{"not": {a}}}, {b}]}}"#), (false, false)),
            (format!(r#"{{"and": [{{"not": {a}}}, {b}]}}"#), (true, false)),
            (format!(r#"{{"and": [{{"not": {{"and": [{a}, {b}]}}}}]}}"#), (true, true)),
            (format!(r#"{{"and": [{{"not": {{"or": [{a}, {b}]}}}}]}}"#), (false, false)),
            (format!(r#"{{"and": [{{"not": {}}}]}}"#, a.replace("payload", "header")), (false, false)),
        ] {
            assert_eq!(noted(&rule), expected, "{rule}");
        }
    }

    #[test]
    fn a_key_with_a_dot_and_a_list_at_the_top_are_not_misread() {
        check(&equal("a.b", "x"), r#"b == "x""#);
        check_refused(&format!(r#"{{"not": {}}}"#, equal("a.b", "x")), "a key with that dot");
        let payload =
            |name: &str| WebhookParameter { source: "payload".into(), name: name.into(), ..Default::default() };
        let (json, form) = (HookFields::default(), HookFields { form_payload: true, ..HookFields::default() });
        for name in ["root", "root.0.action", "0.action", "9"] {
            assert!(json.check_place(&payload(name)).is_err(), "{name}");
        }
        for name in ["roots", "a.root", "a.0", ""] {
            assert_eq!(json.check_place(&payload(name)), Ok(()), "{name}");
        }
        // What is decoded from a form is an object.
        assert_eq!(form.check_place(&payload("payload.root.x")), Ok(()));
        assert!(form.check_place(&payload("payload.0")).is_err());
    }

    #[test]
    fn the_only_value_of_a_header_or_the_query_is_the_token() {
        let compared = |source: &str, name: &str, value: &str| equal(name, value).replace("payload", source);
        let both = |one: &str, other: &str| format!(r#"{{"and": [{one}, {other}]}}"#);
        let place = |rule: &str| {
            translated(rule).map(|rule| match rule.proof {
                WebhookProof::Token { place, .. } => place,
                _ => String::new(),
            })
        };
        let k = compared("url", "k", "s3cr3t");
        for (rule, expected) in [
            (k.clone(), "query.k"),
            (compared("header", "X-DeployToken", "x"), "header.x-deploytoken"),
            (compared("header", "X-Gitlab-Tok", "x"), "header.x-gitlab-tok"),
            (compared("query", "pwd", "x"), "query.pwd"),
            (both(&k, &equal("ref", "main")), "query.k"),
            (both(&k, &compared("header", "X-GitHub-Event", "push")), "query.k"),
            (both(&k, &compared("url", "branch", "main")), "query.k"),
            (format!(r#"{{"or": [{k}, {}]}}"#, compared("url", "k", "other")), "query.k"),
            (both(&k, &equal("data.token", "x")), "body.data.token"),
            (compared("header", "X-Event-Key", "repo:push"), ""),
            (compared("url", "dry", "true"), ""),
            (format!(r#"{{"not": {k}}}"#), ""),
        ] {
            assert_eq!(place(&rule).as_deref(), Ok(expected), "{rule}");
        }
        for rule in [both(&k, &compared("url", "j", "x")), format!(r#"{{"or": [{k}, {}]}}"#, equal("ref", "main"))] {
            check_refused(&rule, "`k` of url is compared with what may be a secret");
        }
        for (source, name) in [("header", "X-Token"), ("url", "key"), ("payload", "data.secret")] {
            let rule = compared(source, name, "^(a|b)$").replace("value\"", "regex\"");
            check_refused(&rule, "an expression that is probably of secrets");
            check_refused(&both(HMAC, &rule), "an expression that is probably of secrets");
        }
    }

    #[test]
    fn a_condition_with_the_name_of_a_secret_is_no_token() {
        let place = |name: &str, value: &str| match translated(&equal(name, value)).map(|rule| rule.proof) {
            Ok(WebhookProof::Token { place, .. }) => place,
            _ => String::new(),
        };
        for (name, value) in
            [("status.pass", "true"), ("data.key", "PROJ"), ("auth", "12"), ("token", "false"), ("x.auth", "basic")]
        {
            assert_eq!(place(name, value), "", "{name}");
        }
        for (name, value, expected) in [
            ("key", "s3cr3t-deploy-code", "body.key"),
            ("token", "12", "body.token"),
            ("api_key", "PROJ", "body.api_key"),
            ("deployToken", "x", "body.deployToken"),
        ] {
            assert_eq!(place(name, value), expected);
        }
        // Matched without `not`, `key` of a body may be one of a project.
        check(&equal("data.key", "^PROJ-").replace("value\"", "regex\""), r#"string(key).matches("^PROJ-")"#);
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
