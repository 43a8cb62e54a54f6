//! The keys of `from` and `publish`.

use super::{ConfigKey, ConfigValueType, SectionKind, key};

/// How a message carries a delivery.
const ENVELOPES: &[&str] = &["none", "patchwork"];

/// All of them.
pub(super) const KEYS: [ConfigKey; 27] = {
    const FROM: &[ConfigKey] = &joined::<{ 8 + 7 }>(&server(SectionKind::From), &from());
    joined(FROM, &joined::<{ 8 + 4 }>(&server(SectionKind::Publish), &publish()))
};

/// One list after the other.
pub(super) const fn joined<const N: usize>(first: &[ConfigKey], second: &[ConfigKey]) -> [ConfigKey; N] {
    let mut all = [first[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

/// Which server, and who we are to it.
const fn server(part: SectionKind) -> [ConfigKey; 8] {
    [
        key(
            part,
            "nats",
            ConfigValueType::Open,
            "required",
            "The server: nats://HOST:4222, or tls://; several with commas.",
        ),
        key(part, "creds", ConfigValueType::Secret, "none", "Who we are: what a .creds file holds."),
        key(part, "nkey", ConfigValueType::Secret, "none", "Who we are: the seed of an nkey."),
        key(part, "token", ConfigValueType::Secret, "none", "Who we are: a token."),
        key(part, "user", ConfigValueType::Open, "none", "Who we are: a user, with `password`."),
        key(part, "password", ConfigValueType::Secret, "none", "The user's password."),
        key(
            part,
            "ca",
            ConfigValueType::Text,
            "those the machine trusts",
            "The file of certificates to trust, for TLS.",
        ),
        key(part, "client", ConfigValueType::Texts, "none", "The files of our own certificate and its key, for TLS."),
    ]
}

const fn from() -> [ConfigKey; 7] {
    use super::SectionKind::From;
    [
        key(From, "stream", ConfigValueType::Text, "required", "The stream."),
        key(From, "consumer", ConfigValueType::Text, "hookonce", "The durable consumer that all nodes share."),
        key(
            From,
            "ack",
            ConfigValueType::Word(&["claimed", "done"]),
            "claimed",
            "When a message is acknowledged: when its event is stored, or when it is over. `memory:` needs \"done\".",
        ),
        key(
            From,
            "create",
            ConfigValueType::Flag,
            "false",
            "Makes what is missing: the consumer, and with `subjects` the stream.",
        ),
        key(
            From,
            "subjects",
            ConfigValueType::Texts,
            "all of the stream",
            "What is taken of the stream, or put into a new one.",
        ),
        key(
            From,
            "replicas",
            ConfigValueType::Count,
            "1",
            "How many servers of a NATS cluster keep a stream that is made, at most 5.",
        ),
        key(From, "envelope", ConfigValueType::Word(ENVELOPES), "none", "How a message carries its delivery."),
    ]
}

const fn publish() -> [ConfigKey; 4] {
    use super::SectionKind::Publish;
    [
        key(Publish, "subject", ConfigValueType::Text, "required", "The subject; {field} is one token of it."),
        key(Publish, "timeout", ConfigValueType::Duration, "5s", "How long the stream may take to acknowledge."),
        key(Publish, "envelope", ConfigValueType::Word(ENVELOPES), "none", "How the message carries the delivery."),
        key(
            Publish,
            "core",
            ConfigValueType::Flag,
            "false",
            "Without a stream: who does not listen never gets it, at most once.",
        ),
    ]
}
