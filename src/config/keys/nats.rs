//! The keys of `from` and `publish`.

use super::{Key, Part, Takes, key};

/// How a message carries a delivery.
const ENVELOPES: &[&str] = &["none", "patchwork"];

/// All of them.
pub(super) const KEYS: [Key; 27] = {
    const FROM: &[Key] = &joined::<{ 8 + 7 }>(&server(Part::From), &from());
    joined(FROM, &joined::<{ 8 + 4 }>(&server(Part::Publish), &publish()))
};

/// One list after the other.
pub(super) const fn joined<const N: usize>(first: &[Key], second: &[Key]) -> [Key; N] {
    let mut all = [first[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

/// Which server, and who we are to it.
const fn server(part: Part) -> [Key; 8] {
    [
        key(part, "nats", Takes::Open, "required", "The server: nats://HOST:4222, or tls://; several with commas."),
        key(part, "creds", Takes::Secret, "none", "Who we are: what a .creds file holds."),
        key(part, "nkey", Takes::Secret, "none", "Who we are: the seed of an nkey."),
        key(part, "token", Takes::Secret, "none", "Who we are: a token."),
        key(part, "user", Takes::Open, "none", "Who we are: a user, with `password`."),
        key(part, "password", Takes::Secret, "none", "The user's password."),
        key(part, "ca", Takes::Text, "those the machine trusts", "The file of certificates to trust, for TLS."),
        key(part, "client", Takes::Texts, "none", "The files of our own certificate and its key, for TLS."),
    ]
}

const fn from() -> [Key; 7] {
    use Part::From;
    [
        key(From, "stream", Takes::Text, "required", "The stream."),
        key(From, "consumer", Takes::Text, "hookonce", "The durable consumer that all nodes share."),
        key(
            From,
            "ack",
            Takes::Word(&["claimed", "done"]),
            "claimed",
            "When a message is acknowledged: when its event is stored, or when it is over. `memory:` needs \"done\".",
        ),
        key(
            From,
            "create",
            Takes::Flag,
            "false",
            "Makes what is missing: the consumer, and with `subjects` the stream.",
        ),
        key(From, "subjects", Takes::Texts, "all of the stream", "What is taken of the stream, or put into a new one."),
        key(
            From,
            "replicas",
            Takes::Count,
            "1",
            "How many servers of a NATS cluster keep a stream that is made, at most 5.",
        ),
        key(From, "envelope", Takes::Word(ENVELOPES), "none", "How a message carries its delivery."),
    ]
}

const fn publish() -> [Key; 4] {
    use Part::Publish;
    [
        key(Publish, "subject", Takes::Text, "required", "The subject; {field} is one token of it."),
        key(Publish, "timeout", Takes::Duration, "5s", "How long the stream may take to acknowledge."),
        key(Publish, "envelope", Takes::Word(ENVELOPES), "none", "How the message carries the delivery."),
        key(
            Publish,
            "core",
            Takes::Flag,
            "false",
            "Without a stream: who does not listen never gets it, at most once.",
        ),
    ]
}
