//! The keys of `from` and `publish`.

use super::{ConfigKey, ConfigValueType, SectionKind, key};

/// How a message carries a delivery.
const ENVELOPES: &[&str] = &["none", "patchwork"];

/// All of them.
pub(super) const KEYS: [ConfigKey; 27] = {
    const FROM: &[ConfigKey] = &joined::<{ 8 + 7 }>(&server(SectionKind::From), &from());
    joined(FROM, &joined::<{ 8 + 4 }>(&server(SectionKind::Publish), &publish()))
};

/// Concatenates the lists.
pub(super) const fn joined<const N: usize>(first: &[ConfigKey], second: &[ConfigKey]) -> [ConfigKey; N] {
    let mut all = [first[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

/// The keys of a server and its credentials.
const fn server(part: SectionKind) -> [ConfigKey; 8] {
    [
        key(
            part,
            "nats",
            ConfigValueType::Open,
            "required",
            "The server: nats://HOST:4222 or tls://…; separate several with commas.",
        ),
        key(part, "creds", ConfigValueType::Secret, "none", "Credentials: the content of a .creds file."),
        key(part, "nkey", ConfigValueType::Secret, "none", "Credentials: the seed of an nkey."),
        key(part, "token", ConfigValueType::Secret, "none", "Credentials: a token."),
        key(part, "user", ConfigValueType::Open, "none", "Credentials: a user, with `password`."),
        key(part, "password", ConfigValueType::Secret, "none", "The user's password."),
        key(part, "ca", ConfigValueType::Text, "the system's certificates", "File with the CA certificates to trust."),
        key(part, "client", ConfigValueType::Texts, "none", "Files with the TLS client certificate and its key."),
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
            "When a message is acknowledged: when its event is stored, or when it has ended. `memory:` needs \"done\".",
        ),
        key(
            From,
            "create",
            ConfigValueType::Flag,
            "false",
            "Whether to create a missing consumer, and with `subjects` a missing stream.",
        ),
        key(
            From,
            "subjects",
            ConfigValueType::Texts,
            "all of the stream",
            "The subjects to read, and those of a created stream.",
        ),
        key(From, "replicas", ConfigValueType::Count, "1", "Replicas of a created stream, at most 5."),
        key(
            From,
            "envelope",
            ConfigValueType::Word(ENVELOPES),
            "none",
            "The format in which a message carries its delivery.",
        ),
    ]
}

const fn publish() -> [ConfigKey; 4] {
    use super::SectionKind::Publish;
    [
        key(Publish, "subject", ConfigValueType::Text, "required", "The subject; {field} is one token of it."),
        key(Publish, "timeout", ConfigValueType::Duration, "5s", "How long to wait for the stream's acknowledgement."),
        key(
            Publish,
            "envelope",
            ConfigValueType::Word(ENVELOPES),
            "none",
            "The format in which the message carries the delivery.",
        ),
        key(
            Publish,
            "core",
            ConfigValueType::Flag,
            "false",
            "Publish without JetStream: at-most-once, lost if nobody is subscribed.",
        ),
    ]
}
