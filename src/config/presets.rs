//! Presets: built-in config for known senders, embedded as TOML.

use super::raw::{self, ConfigEntry, ConfigNode, ConfigOrigin, ConfigTable, ConfigValue};

/// Built-in config for one sender.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// The keys of a source, as TOML.
    pub text: &'static str,
    /// A body as the sender sends it, if `hookonce send` needs more than its fields.
    pub sample: Option<&'static str>,
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "github-package",
        text: include_str!("presets/github-package.toml"),
        sample: Some(include_str!("presets/github-package.json")),
    },
    Preset { name: "sports-stack", text: include_str!("presets/sports-stack.toml"), sample: None },
    Preset { name: "ci-ingestion", text: include_str!("presets/ci-ingestion.toml"), sample: None },
    Preset { name: "idempotency-key", text: include_str!("presets/idempotency-key.toml"), sample: None },
];

/// What every source with `poll` begins with. It is shown beside the presets, but no source names it.
pub static POLL: Preset = Preset { name: "poll", text: include_str!("presets/poll.toml"), sample: None };

/// Every preset, and what is shown beside them.
pub fn shown() -> impl Iterator<Item = &'static Preset> {
    PRESETS.iter().chain([&POLL])
}

/// The preset of this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Merges a preset into a source: a key of the source replaces the preset's key completely; fields are added, and the
/// preset's `route` has the defaults of each route of the source.
pub(super) fn merge_preset(preset: &'static Preset, user: &ConfigTable) -> ConfigTable {
    let (mut known, _) = raw::parse(preset.text, ConfigOrigin::Preset(preset.name));
    let defaults = known.entries.extract_if(.., |entry| entry.key == "route").next();
    let fields = known.get("fields").and_then(ConfigNode::table).cloned().unwrap_or_default();
    let mut out = over(known, user);
    if let Some(ConfigNode { value: ConfigValue::Table(added), .. }) = user.get("fields") {
        let all = over(fields, added);
        for entry in out.entries.iter_mut().filter(|entry| entry.key == "fields") {
            entry.node.value = ConfigValue::Table(all.clone());
        }
    }
    if let Some(defaults) = defaults.as_ref().and_then(|entry| entry.node.table()) {
        for entry in out.entries.iter_mut().filter(|entry| entry.key == "route") {
            each_table(&mut entry.node, |route| *route = over(defaults.clone(), route));
        }
    }
    out
}

/// Applies this to a table, or to each table of a list.
fn each_table(node: &mut ConfigNode, mut apply: impl FnMut(&mut ConfigTable)) {
    match &mut node.value {
        ConfigValue::Table(table) => apply(table),
        ConfigValue::List(list) => {
            for item in list {
                if let ConfigValue::Table(table) = &mut item.value {
                    apply(table);
                }
            }
        }
        _ => {}
    }
}

/// Entries of `above` replace entries of `below` with the same key; the others are appended.
fn over(below: ConfigTable, above: &ConfigTable) -> ConfigTable {
    let mut entries: Vec<ConfigEntry> =
        below.entries.into_iter().map(|entry| above.entry(&entry.key).cloned().unwrap_or(entry)).collect();
    let added = above.entries.iter().filter(|entry| !entries.iter().any(|e| e.key == entry.key)).cloned();
    let added: Vec<_> = added.collect();
    entries.extend(added);
    ConfigTable { entries }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::DiagnosticCollector;
    use crate::config::source::SOURCE_KEYS;
    use crate::config::validate;

    #[test]
    fn every_preset_is_toml_and_has_only_known_keys() {
        for preset in shown() {
            let (table, errors) = raw::parse(preset.text, ConfigOrigin::Preset(preset.name));
            assert_eq!(errors, []);
            let mut found = DiagnosticCollector::default();
            validate::check(&table, &SOURCE_KEYS, "preset", &mut found);
            assert!(!found.has_errors(), "{found:?}");
        }
    }

    #[test]
    fn a_key_beside_a_preset_replaces_that_key_whole_and_fields_add() {
        let (user, _) = raw::parse(
            "when = 'true'\nonce = { keep = '1d' }\nfields = { tag = 'body.t', extra = 'body.e' }",
            ConfigOrigin::Config,
        );
        let merged = merge_preset(find("github-package").unwrap(), &user);
        assert_eq!(merged.get("when").unwrap().text(), Some("true"));
        assert!(merged.get("once").unwrap().table().unwrap().get("per").is_none());
        let fields = merged.get("fields").unwrap().table().unwrap();
        let names: Vec<_> = fields.entries.iter().map(|e| e.key.as_str()).collect();
        assert_eq!(
            names,
            ["package", "tag", "version_id", "sha", "updated_at", "namespace", "repository", "commit", "extra"]
        );
        assert_eq!(fields.get("tag").unwrap().text(), Some("body.t"));
    }
}
