//! Presets of the user's own: `presets/NAME.toml` beside the config, or `[preset.NAME]` in it.

use super::diagnostic::{self, ConfigError, ConfigErrorKind};
use super::presets::{self, SenderFacts};
use super::raw::{self, ConfigEntry, ConfigNode, ConfigOrigin, ConfigSpan, ConfigTable, ConfigValue};
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use super::source::SOURCE_KEYS;
use super::{EnvLookup, SecretRequirement, file_text, validate};
use crate::decide::field::FieldSet;
use std::io;
use std::path::Path;

/// The folder beside the config with a file for each preset.
const FOLDER: &str = "presets";
/// Maximum number of presets of the user's own.
const PRESETS_MAX: usize = 256;
/// Keys that belong to a source, not to its sender.
const OF_SOURCES: [&str; 4] = ["preset", "scope", "from", "poll"];

/// A preset of the user's own.
#[derive(Clone, Debug)]
pub(crate) struct UserPreset {
    /// Its name.
    pub(crate) name: String,
    /// Its file, as it is shown; `None`: a table of the config.
    pub(crate) file: Option<String>,
    /// Its keys, as TOML.
    pub(crate) text: String,
    /// The same, read.
    pub(super) table: ConfigTable,
}

impl UserPreset {
    /// What it says about itself, in one line.
    pub(crate) fn about(&self) -> String {
        let comment = self.text.lines().next().unwrap_or_default().strip_prefix('#').unwrap_or_default().trim();
        match &self.file {
            _ if !comment.is_empty() => comment.to_owned(),
            Some(file) => format!("your own, in {file}"),
            None => format!("your own, [preset.{}] in the config", self.name),
        }
    }

    /// What it knows of its sender.
    pub(crate) fn sender(&self) -> SenderFacts {
        SenderFacts::of(&self.table)
    }

    /// A source with this preset, as a user would write it.
    pub(crate) fn example(&self) -> String {
        presets::example(&self.name, &self.sender(), |_| None)
    }

    /// What its sender signs, in one word.
    pub(crate) fn signs(&self) -> &'static str {
        super::what_is_signed(&self.example(), std::slice::from_ref(self))
    }
}

/// Whether this can be the name of a preset: it is also the name of a file.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    !text.is_empty() && text.len() <= 64 && text.chars().all(allowed)
}

/// The presets of the user's own, whether a source names them or not.
pub(super) fn list(text: &str, file: &str, base: &Path, env: EnvLookup<'_>) -> Result<Vec<UserPreset>, ConfigError> {
    let mut resolver = ConfigResolver { secrets: SecretRequirement::Optional, ..ConfigResolver::new(text, base, env) };
    if let Some(mut root) = resolver.tree() {
        resolver.preset_tables(&mut root);
    }
    for name in names_in_folder(base) {
        if !resolver.user_presets.iter().any(|preset| preset.file.is_some() && preset.name == name) {
            resolver.preset_file(&name);
        }
    }
    let failed = resolver.diagnostics.has_errors();
    let mut presets = resolver.user_presets;
    for preset in &mut presets {
        let shown = if preset.file.is_some() { preset.text.clone() } else { text.to_owned() };
        let mut literals = Vec::new();
        literal_secrets(&preset.table, &shown, resolver.diagnostics.concealed(), &mut literals);
        for literal in literals {
            preset.text = preset.text.replace(&literal, "\"•••\"");
        }
    }
    let named = |origin| named_text(origin, file, text, &presets);
    let (list, more) = resolver.diagnostics.finish(&named);
    if failed {
        return Err(ConfigError { file: file.to_owned(), nature: ConfigErrorKind::Wrong, list, more });
    }
    presets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(presets)
}

/// The name and the text of the file that a place is in.
pub(super) fn named_text<'t>(
    origin: ConfigOrigin,
    file: &str,
    text: &'t str,
    presets: &'t [UserPreset],
) -> (String, &'t str) {
    match origin {
        ConfigOrigin::Config | ConfigOrigin::PresetTable => (file.to_owned(), text),
        ConfigOrigin::Preset(name) => {
            let preset = presets::shown().find(|preset| preset.name == name);
            (format!("preset {name}"), preset.map_or("", |preset| preset.text))
        }
        ConfigOrigin::PresetFile(ix) => {
            let preset = presets.get(usize::from(ix));
            (
                preset.and_then(|preset| preset.file.clone()).unwrap_or_default(),
                preset.map_or("", |preset| &preset.text),
            )
        }
    }
}

/// The names of the files in the folder of presets, in their order.
fn names_in_folder(base: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(base.join(FOLDER)).into_iter().flatten().flatten();
    let is_file = |entry: &std::fs::DirEntry| entry.path().is_file();
    let name = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned);
    let mut names: Vec<_> =
        entries.filter(is_file).filter_map(name).filter(|name| is_name(name)).take(PRESETS_MAX).collect();
    names.sort();
    names
}

impl ConfigResolver<'_> {
    /// Takes the presets that are tables of the config out of it.
    pub(super) fn preset_tables(&mut self, root: &mut ConfigTable) {
        let Some(entry) = root.entries.extract_if(.., |entry| entry.key == "preset").next() else { return };
        let Some(tables) = entry.node.table() else {
            self.diagnostics
                .error("`preset` cannot be read")
                .at(entry.node.at, format!("expected a table for each preset, found {}", entry.node.kind()))
                .hint("[preset.NAME] is a preset of your own; a source names one: preset = \"github\"");
            return;
        };
        for entry in &tables.entries {
            let Some(table) = entry.node.table() else {
                self.diagnostics
                    .error(format!("the preset `{}` is not a table", entry.key))
                    .at(entry.node.at, format!("found {}", entry.node.kind()));
                continue;
            };
            let table = with_origin(table, ConfigOrigin::PresetTable);
            let text = self.text.get(entry.node.at.start..entry.node.at.end).unwrap_or_default();
            self.check_preset(&entry.key, entry.key_at, &table);
            let text = if text.starts_with('{') { text.to_owned() } else { toml_of(&table) };
            self.user_presets.push(UserPreset { name: entry.key.clone(), file: None, text, table });
        }
    }

    /// The preset of this name: a table of the config, or a file. `None`: there is none, or it cannot be read, which is
    /// reported.
    pub(super) fn user_preset(&mut self, name: &str, node: &ConfigNode, source: ConfigSpan) -> Option<UserPreset> {
        let known = |preset: &&UserPreset| preset.name == name;
        if let Some(preset) = self.user_presets.iter().find(known) {
            return Some(preset.clone());
        }
        if is_name(name) && self.base.join(FOLDER).join(format!("{name}.toml")).is_file() {
            return self.preset_file(name).then(|| self.user_presets.last().cloned()).flatten();
        }
        let folder = names_in_folder(self.base);
        let own = self.user_presets.iter().map(|preset| preset.name.as_str()).chain(folder.iter().map(String::as_str));
        let names: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).chain(own).collect();
        self.diagnostics
            .error(format!("there is no preset `{name}`"))
            .at(node.at, "`hookonce presets` lists them")
            .sort_at(source)
            .hint_if(diagnostic::did_you_mean(name, names));
        None
    }

    /// Reports a file that would be a preset if its name were not that of a built-in one.
    pub(super) fn no_file_of_this_name(&mut self, name: &str) {
        let file = format!("{FOLDER}/{name}.toml");
        if self.base.join(&file).exists() {
            self.diagnostics
                .error(format!("there is a built-in preset `{name}`, so {file} has no effect"))
                .hint(format!("rename {file}, and name it so in `preset`"));
        }
    }

    /// Reports a key that the source lacks, and that its preset of the user's own says it needs. What built-in ones need is
    /// asked for by their schemes.
    pub(super) fn has_what_it_needs(
        &mut self,
        source: &ConfigSection<'_>,
        preset: &str,
        sender: &SenderFacts,
        fields: &FieldSet,
    ) {
        if presets::find(preset).is_some() {
            return;
        }
        let verify = source.node("verify").and_then(ConfigNode::table);
        let has = |key: &str| source.has(key) || verify.is_some_and(|verify| verify.get(key).is_some());
        let needed = sender.needs.iter().filter(|key| SOURCE_KEYS.find(key).is_some());
        for key in needed.filter(|key| !has(key)) {
            self.diagnostics
                .error(format!("the preset `{preset}` needs `{key}`, which is missing"))
                .unless(source.misspells(key))
                .at(source.place("preset"), format!("`hookonce presets {preset}` shows what it needs"));
        }
        if let Some(order) = sender.order.as_ref().filter(|order| fields.ix(order).is_none()) {
            let at = source.section("sender").map_or(source.at, |sender| sender.place("order"));
            let all: Vec<_> = fields.iter().map(|field| &*field.name).collect();
            self.diagnostics
                .error(format!("`order` of the preset `{preset}` names a field that is not declared: `{order}`"))
                .unless(self.unread.fields)
                .at(at, format!("fields: {}", all.join(", ")))
                .hint("order = \"none\", if nothing orders its deliveries");
        }
    }

    /// Reads a file of the folder. False: it is not TOML or cannot be read, which is reported.
    fn preset_file(&mut self, name: &str) -> bool {
        let path = self.base.join(FOLDER).join(format!("{name}.toml"));
        let shown = format!("{FOLDER}/{name}.toml");
        let text = match file_text(&path) {
            Ok(text) => text,
            Err(error) => {
                self.diagnostics.error(format!("the preset {shown} cannot be read: {}", unread(&error)));
                return false;
            }
        };
        let origin = ConfigOrigin::PresetFile(u16::try_from(self.user_presets.len()).unwrap_or(u16::MAX));
        let (table, errors) = raw::parse(&text, origin);
        for error in &errors {
            let draft = self.diagnostics.error(format!("this is not TOML: {}", error.what));
            if let Some(at) = error.at {
                draft.at(at, "");
            }
        }
        if errors.is_empty() {
            self.check_preset(name, ConfigSpan { origin, start: 0, end: 0 }, &table);
        }
        self.user_presets.push(UserPreset { name: name.to_owned(), file: Some(shown), text, table });
        errors.is_empty()
    }

    /// Reports a name or keys that a preset cannot have.
    fn check_preset(&mut self, name: &str, at: ConfigSpan, table: &ConfigTable) {
        if !is_name(name) {
            self.diagnostics
                .error(format!("`{name}` cannot be the name of a preset"))
                .at(at, "at most 64 lower-case letters, digits, _ and -");
        }
        if presets::shown().any(|preset| preset.name == name) {
            self.diagnostics
                .error(format!("there is a built-in preset `{name}`"))
                .at(at, "a preset of your own needs another name")
                .hint("to change a built-in one for a source, write keys beside `preset`");
        }
        let file = format!("{FOLDER}/{name}.toml");
        if at.origin == ConfigOrigin::Config && self.base.join(&file).exists() {
            self.diagnostics
                .error(format!("there are two presets `{name}`"))
                .at(at, format!("{file} is one, and this table another"));
        }
        if let Some(entry) = table.entry("route")
            && entry.node.table().is_none()
        {
            self.diagnostics
                .error("a preset has one `route`: the defaults of its sources' routes")
                .at(entry.key_at, format!("found {}", entry.node.kind()))
                .hint("[route], not [[route]]");
        }
        let sender = table.get("sender").and_then(ConfigNode::table);
        for need in sender.and_then(|sender| sender.get("needs")).and_then(ConfigNode::list).unwrap_or_default() {
            if need.text().is_some_and(|key| SOURCE_KEYS.find(key).is_none()) {
                self.diagnostics
                    .error(format!("`needs` names `{}`, which is no key of a source", need.text().unwrap_or_default()))
                    .at(need.at, "");
            }
        }
        validate::check(table, &SOURCE_KEYS, &format!("preset `{name}`"), &mut self.diagnostics);
        for entry in table.entries.iter().filter(|entry| OF_SOURCES.contains(&&*entry.key)) {
            self.diagnostics
                .error(format!("`{}` is not a key of a preset", entry.key))
                .at(entry.key_at, "it belongs to a source");
        }
    }
}

fn unread(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "not allowed".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::InvalidData => "it is not UTF-8, or longer than 1 MB".to_owned(),
        _ => error.to_string(),
    }
}

/// The same table as if it were in another text.
fn with_origin(table: &ConfigTable, origin: ConfigOrigin) -> ConfigTable {
    let span = |at: ConfigSpan| ConfigSpan { origin, ..at };
    let entry = |entry: &ConfigEntry| ConfigEntry {
        key: entry.key.clone(),
        key_at: span(entry.key_at),
        node: node_with_origin(&entry.node, origin),
    };
    ConfigTable { entries: table.entries.iter().map(entry).collect() }
}

fn node_with_origin(node: &ConfigNode, origin: ConfigOrigin) -> ConfigNode {
    let value = match &node.value {
        ConfigValue::Table(table) => ConfigValue::Table(with_origin(table, origin)),
        ConfigValue::List(list) => ConfigValue::List(list.iter().map(|item| node_with_origin(item, origin)).collect()),
        other => other.clone(),
    };
    ConfigNode { at: ConfigSpan { origin, ..node.at }, value }
}

/// The secrets that are written in a table, each as it stands in this text and as [`toml_of`] writes it.
fn literal_secrets(table: &ConfigTable, text: &str, concealed: &[ConfigSpan], found: &mut Vec<String>) {
    table.entries.iter().for_each(|entry| literals_in(&entry.node, text, concealed, found));
}

fn literals_in(node: &ConfigNode, text: &str, concealed: &[ConfigSpan], found: &mut Vec<String>) {
    match &node.value {
        ConfigValue::Table(table) => literal_secrets(table, text, concealed, found),
        ConfigValue::List(list) => list.iter().for_each(|item| literals_in(item, text, concealed, found)),
        ConfigValue::Text(value) if !value.is_empty() && concealed.contains(&node.at) => {
            found.extend(text.get(node.at.start..node.at.end).map(str::to_owned));
            found.push(value_text(&node.value));
        }
        _ => {}
    }
}

/// A table as TOML, to be shown.
fn toml_of(table: &ConfigTable) -> String {
    let lines: Vec<_> =
        table.entries.iter().map(|entry| format!("{} = {}", entry.key, value_text(&entry.node.value))).collect();
    lines.join("\n")
}

fn value_text(value: &ConfigValue) -> String {
    let joined = |items: Vec<String>| items.join(", ");
    match value {
        ConfigValue::Text(text) => toml::Value::from(text.as_str()).to_string(),
        ConfigValue::Integer(number) => number.to_string(),
        ConfigValue::Flag(flag) => flag.to_string(),
        ConfigValue::Float | ConfigValue::Time => "…".to_owned(),
        ConfigValue::List(list) => format!("[{}]", joined(list.iter().map(|item| value_text(&item.value)).collect())),
        ConfigValue::Table(table) => {
            let bare = |key: &str| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            let key = |key: &str| if bare(key) { key.to_owned() } else { toml::Value::from(key).to_string() };
            let entry = |entry: &ConfigEntry| format!("{} = {}", key(&entry.key), value_text(&entry.node.value));
            format!("{{ {} }}", joined(table.entries.iter().map(entry).collect()))
        }
    }
}
