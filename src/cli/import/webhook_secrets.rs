//! Which values of a hook are secrets. No hook says so: the names of its values do, and where they do not, that nothing else
//! proves the sender.

use super::webhook_hooks::{FORM, WebhookMatch, WebhookParameter};

/// Words that name a secret. The first seven also count as a part of a longer word, where the only question is whether a
/// value may be copied.
const SECRET_WORDS: [&str; 17] = [
    "token",
    "secret",
    "passw",
    "auth",
    "signature",
    "credential",
    "apikey",
    "password",
    "passwd",
    "pass",
    "pwd",
    "tok",
    "passcode",
    "passphrase",
    "authorization",
    "credentials",
    "key",
];
/// Words before `key` that make it the name of a thing.
const PLAIN_KEYS: [&str; 7] = ["event", "issue", "project", "repo", "repository", "object", "public"];
/// Names of members that hold a secret or something else: `pass` may be a result, `key` the key of a project.
const AMBIGUOUS_NAMES: [&str; 3] = ["pass", "key", "auth"];
/// Words in names of headers and query values that are no secrets.
const PLAIN_WORDS: [&str; 27] = [
    "event",
    "action",
    "type",
    "kind",
    "branch",
    "ref",
    "tag",
    "topic",
    "version",
    "env",
    "environment",
    "repo",
    "repository",
    "project",
    "agent",
    "host",
    "origin",
    "accept",
    "content",
    "language",
    "message",
    "source",
    "target",
    "name",
    "id",
    "user",
    "method",
];

/// Whether a fixed value of this name may be a secret, so that it is not copied.
pub(super) fn may_name_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS[..7].iter().any(|word| name.contains(word)) || name.ends_with("key") || name == "pass"
}

/// The words of a name, in small letters: of `X-DeployToken` three.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small = false;
    for c in name.chars() {
        let between = matches!(c, '-' | '_' | '.');
        if between || small && c.is_ascii_uppercase() {
            words.push(String::new());
        }
        small = c.is_ascii_lowercase();
        words.last_mut().expect("there is a word").extend((!between).then(|| c.to_ascii_lowercase()));
    }
    words
}

/// Whether a value of this name is a secret that proves its sender: a whole word says so.
fn names_a_secret(name: &str) -> bool {
    let words = words(name);
    let before = |at: usize| at.checked_sub(1).map_or("", |at| &words[at]);
    words.iter().enumerate().any(|(at, word)| match word.as_str() {
        "key" => !PLAIN_KEYS.contains(&before(at)),
        word => {
            SECRET_WORDS.contains(&word)
                || ["token", "secret", "password", "apikey"].iter().any(|it| word.ends_with(it))
        }
    })
}

/// Whether it compares with a secret, as the name of the value says.
pub(super) fn is_token(it: &WebhookMatch) -> bool {
    it.kind == "value" && !it.value.is_empty() && !is_flag(&it.value) && names_a_token(it, |it| is_plain(&it.value))
}

/// Whether the value has the name of a secret. A member of the body that is called `key` may be something else, if `plain`
/// says so.
pub(super) fn names_a_token(it: &WebhookMatch, plain: fn(&WebhookMatch) -> bool) -> bool {
    let WebhookParameter { source, name, .. } = &it.parameter;
    let ambiguous = || AMBIGUOUS_NAMES.contains(&name.rsplit('.').next().unwrap_or_default());
    match source.as_str() {
        "header" | "url" | "query" => names_a_secret(name),
        "payload" | FORM => names_a_secret(name) && !(ambiguous() && plain(it)),
        _ => false,
    }
}

/// Whether it may compare with a secret although its name does not say so.
pub(super) fn may_be_a_secret(it: &WebhookMatch) -> bool {
    let WebhookParameter { source, name, .. } = &it.parameter;
    let from_sender = matches!(source.as_str(), "header" | "url" | "query");
    let plain = names_a_secret(name) || words(name).iter().any(|word| PLAIN_WORDS.contains(&word.as_str()));
    it.kind == "value" && from_sender && !plain && !it.value.is_empty() && !is_flag(&it.value)
}

pub(super) fn is_flag(value: &str) -> bool {
    matches!(value, "true" | "false")
}

/// A number, or a short word.
fn is_plain(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_digit() || "+-.".contains(c))
        || value.len() <= 8 && value.chars().all(|c| c.is_ascii_alphabetic() || "-_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_word_names_a_token() {
        for name in ["X-DeployToken", "deploytoken", "userPassword", "X-Api-Tok", "APIKey", "pwd"] {
            assert!(names_a_secret(name), "{name}");
        }
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
}
