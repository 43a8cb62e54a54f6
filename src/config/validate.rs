//! Validation: every key is known, and its value has the key's type. Later passes treat a value of the wrong type as
//! absent, because it has been reported here.

use super::ListenAddress;
use super::diagnostic::DiagnosticCollector;
use super::external_value::EXTERNAL_KEYS;
use super::keys::{ConfigKey, ConfigKeyAvailability, ConfigValueType, SectionKeys};
use super::raw::{ConfigEntry, ConfigNode, ConfigOrigin, ConfigSpan, ConfigTable, ConfigValue};
use super::resolve::{ADMIN_KEYS, TOP_KEYS};
use super::route::ROUTE_KEYS;
use super::{diagnostic, units};

/// Validates a table and everything in it. `within` is the table in words: "source `ghcr`".
pub(super) fn check(table: &ConfigTable, part: &'static SectionKeys, within: &str, found: &mut DiagnosticCollector) {
    for entry in &table.entries {
        match part.find(&entry.key) {
            None => unknown(entry, part, within, found),
            Some(key) if key.since == ConfigKeyAvailability::Preset && entry.key_at.origin == ConfigOrigin::Config => {
                found
                    .error(format!("`{}` is allowed only in presets", key.name))
                    .at(entry.key_at, "")
                    .hint("filter with `when` instead");
            }
            Some(key) => value_of(key, &entry.node, within, found),
        }
    }
}

fn unknown(entry: &ConfigEntry, part: &'static SectionKeys, within: &str, found: &mut DiagnosticCollector) {
    let known = part.names();
    let meant = crate::decide::nearest_name::nearest(&entry.key, known.iter().copied());
    let secret = meant
        .and_then(|name| part.find(name))
        .is_some_and(|key| matches!(key.takes, ConfigValueType::Secret | ConfigValueType::Secrets));
    if secret {
        conceal(&entry.node, found);
    }
    let hint = diagnostic::did_you_mean(&entry.key, known.iter().copied())
        .unwrap_or_else(|| format!("keys here: {}", known.join(", ")));
    let within = if *part == TOP_KEYS { "at the top level".to_owned() } else { format!("in {within}") };
    found.error(format!("unknown key `{}` {within}", entry.key)).at(entry.key_at, "").hint(hint);
}

/// Hides text where a secret belongs: it is probably the secret.
fn conceal(node: &ConfigNode, found: &mut DiagnosticCollector) {
    match &node.value {
        ConfigValue::Text(_) => found.conceal(node.at),
        ConfigValue::List(list) => list.iter().for_each(|item| conceal(item, found)),
        _ => {}
    }
}

fn value_of(key: &ConfigKey, node: &ConfigNode, within: &str, found: &mut DiagnosticCollector) {
    if matches!(key.takes, ConfigValueType::Secret | ConfigValueType::Secrets) {
        conceal(node, found);
    }
    if !key.takes.takes(&node.value) {
        let expected = key.takes.expected();
        let culprit = wrong_entry(key.takes, node);
        let what = if culprit.at == node.at { node.kind().to_owned() } else { format!("{} in it", culprit.kind()) };
        found.error(wrong(key.name)).at(culprit.at, format!("expected {expected}, found {what}"));
        return;
    }
    match (key.takes, &node.value) {
        (
            ConfigValueType::Table(part)
            | ConfigValueType::Tables(part)
            | ConfigValueType::WordOr(_, part)
            | ConfigValueType::TextOr(part),
            ConfigValue::Table(table),
        ) => {
            check(table, part, &inner(key.name, part, within), found);
        }
        (ConfigValueType::Tables(part), ConfigValue::List(list)) => {
            for table in list.iter().filter_map(ConfigNode::table) {
                check(table, part, &inner(key.name, part, within), found);
            }
        }
        (ConfigValueType::Named(part), ConfigValue::Table(table)) => {
            for entry in &table.entries {
                if let Some(table) = entry.node.table() {
                    check(table, part, &format!("{} `{}`", key.name, entry.key), found);
                }
            }
        }
        (ConfigValueType::Places(part), ConfigValue::Table(table)) => {
            for entry in &table.entries {
                if let Some(table) = entry.node.table() {
                    check(table, part, &format!("field `{}`", entry.key), found);
                }
            }
        }
        (ConfigValueType::Headers, ConfigValue::Table(table)) => {
            for entry in &table.entries {
                if let Some(table) = entry.node.table() {
                    check(table, &EXTERNAL_KEYS, &format!("`{}`", entry.key), found);
                }
            }
        }
        (
            ConfigValueType::Open | ConfigValueType::OneOrMoreOpen | ConfigValueType::Secret | ConfigValueType::Secrets,
            ConfigValue::Table(table),
        ) => {
            check(table, &EXTERNAL_KEYS, &format!("`{}`", key.name), found);
        }
        (ConfigValueType::Secrets | ConfigValueType::OneOrMoreOpen, ConfigValue::List(list)) => {
            for table in list.iter().filter_map(ConfigNode::table) {
                check(table, &EXTERNAL_KEYS, &format!("`{}`", key.name), found);
            }
        }
        (takes, ConfigValue::Text(text)) => check_text(key.name, takes, text, node.at, found),
        (ConfigValueType::Count, ConfigValue::Integer(number)) if !(1..=i128::from(u32::MAX)).contains(number) => {
            let label = format!("expected an integer from 1 to {}", u32::MAX);
            found.error(wrong(key.name)).at(node.at, label);
        }
        (ConfigValueType::Number(numbers), ConfigValue::Integer(number))
            if !numbers.iter().any(|known| i128::from(*known) == *number) =>
        {
            found.error(wrong(key.name)).at(node.at, format!("expected {}", key.takes.expected()));
        }
        _ => {}
    }
}

/// The title for an invalid value.
fn wrong(name: &str) -> String {
    format!("`{name}` cannot be read")
}

/// The entry of a list or table with the wrong type, or the value itself.
fn wrong_entry(takes: ConfigValueType, node: &ConfigNode) -> &ConfigNode {
    let alone = |item: &&ConfigNode| !takes.takes(&ConfigValue::List(vec![(*item).clone()]));
    match &node.value {
        ConfigValue::List(list) if takes.takes(&ConfigValue::List(Vec::new())) => {
            list.iter().find(alone).unwrap_or(node)
        }
        ConfigValue::Table(table) if takes.takes(&ConfigValue::Table(ConfigTable::default())) => table
            .entries
            .iter()
            .find(|entry| !takes.takes(&ConfigValue::Table(ConfigTable { entries: vec![(*entry).clone()] })))
            .map_or(node, |entry| &entry.node),
        _ => node,
    }
}

fn inner(name: &str, part: &'static SectionKeys, within: &str) -> String {
    match part {
        part if *part == ADMIN_KEYS => "`admin`".to_owned(),
        part if *part == ROUTE_KEYS => format!("a route of {within}"),
        _ => format!("`{name}`"),
    }
}

/// Checks that a text is a duration, size, address or one of the allowed words.
fn check_text(name: &str, takes: ConfigValueType, text: &str, at: ConfigSpan, found: &mut DiagnosticCollector) {
    let problem = match takes {
        ConfigValueType::Duration => units::duration(text).err().map(|why| (why, None)),
        ConfigValueType::Size => units::size(text).err().map(|why| (why, None)),
        ConfigValueType::Address => ListenAddress::parse(text).err().map(|why| (why, None)),
        ConfigValueType::Rate => units::rate(text).err().map(|why| (why, None)),
        ConfigValueType::Word(words) | ConfigValueType::WordOr(words, _) if !words.contains(&text) => {
            let hint = diagnostic::did_you_mean(text, words.iter().copied());
            Some((format!("expected {}", takes.expected()), hint))
        }
        _ => None,
    };
    if let Some((label, hint)) = problem {
        found.error(wrong(name)).at(at, label).hint_if(hint);
    }
}
