//! What makes two deliveries the same, of each preset and version. A store has keys that were made so: another way to
//! make them needs another version, so that `check` and `serve` can say that an upgrade changed it.

use crate::root;
use hookonce::decide::field::{Field, FieldIndex, FieldLocation};
use hookonce::decide::source::{Identity, Source};
use hookonce::internals::config::presets::{PRESETS, Preset};
use hookonce::internals::config::{self, SecretRequirement};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// A preset with its version, and what its identities are made of.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PresetIdentities {
    version: u32,
    text: String,
}

/// A source with a preset, as `hookonce presets NAME` shows it, without its secret.
fn source(preset: &Preset) -> Arc<Source> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hookonce.toml");
    std::fs::write(&path, preset.example()).unwrap();
    let config = config::load_with(&path, SecretRequirement::Optional, &|_| None);
    let config = config.unwrap_or_else(|error| panic!("{}: {error}", preset.name));
    config.sources[0].clone()
}

/// Where a field is read from, and how.
fn place(field: &Field) -> String {
    let places: Vec<_> = field.places().map(ToString::to_string).collect();
    let mut text = format!("{}={}", field.name, places.join("|"));
    if let Some(path) = field.inner_path_text() {
        let _ = write!(text, " base64_json={path}");
    }
    if field.trim {
        text.push_str(" trim");
    }
    if let Some(after) = &field.after {
        let _ = write!(text, " after={after:?}");
    }
    if let Some(default) = &field.default {
        let _ = write!(text, " default={default:?}");
    }
    text
}

/// What the identities of a source are made of, in one line.
fn identities(source: &Source) -> String {
    let mut parts = vec![format!("signs {}", source.verify.signs())];
    if let Some(places) = source.verify.signed_places() {
        parts.push(format!("of {}", places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")));
    }
    if let Some(each) = source.fields.each() {
        parts.push(format!("each {}", FieldLocation::Body(each.to_vec())));
    }
    if let Some(delivery) = &source.delivery {
        parts.push(format!("delivery {}{}", delivery.at, if delivery.signed { " signed" } else { "" }));
    }
    parts.push(format!("once {}", source.recipe().once));
    let mut used: BTreeSet<FieldIndex> = BTreeSet::new();
    for identity in &source.once.per {
        if let Identity::Named(fields) = identity {
            used.extend(fields);
        }
    }
    if let Some(change) = &source.once.change {
        used.extend(change.of.iter().chain(&change.to).chain(&change.order));
    }
    if let Some(when) = &source.once.new_when {
        let text = when.text();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = text.split(|c| !is_word(c)).collect();
        used.extend(words.into_iter().filter_map(|word| source.fields.ix(word)));
    }
    parts.extend(used.into_iter().map(|ix| place(source.fields.get(ix))));
    parts.join("; ")
}

/// The lines of the file: a name, a version, and the rest.
fn parse(text: &str) -> BTreeMap<String, PresetIdentities> {
    let row = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let (version, text) = rest.split_once(": ")?;
        Some((name.to_owned(), PresetIdentities { version: version.parse().ok()?, text: text.to_owned() }))
    };
    text.lines().filter_map(row).collect()
}

/// What is wrong with a row that differs from its frozen one.
fn refuse_the_same_version(name: &str, frozen: &PresetIdentities, new: &PresetIdentities) -> Option<String> {
    let changed = frozen.text != new.text && new.version <= frozen.version || new.version < frozen.version;
    changed.then(|| {
        format!(
            "the preset `{name}` makes two deliveries the same in another way, and is still version {}: keys in stores \
             are no longer found. Write version = {} into [sender] of src/config/presets/{name}.toml, or leave it as it \
             was.\nwas: {}\nnow: {}\n",
            new.version,
            frozen.version + 1,
            frozen.text,
            new.text
        )
    })
}

#[test]
fn what_the_identities_of_each_preset_are_made_of_changes_only_with_its_version() {
    let now: BTreeMap<_, _> = PRESETS
        .iter()
        .map(|preset| {
            let text = identities(&source(preset));
            (preset.name.to_owned(), PresetIdentities { version: preset.sender().version, text })
        })
        .collect();
    let path = root().join("tests/interface/presets.txt");
    let frozen = parse(&std::fs::read_to_string(&path).unwrap_or_default());
    let both = now.iter().filter_map(|(name, new)| Some((name, frozen.get(name)?, new)));
    let refused: Vec<_> = both.filter_map(|(name, frozen, new)| refuse_the_same_version(name, frozen, new)).collect();
    // Not even on request: a version that was released says what it always said.
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    if std::env::var_os("HOOKONCE_BLESS").is_some() {
        let row = |(name, row): (&String, &PresetIdentities)| format!("{name} {}: {}\n", row.version, row.text);
        std::fs::write(&path, now.iter().map(row).collect::<String>()).unwrap();
        return;
    }
    let differs = |name: &&String| now.get(*name) != frozen.get(*name);
    let names: BTreeSet<_> = now.keys().chain(frozen.keys()).filter(differs).collect();
    assert!(
        names.is_empty(),
        "{} is out of date: {names:?}. Intended? HOOKONCE_BLESS=1 cargo test --test interface",
        path.display()
    );
}

#[test]
fn a_changed_row_is_refused_unless_its_version_is_new() {
    let row = |version, text: &str| PresetIdentities { version, text: text.to_owned() };
    let frozen = row(2, "once body");
    for fine in [row(2, "once body"), row(3, "once body"), row(3, "once delivery")] {
        assert_eq!(refuse_the_same_version("a", &frozen, &fine), None);
    }
    for wrong in [row(2, "once delivery"), row(1, "once body"), row(1, "once delivery")] {
        let said = refuse_the_same_version("a", &frozen, &wrong).unwrap();
        assert!(said.contains("Write version = 3 into [sender]"), "{said}");
    }
}
