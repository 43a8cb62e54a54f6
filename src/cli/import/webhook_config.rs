//! Generates a config that does what the hooks of adnanh/webhook did: a source for each, with its path, its proof of
//! the sender, its rule and its command.
//!
//! A hook whose command would get less than it got, or would run for more senders than before, is written as comments,
//! with the reason. What differs in the responses alone is noted.

use super::generated_config::{comment, line, text};
use super::webhook_hooks::{FORM, WebhookHook, WebhookParameter};
use super::webhook_rule::{HookFields, TranslatedRule, WebhookProof, translate};
use super::webhook_secrets::may_name_a_secret;
use crate::decide::limits;
use std::collections::BTreeSet;

/// The folder of the secrets, beside the config.
pub(super) const SECRET_FOLDER: &str = "webhook-secrets";
/// Begins and ends the name of a variable that a template of webhook names. No file of hooks has these characters.
pub(super) const VARIABLE: [char; 2] = ['\u{f0e1}', '\u{f0e2}'];

/// What is made of a hook.
pub(super) struct GeneratedHook {
    pub(super) id: String,
    /// Its source, as TOML.
    pub(super) toml: String,
    /// The same, with its command as webhook ran it: no script passes the body on. It must load, too, so that no script
    /// hides a program that would run a value as text.
    pub(super) plain: String,
    /// Files with secrets: names in [`SECRET_FOLDER`], and contents.
    pub(super) secrets: Vec<(String, String)>,
    /// What is different.
    pub(super) notes: Vec<String>,
    /// Whether its expression may hold a secret that is known to nobody: nothing else proves its sender.
    pub(super) private: bool,
    /// Why it is not imported, if so.
    pub(super) refused: Option<String>,
}

impl GeneratedHook {
    /// The text for the config: the source, or comments.
    pub(super) fn text(&self) -> String {
        let mut out = format!("\n# Hook `{}`\n", comment(&self.id));
        for note in &self.notes {
            line(&mut out, format_args!("# - {}", comment(note)));
        }
        match &self.refused {
            None => out += &self.toml,
            Some(why) => {
                line(&mut out, format_args!("# not imported: {}", comment(why)));
                for written in self.toml.lines() {
                    out += format!("# {written}").trim_end();
                    out.push('\n');
                }
            }
        }
        out
    }
}

/// The name of a source: that of its hook, as far as its letters may be in one.
pub(super) fn source_name(id: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-' => c,
        _ => '-',
    };
    let name: String = id.chars().take(48).map(plain).collect();
    let name = if name.trim_matches('-').is_empty() { "hook".to_owned() } else { name.trim_matches('-').to_owned() };
    let mut free = name.clone();
    let mut n = 1;
    while !taken.insert(free.clone()) {
        n += 1;
        free = format!("{name}-{n}");
    }
    free
}

/// Generates the source of a hook.
pub(super) fn generate(hook: &WebhookHook, name: &str, prefix: &str) -> GeneratedHook {
    let mut hook_notes = Vec::new();
    let of_form = hook.reads_form_values().then(|| hook.clone().with_form_values());
    let hook = of_form.as_ref().unwrap_or(hook);
    let made = HookGenerator { hook, name, prefix, notes: &mut hook_notes, secrets: Vec::new() }.generate();
    let (HookSource { toml, plain, secrets, private }, refused) = match made {
        Ok(source) => (source, None),
        Err(why) => (HookSource::default(), Some(why)),
    };
    GeneratedHook { id: hook.id.clone(), toml, plain, secrets, private, notes: hook_notes, refused }
}

struct HookGenerator<'h> {
    hook: &'h WebhookHook,
    name: &'h str,
    prefix: &'h str,
    notes: &'h mut Vec<String>,
    secrets: Vec<(String, String)>,
}

/// The source of a hook that can be imported; see [`GeneratedHook`].
#[derive(Default)]
struct HookSource {
    toml: String,
    plain: String,
    secrets: Vec<(String, String)>,
    private: bool,
}

/// A block `run`, and the same with the command as webhook ran it.
struct HookCommand {
    run: String,
    plain: String,
}

/// The field that stands for the whole body in a plain command.
const WHOLE_BODY: &str = "the_whole_body";

fn is_whole_body(it: &WebhookParameter) -> bool {
    matches!(it.source.as_str(), "entire-payload" | "raw-request-body")
}

/// The header with the kind of GitHub's event.
const EVENT_KIND: &str = "x-github-event";
/// Headers with the ids of deliveries, by the headers beside which their senders always set them.
const CERTAIN_IDS: [(&str, &str); 4] = [
    ("x-gitea-", "x-gitea-delivery"),
    ("x-forgejo-", "x-forgejo-delivery"),
    ("x-gogs-", "x-gogs-delivery"),
    ("x-github-", "x-github-delivery"),
];
/// The same for headers that other senders set, too: only a hint.
const PROBABLE_IDS: [(&str, &str); 4] = [
    ("x-gitlab-", "x-gitlab-event-uuid"),
    ("x-event-key", "x-request-uuid"),
    ("x-hub-signature", "x-github-delivery"),
    ("webhook-", "webhook-id"),
];

impl HookGenerator<'_> {
    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn generate(mut self) -> Result<HookSource, String> {
        let hook = self.hook;
        if !hook.other_case.is_empty() {
            let names: Vec<_> = hook.other_case.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
            let names = names.join(", ");
            return Err(format!(
                "webhook reads {names} in any letter case, and here it would be ignored: write it in small letters"
            ));
        }
        if hook.command.is_empty() {
            return Err("it has no `execute-command`".to_owned());
        }
        if let Some(key) = &hook.template {
            return Err(format!("a template fills in `{}`; render the file first", key.escape_debug()));
        }
        self.methods()?;
        let mut fields = HookFields::default();
        fields.form_payload = self.form_payload()?;
        self.parameters().try_for_each(|it| fields.check_place(it))?;
        let rule = translate(hook, &mut fields)?;
        let TranslatedRule { proof, when, notes, .. } = &rule;
        if fields.form_payload && !proof.is_of_github() && self.parameters().any(|it| it.source == "payload") {
            return Err(
                "it reads JSON in a form, which is read here only where `X-Hub-Signature-256` signs it: let the sender send \
                 JSON, take `payload.` out of the names, and import it again"
                    .to_owned(),
            );
        }
        self.notes.extend_from_slice(notes);
        let HookCommand { run, plain } = self.run(&mut fields)?;
        self.note_long_values(&fields);

        let mut out = format!("[source.{}]\npath            = {}\n", self.name, text(&self.path()));
        out += &self.verify(&fields, &rule)?;
        out += &self.identity(&fields, &rule);
        out += &self.responses(when.as_deref());
        let reads_whole = self.parameters().any(is_whole_body);
        if fields.iter().next().is_some() || reads_whole {
            line(&mut out, format_args!("\n[source.{}.fields]", self.name));
        }
        for field in fields.iter() {
            let place = text(&field.place);
            if field.or_empty {
                line(&mut out, format_args!("{} = {{ at = {place}, default = \"\" }}", field.name));
            } else {
                line(&mut out, format_args!("{} = {place}", field.name));
            }
        }
        let begin = format!("\n[[source.{}.route]]\nname = {}\n", self.name, text(self.name));
        let of_body = if self.reads_form() { "form" } else { "body" };
        let plain = format!(
            "{}{begin}{plain}",
            out.replacen(".fields]\n", &format!(".fields]\n{WHOLE_BODY} = \"{of_body}.x\"\n"), 1)
        );
        out += &begin;
        out += &run;
        no_template(&[&out])?;
        if !hook.unknown.is_empty() {
            let names: Vec<_> = hook.unknown.iter().map(|key| format!("`{}`", key.escape_debug())).collect();
            self.note(format!("webhook does not know {} and ignored it", names.join(", ")));
        }
        let private = *proof == WebhookProof::None && when.is_some();
        Ok(HookSource { toml: out, plain, secrets: self.secrets, private })
    }

    /// Notes the values of the body: a delivery with a long one is refused, as they are fields here.
    fn note_long_values(&mut self, fields: &HookFields) {
        let places = fields
            .iter()
            .map(|field| &*field.place)
            .filter(|place| ["body.", "form."].iter().any(|part| place.starts_with(part)));
        let places: BTreeSet<_> = places.map(|place| format!("`{place}`")).collect();
        if places.is_empty() {
            return;
        }
        let places = places.into_iter().collect::<Vec<_>>().join(", ");
        let has_body = self.hook.arguments.iter().chain(&self.hook.files).any(is_whole_body);
        let body =
            if has_body { "The command gets the whole body" } else { "The command's standard input is the whole body" };
        self.note(format!(
            "a delivery is refused with 422 `field_too_long` if one of these is longer than {} bytes: {places}; webhook took \
             any length. {body}: let it read long values from there",
            limits::FIELD_BYTES_MAX,
        ));
    }

    fn path(&self) -> String {
        let id = self.hook.id.trim_start_matches('/');
        if self.prefix.is_empty() { format!("/{id}") } else { format!("/{}/{id}", self.prefix) }
    }

    fn methods(&mut self) -> Result<(), String> {
        let methods = &self.hook.methods;
        if methods.is_empty() {
            return Ok(());
        }
        if !methods.iter().any(|method| method == "POST") {
            return Err(format!("it takes only {}, and a delivery is a POST here", methods.join(", ")));
        }
        if methods.len() > 1 {
            self.note("only POST is taken here");
        }
        Ok(())
    }

    /// Whether the payload is JSON in a form.
    fn form_payload(&mut self) -> Result<bool, String> {
        let hook = self.hook;
        let decoded = |it: &&WebhookParameter| it.source == "payload" && it.name == "payload";
        let form_payload = hook.json_parameters.iter().any(|it| decoded(&it));
        for other in hook.json_parameters.iter().filter(|it| !decoded(it)) {
            let inside = format!("{}.", other.name);
            if self.parameters().any(|it| it.source == other.source && it.name.starts_with(&inside)) {
                return Err(format!("{other} is parsed as JSON, and only the body is read here"));
            }
            self.note(format!("{other} is not parsed as JSON; nothing that is imported reads it"));
        }
        if self.reads_form() {
            return Ok(false);
        }
        let Some(kind) = hook.content_type.as_deref().filter(|kind| !kind.contains("json")) else {
            return Ok(form_payload);
        };
        let reads_payload = self.parameters().any(|it| it.source == "payload");
        match (kind.contains("x-www-form-urlencoded"), reads_payload, form_payload) {
            (true, _, true) => Ok(true),
            (_, false, _) => {
                self.note(format!(
                    "`incoming-payload-content-type` {} has no effect: no value is read from the body",
                    kind.escape_debug()
                ));
                Ok(form_payload)
            }
            _ => Err(format!("it reads the body as {}, and here a body is JSON or a form", kind.escape_debug())),
        }
    }

    /// Whether it reads values of a form.
    fn reads_form(&self) -> bool {
        self.parameters().any(|it| it.source == FORM)
    }

    fn parameters(&self) -> impl Iterator<Item = &WebhookParameter> {
        self.hook.parameters()
    }

    /// What makes two deliveries the same event. Webhook ran each request, so only what is certainly sent again is a
    /// duplicate: the id of its sender, or else the body, if nothing beside it tells two requests apart.
    fn identity(&mut self, fields: &HookFields, rule: &TranslatedRule) -> String {
        if let Some(id) = certain_id(fields, rule) {
            self.note(format!(
                "a delivery is a duplicate if an earlier one has the same `{id}` and the same body, and without `{id}` it \
                 is refused with 422"
            ));
            let signed = matches!(rule.proof, WebhookProof::Hmac { .. });
            let once = if signed { "once            = { equal_bodies = \"new\" }\n" } else { "" };
            return format!("delivery        = \"header.{id}\"\n{once}");
        }
        let elsewhere = |place: &str| place.starts_with("header.") || place.starts_with("query.");
        let reads_body = matches!(rule.proof, WebhookProof::Hmac { .. })
            || self.parameters().any(|it| matches!(it.source.as_str(), "payload" | FORM) || is_whole_body(it));
        let by_body = reads_body && !fields.iter().any(|field| elsewhere(&field.place));
        let hint = match probable_id(fields, &rule.proof) {
            Some(id) => format!("if each delivery has `{id}`, set delivery = \"header.{id}\""),
            None => "if its sender has an id for each delivery, name it with `delivery`".to_owned(),
        };
        if by_body {
            self.note(format!(
                "no id of a delivery is certain, so equal bodies within 5 minutes are one event; {hint}, and remove `once`"
            ));
            return "once            = { per = [\"body\"], keep = \"5m\" }\n".to_owned();
        }
        let why = if reads_body { "it reads more than the body" } else { "it reads no body" };
        self.note(format!(
            "each delivery runs its command, as with webhook, also one that is sent again: no id is certain, and {why}; \
             {hint}, and remove `once`"
        ));
        "once            = { per = [], equal_bodies = \"new\" }\n".to_owned()
    }

    fn verify(&mut self, fields: &HookFields, rule: &TranslatedRule) -> Result<String, String> {
        let proof = &rule.proof;
        Ok(match proof {
            WebhookProof::Hmac { header, hash, secrets } => {
                let secret = self.secret(secrets)?;
                let name = header.to_ascii_lowercase();
                if self.reads_form() && reads_kind(fields, proof) {
                    return Err(
                        "it reads `X-GitHub-Event` beside values of a form, and a form of GitHub has only `payload`, \
                                with JSON: let the sender send JSON"
                            .to_owned(),
                    );
                }
                if reads_kind(fields, proof) {
                    self.note(
                        "`X-GitHub-Event` is not signed, so a delivery without it, or whose body does not have the shape of \
                         that event, is refused with 422",
                    );
                }
                // Others sign like this, too, without GitHub's id and with other content types.
                if proof.is_of_github()
                    && !self.reads_form()
                    && (fields.form_payload || certain_id(fields, rule) == Some("x-github-delivery"))
                {
                    return Ok(format!("verify          = \"github\"\n{secret}"));
                }
                let prefix = if name.starts_with("x-hub-signature") {
                    format!(", prefix = \"{hash}=\"")
                } else {
                    self.note(format!(
                        "if its sender writes `{hash}=` before the signature, add prefix = \"{hash}=\" to `verify`"
                    ));
                    String::new()
                };
                let header = text(header);
                format!(
                    "verify          = {{ scheme = \"hmac\", header = {header}{prefix}, hash = \"{hash}\" }}\n{secret}"
                )
            }
            WebhookProof::Token { place, secrets } => {
                let secret = self.secret(secrets)?;
                let place = text(place);
                format!("verify          = {{ scheme = \"token\", at = {place} }}\n{secret}")
            }
            WebhookProof::None => {
                self.note(if rule.when.is_some() {
                    "anyone who sends what `when` wants can run it, as with webhook; that expression is in the log, so no value \
                     in it may be a secret"
                } else {
                    "anyone who reaches the port can run it, as with webhook"
                });
                "verify          = \"none\"\n".to_owned()
            }
        })
    }

    /// The key `secret`, whose values go to files or stay in their variables.
    fn secret(&mut self, secrets: &[String]) -> Result<String, String> {
        let mut places = Vec::new();
        for secret in secrets {
            let variable = secret.strip_prefix(VARIABLE[0]).and_then(|rest| rest.strip_suffix(VARIABLE[1]));
            if let Some(name) = variable {
                places.push(format!("{{ env = {} }}", text(name)));
                continue;
            }
            no_template(&[secret])?;
            if secret.trim() != secret {
                return Err("a secret begins or ends with white space, which a file cannot keep here".to_owned());
            }
            let file = match self.secrets.len() {
                0 => self.name.to_owned(),
                // No name of a source has a dot, so this is no other source's file.
                n => format!("{}.{}", self.name, n + 1),
            };
            places.push(format!("{{ file = \"{SECRET_FOLDER}/{file}\" }}"));
            self.secrets.push((file, secret.clone()));
        }
        match places.as_slice() {
            [one] => Ok(format!("secret          = {one}\n")),
            several => Ok(format!("secret          = [{}]\n", several.join(", "))),
        }
    }

    fn responses(&mut self, when: Option<&str>) -> String {
        let response = &self.hook.response;
        let mut out = String::new();
        let status = match response.success {
            None => 200,
            Some(status @ (200 | 202 | 204)) => status,
            Some(other) => {
                self.note(format!("success is answered with 200; {other} is not possible here"));
                200
            }
        };
        if response.output_on_error && !response.output {
            self.note("`include-command-output-in-response-on-error` has no effect alone, as with webhook");
        }
        if response.output {
            out += "respond         = \"done\"\n";
            self.note("its sender waits for the command, at most `respond_within`, but gets no output: `hookonce show` prints it");
        } else {
            line(&mut out, format_args!("accepted_status = {status}"));
        }
        if response.message.is_some() {
            self.note("`response-message` is not sent: a response is JSON with a `status`");
        }
        if !response.headers.is_empty() {
            self.note("`response-headers` are not sent");
        }
        if let Some(when) = when {
            // The key decides what a sender gets whose delivery is not wanted.
            let (key, other) = match response.mismatch {
                None | Some(200) => ("when", None),
                Some(403) => ("require", None),
                Some(status) if status < 400 => ("when", Some((200, status))),
                Some(status) => ("require", Some((403, status))),
            };
            if let Some((ours, theirs)) = other {
                self.note(format!("what does not fit its rule is answered with {ours}, not {theirs}"));
            }
            line(&mut out, format_args!("{key:<15} = {}", text(when)));
        }
        out
    }

    /// The block `run`: the command as a list, with its arguments, variables and files.
    fn run(&mut self, fields: &mut HookFields) -> Result<HookCommand, String> {
        let hook = self.hook;
        let program = match &hook.dir {
            Some(dir) if !hook.command.starts_with('/') => format!("{}/{}", dir.trim_end_matches('/'), hook.command),
            _ => hook.command.clone(),
        };
        let mut words = vec![literal(&program)?];
        let mut plain = words.clone();
        // Where the whole body is an argument or a file, a script of fixed text passes it on as a value.
        let mut script = Vec::new();
        let mut passed = Vec::new();
        if hook.arguments.iter().any(is_whole_body) {
            script.push("b=$(cat)".to_owned());
        }
        let mut order = vec!["\"$1\"".to_owned()];
        for argument in &hook.arguments {
            if is_whole_body(argument) {
                plain.push(text(&format!("{{{WHOLE_BODY}}}")));
                self.note(format!("{argument} is passed as it was sent, without newlines at its end"));
                order.push("\"$b\"".to_owned());
                continue;
            }
            words.push(self::argument(argument, fields)?);
            plain.extend(words.last().cloned());
            order.push(format!("\"${}\"", words.len()));
        }
        let body_argument = !script.is_empty();
        if !hook.files.is_empty() {
            script.push("d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT".to_owned());
        }
        let mut first_whole = None;
        for (n, file) in hook.files.iter().enumerate() {
            let target = format!("\"$d/{}\"", n + 1);
            let content = match (is_whole_body(file), body_argument, first_whole) {
                (true, true, _) => "printf %s \"$b\"".to_owned(),
                (true, false, Some(first)) => format!("cat \"$d/{first}.body\""),
                (true, false, None) => {
                    first_whole = Some(n + 1);
                    format!("tee \"$d/{}.body\"", n + 1)
                }
                (false, ..) if file.source == "string" => {
                    return Err("it passes a fixed text as a file; write that file".into());
                }
                (false, ..) => format!("printf %s \"$HOOKONCE_FIELD_{}\"", fields.of(file, true)?.to_ascii_uppercase()),
            };
            // What is no base64 is decoded as far as possible, as webhook did, and does not stop the command.
            let decode = if file.base64 { " | { base64 -d || cat >/dev/null; } | cat" } else { "" };
            script.push(format!("{content}{decode} >{target}"));
            let variable = file.variable.clone().unwrap_or_else(|| format!("HOOK_{}", file.name.to_uppercase()));
            passed.push(format!("{}={target}", shell_quoted(&variable)?));
        }
        if !script.is_empty() {
            if words.len() > 9 {
                return Err(
                    "it has more than 8 arguments beside the whole body; write a script that reads its standard input"
                        .into(),
                );
            }
            let env = if passed.is_empty() { String::new() } else { format!("env {} ", passed.join(" ")) };
            script.push(format!("{env}{}", order.join(" ")));
            let joined = script.join(" && ");
            words.splice(0..0, [text("sh"), text("-c"), text(&joined), text("sh")]);
        }
        let (variables, inherited) = self.variables(fields)?;
        // A shell passes on only variables whose names it could set itself.
        let plain_name = |word: &String| {
            let name = word.trim_matches(['"', '\'']).split('=').next().unwrap_or_default();
            name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !script.is_empty() && !variables.iter().all(plain_name) {
            let why = "the name of a variable has a dot in it, which a shell does not pass on; give it an `envname`";
            return Err(why.to_owned());
        }
        if !variables.is_empty() {
            let env = || [text("env")].into_iter().chain(variables.clone());
            words.splice(0..0, env());
            plain.splice(0..0, env());
        }
        let mut rest = String::new();
        if let Some(dir) = &hook.dir {
            line(&mut rest, format_args!("dir     = {}", literal(dir)?));
        }
        if !inherited.is_empty() {
            line(&mut rest, format_args!("env     = [{}]", inherited.join(", ")));
        }
        let block = |words: &[String]| {
            format!(
                "\n[[source.{}.route.run]]\nsteps   = [[{}]]\n{rest}timeout = \"10m\"\n",
                self.name,
                words.join(", ")
            )
        };
        Ok(HookCommand { run: block(&words), plain: block(&plain) })
    }

    /// Variables to set with `env`, and the names of those that the node passes on.
    fn variables(&mut self, fields: &mut HookFields) -> Result<(Vec<String>, Vec<String>), String> {
        let (mut set, mut inherited) = (Vec::new(), Vec::new());
        for it in &self.hook.environment {
            let name = it.variable.clone().unwrap_or_else(|| format!("HOOK_{}", it.name));
            if name.contains('=') || name.contains(char::is_control) {
                return Err(format!("`{}` cannot be the name of a variable", name.escape_debug()));
            }
            match it.source.as_str() {
                "string" if may_name_a_secret(&name) => {
                    self.note(format!(
                        "set {} for the node; its value is not copied, as it is probably a secret",
                        name.escape_debug()
                    ));
                    inherited.push(text(&name));
                }
                "string" => {
                    literal(&it.name)?;
                    set.push(text(&format!("{name}={}", it.name)));
                }
                "request" if it.name.eq_ignore_ascii_case("method") => set.push(text(&format!("{name}=POST"))),
                "entire-payload" | "raw-request-body" => {
                    return Err(format!(
                        "{it} is passed in a variable; let the command read its standard input instead"
                    ));
                }
                _ => set.push(text(&format!("{name}={{{}}}", fields.of(it, true)?))),
            }
        }
        Ok((set, inherited))
    }
}

fn no_template(texts: &[&str]) -> Result<(), String> {
    if texts.iter().any(|text| text.contains(VARIABLE)) {
        return Err("a template fills in something other than a secret; render it first".to_owned());
    }
    Ok(())
}

/// The header with the id of a delivery that has one of these headers.
fn id_beside(ids: &[(&str, &'static str)], names: &[&str]) -> Option<&'static str> {
    let has = |prefix: &str| names.iter().any(|name| name.starts_with(prefix));
    ids.iter().find_map(|(prefix, id)| has(prefix).then_some(*id))
}

/// The header with the sender's id of a delivery, if every delivery that is accepted has it.
fn certain_id(fields: &HookFields, rule: &TranslatedRule) -> Option<&'static str> {
    let needed = rule.needed_headers.iter().map(String::as_str);
    let names: Vec<_> = needed.chain(reads_kind(fields, &rule.proof).then_some(EVENT_KIND)).collect();
    id_beside(&CERTAIN_IDS, &names)
}

/// Whether the kind of GitHub's event is read beside a signature that does not cover it. Such a source refuses deliveries
/// without that header.
fn reads_kind(fields: &HookFields, proof: &WebhookProof) -> bool {
    let place = format!("header.{EVENT_KIND}");
    matches!(proof, WebhookProof::Hmac { .. }) && fields.iter().any(|field| field.place == place)
}

/// The header that probably has the sender's id of a delivery, if one of its headers is known.
fn probable_id(fields: &HookFields, proof: &WebhookProof) -> Option<&'static str> {
    let signature =
        if let WebhookProof::Hmac { header, .. } = proof { Some(header.to_ascii_lowercase()) } else { None };
    let token = if let WebhookProof::Token { place, .. } = proof { place.strip_prefix("header.") } else { None };
    let named = fields.iter().filter_map(|field| field.place.strip_prefix("header."));
    let headers: Vec<&str> = named.chain(signature.as_deref()).chain(token).collect();
    id_beside(&CERTAIN_IDS, &headers).or_else(|| id_beside(&PROBABLE_IDS, &headers))
}

/// An argument, as TOML.
fn argument(argument: &WebhookParameter, fields: &mut HookFields) -> Result<String, String> {
    match (argument.source.as_str(), argument.name.to_ascii_lowercase().as_str()) {
        ("string", _) => literal(&argument.name),
        ("request", "method") => Ok(text("POST")),
        _ => Ok(text(&format!("{{{}}}", fields.of(argument, true)?))),
    }
}

/// A fixed text as TOML; braces would stand for a field.
fn literal(fixed: &str) -> Result<String, String> {
    if fixed.contains('{') && fixed.contains('}') {
        return Err(
            "a fixed text has braces in it, which stand for a field here; write a script with that text".to_owned()
        );
    }
    if fixed.contains('\0') {
        return Err("a fixed text has a NUL byte".to_owned());
    }
    Ok(text(fixed))
}

/// A name in quotes of a shell.
fn shell_quoted(name: &str) -> Result<String, String> {
    if name.contains(['\'', '=', '{', '}']) || name.contains(char::is_control) {
        return Err(format!("`{}` cannot be the name of a variable", name.escape_debug()));
    }
    Ok(format!("'{name}'"))
}
