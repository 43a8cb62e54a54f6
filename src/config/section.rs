//! A typed view of one table of the file. Values of the wrong type count as absent: validation has reported them.

use super::keys::SectionKeys;
use super::raw::{ConfigNode, ConfigSpan, ConfigTable, ConfigValue};
use super::{ListenAddress, units};
use crate::decide::nearest_name::nearest;
use crate::decide::refusal_limit::RefusalRate;
use crate::decide::time::Duration;

/// A table with the keys of one part.
#[derive(Clone, Copy)]
pub(super) struct ConfigSection<'a> {
    table: &'a ConfigTable,
    part: &'static SectionKeys,
    /// The place to report when a key is missing.
    pub(super) at: ConfigSpan,
}

impl<'a> ConfigSection<'a> {
    pub(super) fn new(table: &'a ConfigTable, part: &'static SectionKeys, at: ConfigSpan) -> Self {
        Self { table, part, at }
    }

    /// Its name, such as `lookup`.
    pub(super) fn name(&self) -> &'static str {
        self.part.name
    }

    /// The value of a key, of any type.
    pub(super) fn node(&self, key: &str) -> Option<&'a ConfigNode> {
        debug_assert!(self.part.find(key).is_some(), "`{key}` is not in the table of keys");
        self.table.get(key)
    }

    /// Whether the key is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Whether a key is absent because it is misspelt, which validation has reported.
    pub(super) fn misspells(&self, key: &str) -> bool {
        let known = self.part.names();
        let is_typo =
            |written: &str| self.part.find(written).is_none() && nearest(written, known.iter().copied()) == Some(key);
        !self.has(key) && self.table.entries.iter().any(|entry| is_typo(&entry.key))
    }

    /// The place of a key's value; the section itself if it is absent.
    pub(super) fn place(&self, key: &str) -> ConfigSpan {
        self.node(key).map_or(self.at, |node| node.at)
    }

    pub(super) fn key_place(&self, key: &str) -> ConfigSpan {
        self.table.entry(key).map_or(self.at, |entry| entry.key_at)
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.node(key).and_then(ConfigNode::text)
    }

    /// The texts of a list, or the one text.
    pub(super) fn texts(&self, key: &str) -> Vec<&'a str> {
        let Some(node) = self.node(key) else { return Vec::new() };
        let list = node.list().unwrap_or_else(|| std::slice::from_ref(node));
        list.iter().filter_map(ConfigNode::text).collect()
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.node(key)?.value {
            ConfigValue::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    pub(super) fn count(&self, key: &str) -> Option<u32> {
        match self.node(key)?.value {
            ConfigValue::Integer(number) => u32::try_from(number).ok().filter(|n| *n > 0),
            _ => None,
        }
    }

    pub(super) fn duration(&self, key: &str) -> Option<Duration> {
        units::duration(self.text(key)?).ok()
    }

    pub(super) fn size(&self, key: &str) -> Option<usize> {
        units::size(self.text(key)?).ok()
    }

    pub(super) fn address(&self, key: &str) -> Option<ListenAddress> {
        ListenAddress::parse(self.text(key)?).ok()
    }

    pub(super) fn rate(&self, key: &str) -> Option<RefusalRate> {
        let (count, within) = units::rate(self.text(key)?).ok()?;
        Some(RefusalRate { count, within })
    }

    fn part_of(&self, key: &str) -> &'static SectionKeys {
        self.part.find(key).and_then(|key| key.takes.section()).expect("such a key takes a table")
    }

    /// A nested table.
    pub(super) fn section(&self, key: &str) -> Option<ConfigSection<'a>> {
        let part = self.part_of(key);
        let node = self.node(key)?;
        node.table().map(|table| ConfigSection::new(table, part, narrow(node, self.key_place(key))))
    }

    /// Nested tables: one, or a list of them.
    pub(super) fn sections(&self, key: &str) -> Vec<ConfigSection<'a>> {
        let part = self.part_of(key);
        match self.node(key) {
            Some(ConfigNode { value: ConfigValue::List(list), .. }) => {
                list.iter().filter_map(|n| n.table().map(|table| ConfigSection::new(table, part, n.at))).collect()
            }
            Some(_) => self.section(key).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// All entries, for sections whose names the user chooses.
    pub(super) fn entries(&self) -> &'a [super::raw::ConfigEntry] {
        &self.table.entries
    }
}

/// The place of a nested table: its key, if dotted keys made it and it has no brackets.
fn narrow(node: &ConfigNode, key: ConfigSpan) -> ConfigSpan {
    if node.at.start == node.at.end { key } else { node.at }
}
