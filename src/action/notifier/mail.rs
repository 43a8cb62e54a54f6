//! A notification as a mail. No value of an event can become a header: the subject is encoded, the text is base64.

use super::message_text::{MessageText, plain};
use crate::decide::notification::EndDescription;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// From whom and to whom mails are. Checked by the config: one line, and no control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MailHeaders {
    /// The sender; `None`: the system's own name for its user.
    pub from: Option<String>,
    /// The receivers.
    pub to: Vec<String>,
}

/// Bytes of text in one encoded word, which has at most 75 characters (RFC 2047).
const WORD_BYTES_MAX: usize = 45;
/// Bytes of text in one line of base64 (RFC 2045: at most 76 characters).
const LINE_BYTES: usize = 57;

impl MailHeaders {
    /// The whole message, under this id.
    pub(super) fn message(&self, described: &EndDescription, id: &str) -> String {
        let text = MessageText::of(described, plain);
        let from = self.from.as_ref().map_or_else(String::new, |from| format!("From: {from}\n"));
        let (to, subject) = (self.to.join(", "), encoded_words(&text.title).join("\n "));
        let mut message = format!(
            "{from}To: {to}\nSubject: {subject}\nMessage-ID: <{id}@hookonce>\n\
             Auto-Submitted: auto-generated\nMIME-Version: 1.0\n\
             Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: base64\n\n"
        );
        let body = format!("{}\r\n", text.lines.join("\r\n"));
        for line in body.as_bytes().chunks(LINE_BYTES) {
            message += &STANDARD.encode(line);
            message.push('\n');
        }
        message
    }
}

/// A text as the value of a header: as it is, if it is printable ASCII, else as encoded words (RFC 2047).
pub(super) fn encoded_words(text: &str) -> Vec<String> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.contains("=?") {
        return vec![text.to_owned()];
    }
    let mut words = vec![String::new()];
    for c in plain(text).chars() {
        if words.last().is_some_and(|word| word.len() + c.len_utf8() > WORD_BYTES_MAX) {
            words.push(String::new());
        }
        words.last_mut().expect("there is always one").push(c);
    }
    words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_printable_and_has_no_line_of_the_senders() {
        assert_eq!(encoded_words("ghcr/deploy: dead (failed)"), ["ghcr/deploy: dead (failed)"]);
        assert_eq!(encoded_words("a\r\nBcc: x"), ["=?UTF-8?B?YSAgQmNjOiB4?="]);
        assert_eq!(encoded_words("=?x?="), ["=?UTF-8?B?PT94Pz0=?="]);
        let long = encoded_words(&"é".repeat(60));
        assert_eq!(long.len(), 3);
        assert!(long.iter().all(|word| word.len() <= 75 && word.is_ascii()), "{long:?}");
    }
}
