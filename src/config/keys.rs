//! Every key of the config, once: where it belongs, what it takes, what it means. The reader, the hints, and what is
//! written for people and editors all go by this table.

mod nats;
mod part;
mod run;

pub use part::Part;

use super::raw::Value;

/// What a key takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// Any text.
    Text,
    /// True or false.
    Flag,
    /// A whole number from 1.
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
    /// One of those, or a list of them while rotating.
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
    /// A table with the keys of this part.
    Table(Part),
    /// One such table, or a list of them.
    Tables(Part),
    /// Tables with the keys of this part, each under a name of the user's choice.
    Named(Part),
    /// A text, or a table with the keys of this part.
    TextOr(Part),
    /// The name of a scheme, or a table with the keys of this part.
    WordOr(&'static [&'static str], Part),
    /// Each name of the user's choice: a place, or a table with the keys of this part.
    Places(Part),
    /// A table of names, each with a place in the body.
    Members,
}

/// Whether a key can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// Yes.
    Now,
    /// In a preset only.
    Preset,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Where it belongs.
    pub part: Part,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub takes: Takes,
    /// What applies without it.
    pub default: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Whether it can be used.
    pub since: Since,
}

/// The schemes of `verify`.
pub const SCHEMES: &[&str] = &["github", "standard-webhooks", "hmac", "bearer", "carried", "none"];
/// The schemes whose signature can be carried to somebody else.
pub const CARRIED: &[&str] = &["github", "standard-webhooks", "hmac"];

const fn key(part: Part, name: &'static str, takes: Takes, default: &'static str, doc: &'static str) -> Key {
    Key { part, name, takes, default, doc, since: Since::Now }
}

const fn in_preset(part: Part, name: &'static str, takes: Takes, doc: &'static str) -> Key {
    Key { part, name, takes, default: "none", doc, since: Since::Preset }
}

/// The table.
pub const KEYS: &[Key] = &nats::joined::<{ GATEWAY.len() + nats::KEYS.len() }>(GATEWAY, &nats::KEYS);
const GATEWAY: &[Key] = &nats::joined::<{ OWN.len() + run::KEYS.len() }>(OWN, &run::KEYS);

const OWN: &[Key] = {
    use Part::{
        Admin, Block, Change, Elsewhere, Field, Forward, From, Kind, Once, Publish, Retry, Route, Sign, Source, Sql,
        Token, Top, Verify,
    };
    &[
        key(Top, "listen", Takes::Address, "127.0.0.1:3142", "Where webhooks arrive."),
        key(
            Top,
            "store",
            Takes::Open,
            "sqlite:hookonce.db",
            "Where events are kept: memory:, sqlite:PATH, postgres://HOST/DATABASE or redis://HOST.",
        ),
        key(
            Top,
            "migrate",
            Takes::Word(&["auto", "manual"]),
            "auto",
            "Who brings an older schema up to date: a node that starts, or a person.",
        ),
        key(
            Top,
            "state",
            Takes::Text,
            "$STATE_DIRECTORY, else /var/lib/hookonce",
            "The folder where this machine remembers what it knows of a PostgreSQL or Redis, to notice lost data after a restart.",
        ),
        key(Top, "admin", Takes::Table(Admin), "loopback, no token", "The port for people: API, metrics, dashboard."),
        key(Top, "source", Takes::Named(Source), "required", "The senders we believe, each under a name."),
        key(Admin, "listen", Takes::Address, "127.0.0.1:3143", "Where the admin port listens."),
        key(Admin, "token", Takes::Secret, "none", "The bearer token that may do everything; required off loopback."),
        key(Admin, "tokens", Takes::Tables(Token), "none", "More tokens, each with what it may do."),
        key(
            Admin,
            "peers",
            Takes::Texts,
            "none",
            "Admin ports of other nodes, such as \"http://10.0.0.2:3143\": what they turned away is shown here too.",
        ),
        key(Admin, "peer_token", Takes::Secret, "none", "The bearer token for the peers; one that may read is enough."),
        key(Token, "token", Takes::Secret, "required", "The bearer token."),
        key(Token, "may", Takes::Word(&["read", "forget", "all"]), "read", "What this token may do."),
        key(Source, "preset", Takes::Text, "none", "Begins with what is known about a sender; keys beside it replace."),
        key(Source, "path", Takes::Text, "/in/<source name>", "The path webhooks arrive on."),
        key(Source, "from", Takes::Table(From), "none", "Takes deliveries from a NATS stream in place of a path."),
        key(
            Source,
            "verify",
            Takes::WordOr(SCHEMES, Verify),
            "required",
            "How deliveries are verified; \"none\" must be written out.",
        ),
        key(Source, "secret", Takes::Secrets, "none", "Short for verify.secret."),
        key(
            Source,
            "key_id",
            Takes::Name,
            "none",
            "The field that names the caller, where secret = { dir = … } has a file for each.",
        ),
        key(
            Source,
            "scope",
            Takes::Text,
            "the source's name",
            "What keys are made under: keep the old name here after a rename.",
        ),
        key(
            Source,
            "delivery",
            Takes::Place,
            "where the scheme's senders put it",
            "Where the sender's delivery id is.",
        ),
        key(Source, "signed", Takes::Flag, "whether the signature covers it", "The signature covers the delivery id."),
        key(Source, "require", Takes::Expression, "none", "False: refused with 403."),
        key(Source, "when", Takes::Expression, "always", "False: ignored, nothing is stored."),
        key(Source, "respond", Takes::Word(&["accepted", "done"]), "accepted", "When the sender is answered."),
        key(
            Source,
            "respond_within",
            Takes::Duration,
            "8s",
            "With respond = \"done\": how long the sender waits at most.",
        ),
        key(
            Source,
            "mark_duplicates",
            Takes::Flag,
            "false",
            "Sets isDuplicate: true in a JSON object that is given again as an answer.",
        ),
        key(Source, "body_max", Takes::Size, "25MB", "The longest body."),
        key(Source, "fields", Takes::Places(Field), "none", "Named values inside a delivery."),
        key(
            Source,
            "kinds",
            Takes::Members,
            "the kinds that are known",
            "Kinds of GitHub events that are not known here, or look different: a member that every body of each has.",
        ),
        key(
            Source,
            "once",
            Takes::Table(Once),
            "per delivery id, else per body",
            "What makes two deliveries the same event.",
        ),
        key(
            Source,
            "route",
            Takes::Tables(Route),
            "one that only records",
            "Where events go; the first that matches wins.",
        ),
        in_preset(Source, "imported", Takes::Names, "What an imported change is known by."),
        in_preset(Source, "api", Takes::Flag, "For clients of an HTTP API, with an Idempotency-Key."),
        in_preset(Source, "kind", Takes::Table(Kind), "The kind of event this preset is for."),
        key(Verify, "scheme", Takes::Word(SCHEMES), "required", "How the sender signs."),
        key(Verify, "of", Takes::Word(CARRIED), "required for carried", "Whose signature the messages carry."),
        key(Verify, "secret", Takes::Secrets, "required", "The secret, or a list of them while rotating."),
        key(Verify, "header", Takes::Text, "required for hmac", "The header with the signature."),
        key(Verify, "prefix", Takes::Text, "nothing", "What stands before the signature."),
        key(Verify, "hash", Takes::Word(&["sha1", "sha256", "sha512"]), "sha256", "The hash of the HMAC."),
        key(Verify, "encoding", Takes::Word(&["hex", "base64"]), "hex", "How the signature is written."),
        key(Verify, "over", Takes::Text, "{body}", "What is signed, of {id}, {timestamp} and {body}."),
        key(Verify, "timestamp", Takes::Place, "none", "Where the sender's time is."),
        key(Verify, "tolerance", Takes::Duration, "5m", "How old or new the sender's time may be."),
        in_preset(Kind, "header", Takes::Text, "The header that names the kind."),
        in_preset(Kind, "is", Takes::Text, "The kind that counts."),
        in_preset(Kind, "shape", Takes::Place, "What a body of that kind has."),
        key(Field, "at", Takes::Place, "required", "Where the value is."),
        key(Field, "trim", Takes::Flag, "false", "Cuts white space off both ends; what is then blank is missing."),
        key(Field, "after", Takes::Text, "nothing", "What the value must begin with; it is cut off."),
        key(
            Field,
            "default",
            Takes::Text,
            "none",
            "Stands in for a missing value; in an identity also for a blank text.",
        ),
        key(Once, "per", Takes::Identities, "[\"delivery\"], else [\"body\"]", "Each entry one identity."),
        key(
            Once,
            "equal_bodies",
            Takes::Word(&["duplicate", "new"]),
            "duplicate",
            "Where the signature does not cover the delivery id: what the same bytes under another id are.",
        ),
        key(Once, "change", Takes::Table(Change), "none", "A subject that is changed to something."),
        key(Once, "keep", Takes::Duration, "30d", "How long an event is remembered after its end."),
        key(Once, "keep_body", Takes::Duration, "7d", "How long its body and its receipt are kept."),
        key(
            Once,
            "keep_failures",
            Takes::Flag,
            "false: a repeat tries again",
            "Keeps a failure as an answer too: a repeat hears it again.",
        ),
        key(Change, "of", Takes::Names, "required", "The subject."),
        key(Change, "to", Takes::Names, "required", "What it is changed to."),
        key(Change, "order", Takes::Name, "the order of arrival", "The sender's order: an integer or a time."),
        key(Route, "name", Takes::Text, "\"1\", \"2\", … by place", "The route's name."),
        key(Route, "when", Takes::Expression, "always", "What the route lets through."),
        key(
            Route,
            "group",
            Takes::Group,
            "change.of, else none",
            "Events that must not overlap: fields, or one fixed name.",
        ),
        key(Route, "retry", Takes::Table(Retry), "see its keys", "When what failed is tried again."),
        key(Route, "in_doubt", Takes::Word(&["retry", "hold"]), "retry", "What to do when an attempt may have acted."),
        key(
            Route,
            "redelivery",
            Takes::Word(&["retry", "ignore", "again"]),
            "again for publish of github's deliveries to a stream, else retry",
            "What a repeat of an event that is over does.",
        ),
        key(
            Route,
            "rearm_after",
            Takes::Duration,
            "60s; 0s with respond = \"done\"; 60s for again",
            "How long an event is dead before another delivery revives it (one of the same id: 5s); with again, how long ago it was published.",
        ),
        key(Route, "lease", Takes::Duration, "30s", "How long one node alone may act before it renews."),
        key(Route, "at_once", Takes::Count, "2 × cores for run, else 64", "Attempts at once on one node."),
        key(
            Route,
            "env",
            Takes::Env,
            "nothing more",
            "Environment of every block: names to pass, or names and values.",
        ),
        key(Route, "run", Takes::Tables(Block), "none", "Commands to run."),
        key(Route, "forward", Takes::Tables(Forward), "none", "Receivers to send to."),
        key(Route, "publish", Takes::Table(Publish), "none", "A NATS subject to publish to."),
        key(Route, "sql", Takes::TextOr(Sql), "none", "A statement to run in the store's own transaction."),
        key(
            Forward,
            "url",
            Takes::Open,
            "required",
            "The receiver. {field} may be a label of the host, or stand in the path or in a value of the query.",
        ),
        key(
            Forward,
            "timeout",
            Takes::Duration,
            "30s; with respond = \"done\" half a second less than respond_within",
            "How long the receiver may take. An attempt that takes longer counts against attempts.",
        ),
        key(
            Forward,
            "headers",
            Takes::Texts,
            "none",
            "Headers of the sender that are passed on; they are kept until the event ends.",
        ),
        key(Forward, "set", Takes::Headers, "none", "Headers that are set; {field} may stand in them."),
        key(Forward, "sign", Takes::Table(Sign), "none", "Signs what is sent, as Standard Webhooks does."),
        key(
            Forward,
            "allow",
            Takes::Texts,
            "none",
            "Where a url with {field} in it may lead beside the open internet, such as [\"10.0.0.0/8\"].",
        ),
        key(
            Forward,
            "http2",
            Takes::Word(&["auto", "prior"]),
            "auto",
            "\"auto\": where TLS agrees on it; \"prior\": always, also without TLS.",
        ),
        key(Forward, "at_once", Takes::Count, "the route's", "Attempts at this receiver at once on one node."),
        key(
            Forward,
            "receipt_headers",
            Takes::Texts,
            "none",
            "Headers of the answer that are kept beside its type, language, location and ids.",
        ),
        key(Sql, "statement", Takes::Text, "required", "The statement; values are bound to its :names."),
        key(Sql, "timeout", Takes::Duration, "5s", "How long it may take."),
        key(Sign, "secret", Takes::Secret, "required", "The secret, whsec_ and base64."),
        key(
            Retry,
            "attempts",
            Takes::Count,
            "1 for run and with respond = \"done\", else 5",
            "How many attempts may fail or time out. Attempts lost to a crash are counted apart.",
        ),
        key(
            Retry,
            "first",
            Takes::Duration,
            "10s",
            "The longest wait before the second attempt; it doubles from there.",
        ),
        key(Retry, "longest", Takes::Duration, "1h", "The longest wait of all."),
        key(Elsewhere, "env", Takes::Text, "none", "The environment variable that holds the value."),
        key(Elsewhere, "file", Takes::Text, "none", "The file that holds the value; a newline at its end is cut."),
        key(
            Elsewhere,
            "dir",
            Takes::Text,
            "none",
            "A folder with a file for each caller, a secret on each line; only for a source's secret, with key_id.",
        ),
    ]
};

/// The key of this name in this part.
pub fn find(part: Part, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.part == part && key.name == name)
}

/// The names a user may write in this part.
pub fn names(part: Part) -> Vec<&'static str> {
    KEYS.iter().filter(|key| key.part == part && key.since == Since::Now).map(|key| key.name).collect()
}

impl Takes {
    /// What is expected, for a message.
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Count => "a whole number from 1".to_owned(),
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

    /// Is a value of this kind taken? What it says is another question.
    pub(super) fn takes(self, value: &Value) -> bool {
        match (self, value) {
            // A literal secret is wrong for another reason than its type, and told apart.
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
                Value::Text(_),
            )
            | (Self::TextOr(_), Value::Text(_) | Value::Table(_))
            | (Self::Flag, Value::Flag(_))
            | (Self::Count, Value::Integer(_))
            | (
                Self::Open | Self::Secret | Self::Secrets | Self::Table(_) | Self::Tables(_) | Self::WordOr(..),
                Value::Table(_),
            ) => true,
            (Self::Names | Self::Group | Self::Texts | Self::Env, Value::List(list)) => {
                list.iter().all(|item| item.text().is_some())
            }
            (Self::Identities | Self::Steps, Value::List(list)) => list.iter().all(|item| match &item.value {
                Value::Text(_) => true,
                Value::List(inner) => inner.iter().all(|name| name.text().is_some()),
                _ => false,
            }),
            (Self::Secrets, Value::List(list)) => {
                list.iter().all(|item| matches!(item.value, Value::Table(_) | Value::Text(_)))
            }
            (Self::Tables(_), Value::List(list)) => list.iter().all(|item| item.table().is_some()),
            (Self::Env | Self::Members, Value::Table(table)) => {
                table.entries.iter().all(|entry| entry.node.text().is_some())
            }
            (Self::Named(_), Value::Table(table)) => table.entries.iter().all(|entry| entry.node.table().is_some()),
            (Self::Places(_) | Self::Headers, Value::Table(table)) => {
                table.entries.iter().all(|entry| matches!(entry.node.value, Value::Text(_) | Value::Table(_)))
            }
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
