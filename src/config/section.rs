//! One table of the file, read by the table of keys: what is of the wrong kind was told in the first pass and counts
//! as absent here.

use super::keys::{self, SectionKind};
use super::raw::{ConfigNode, ConfigSpan, ConfigTable, ConfigValue};
use super::units;
use crate::decide::time::Duration;
use std::net::SocketAddr;

/// A table with the keys of one part.
#[derive(Clone, Copy)]
pub(super) struct ConfigSection<'a> {
    table: &'a ConfigTable,
    part: SectionKind,
    /// What to point at when something is missing in it.
    pub(super) at: ConfigSpan,
}

impl<'a> ConfigSection<'a> {
    pub(super) fn new(table: &'a ConfigTable, part: SectionKind, at: ConfigSpan) -> Self {
        Self { table, part, at }
    }

    /// The value of a key, whatever it is.
    pub(super) fn node(&self, key: &str) -> Option<&'a ConfigNode> {
        debug_assert!(keys::find(self.part, key).is_some(), "`{key}` is not in the table of keys");
        self.table.get(key)
    }

    /// Is it written at all?
    pub(super) fn has(&self, key: &str) -> bool {
        self.node(key).is_some()
    }

    /// Where a key is written; the section itself if it is not.
    pub(super) fn place(&self, key: &str) -> ConfigSpan {
        self.node(key).map_or(self.at, |node| node.at)
    }

    pub(super) fn key_place(&self, key: &str) -> ConfigSpan {
        self.table.entry(key).map_or(self.at, |entry| entry.key_at)
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        self.node(key).and_then(ConfigNode::text)
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

    pub(super) fn address(&self, key: &str) -> Option<SocketAddr> {
        units::address(self.text(key)?).ok()
    }

    /// A table within.
    pub(super) fn section(&self, key: &str, part: SectionKind) -> Option<ConfigSection<'a>> {
        let node = self.node(key)?;
        node.table().map(|table| ConfigSection::new(table, part, narrow(node, self.key_place(key))))
    }

    /// The tables within: one, or a list of them.
    pub(super) fn sections(&self, key: &str, part: SectionKind) -> Vec<ConfigSection<'a>> {
        match self.node(key) {
            Some(ConfigNode { value: ConfigValue::List(list), .. }) => {
                list.iter().filter_map(|n| n.table().map(|table| ConfigSection::new(table, part, n.at))).collect()
            }
            Some(_) => self.section(key, part).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// Its names and values, for parts in which the user chooses the names.
    pub(super) fn entries(&self) -> &'a [super::raw::ConfigEntry] {
        &self.table.entries
    }
}

/// A table made by dotted keys has no brackets to point at: its key is the place.
fn narrow(node: &ConfigNode, key: ConfigSpan) -> ConfigSpan {
    if node.at.start == node.at.end { key } else { node.at }
}
