//! Reads the hooks of adnanh/webhook: a list of objects, in JSON or YAML. Keys that it does not know are collected, as
//! webhook ignores them without a word.

use super::yaml::{self, YamlNode, YamlValue};
use serde_json::{Map, Value};
use std::fmt;

/// A hook: what it is called, what it runs, and when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct WebhookHook {
    /// The last part of its URL.
    pub(super) id: String,
    /// The program.
    pub(super) command: String,
    /// The folder that it runs in.
    pub(super) dir: Option<String>,
    /// The program's arguments, in order.
    pub(super) arguments: Vec<WebhookParameter>,
    /// Variables of its environment.
    pub(super) environment: Vec<WebhookParameter>,
    /// Values that it gets as files.
    pub(super) files: Vec<WebhookParameter>,
    /// Texts that are JSON.
    pub(super) json_parameters: Vec<WebhookParameter>,
    /// When it runs; `None`: always.
    pub(super) rule: Option<WebhookRule>,
    /// The methods that it takes; none: all.
    pub(super) methods: Vec<String>,
    /// The content type that stands in for the sender's.
    pub(super) content_type: Option<String>,
    /// What the sender gets.
    pub(super) response: WebhookResponse,
    /// Whether a bad signature inside an `or` counts as false.
    pub(super) soft_failures: bool,
    /// Keys that webhook does not know.
    pub(super) unknown: Vec<String>,
    /// A key at any depth whose value a template fills in.
    pub(super) template: Option<String>,
    /// Keys at any depth that are known but for the case of their letters, which webhook does not look at.
    pub(super) other_case: Vec<String>,
}

/// What a sender gets for a hook.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct WebhookResponse {
    /// The text, if the output is not sent.
    pub(super) message: Option<String>,
    /// Names of the headers.
    pub(super) headers: Vec<String>,
    /// Whether it waits for the command's output.
    pub(super) output: bool,
    /// Whether it gets the output of a failed command, too.
    pub(super) output_on_error: bool,
    /// The status of success.
    pub(super) success: Option<u16>,
    /// The status where the rule does not fit.
    pub(super) mismatch: Option<u16>,
}

/// A value of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct WebhookParameter {
    /// Where it is: `header`, `url`, `payload`, `string`, …
    pub(super) source: String,
    /// Its name there; for `string` the text itself.
    pub(super) name: String,
    /// The variable that gets it.
    pub(super) variable: Option<String>,
    /// Whether it is base64 that is decoded into the file.
    pub(super) base64: bool,
}

impl WebhookHook {
    /// Whether the body is a form whose values it reads one by one.
    pub(super) fn reads_form_values(&self) -> bool {
        let is_form = |kind: &str| kind.contains("x-www-form-urlencoded") && !kind.contains("json");
        let has_json = self.json_parameters.iter().any(|it| it.source == "payload" && it.name == "payload");
        self.content_type.as_deref().is_some_and(is_form) && !has_json
    }

    /// Every parameter of its rule and its command.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &WebhookParameter> {
        fn of<'r>(rule: &'r WebhookRule, into: &mut Vec<&'r WebhookParameter>) {
            match rule {
                WebhookRule::And(rules) | WebhookRule::Or(rules) => rules.iter().for_each(|rule| of(rule, into)),
                WebhookRule::Not(rule) => of(rule, into),
                WebhookRule::Match(it) => into.push(&it.parameter),
                WebhookRule::Never => {}
            }
        }
        let mut all: Vec<_> = [&self.arguments, &self.environment, &self.files].into_iter().flatten().collect();
        self.rule.iter().for_each(|rule| of(rule, &mut all));
        all.into_iter()
    }

    /// The same hook, in which values of its payload are values of a form: texts, like those of the query.
    pub(super) fn with_form_values(mut self) -> Self {
        fn each(rule: &mut WebhookRule, change: &impl Fn(&mut WebhookParameter)) {
            match rule {
                WebhookRule::And(rules) | WebhookRule::Or(rules) => {
                    for rule in rules {
                        each(rule, change);
                    }
                }
                WebhookRule::Not(rule) => each(rule, change),
                WebhookRule::Match(it) => change(&mut it.parameter),
                WebhookRule::Never => {}
            }
        }
        let change = |it: &mut WebhookParameter| {
            if it.source == "payload" {
                FORM.clone_into(&mut it.source);
            }
        };
        [&mut self.arguments, &mut self.environment, &mut self.files, &mut self.json_parameters]
            .into_iter()
            .flatten()
            .for_each(change);
        self.rule.iter_mut().for_each(|rule| each(rule, &change));
        self
    }
}

impl fmt::Display for WebhookParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_str() {
            // A literal may be a secret.
            "string" => f.write_str("a fixed text"),
            source if self.name.is_empty() => write!(f, "`{}`", source.escape_debug()),
            source => write!(f, "`{}` of {}", self.name.escape_debug(), source.escape_debug()),
        }
    }
}

/// A rule about a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum WebhookRule {
    /// All of them.
    And(Vec<WebhookRule>),
    /// One of them.
    Or(Vec<WebhookRule>),
    /// Not this one.
    Not(Box<WebhookRule>),
    /// A comparison.
    Match(WebhookMatch),
    /// An empty object, which is always false.
    Never,
}

/// A comparison: its type and what that needs.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct WebhookMatch {
    /// `value`, `regex`, `payload-hmac-sha256`, …
    pub(super) kind: String,
    /// The value that is compared.
    pub(super) parameter: WebhookParameter,
    /// What it must be equal to.
    pub(super) value: String,
    /// The expression that it must match.
    pub(super) regex: String,
    /// The secret of a signature.
    pub(super) secret: String,
    /// Address ranges.
    pub(super) ip_range: String,
}

impl fmt::Debug for WebhookMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secret and value stay out of every log.
        write!(f, "WebhookMatch({} of {})", self.kind, self.parameter)
    }
}

/// The source of a form's values, which webhook calls `payload`, too.
pub(super) const FORM: &str = "form";

/// Maximum depth of rules within rules.
const RULE_DEPTH_MAX: usize = 32;

/// The keys of a hook that webhook knows.
const HOOK_KEYS: [&str; 17] = [
    "id",
    "execute-command",
    "command-working-directory",
    "response-message",
    "response-headers",
    "success-http-response-code",
    "trigger-rule-mismatch-http-response-code",
    "http-methods",
    "incoming-payload-content-type",
    "include-command-output-in-response",
    "include-command-output-in-response-on-error",
    "parse-parameters-as-json",
    "pass-arguments-to-command",
    "pass-environment-to-command",
    "pass-file-to-command",
    "trigger-rule",
    "trigger-signature-soft-failures",
];

/// The keys of what is in a hook: of rules, matches, parameters and headers.
const INNER_KEYS: [&str; 14] = [
    "and",
    "or",
    "not",
    "match",
    "type",
    "regex",
    "secret",
    "value",
    "parameter",
    "ip-range",
    "source",
    "name",
    "envname",
    "base64decode",
];

/// Collects the keys that are known ones in another case.
fn other_case(value: &Value, into: &mut Vec<String>) {
    // Both ways, as Go does: the long s and the sign of Kelvin are letters of ASCII then.
    let folded = |key: &str| key.to_uppercase().to_lowercase();
    match value {
        Value::Array(items) => items.iter().for_each(|item| other_case(item, into)),
        Value::Object(map) => {
            for (key, value) in map {
                let mut known = HOOK_KEYS.iter().chain(&INNER_KEYS);
                if known.any(|known| known != key && *known == folded(key)) {
                    into.push(key.clone());
                }
                other_case(value, into);
            }
        }
        _ => {}
    }
}

/// The key of a value that a template fills in. What its sender gets is not imported, so it does not matter there.
fn template(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (text.contains("{{") && key != "response-message").then(|| key.to_owned()),
        Value::Array(items) => items.iter().find_map(|item| template(key, item)),
        Value::Object(map) => {
            let mut inner = map.iter().filter(|(name, _)| *name != "response-headers");
            inner.find_map(|(name, value)| {
                template("its keys", &Value::String(name.clone())).or_else(|| template(name, value))
            })
        }
        _ => None,
    }
}

/// Reads a file of hooks. An error is a sentence for people, with the line or the hook.
pub(super) fn read(text: &str) -> Result<Vec<WebhookHook>, String> {
    let begins = text.trim_start_matches('\u{feff}').trim_start();
    let root = if begins.starts_with(['[', '{']) {
        serde_json::from_str(begins).map_err(|error| format!("it is not JSON: {error}"))?
    } else {
        let document =
            yaml::parse(text).map_err(|error| format!("line {}: it is not YAML: {}", error.line, error.what))?;
        json(&document.root.ok_or("it is empty")?)?
    };
    let Value::Array(hooks) = root else { return Err("it is not a list of hooks".to_owned()) };
    if hooks.is_empty() {
        return Err("it has no hooks".to_owned());
    }
    hooks.iter().enumerate().map(|(n, hook)| self::hook(hook, n + 1)).collect()
}

/// A YAML tree as JSON. Scalars are texts; where JSON has a number or a flag, its text is read as one.
fn json(node: &YamlNode) -> Result<Value, String> {
    Ok(match &node.value {
        YamlValue::Null => Value::Null,
        YamlValue::Text(text) => Value::String(text.clone()),
        YamlValue::List(items) => Value::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        YamlValue::Table(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let YamlValue::Text(key) = &key.value else {
                    return Err(format!("line {}: a key is not a text", key.line));
                };
                map.insert(key.clone(), json(value)?);
            }
            Value::Object(map)
        }
    })
}

/// An object, and where it is, for errors.
struct WebhookObject<'v> {
    map: &'v Map<String, Value>,
    at: &'v str,
}

impl<'v> WebhookObject<'v> {
    fn new(value: &'v Value, at: &'v str) -> Result<Self, String> {
        value.as_object().map(|map| Self { map, at }).ok_or_else(|| format!("{at} is not an object"))
    }

    fn wrong(&self, key: &str, what: &str) -> String {
        format!("`{key}` of {} is not {what}", self.at)
    }

    fn text(&self, key: &str) -> Result<Option<String>, String> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.wrong(key, "a text")),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if matches!(text.as_str(), "true" | "false") => Ok(text == "true"),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    fn status(&self, key: &str) -> Result<Option<u16>, String> {
        let number = match self.map.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::String(text)) => text.clone(),
            Some(_) => return Err(self.wrong(key, "a number")),
        };
        number.parse().map(Some).map_err(|_| self.wrong(key, "the number of a status"))
    }

    fn list(&self, key: &str) -> Result<&'v [Value], String> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.wrong(key, "a list")),
        }
    }

    fn parameters(&self, key: &str) -> Result<Vec<WebhookParameter>, String> {
        self.list(key)?.iter().map(|item| parameter(item, self.at)).collect()
    }
}

fn parameter(value: &Value, at: &str) -> Result<WebhookParameter, String> {
    let object = WebhookObject::new(value, at)?;
    Ok(WebhookParameter {
        source: object.text("source")?.unwrap_or_default(),
        name: object.text("name")?.unwrap_or_default(),
        variable: object.text("envname")?.filter(|name| !name.is_empty()),
        base64: object.flag("base64decode")?,
    })
}

fn hook(value: &Value, position: usize) -> Result<WebhookHook, String> {
    let place = format!("hook {position}");
    let named = WebhookObject::new(value, &place)?;
    let id = named.text("id")?.filter(|id| !id.is_empty()).ok_or_else(|| format!("{place} has no `id`"))?;
    let at = format!("hook `{}`", id.escape_debug());
    let object = WebhookObject { map: named.map, at: &at };
    let header = |item: &Value| Ok::<_, String>(WebhookObject::new(item, &at)?.text("name")?.unwrap_or_default());
    let method = |item: &Value| match item.as_str() {
        Some(method) => Ok(method.trim().to_uppercase()),
        None => Err(object.wrong("http-methods", "a list of texts")),
    };
    let mut other_case = Vec::new();
    self::other_case(value, &mut other_case);
    let rule = named.map.get("trigger-rule").filter(|rule| !rule.is_null());
    Ok(WebhookHook {
        command: object.text("execute-command")?.unwrap_or_default(),
        dir: object.text("command-working-directory")?.filter(|dir| !dir.is_empty()),
        arguments: object.parameters("pass-arguments-to-command")?,
        environment: object.parameters("pass-environment-to-command")?,
        files: object.parameters("pass-file-to-command")?,
        json_parameters: object.parameters("parse-parameters-as-json")?,
        rule: rule.map(|rule| self::rule(rule, &at, RULE_DEPTH_MAX)).transpose()?,
        methods: object.list("http-methods")?.iter().map(method).collect::<Result<_, _>>()?,
        content_type: object.text("incoming-payload-content-type")?.filter(|name| !name.is_empty()),
        response: WebhookResponse {
            message: object.text("response-message")?.filter(|message| !message.is_empty()),
            headers: object.list("response-headers")?.iter().map(header).collect::<Result<_, _>>()?,
            output: object.flag("include-command-output-in-response")?,
            output_on_error: object.flag("include-command-output-in-response-on-error")?,
            success: object.status("success-http-response-code")?.filter(|status| *status != 0),
            mismatch: object.status("trigger-rule-mismatch-http-response-code")?.filter(|status| *status != 0),
        },
        soft_failures: object.flag("trigger-signature-soft-failures")?,
        template: template("", value),
        other_case,
        unknown: named.map.keys().filter(|key| !HOOK_KEYS.contains(&key.as_str())).cloned().collect(),
        id,
    })
}

/// A rule; of several keys the first of `and`, `or`, `not`, `match` counts, as for webhook.
fn rule(value: &Value, at: &str, depth: usize) -> Result<WebhookRule, String> {
    let object = WebhookObject::new(value, at)?;
    let depth = depth.checked_sub(1).ok_or_else(|| format!("the rules of {at} are nested too deeply"))?;
    let all = |key: &str| object.list(key)?.iter().map(|item| rule(item, at, depth)).collect::<Result<Vec<_>, _>>();
    let has = |key: &str| object.map.get(key).is_some_and(|value| !value.is_null());
    if has("and") {
        Ok(WebhookRule::And(all("and")?))
    } else if has("or") {
        Ok(WebhookRule::Or(all("or")?))
    } else if let Some(inner) = object.map.get("not").filter(|inner| !inner.is_null()) {
        Ok(WebhookRule::Not(Box::new(rule(inner, at, depth)?)))
    } else if let Some(inner) = object.map.get("match").filter(|inner| !inner.is_null()) {
        let inner = WebhookObject::new(inner, at)?;
        let text = |key: &str| inner.text(key).map(Option::unwrap_or_default);
        Ok(WebhookRule::Match(WebhookMatch {
            kind: text("type")?,
            parameter: inner
                .map
                .get("parameter")
                .map_or_else(|| Ok(WebhookParameter::default()), |it| parameter(it, at))?,
            value: text("value")?,
            regex: text("regex")?,
            secret: text("secret")?,
            ip_range: text("ip-range")?,
        }))
    } else {
        Ok(WebhookRule::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(text: &str, what: &str) {
        let error = read(text).expect_err("it is wrong");
        assert!(error.contains(what), "{error}");
    }

    #[test]
    fn json_and_yaml_are_the_same_hooks() {
        let json = r#"[{"id": "a", "execute-command": "/x", "include-command-output-in-response": true,
            "success-http-response-code": 201, "http-methods": [" post"], "extra": 1, "trigger-rule":
            {"and": [{"match": {"type": "value", "value": "1", "parameter": {"source": "url", "name": "t"}}}, {}]}}]"#;
        let yaml = "- id: a\n  execute-command: /x\n  include-command-output-in-response: true\n  \
            success-http-response-code: 201\n  http-methods: [' post']\n  extra: 1\n  trigger-rule:\n    and:\n    \
            - match: {type: value, value: '1', parameter: {source: url, name: t}}\n    - {}\n";
        let hooks = read(json).expect("JSON");
        assert_eq!(hooks, read(yaml).expect("YAML"));
        assert_eq!(
            (hooks[0].methods.as_slice(), hooks[0].unknown.as_slice()),
            (&["POST".into()][..], &["extra".into()][..])
        );
        assert!(matches!(&hooks[0].rule, Some(WebhookRule::And(rules)) if rules[1] == WebhookRule::Never));
    }

    #[test]
    fn what_is_no_list_of_hooks_is_told_with_its_place() {
        check_error("", "it is empty");
        check_error("[]", "it has no hooks");
        check_error("{}", "not a list of hooks");
        check_error("[1]", "hook 1 is not an object");
        check_error("[{\"id\": \"a\"}, {}]", "hook 2 has no `id`");
        check_error("[{\"id\": \"a\", \"http-methods\": \"GET\"}]", "`http-methods` of hook `a` is not a list");
        check_error("[{\"id\": \"a\", \"trigger-rule\": []}]", "hook `a` is not an object");
        check_error("[{\"id\": \"a\",}]", "it is not JSON");
        check_error("- id: a\n\t- b", "it is not YAML");
        let deep = format!("{}{{}}{}", "{\"not\":".repeat(40), "}".repeat(40));
        check_error(&format!("[{{\"id\": \"a\", \"trigger-rule\": {deep}}}]"), "nested too deeply");
    }

    #[test]
    fn a_known_key_in_another_case_is_found_at_any_depth() {
        let hooks = read(
            r#"[{"id": "a", "Trigger-Rule": {"AND": [{"Match": {"Type": "value", "parameter": {"\u017fource": "url"}}}]},
                "extra": 1, "pass-arguments-to-command": [{"Name": "x"}]}, {"id": "b", "trigger-rule": {"and": []}}]"#,
        );
        let hooks = hooks.expect("hooks");
        let mut found = hooks[0].other_case.clone();
        found.sort();
        assert_eq!(found, ["AND", "Match", "Name", "Trigger-Rule", "Type", "\u{17f}ource"]);
        assert_eq!(hooks[1].other_case, [""; 0]);
    }

    #[test]
    fn what_a_template_fills_in_is_found_at_any_depth() {
        for (hook, key) in [
            (r#"{"id": "{{ .X }}"}"#, Some("id")),
            (r#"{"id": "a", "trigger-rule": {"and": [{"match": {"secret": "{{ cat `x` }}"}}]}}"#, Some("secret")),
            (r#"{"id": "a", "pass-arguments-to-command": [{"source": "string", "name": "a{{b"}]}"#, Some("name")),
            (r#"{"id": "a", "{{x}}": 1}"#, Some("its keys")),
            (
                r#"{"id": "a", "response-message": "{{x}}", "response-headers": [{"name": "a", "value": "{{x}}"}]}"#,
                None,
            ),
            (r#"{"id": "a", "trigger-rule": {"match": {"regex": "^a{1}{$"}}}"#, None),
        ] {
            let hooks = read(&format!("[{hook}]")).expect("hooks");
            assert_eq!(hooks[0].template.as_deref(), key, "{hook}");
        }
    }

    #[test]
    fn neither_secret_nor_value_of_a_match_is_printed() {
        let hooks = read(r#"[{"id": "a", "trigger-rule": {"match": {"secret": "s3cret", "value": "t0ken"}}}]"#);
        let shown = format!("{hooks:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
    }
}
