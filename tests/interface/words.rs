//! Words in the source that leave the process: environment variables, headers, log words.

use crate::{check, sources};

/// Every longest run of these characters with this beginning.
fn beginning(text: &str, begin: &str, goes_on: fn(char) -> bool) -> Vec<String> {
    let ends = |at: usize| text[at..].find(|c| !goes_on(c)).map_or(text.len(), |length| at + length);
    text.match_indices(begin).map(|(at, _)| text[at..ends(at)].to_owned()).collect()
}

#[test]
fn the_variables_of_the_environment_are_as_they_were() {
    let named = |text: &String| beginning(text, "HOOKONCE_", |c| c.is_ascii_uppercase() || c == '_');
    check("environment.txt", sources().iter().flat_map(named));
}

#[test]
fn the_headers_that_we_send_and_read_are_as_they_were() {
    let quoted = |text: &String| -> Vec<String> {
        let texts = text.split('"').skip(1).step_by(2).map(str::to_owned);
        let is_header = |text: &String| {
            let low = text.to_ascii_lowercase();
            let ours = ["hookonce-", "x-hookonce-", "nats-", "idempotency-", "webhook-", "x-github-", "x-hub-"];
            ours.iter().any(|begin| low.starts_with(begin))
                && low.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        texts.filter(is_header).collect()
    };
    check("headers.txt", sources().iter().flat_map(quoted));
}

/// The last string literal of a macro: the message of a log event.
fn last_text(arguments: &str) -> Option<String> {
    let (mut depth, mut last, mut open) = (0, None, None);
    for (at, c) in arguments.char_indices() {
        match (open, c) {
            (Some(from), '"') => (last, open) = (Some(&arguments[from..at]), None),
            (None, '"') => open = Some(at + 1),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => break,
            (None, ')') => depth -= 1,
            _ => {}
        }
    }
    last.map(str::to_owned)
}

#[test]
fn the_words_of_the_log_are_as_they_were() {
    let words = |text: &String| -> Vec<String> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let after = |target: &str| -> Vec<String> { text.split(target).skip(1).filter_map(last_text).collect() };
        let words = ["target: \"hookonce\",", "target: OUTPUT_TARGET,"].into_iter().flat_map(after);
        words.filter(|word| !word.contains('{')).collect()
    };
    check("log-words.txt", sources().iter().flat_map(words));
}
