//! The first pass: every key is known, and its value is of the kind the key takes. After it, a value of another kind
//! counts as absent, because its problem has been told.

use super::keys::{self, Key, Part, Since, Takes};
use super::nearest;
use super::problem::Complaints;
use super::raw::{Entry, Node, Origin, Span, Table, Value};
use super::value;

/// Looks at a table and everything in it. `within` is the table in words: "source `ghcr`".
pub(super) fn check(table: &Table, part: Part, within: &str, found: &mut Complaints) {
    for entry in &table.entries {
        match keys::find(part, &entry.key) {
            None => unknown(entry, part, within, found),
            Some(key) if key.since == Since::Preset && entry.key_at.origin == Origin::Config => {
                found
                    .error(format!("`{}` is a key of presets only", key.name))
                    .at(entry.key_at, "")
                    .hint("filter with `when` instead");
            }
            Some(key) => value_of(key, &entry.node, within, found),
        }
    }
}

fn unknown(entry: &Entry, part: Part, within: &str, found: &mut Complaints) {
    let known = keys::names(part);
    let meant = crate::decide::nearest::nearest(&entry.key, known.iter().copied());
    let secret = meant
        .and_then(|name| keys::find(part, name))
        .is_some_and(|key| matches!(key.takes, Takes::Secret | Takes::Secrets));
    if secret {
        conceal(&entry.node, found);
    }
    let hint = match meant {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("keys here: {}", known.join(", ")),
    };
    let within = if part == Part::Top { "at the top level".to_owned() } else { format!("in {within}") };
    found.error(format!("unknown key `{}` {within}", entry.key)).at(entry.key_at, "").hint(hint);
}

/// Text where a secret belongs is a secret: it is never shown.
fn conceal(node: &Node, found: &mut Complaints) {
    match &node.value {
        Value::Text(_) => found.conceal(node.at),
        Value::List(list) => list.iter().for_each(|item| conceal(item, found)),
        _ => {}
    }
}

fn value_of(key: &Key, node: &Node, within: &str, found: &mut Complaints) {
    if matches!(key.takes, Takes::Secret | Takes::Secrets) {
        conceal(node, found);
    }
    if !key.takes.takes(&node.value) {
        let expected = key.takes.expected();
        let culprit = culprit(key.takes, node);
        let what = if culprit.at == node.at { node.kind().to_owned() } else { format!("{} in it", culprit.kind()) };
        found.error(wrong(key.name)).at(culprit.at, format!("expected {expected}, found {what}"));
        return;
    }
    match (key.takes, &node.value) {
        (
            Takes::Table(part) | Takes::Tables(part) | Takes::WordOr(_, part) | Takes::TextOr(part),
            Value::Table(table),
        ) => {
            check(table, part, &inner(key.name, part, within), found);
        }
        (Takes::Tables(part), Value::List(list)) => {
            for table in list.iter().filter_map(Node::table) {
                check(table, part, &inner(key.name, part, within), found);
            }
        }
        (Takes::Named(part), Value::Table(table)) => {
            for entry in &table.entries {
                if let Some(table) = entry.node.table() {
                    check(table, part, &format!("{} `{}`", key.name, entry.key), found);
                }
            }
        }
        (Takes::Places(part), Value::Table(table)) => {
            for entry in &table.entries {
                if let Some(table) = entry.node.table() {
                    check(table, part, &format!("field `{}`", entry.key), found);
                }
            }
        }
        (Takes::Headers, Value::Table(table)) => {
            for entry in &table.entries {
                if let Some(table) = entry.node.table() {
                    check(table, Part::Elsewhere, &format!("`{}`", entry.key), found);
                }
            }
        }
        (Takes::Open | Takes::Secret | Takes::Secrets, Value::Table(table)) => {
            check(table, Part::Elsewhere, &format!("`{}`", key.name), found);
        }
        (Takes::Secrets, Value::List(list)) => {
            for table in list.iter().filter_map(Node::table) {
                check(table, Part::Elsewhere, &format!("`{}`", key.name), found);
            }
        }
        (takes, Value::Text(text)) => said(key.name, takes, text, node.at, found),
        (Takes::Count, Value::Integer(number)) if !(1..=i128::from(u32::MAX)).contains(number) => {
            let label = format!("expected a whole number from 1 to {}", u32::MAX);
            found.error(wrong(key.name)).at(node.at, label);
        }
        _ => {}
    }
}

/// Title of every value that cannot be taken.
fn wrong(name: &str) -> String {
    format!("`{name}` cannot be read")
}

/// The entry of a list or table that is of the wrong kind, or the value itself.
fn culprit(takes: Takes, node: &Node) -> &Node {
    let alone = |item: &&Node| !takes.takes(&Value::List(vec![(*item).clone()]));
    match &node.value {
        Value::List(list) if takes.takes(&Value::List(Vec::new())) => list.iter().find(alone).unwrap_or(node),
        Value::Table(table) if takes.takes(&Value::Table(Table::default())) => table
            .entries
            .iter()
            .find(|entry| !takes.takes(&Value::Table(Table { entries: vec![(*entry).clone()] })))
            .map_or(node, |entry| &entry.node),
        _ => node,
    }
}

fn inner(name: &str, part: Part, within: &str) -> String {
    match part {
        Part::Admin => "`admin`".to_owned(),
        Part::Route => format!("a route of {within}"),
        _ => format!("`{name}`"),
    }
}

/// Is the text a duration, a size, an address, one of the words?
fn said(name: &str, takes: Takes, text: &str, at: Span, found: &mut Complaints) {
    let problem = match takes {
        Takes::Duration => value::duration(text).err().map(|why| (why, None)),
        Takes::Size => value::size(text).err().map(|why| (why, None)),
        Takes::Address => value::address(text).err().map(|why| (why, None)),
        Takes::Word(words) | Takes::WordOr(words, _) if !words.contains(&text) => {
            let hint = nearest::did_you_mean(text, words.iter().copied());
            Some((format!("expected {}", takes.expected()), hint))
        }
        _ => None,
    };
    if let Some((label, hint)) = problem {
        found.error(wrong(name)).at(at, label).hint_if(hint);
    }
}
