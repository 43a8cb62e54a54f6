//! What a user is told about a config that is wrong.

use hookonce::internals::config::{self, ColorChoice};
use std::path::Path;

const PEM: &str = "-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n";

/// An environment with secrets, each of which can be recognised.
pub(crate) fn env(name: &str) -> Option<String> {
    let value = match name {
        "PASSWORD" => "s3cret-password-of-the-registry",
        "SHORT" => "s3cret",
        "USER_NAME" => "s3cret-user",
        "TOKEN" => "s3cret-token-of-the-api",
        "SPACES" => "s3cret token of the api",
        "PEM" => PEM,
        _ => return None,
    };
    Some(value.to_owned())
}

/// All problems of a config, as the user sees them.
pub(crate) fn problems(text: &str) -> String {
    match config::parse(text, "hookonce.toml", Path::new("/etc"), &env) {
        Err(problems) => problems.render(ColorChoice::Plain),
        Ok(config) => config.warnings.iter().map(|warning| warning.render(ColorChoice::Plain)).collect(),
    }
}

/// Checks that this config is refused, in these words and without a secret.
#[track_caller]
pub(crate) fn wrong(text: &str, words: &[&str]) {
    let shown = problems(text);
    assert!(shown.starts_with("error: "), "{text}\n{shown}");
    for words in words {
        assert!(shown.contains(words), "{words}\n{text}\n{shown}");
    }
    assert!(!shown.contains("s3cret"), "{shown}");
}
