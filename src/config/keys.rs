//! The tables of config keys: each section has one, with the type, the default and the description of its keys, beside
//! the code that reads them. Validation, hints, the reference and the JSON Schema are made of them.

use super::external_value::EXTERNAL_KEYS;
use super::raw::{ConfigNode, ConfigValue};
use super::resolve::TOP_KEYS;

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
    /// A rate such as "60/m".
    Rate,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these numbers.
    Number(&'static [u16]),
    /// An expression over fields.
    Expression,
    /// A place in a delivery, such as "body.id".
    Place,
    /// A place, or a list of places.
    OneOrMorePlaces,
    /// A text, or `{ env }`, or `{ file }`.
    Open,
    /// The same, or a list of them while rotating.
    OneOrMoreOpen,
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
    /// A text, or a list of texts.
    OneOrMoreTexts,
    /// A list; each entry a text for the shell, or a list of texts.
    Steps,
    /// A list of names to pass, or a table of names and values to set.
    Env,
    /// A table of names and values, each a text, `{ env }` or `{ file }`.
    Headers,
    /// A table with the keys of this section.
    Table(&'static SectionKeys),
    /// One such table, or a list of them.
    Tables(&'static SectionKeys),
    /// Tables with the keys of this section, each under a name of the user's choice.
    Named(&'static SectionKeys),
    /// Tables of presets, each under a name; they are read apart.
    PresetTables,
    /// A text, or a table with the keys of this section.
    TextOr(&'static SectionKeys),
    /// The name of a scheme, or a table with the keys of this section.
    WordOr(&'static [&'static str], &'static SectionKeys),
    /// Under each name of the user's choice: a place, a list of places, or a table with the keys of this section.
    Places(&'static SectionKeys),
    /// A table of names, each with a place in the body.
    Members,
    /// A text, or such a table.
    TextOrMembers,
    /// A table of names, each with a text.
    Values,
    /// A table of claims, each with a text or with several.
    Claims,
}

/// Where a key can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConfigKeyAvailability {
    /// In the config and in presets.
    Now,
    /// In presets only.
    Preset,
}

/// A key of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfigKey {
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

/// A section of the config: a table with its own set of keys.
#[derive(Debug)]
pub(crate) struct SectionKeys {
    /// Its name in the JSON Schema.
    pub name: &'static str,
    /// Its heading in the reference.
    pub title: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its keys, in one table or several.
    pub keys: &'static [&'static [ConfigKey]],
}

pub(super) const fn key(
    name: &'static str,
    takes: ConfigValueType,
    default: &'static str,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey { name, takes, default, doc, since: ConfigKeyAvailability::Now }
}

pub(super) const fn in_preset(name: &'static str, takes: ConfigValueType, doc: &'static str) -> ConfigKey {
    ConfigKey { name, takes, default: "none", doc, since: ConfigKeyAvailability::Preset }
}

impl PartialEq for SectionKeys {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for SectionKeys {}

impl SectionKeys {
    /// Every key.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static ConfigKey> + use<> {
        self.keys.iter().copied().flatten()
    }

    /// The keys that a user may write.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &'static ConfigKey> + use<> {
        self.all().filter(|key| key.since == ConfigKeyAvailability::Now)
    }

    /// The key of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&'static ConfigKey> {
        self.all().find(|key| key.name == name)
    }

    /// The names that a user may write.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.writable().map(|key| key.name).collect()
    }
}

/// Every section: the top level, each followed by the sections in it; at the end the values from outside of the file,
/// which stand in many.
pub(super) fn sections() -> Vec<&'static SectionKeys> {
    fn walk(section: &'static SectionKeys, all: &mut Vec<&'static SectionKeys>) {
        if all.contains(&section) {
            return;
        }
        all.push(section);
        section.all().filter_map(|key| key.takes.section()).for_each(|inner| walk(inner, all));
    }
    let mut all = Vec::new();
    walk(&TOP_KEYS, &mut all);
    all.push(&EXTERNAL_KEYS);
    all
}

impl ConfigValueType {
    /// The section that a table of this type is.
    pub(super) fn section(self) -> Option<&'static SectionKeys> {
        match self {
            Self::Table(section)
            | Self::Tables(section)
            | Self::Named(section)
            | Self::TextOr(section)
            | Self::WordOr(_, section)
            | Self::Places(section) => Some(section),
            _ => None,
        }
    }

    /// The type in words.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text => "a string".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Count => "an integer ≥ 1".to_owned(),
            Self::Duration => "a duration such as \"30s\"".to_owned(),
            Self::Size => "a size such as \"25MB\"".to_owned(),
            Self::Address => "an address such as \"127.0.0.1:3142\", \":3142\" or \"localhost:3142\"".to_owned(),
            Self::Rate => "a rate such as \"60/m\"".to_owned(),
            Self::Word(words) => one_of(words),
            Self::Number(numbers) => alternatives(numbers.iter().map(u16::to_string)),
            Self::Expression => "an expression such as 'tag == \"latest\"'".to_owned(),
            Self::Place => "a place such as \"body.id\" or \"header.x-id\"".to_owned(),
            Self::OneOrMorePlaces => "a place such as \"body.id\", or a list of places".to_owned(),
            Self::Open => "a string, { env = \"…\" } or { file = \"…\" }".to_owned(),
            Self::OneOrMoreOpen => "a string, { env = \"…\" }, { file = \"…\" } or a list of them".to_owned(),
            Self::Secret => "{ env = \"…\" } or { file = \"…\" }".to_owned(),
            Self::Secrets => "{ env = \"…\" }, { file = \"…\" } or a list of them".to_owned(),
            Self::Name => "the name of a field".to_owned(),
            Self::Names => "a list of field names".to_owned(),
            Self::Group => "a list of field names, or one fixed name".to_owned(),
            Self::Identities => "a list such as [\"delivery\", [\"package\", \"tag\"]]".to_owned(),
            Self::Texts => "a list of strings".to_owned(),
            Self::OneOrMoreTexts => "a string, or a list of strings".to_owned(),
            Self::Steps => "a list of steps, each a string or a list of strings".to_owned(),
            Self::Env => "a list of names, or a table of names and values".to_owned(),
            Self::Headers => "a table of names and values".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Tables(_) => "a table, or a list of tables".to_owned(),
            Self::TextOr(_) => "a string, or a table".to_owned(),
            Self::Named(_) | Self::PresetTables => "tables, each under a name".to_owned(),
            Self::WordOr(words, _) => format!("a table, or {}", one_of(words)),
            Self::Places(_) => "a table of names and places".to_owned(),
            Self::Members => "a table of names, each with a place such as \"body.member\"".to_owned(),
            Self::TextOrMembers => "a string, or a table of names, each with a place".to_owned(),
            Self::Values => "a table of names, each with a string".to_owned(),
            Self::Claims => "a table of claims, each with a string or a list of strings".to_owned(),
        }
    }

    /// A value of this type, as TOML, that shows where the real one goes.
    pub(crate) fn placeholder(self) -> String {
        let quoted = |text: &str| format!("\"{text}\"");
        match self {
            Self::Flag => "true".to_owned(),
            Self::Count => "1".to_owned(),
            Self::Duration => quoted("30s"),
            Self::Size => quoted("25MB"),
            Self::Address => quoted("127.0.0.1:3142"),
            Self::Rate => quoted("60/m"),
            Self::Word(words) | Self::WordOr(words, _) => quoted(words.first().unwrap_or(&"…")),
            Self::Number(numbers) => numbers.first().map(u16::to_string).unwrap_or_default(),
            Self::Place | Self::OneOrMorePlaces => quoted("body.…"),
            Self::Secret | Self::Secrets => "{ env = \"…\" }".to_owned(),
            Self::Names | Self::Group | Self::Identities | Self::Texts | Self::Steps | Self::Env => {
                "[\"…\"]".to_owned()
            }
            Self::Table(_) | Self::Named(_) | Self::PresetTables => "{}".to_owned(),
            Self::Tables(_) => "[{}]".to_owned(),
            Self::Places(_) | Self::Members => "{ name = \"body.…\" }".to_owned(),
            Self::Headers | Self::Values => "{ name = \"…\" }".to_owned(),
            Self::Claims => "{ sub = \"…\" }".to_owned(),
            Self::Text
            | Self::Open
            | Self::OneOrMoreOpen
            | Self::Expression
            | Self::Name
            | Self::OneOrMoreTexts
            | Self::TextOr(_)
            | Self::TextOrMembers => quoted("…"),
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
                | Self::Rate
                | Self::Word(_)
                | Self::Expression
                | Self::Place
                | Self::OneOrMorePlaces
                | Self::TextOrMembers
                | Self::Open
                | Self::OneOrMoreOpen
                | Self::Name
                | Self::Group
                | Self::OneOrMoreTexts
                | Self::WordOr(..),
                ConfigValue::Text(_),
            )
            | (Self::TextOr(_), ConfigValue::Text(_) | ConfigValue::Table(_))
            | (Self::Flag, ConfigValue::Flag(_))
            | (Self::Count | Self::Number(_), ConfigValue::Integer(_))
            | (
                Self::Open
                | Self::OneOrMoreOpen
                | Self::Secret
                | Self::Secrets
                | Self::Table(_)
                | Self::Tables(_)
                | Self::WordOr(..),
                ConfigValue::Table(_),
            ) => true,
            (
                Self::Names | Self::Group | Self::Texts | Self::OneOrMoreTexts | Self::OneOrMorePlaces | Self::Env,
                ConfigValue::List(list),
            ) => list.iter().all(|item| item.text().is_some()),
            (Self::Identities | Self::Steps, ConfigValue::List(list)) => list.iter().all(|item| match &item.value {
                ConfigValue::Text(_) => true,
                ConfigValue::List(inner) => inner.iter().all(|name| name.text().is_some()),
                _ => false,
            }),
            (Self::Secrets | Self::OneOrMoreOpen, ConfigValue::List(list)) => {
                list.iter().all(|item| matches!(item.value, ConfigValue::Table(_) | ConfigValue::Text(_)))
            }
            (Self::Tables(_), ConfigValue::List(list)) => list.iter().all(|item| item.table().is_some()),
            (Self::Env | Self::Members | Self::TextOrMembers | Self::Values, ConfigValue::Table(table)) => {
                table.entries.iter().all(|entry| entry.node.text().is_some())
            }
            (Self::Claims, ConfigValue::Table(table)) => table.entries.iter().all(|entry| {
                let texts = |list: &[ConfigNode]| list.iter().all(|item| item.text().is_some());
                entry.node.text().is_some() || entry.node.list().is_some_and(texts)
            }),
            (Self::Named(_) | Self::PresetTables, ConfigValue::Table(table)) => {
                table.entries.iter().all(|entry| entry.node.table().is_some())
            }
            (Self::Headers, ConfigValue::Table(table)) => table
                .entries
                .iter()
                .all(|entry| matches!(entry.node.value, ConfigValue::Text(_) | ConfigValue::Table(_))),
            (Self::Places(_), ConfigValue::Table(table)) => table.entries.iter().all(|entry| match &entry.node.value {
                ConfigValue::Text(_) | ConfigValue::Table(_) => true,
                ConfigValue::List(list) => list.iter().all(|item| item.text().is_some()),
                _ => false,
            }),
            _ => false,
        }
    }
}

/// `"a", "b" or "c"`
pub(super) fn one_of(words: &[&str]) -> String {
    alternatives(words.iter().map(|word| format!("\"{word}\"")))
}

/// `a, b or c`
fn alternatives(all: impl Iterator<Item = String>) -> String {
    match all.collect::<Vec<_>>().split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_in_its_section_and_each_is_documented() {
        for section in sections() {
            for (i, key) in section.all().enumerate() {
                assert_eq!(section.all().position(|other| other.name == key.name), Some(i), "{section:?}");
                assert!(key.doc.ends_with('.') && !key.default.is_empty(), "{key:?}");
            }
        }
    }
}
