//! The table of all config keys: section, type, default and description. Validation, hints, the reference and the JSON
//! Schema all use it.

pub(crate) mod nats_keys;
mod part;
mod run;

pub(crate) use part::SectionKind;

use super::raw::ConfigValue;
use super::verify::{CARRIED, SCHEMES};

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigValueType {
    /// Any text.
    Text,
    /// True or false.
    Flag,
    /// An integer ≥ 1.
    Count,
    /// A duration such as "30s".
    Duration,
    /// A size such as "25MB".
    Size,
    /// An address such as "127.0.0.1:3142".
    Address,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An expression over fields.
    Expression,
    /// A place in a delivery, such as "body.id".
    Place,
    /// A text, or `{ env }`, or `{ file }`.
    Open,
    /// `{ env }` or `{ file }`.
    Secret,
    /// `{ env }`, `{ file }`, or a list of them while rotating.
    Secrets,
    /// A field's name.
    Name,
    /// A list of field names.
    Names,
    /// A text, or a list of field names.
    Group,
    /// A list; each entry a name, or a list of names taken together.
    Identities,
    /// A list of texts.
    Texts,
    /// A list; each entry a text for the shell, or a list of texts.
    Steps,
    /// A list of names to pass, or a table of names and values to set.
    Env,
    /// A table of names and values, each a text, `{ env }` or `{ file }`.
    Headers,
    /// A table with the keys of this section.
    Table(SectionKind),
    /// One such table, or a list of them.
    Tables(SectionKind),
    /// Tables with the keys of this section, each under a name of the user's choice.
    Named(SectionKind),
    /// A text, or a table with the keys of this section.
    TextOr(SectionKind),
    /// The name of a scheme, or a table with the keys of this section.
    WordOr(&'static [&'static str], SectionKind),
    /// Under each name of the user's choice: a place, or a table with the keys of this section.
    Places(SectionKind),
    /// A table of names, each with a place in the body.
    Members,
}

/// Where a key can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigKeyAvailability {
    /// In the config and in presets.
    Now,
    /// In presets only.
    Preset,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigKey {
    /// Its section.
    pub part: SectionKind,
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub takes: ConfigValueType,
    /// Its default.
    pub default: &'static str,
    /// Its description.
    pub doc: &'static str,
    /// Where it can be used.
    pub since: ConfigKeyAvailability,
}

const fn key(
    part: SectionKind,
    name: &'static str,
    takes: ConfigValueType,
    default: &'static str,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { part, name, takes, default, doc, since: ConfigKeyAvailability::Now }
}

const fn in_preset(part: SectionKind, name: &'static str, takes: ConfigValueType, doc: &'static str) -> ConfigKey {
    ConfigKey { part, name, takes, default: "none", doc, since: ConfigKeyAvailability::Preset }
}

/// The table.
pub(crate) const KEYS: &[ConfigKey] =
    &nats_keys::joined::<{ GATEWAY.len() + nats_keys::KEYS.len() }>(GATEWAY, &nats_keys::KEYS);
const GATEWAY: &[ConfigKey] = &nats_keys::joined::<{ OWN.len() + run::KEYS.len() }>(OWN, &run::KEYS);

const OWN: &[ConfigKey] = {
    use SectionKind::{
        Admin, Block, Change, External, Field, Forward, From, Kind, Once, Publish, Retry, Route, Sign, Source, Sql,
        Token, Top, Verify,
    };
    &[
        key(Top, "listen", ConfigValueType::Address, "127.0.0.1:3142", "The address for webhooks."),
        key(
            Top,
            "store",
            ConfigValueType::Open,
            "sqlite:hookonce.db",
            "The store: memory:, sqlite:PATH, postgres://HOST/DATABASE or redis://HOST.",
        ),
        key(
            Top,
            "migrate",
            ConfigValueType::Word(&["auto", "manual"]),
            "auto",
            "Who migrates an outdated schema: a node when it starts, or an operator with `hookonce migrate up`.",
        ),
        key(
            Top,
            "state",
            ConfigValueType::Text,
            "$STATE_DIRECTORY, else /var/lib/hookonce",
            "The folder for what this machine knows about a PostgreSQL or Redis store, to detect lost data after a restart.",
        ),
        key(
            Top,
            "log",
            ConfigValueType::Word(&["text", "json"]),
            "text",
            "How `serve` writes its log, unless `--log` or HOOKONCE_LOG says so; json is one object per line.",
        ),
        key(
            Top,
            "admin",
            ConfigValueType::Table(Admin),
            "loopback, no token",
            "The admin port: API, metrics, dashboard.",
        ),
        key(Top, "source", ConfigValueType::Named(Source), "required", "The senders, each under a name."),
        key(Admin, "listen", ConfigValueType::Address, "127.0.0.1:3143", "The address of the admin port."),
        key(
            Admin,
            "token",
            ConfigValueType::Secret,
            "none",
            "A bearer token with all permissions; required unless the port listens on loopback.",
        ),
        key(Admin, "tokens", ConfigValueType::Tables(Token), "none", "More tokens, each with its permission."),
        key(
            Admin,
            "peers",
            ConfigValueType::Texts,
            "none",
            "Admin ports of other nodes, such as \"http://10.0.0.2:3143\": their rejected deliveries are shown here, too.",
        ),
        key(
            Admin,
            "peer_token",
            ConfigValueType::Secret,
            "none",
            "The bearer token for the peers; permission to read is enough.",
        ),
        key(Token, "token", ConfigValueType::Secret, "required", "The bearer token."),
        key(Token, "may", ConfigValueType::Word(&["read", "forget", "all"]), "read", "The token's permission."),
        key(
            Source,
            "preset",
            ConfigValueType::Text,
            "none",
            "Built-in settings for a known sender; keys beside it replace them.",
        ),
        key(Source, "path", ConfigValueType::Text, "/in/<source name>", "The path webhooks arrive on."),
        key(
            Source,
            "from",
            ConfigValueType::Table(From),
            "none",
            "Reads deliveries from a NATS stream instead of receiving them on a path.",
        ),
        key(
            Source,
            "verify",
            ConfigValueType::WordOr(SCHEMES, Verify),
            "required",
            "How deliveries are verified; \"none\" must be set explicitly.",
        ),
        key(Source, "secret", ConfigValueType::Secrets, "none", "Short for verify.secret."),
        key(
            Source,
            "key_id",
            ConfigValueType::Name,
            "none",
            "The field that names the caller, if secret = { dir = … } has a file for each caller.",
        ),
        key(
            Source,
            "scope",
            ConfigValueType::Text,
            "the source's name",
            "The namespace of keys: set it to the old name after renaming a source.",
        ),
        key(Source, "delivery", ConfigValueType::Place, "depends on the scheme", "Where the sender's delivery id is."),
        key(
            Source,
            "signed",
            ConfigValueType::Flag,
            "depends on the scheme",
            "Whether the signature covers the delivery id.",
        ),
        key(Source, "require", ConfigValueType::Expression, "none", "If false, the delivery is refused with 403."),
        key(
            Source,
            "when",
            ConfigValueType::Expression,
            "always",
            "If false, the delivery is ignored and nothing is stored.",
        ),
        key(
            Source,
            "respond",
            ConfigValueType::Word(&["accepted", "done"]),
            "accepted",
            "When the sender gets its response: once the event is stored, or once it is done.",
        ),
        key(
            Source,
            "respond_within",
            ConfigValueType::Duration,
            "8s",
            "With respond = \"done\": how long the sender waits before it gets 202.",
        ),
        key(
            Source,
            "mark_duplicates",
            ConfigValueType::Flag,
            "false",
            "Sets isDuplicate: true in a JSON object that is returned again to a duplicate.",
        ),
        key(Source, "body_max", ConfigValueType::Size, "25MB", "Maximum size of a body."),
        key(Source, "fields", ConfigValueType::Places(Field), "none", "Named values inside a delivery."),
        key(
            Source,
            "kinds",
            ConfigValueType::Members,
            "the built-in kinds",
            "Kinds of GitHub events that are not built in, or look different: a member that every body of the kind has.",
        ),
        key(
            Source,
            "once",
            ConfigValueType::Table(Once),
            "per delivery id, else per body",
            "What makes two deliveries the same event.",
        ),
        key(
            Source,
            "route",
            ConfigValueType::Tables(Route),
            "one that only records",
            "Where events go; the first that matches wins.",
        ),
        in_preset(Source, "imported", ConfigValueType::Names, "The fields that identify an imported change."),
        in_preset(Source, "api", ConfigValueType::Flag, "For clients of an HTTP API, with an Idempotency-Key."),
        in_preset(Source, "kind", ConfigValueType::Table(Kind), "The kind of event this preset is for."),
        key(Verify, "scheme", ConfigValueType::Word(SCHEMES), "required", "How the sender signs."),
        key(
            Verify,
            "of",
            ConfigValueType::Word(CARRIED),
            "required for carried",
            "The scheme of the signature that messages carry.",
        ),
        key(Verify, "secret", ConfigValueType::Secrets, "required", "The secret, or a list of them while rotating."),
        key(Verify, "header", ConfigValueType::Text, "required for hmac", "The header with the signature."),
        key(Verify, "prefix", ConfigValueType::Text, "nothing", "The prefix of the signature."),
        key(Verify, "hash", ConfigValueType::Word(&["sha1", "sha256", "sha512"]), "sha256", "The hash of the HMAC."),
        key(Verify, "encoding", ConfigValueType::Word(&["hex", "base64"]), "hex", "The encoding of the signature."),
        key(
            Verify,
            "over",
            ConfigValueType::Text,
            "{body}",
            "The signed content, made of {id}, {timestamp} and {body}.",
        ),
        key(Verify, "timestamp", ConfigValueType::Place, "none", "Where the sender's time is."),
        key(
            Verify,
            "tolerance",
            ConfigValueType::Duration,
            "5m",
            "Maximum difference between the sender's time and ours.",
        ),
        in_preset(Kind, "header", ConfigValueType::Text, "The header that names the kind."),
        in_preset(Kind, "is", ConfigValueType::Text, "The kind that counts."),
        in_preset(Kind, "shape", ConfigValueType::Place, "What a body of that kind has."),
        key(Field, "at", ConfigValueType::Place, "required", "Where the value is."),
        key(Field, "trim", ConfigValueType::Flag, "false", "Trims white space; a blank value counts as missing."),
        key(Field, "after", ConfigValueType::Text, "nothing", "A prefix that the value must have; it is removed."),
        key(
            Field,
            "default",
            ConfigValueType::Text,
            "none",
            "The value to use if it is missing; in an identity also if it is blank.",
        ),
        key(
            Once,
            "per",
            ConfigValueType::Identities,
            "[\"delivery\"], else [\"body\"]",
            "A list of identities: a delivery is a duplicate if one of them matches.",
        ),
        key(
            Once,
            "equal_bodies",
            ConfigValueType::Word(&["duplicate", "new"]),
            "duplicate",
            "What the same bytes under another delivery id are, if the signature does not cover the id.",
        ),
        key(
            Once,
            "change",
            ConfigValueType::Table(Change),
            "none",
            "A register per subject: the same change again is a duplicate.",
        ),
        key(Once, "keep", ConfigValueType::Duration, "30d", "How long an event is kept after its end."),
        key(
            Once,
            "keep_body",
            ConfigValueType::Duration,
            "7d",
            "How long its body and receipt are kept after its end.",
        ),
        key(
            Once,
            "keep_failures",
            ConfigValueType::Flag,
            "false: a repeat retries",
            "Whether a failure is kept as a response, too: a repeat gets it again.",
        ),
        key(Change, "of", ConfigValueType::Names, "required", "The subject."),
        key(Change, "to", ConfigValueType::Names, "required", "What it is changed to."),
        key(
            Change,
            "order",
            ConfigValueType::Name,
            "the order of arrival",
            "The sender's order: an integer or a time.",
        ),
        key(Route, "name", ConfigValueType::Text, "\"1\", \"2\", … by position", "The route's name."),
        key(Route, "when", ConfigValueType::Expression, "always", "Which events take this route."),
        key(
            Route,
            "group",
            ConfigValueType::Group,
            "change.of, else none",
            "Events that must not overlap: fields, or one fixed name.",
        ),
        key(Route, "retry", ConfigValueType::Table(Retry), "see its keys", "When a failed attempt is retried."),
        key(
            Route,
            "in_doubt",
            ConfigValueType::Word(&["retry", "hold"]),
            "retry",
            "What to do when an attempt may have acted.",
        ),
        key(
            Route,
            "redelivery",
            ConfigValueType::Word(&["retry", "ignore", "again"]),
            "again for publish of GitHub's deliveries to a stream, else retry",
            "What a repeat of an ended event does.",
        ),
        key(
            Route,
            "rearm_after",
            ConfigValueType::Duration,
            "60s; 0s with respond = \"done\"; 60s for again",
            "How long an event is dead before another delivery revives it (one of the same id: 5s); with again, how long ago it was published.",
        ),
        key(
            Route,
            "lease",
            ConfigValueType::Duration,
            "30s",
            "How long a node may act alone on an event before it must renew its lease.",
        ),
        key(
            Route,
            "at_once",
            ConfigValueType::Count,
            "2 × cores for run, else 64",
            "Maximum concurrent attempts on one node.",
        ),
        key(
            Route,
            "env",
            ConfigValueType::Env,
            "nothing more",
            "Environment of every block: names to pass, or names and values.",
        ),
        key(Route, "run", ConfigValueType::Tables(Block), "none", "Commands to run."),
        key(Route, "forward", ConfigValueType::Tables(Forward), "none", "Receivers to send to."),
        key(Route, "publish", ConfigValueType::Table(Publish), "none", "A NATS subject to publish to."),
        key(Route, "sql", ConfigValueType::TextOr(Sql), "none", "A statement to run in the store's own transaction."),
        key(
            Forward,
            "url",
            ConfigValueType::Open,
            "required",
            "The receiver. {field} may be a label of the host, or be in the path or in a value of the query.",
        ),
        key(
            Forward,
            "timeout",
            ConfigValueType::Duration,
            "30s; with respond = \"done\" half a second less than respond_within",
            "Timeout of the receiver. An attempt that takes longer counts against attempts.",
        ),
        key(
            Forward,
            "headers",
            ConfigValueType::Texts,
            "none",
            "Headers of the sender to pass on; they are kept until the event ends.",
        ),
        key(Forward, "set", ConfigValueType::Headers, "none", "Headers to set; values may contain {field}."),
        key(Forward, "sign", ConfigValueType::Table(Sign), "none", "Signs requests as Standard Webhooks does."),
        key(
            Forward,
            "allow",
            ConfigValueType::Texts,
            "none",
            "Address ranges besides the public internet that a url with {field} in it may reach, such as [\"10.0.0.0/8\"].",
        ),
        key(
            Forward,
            "http2",
            ConfigValueType::Word(&["auto", "prior"]),
            "auto",
            "\"auto\": if TLS negotiates it; \"prior\": always, also without TLS.",
        ),
        key(
            Forward,
            "at_once",
            ConfigValueType::Count,
            "the route's",
            "Maximum concurrent attempts at this receiver on one node.",
        ),
        key(
            Forward,
            "receipt_headers",
            ConfigValueType::Texts,
            "none",
            "Headers of the response to keep, besides its type, language, location and ids.",
        ),
        key(Sql, "statement", ConfigValueType::Text, "required", "The statement; values are bound to its :names."),
        key(Sql, "timeout", ConfigValueType::Duration, "5s", "Timeout of the statement."),
        key(Sign, "secret", ConfigValueType::Secret, "required", "The secret, whsec_ and base64."),
        key(
            Retry,
            "attempts",
            ConfigValueType::Count,
            "1 for run and with respond = \"done\", else 5",
            "Maximum attempts that fail or time out. Attempts lost to a crash are counted separately.",
        ),
        key(
            Retry,
            "first",
            ConfigValueType::Duration,
            "10s",
            "Maximum wait before the second attempt; it doubles for each further one.",
        ),
        key(Retry, "longest", ConfigValueType::Duration, "1h", "Maximum wait before any attempt."),
        key(External, "env", ConfigValueType::Text, "none", "The environment variable with the value."),
        key(External, "file", ConfigValueType::Text, "none", "The file with the value; a trailing newline is removed."),
        key(
            External,
            "dir",
            ConfigValueType::Text,
            "none",
            "A folder with a file for each caller, one secret per line; only for a source's secret, with key_id.",
        ),
    ]
};

/// The key of this name in this section.
pub(crate) fn find(part: SectionKind, name: &str) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.part == part && key.name == name)
}

/// The names that a user may write in this section.
pub(crate) fn names(part: SectionKind) -> Vec<&'static str> {
    KEYS.iter().filter(|key| key.part == part && key.since == ConfigKeyAvailability::Now).map(|key| key.name).collect()
}

impl ConfigValueType {
    /// The type in words.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Count => "an integer ≥ 1".to_owned(),
            Self::Duration => "a duration such as \"30s\"".to_owned(),
            Self::Size => "a size such as \"25MB\"".to_owned(),
            Self::Address => "an address such as \"127.0.0.1:3142\"".to_owned(),
            Self::Word(words) => one_of(words),
            Self::Expression => "an expression such as 'tag == \"latest\"'".to_owned(),
            Self::Place => "a place such as \"body.id\" or \"header.x-id\"".to_owned(),
            Self::Open => "a string, { env = \"…\" } or { file = \"…\" }".to_owned(),
            Self::Secret => "{ env = \"…\" } or { file = \"…\" }".to_owned(),
            Self::Secrets => "{ env = \"…\" }, { file = \"…\" } or a list of them".to_owned(),
            Self::Name => "the name of a field".to_owned(),
            Self::Names => "a list of field names".to_owned(),
            Self::Group => "a list of field names, or one fixed name".to_owned(),
            Self::Identities => "a list such as [\"delivery\", [\"package\", \"tag\"]]".to_owned(),
            Self::Texts => "a list of strings".to_owned(),
            Self::Steps => "a list of steps, each a string or a list of strings".to_owned(),
            Self::Env => "a list of names, or a table of names and values".to_owned(),
            Self::Headers => "a table of names and values".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(_) => "a table, or a list of tables".to_owned(),
            Self::TextOr(_) => "a string, or a table".to_owned(),
            Self::Named(_) => "tables, each under a name".to_owned(),
            Self::WordOr(words, _) => format!("a table, or {}", one_of(words)),
            Self::Places(_) => "a table of names and places".to_owned(),
            Self::Members => "a table of names, each with a place such as \"body.member\"".to_owned(),
        }
    }

    /// Whether a value has this type; its content is checked later.
    pub(super) fn takes(self, value: &ConfigValue) -> bool {
        match (self, value) {
            // A literal secret passes here: it has its own error.
            (
                Self::Text
                | Self::Secret
                | Self::Secrets
                | Self::Duration
                | Self::Size
                | Self::Address
                | Self::Word(_)
                | Self::Expression
                | Self::Place
                | Self::Open
                | Self::Name
                | Self::Group
                | Self::WordOr(..),
                ConfigValue::Text(_),
            )
            | (Self::TextOr(_), ConfigValue::Text(_) | ConfigValue::Table(_))
            | (Self::Flag, ConfigValue::Flag(_))
            | (Self::Count, ConfigValue::Integer(_))
            | (
                Self::Open | Self::Secret | Self::Secrets | Self::Table(_) | Self::Tables(_) | Self::WordOr(..),
                ConfigValue::Table(_),
            ) => true,
            (Self::Names | Self::Group | Self::Texts | Self::Env, ConfigValue::List(list)) => {
                list.iter().all(|item| item.text().is_some())
            }
            (Self::Identities | Self::Steps, ConfigValue::List(list)) => list.iter().all(|item| match &item.value {
                ConfigValue::Text(_) => true,
                ConfigValue::List(inner) => inner.iter().all(|name| name.text().is_some()),
                _ => false,
            }),
            (Self::Secrets, ConfigValue::List(list)) => {
                list.iter().all(|item| matches!(item.value, ConfigValue::Table(_) | ConfigValue::Text(_)))
            }
            (Self::Tables(_), ConfigValue::List(list)) => list.iter().all(|item| item.table().is_some()),
            (Self::Env | Self::Members, ConfigValue::Table(table)) => {
                table.entries.iter().all(|entry| entry.node.text().is_some())
            }
            (Self::Named(_), ConfigValue::Table(table)) => {
                table.entries.iter().all(|entry| entry.node.table().is_some())
            }
            (Self::Places(_) | Self::Headers, ConfigValue::Table(table)) => table
                .entries
                .iter()
                .all(|entry| matches!(entry.node.value, ConfigValue::Text(_) | ConfigValue::Table(_))),
            _ => false,
        }
    }
}

/// `"a", "b" or "c"`
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_in_the_table_and_each_is_documented() {
        for (i, key) in KEYS.iter().enumerate() {
            let first = KEYS.iter().position(|other| other.part == key.part && other.name == key.name);
            assert_eq!(first, Some(i), "{key:?}");
            assert!(key.doc.ends_with('.') && !key.default.is_empty(), "{key:?}");
        }
    }
}
