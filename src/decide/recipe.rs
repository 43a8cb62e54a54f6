//! What a scope's identities are made of, in one line, so that a store can remember it and a change is noticed before
//! it makes old events new.

use super::field::FieldIx;
use super::source::{Identity, Source, Speaks};
use super::verify::Scheme;
use std::fmt::Write as _;

/// A scope and what its identities are made of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Recipe {
    /// The scope: the source's name, unless the config keeps an old one.
    pub scope: String,
    /// Its identities, in one line.
    pub once: String,
}

impl Source {
    /// What this source's identities are made of.
    pub fn recipe(&self) -> Recipe {
        let names = |fields: &[FieldIx]| {
            let names: Vec<_> = fields.iter().map(|ix| &*self.fields.get(*ix).name).collect();
            names.join("+")
        };
        let signed = self.delivery.as_ref().is_some_and(|delivery| delivery.signed);
        let identities = self.once.per.iter().map(|identity| match identity {
            Identity::Delivery if signed => "delivery".to_owned(),
            Identity::Delivery => "delivery with its body".to_owned(),
            Identity::Message => "message".to_owned(),
            Identity::Body => "body".to_owned(),
            Identity::Named(fields) => names(fields),
        });
        let mut once = identities.collect::<Vec<_>>().join(", ");
        if let Some(change) = &self.once.change {
            // Writing to a string cannot fail.
            let _ = write!(once, ", change of {} to {}", names(&change.of), names(&change.to));
            if let Some(order) = change.order {
                let _ = write!(once, " by {}", names(&[order]));
            }
        }
        if matches!(self.verify, Scheme::Callers(_)) || self.speaks == Speaks::Api {
            once.push_str(", for each sender");
        }
        Recipe { scope: self.scope.to_string(), once }
    }
}

/// What would act again because of a rename or another recipe, a sentence each.
pub fn changes(before: &[Recipe], now: &[Recipe]) -> Vec<String> {
    let changed = before.iter().filter_map(|old| match now.iter().find(|new| new.scope == old.scope) {
        None => Some(format!(
            "the store knows events of the scope `{}`, which no source has any more; if a source was renamed, set \
             scope = \"{}\" there, else a redelivery of them acts again",
            old.scope, old.scope
        )),
        Some(new) if new.once != old.once => Some(format!(
            "`once` of the scope `{}` was: {}; now it is: {}; a redelivery of an event claimed before may act again",
            old.scope, old.once, new.once
        )),
        Some(_) => None,
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: &[(&str, &str)], now: &[(&str, &str)], words: &[&str]) {
        let recipes = |all: &[(&str, &str)]| -> Vec<Recipe> {
            all.iter().map(|(scope, once)| Recipe { scope: (*scope).into(), once: (*once).into() }).collect()
        };
        let told = changes(&recipes(before), &recipes(now));
        assert_eq!(told.len(), words.len(), "{told:?}");
        for (sentence, word) in told.iter().zip(words) {
            assert!(sentence.contains(word), "{sentence} does not say {word}");
        }
    }

    #[test]
    fn a_renamed_source_and_another_recipe_are_told_and_nothing_else_is() {
        check(&[("a", "body")], &[("a", "body")], &[]);
        check(&[], &[("a", "body")], &[]);
        check(&[("a", "body")], &[("b", "body")], &["scope = \"a\""]);
        check(&[("a", "body")], &[("a", "delivery")], &["was: body; now it is: delivery"]);
        check(&[("a", "x"), ("b", "y")], &[("b", "z")], &["scope = \"a\"", "was: y; now it is: z"]);
    }
}
