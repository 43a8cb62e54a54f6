//! Describes in one line what a scope's identities are made of. A store remembers the line, so that a change is noticed
//! before it makes old events new.

use crate::decide::claim::MatchedBy;
use crate::decide::field::FieldIndex;
use crate::decide::source::{ApiStyle, Identity, Source};
use crate::decide::time::Timestamp;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A scope, and what its identities are made of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IdentityRecipe {
    /// The scope: the source's name, unless the config keeps an old one.
    pub scope: String,
    /// Its identities, in one line.
    pub once: String,
    /// Since when that line has been in force, where there was another one before, or where that is unknown: an older
    /// event may hold keys that were made by another recipe.
    pub since: Option<Timestamp>,
}

/// The names of the fields that a change is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeFields {
    /// Those that name the subject.
    pub of: Vec<String>,
    /// Those that are its value.
    pub to: Vec<String>,
    /// The one that is the sender's order.
    pub order: Option<String>,
}

impl IdentityRecipe {
    /// The same recipe of a source with this version of a preset.
    #[must_use]
    pub fn of_preset(self, name: &str, version: u32) -> Self {
        Self { once: format!("{}, {PRESET}{name} {version}", self.once), ..self }
    }

    /// The fields of its change, if it has one.
    pub fn change(&self) -> Option<ChangeFields> {
        let change = self.once.split(", ").find_map(|identity| identity.strip_prefix(CHANGE_OF))?;
        let (of, value) = change.split_once(" to ")?;
        let (to, order) = value.split_once(" by ").map_or((value, None), |(to, order)| (to, Some(order.to_owned())));
        let names = |joined: &str| joined.split('+').map(str::to_owned).collect();
        Some(ChangeFields { of: names(of), to: names(to), order })
    }
}

/// How a change begins in the line.
const CHANGE_OF: &str = "change of ";
/// The identities that come and go with what a signature covers, beside [`UNSIGNED`], which stays: a repeat of the same
/// delivery is still found.
const IMPLIED: [&str; 2] = [BODY, "time+body"];
const BODY: &str = "body";
/// A delivery id that is not signed.
const UNSIGNED: &str = "delivery with its body";
/// How the preset begins in the line, which its name and version follow: it is no identity.
const PRESET: &str = "preset ";
/// How the condition begins under which equal deliveries are events of their own: it is no identity.
const NEW_WHERE: &str = "new where ";
/// The sender is part of every key.
const EACH_SENDER: &str = "for each sender";

impl Source {
    /// What this source's identities are made of.
    pub fn recipe(&self) -> IdentityRecipe {
        let names = |fields: &[FieldIndex]| {
            let names: Vec<_> = fields.iter().map(|ix| &*self.fields.get(*ix).name).collect();
            names.join("+")
        };
        let signed = self.delivery.as_ref().is_some_and(|delivery| delivery.signed);
        let identities = self.once.per.iter().map(|identity| match identity {
            Identity::Delivery if signed => "delivery".to_owned(),
            Identity::Delivery => UNSIGNED.to_owned(),
            Identity::Message => "message".to_owned(),
            Identity::Body => BODY.to_owned(),
            Identity::Signed => MatchedBy::Signed.word().to_owned(),
            Identity::SignedText => MatchedBy::SignedText.word().to_owned(),
            Identity::Named(fields) => names(fields),
        });
        let mut once = identities.collect::<Vec<_>>().join(", ");
        if let Some(change) = &self.once.change {
            // Writing to a string cannot fail.
            let _ = write!(once, ", {CHANGE_OF}{} to {}", names(&change.of), names(&change.to));
            if let Some(order) = change.order {
                let _ = write!(once, " by {}", names(&[order]));
            }
        }
        if let Some(when) = &self.once.new_when {
            let _ = write!(once, ", {NEW_WHERE}{}", when.text().replace(", ", ","));
        }
        if self.verify.callers().is_some() || self.api_style == ApiStyle::Api {
            once.push_str(", ");
            once.push_str(EACH_SENDER);
        }
        IdentityRecipe { scope: self.scope.to_string(), once, since: None }
    }
}

/// The identities of a line.
fn without_preset(line: &str) -> &str {
    line.rsplit_once(", ").filter(|(_, last)| last.starts_with(PRESET)).map_or(line, |(identities, _)| identities)
}

/// The name and version of a line's preset.
fn preset_of(line: &str) -> Option<(&str, &str)> {
    line.rsplit_once(", ")?.1.strip_prefix(PRESET)?.rsplit_once(' ')
}

/// Whether both lines are of one preset in two versions, and otherwise alike: what the identities are read from changed.
fn is_other_version(old: &str, new: &str) -> bool {
    let versions = preset_of(old).zip(preset_of(new));
    let changed = versions.is_some_and(|((was, before), (is, now))| was == is && before != now);
    changed && without_preset(old) == without_preset(new)
}

/// Why the identities of a scope are others, if its preset tells.
fn cause(old: &str, new: &str) -> String {
    match (preset_of(old), preset_of(new)) {
        (Some((was, before)), Some((is, now))) if was == is && before != now => {
            format!("; the cause is the preset `{is}`: its version was {before}, and now it is {now}")
        }
        (Some((was, _)), Some((is, _))) if was != is => {
            format!("; the cause may be the preset: it was `{was}`, and now it is `{is}`")
        }
        (None, Some((is, now))) if now != "1" => {
            format!("; the cause may be the preset `{is}`, whose version is now {now}")
        }
        _ => String::new(),
    }
}

/// Whether a redelivery of every event that was claimed by the `old` line is found by the `new` one. It is if nothing
/// was removed: the keys of an old event are still looked up.
fn keeps_old_matches(old: &str, new: &str) -> bool {
    let identities = |line: &str| without_preset(line).split(", ").map(str::to_owned).collect::<BTreeSet<_>>();
    let (mut old, new) = (identities(old), identities(new));
    old.retain(|identity| !identity.starts_with(NEW_WHERE));
    if old.contains(EACH_SENDER) != new.contains(EACH_SENDER) {
        return false;
    }
    if new.contains(UNSIGNED) {
        old.retain(|identity| !IMPLIED.contains(&identity.as_str()));
    }
    old.is_subset(&new)
}

/// These recipes, as the store is to remember them, given those that it remembers now. A new line counts from `at` on;
/// `None`: there are no older events.
pub fn remembered(before: &[IdentityRecipe], now: Vec<IdentityRecipe>, at: Option<Timestamp>) -> Vec<IdentityRecipe> {
    let known = |new: &IdentityRecipe| {
        before.iter().find(|old| old.scope == new.scope && without_preset(&old.once) == without_preset(&new.once))
    };
    let since = |new: &IdentityRecipe| known(new).map_or(at, |old| old.since);
    now.into_iter().map(|new| IdentityRecipe { since: since(&new), ..new }).collect()
}

/// Sentences about what would act again because of a rename or another recipe.
pub fn changes(before: &[IdentityRecipe], now: &[IdentityRecipe]) -> Vec<String> {
    let changed = before.iter().filter_map(|old| match now.iter().find(|new| new.scope == old.scope) {
        None => Some(format!(
            "the store knows events of the scope `{}`, which no source has any more; if a source was renamed, set \
             scope = \"{}\" there, else a redelivery of them acts again",
            old.scope, old.scope
        )),
        Some(new) if is_other_version(&old.once, &new.once) => Some(format!(
            "the scope `{}` has another version of its preset{}; that changed what makes two deliveries the same: a \
             redelivery of an event claimed before may act again",
            old.scope,
            cause(&old.once, &new.once).replacen("; the cause is", ":", 1)
        )),
        Some(new) if !keeps_old_matches(&old.once, &new.once) => Some(format!(
            "`once` of the scope `{}` was: {}; now it is: {}{}; a redelivery of an event claimed before may act again",
            old.scope,
            without_preset(&old.once),
            without_preset(&new.once),
            cause(&old.once, &new.once)
        )),
        Some(_) => None,
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &[(&str, &str)], now: &[(&str, &str)], words: &[&str]) {
        let recipes = |all: &[(&str, &str)]| -> Vec<IdentityRecipe> {
            all.iter()
                .map(|(scope, once)| IdentityRecipe { scope: (*scope).into(), once: (*once).into(), since: None })
                .collect()
        };
        let told = changes(&recipes(before), &recipes(now));
        assert_eq!(told.len(), words.len(), "{told:?}");
        for (sentence, word) in told.iter().zip(words) {
            assert!(sentence.contains(word), "{sentence} does not say {word}");
        }
    }

    #[test]
    fn a_renamed_source_and_another_recipe_are_reported_and_nothing_else_is() {
        check(&[("a", "body")], &[("a", "body")], &[]);
        check(&[], &[("a", "body")], &[]);
        check(&[("a", "body")], &[("b", "body")], &["scope = \"a\""]);
        check(&[("a", "body")], &[("a", "delivery")], &["was: body; now it is: delivery"]);
        check(&[("a", "x"), ("b", "y")], &[("b", "z")], &["scope = \"a\"", "was: y; now it is: z"]);
    }

    #[test]
    fn a_new_version_of_a_preset_is_named_as_the_cause() {
        let of = |once: &str, name: &str, version| {
            let recipe = IdentityRecipe { scope: "a".into(), once: once.into(), since: None };
            recipe.of_preset(name, version).once
        };
        let told = |old: &str, new: &str| check(&[("a", old)], &[("a", new)], &[]);
        told("body", &of("body", "stripe", 1));
        told(&of("body", "stripe", 1), "body");
        for (old, new, words) in [
            (
                of("body", "x", 1),
                of("body", "x", 2),
                "preset: the preset `x`: its version was 1, and now it is 2; that",
            ),
            (of("body", "x", 1), of("delivery", "x", 2), "the preset `x`: its version was 1, and now it is 2"),
            (of("body", "x", 1), of("delivery", "y", 1), "it was `x`, and now it is `y`"),
            (of("body", "x", 1), of("delivery", "x", 1), "was: body; now it is: delivery; a redelivery"),
            ("body".into(), of("delivery", "x", 2), "the preset `x`, whose version is now 2"),
            ("body".into(), of("delivery", "x", 1), "was: body; now it is: delivery; a redelivery"),
        ] {
            check(&[("a", &old)], &[("a", &new)], &[words]);
        }
        let line = of("body, change of a to b by c", "x", 1);
        let change = IdentityRecipe { scope: "a".into(), once: line, since: None }.change().expect("a change");
        assert_eq!((change.to, change.order), (vec!["b".to_owned()], Some("c".to_owned())));
    }

    #[test]
    fn a_recipe_that_only_grew_is_not_reported() {
        for (old, new) in [
            ("delivery with its body", "delivery with its body, body"),
            ("delivery with its body, message", "delivery with its body, message, body"),
            ("delivery with its body", "delivery with its body, time+body"),
            ("delivery with its body, body", "delivery with its body"),
            ("delivery", "delivery, hash"),
            ("delivery, for each sender", "delivery, hash, for each sender"),
        ] {
            check(&[("a", old)], &[("a", new)], &[]);
        }
        for (old, new) in [
            ("delivery with its body, body", "delivery"),
            ("body", "delivery"),
            ("delivery, hash", "delivery"),
            ("delivery", "delivery, for each sender"),
            ("body, change of a to b", "body, change of a to c"),
        ] {
            check(&[("a", old)], &[("a", new)], &["may act again"]);
        }
    }

    #[test]
    fn the_fields_of_a_change_are_read_from_its_line() {
        let change = |once: &str| IdentityRecipe { scope: "a".into(), once: once.into(), since: None }.change();
        let fields = |of: &[&str], to: &[&str], order: Option<&str>| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Some(ChangeFields { of: names(of), to: names(to), order: order.map(str::to_owned) })
        };
        assert_eq!(change("delivery with its body, body"), None);
        assert_eq!(
            change("body, change of package+tag to version_id+sha by at"),
            fields(&["package", "tag"], &["version_id", "sha"], Some("at"))
        );
        assert_eq!(change("body, change of a to b, for each sender"), fields(&["a"], &["b"], None));
    }

    #[test]
    fn a_new_recipe_counts_from_now_and_an_unchanged_one_from_when_it_began() {
        let recipe = |once: &str, since: Option<i64>| IdentityRecipe {
            scope: "a".into(),
            once: once.into(),
            since: since.map(Timestamp),
        };
        let (before, now) = ([recipe("body", Some(5))], Some(Timestamp(9)));
        assert_eq!(remembered(&before, vec![recipe("body", None)], now), before);
        assert_eq!(remembered(&before, vec![recipe("hash", None)], now), [recipe("hash", Some(9))]);
        let same = remembered(&before, vec![recipe("body", None).of_preset("x", 2)], now);
        assert_eq!(same, [recipe("body, preset x 2", Some(5))]);
        assert_eq!(remembered(&[], vec![recipe("body", None)], None), [recipe("body", None)]);
    }
}
