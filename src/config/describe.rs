//! Descriptions of a config in plain text, for `check`, `explain` and the admin port.

use super::StoreAddress;
use crate::action::plan::EnvEntry;
use crate::decide::event::Retrier;
use crate::decide::field::FieldIndex;
use crate::decide::source::{
    ChangeRule, Group, Identity, InDoubtPolicy, RedeliveryPolicy, Route, Source, TimeoutAccounting,
};
use crate::decide::time::Duration;
use crate::decide::time::duration_text;
use std::io::{self, Write};

/// Prints one line: a label and a text.
pub(crate) fn line(out: &mut impl Write, indent: &str, name: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{}", format!("{indent}{name:<11}{text}").trim_end())
}

/// Prints a label once, and each text on its own line.
pub(crate) fn lines(out: &mut impl Write, indent: &str, name: &str, texts: &[String]) -> io::Result<()> {
    texts.iter().enumerate().try_for_each(|(i, text)| line(out, indent, if i == 0 { name } else { "" }, text))
}

/// Where events are kept.
pub(crate) fn store_text(store: &StoreAddress) -> String {
    match store {
        StoreAddress::Memory => "memory: (lost when the node stops)".to_owned(),
        other => other.to_string(),
    }
}

/// An identity in words; an implied one says why.
pub(crate) fn identity_text(source: &Source, identity: &Identity) -> String {
    let text = written_text(source, identity);
    if source.once.implied.as_ref() == Some(identity) {
        return format!("{text}, implied: the signature does not cover the delivery id");
    }
    text
}

fn written_text(source: &Source, identity: &Identity) -> String {
    match identity {
        Identity::Delivery => match &source.delivery {
            Some(id) if id.signed => format!("the delivery id ({})", id.at),
            Some(id) => format!("the delivery id ({}) with the body's digest, since the id is not signed", id.at),
            None => "the delivery id".to_owned(),
        },
        Identity::Message => "the message: its stream, its number there, and when it was stored".to_owned(),
        Identity::Body => "the body".to_owned(),
        Identity::Signed => "the signed time and the body".to_owned(),
        Identity::Named(fields) => names(source, fields),
    }
}

/// A change in words.
pub(crate) fn change_text(source: &Source, change: &ChangeRule) -> String {
    let order = match change.order {
        Some(ix) => format!("ordered by {}", source.fields.get(ix).name),
        None => "in the order of arrival".to_owned(),
    };
    format!("a change of {} to {}, {order}", names(source, &change.of), names(source, &change.to))
}

/// Field names joined by `+`.
pub(crate) fn names(source: &Source, fields: &[FieldIndex]) -> String {
    let names: Vec<_> = fields.iter().map(|ix| &*source.fields.get(*ix).name).collect();
    names.join(" + ")
}

/// The name of a variable; its value may be a secret.
pub(crate) fn env_name(entry: &EnvEntry) -> &str {
    match entry {
        EnvEntry::Pass(name) | EnvEntry::Set(name, _) => name,
    }
}

/// What happens when nobody knows whether an attempt acted, and how often at most.
pub(crate) fn in_doubt_text(route: &Route) -> String {
    let limit = match (route.doubts_max(Retrier::Sender), route.doubts_max(Retrier::Node)) {
        (sender, node) if sender == node => node.to_string(),
        (sender, node) => format!("{sender} (after a 202: {node})"),
    };
    let lost = match route.timeouts {
        TimeoutAccounting::Attempts => "a crash, a lost lease or a broken connection",
        TimeoutAccounting::Doubts => "a crash, a lost lease, a broken connection or a timeout",
    };
    match route.in_doubt {
        InDoubtPolicy::Retry => format!("retry, at most {limit} attempts lost to {lost}"),
        InDoubtPolicy::Hold => "hold after the first attempt lost or timed out".to_owned(),
        InDoubtPolicy::Never => format!("never; at most {limit} attempts lost to a crash or a lost lease"),
    }
}

/// What a repeat of an ended event does.
pub(crate) fn redelivery_text(redelivery: RedeliveryPolicy) -> String {
    match redelivery {
        RedeliveryPolicy::Ignore => "ignore".to_owned(),
        RedeliveryPolicy::Retry { same_after, other_after } => retry_text(same_after, other_after),
        RedeliveryPolicy::Again { same_after, other_after, published_after } => format!(
            "publish it again: the same delivery after {}; {}",
            duration_text(published_after),
            retry_text(same_after, other_after)
        ),
    }
}

fn retry_text(same_after: Duration, other_after: Duration) -> String {
    format!(
        "retry a dead event: the same delivery after {}, another after {}",
        duration_text(same_after),
        duration_text(other_after)
    )
}

/// The group of a route in words.
pub(crate) fn group_text(source: &Source, route: &Route) -> String {
    match &route.group {
        None => "none: events may overlap".to_owned(),
        Some(Group::Fixed(name)) => format!("{name:?}, one at a time"),
        Some(Group::Fields(fields)) => format!("one at a time per {}", names(source, fields)),
    }
}
