//! The text of a notification: what ended, where, why, and what to do. Short, without the body of the delivery.

use crate::decide::event::DeathCause;
use crate::decide::field::FieldValue;
use crate::decide::limits;
use crate::decide::notification::{EndDescription, NotificationKind};
use std::fmt;

/// A text in the markup of its target: the title, and some lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MessageText {
    pub(crate) title: String,
    pub(crate) lines: Vec<String>,
}

/// Makes a value safe in a target's markup.
pub(crate) type Escape = fn(&str) -> String;

impl MessageText {
    /// The text of this description.
    pub(crate) fn of(described: &EndDescription, escape: Escape) -> Self {
        let EndDescription { kind, event, source, route, .. } = described;
        let place = escape(&format!("{source}/{route}"));
        let test = if described.test { "[test] " } else { "" };
        let title = match kind {
            NotificationKind::Dead => format!("{test}{place}: dead ({})", escape(&described.cause)),
            NotificationKind::Rollback => format!("{test}{place}: rolled back"),
            NotificationKind::Done => format!("{test}{place}: done"),
            NotificationKind::Summary => {
                let more = described.more;
                let lines = vec![
                    format!(
                        "At most {} an hour are sent; the last hour had {more} more.",
                        limits::NOTIFICATIONS_PER_HOUR
                    ),
                    "See: hookonce list".to_owned(),
                ];
                return Self { title: format!("{test}hookonce: {more} more notifications"), lines };
            }
        };
        let fields = fields(described, escape);
        let what = (!fields.is_empty()).then_some(fields);
        let digest = described.digest.as_deref().map(|digest| format!("digest: {}", escape(digest)));
        let next = match kind {
            NotificationKind::Dead => format!("See: hookonce show {event}; run it again: hookonce replay {event}"),
            _ => format!("See: hookonce show {event}"),
        };
        let lines = what.into_iter().chain(digest).chain([reason(described, escape), next]);
        Self { title, lines: lines.collect() }
    }
}

impl fmt::Display for MessageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// The fields, as `name=value`.
fn fields(described: &EndDescription, escape: Escape) -> String {
    let shown = described.fields.iter().take(limits::NOTIFICATION_FIELDS_MAX).map(|(name, value)| {
        let value = match value {
            FieldValue::Text(text) | FieldValue::Number(text) => text,
            FieldValue::Bool(true) => "true",
            FieldValue::Bool(false) => "false",
        };
        let value: String = value.chars().take(limits::NOTIFICATION_VALUE_CHARS_MAX).collect();
        escape(&format!("{name}={value}"))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// How it ended, as a sentence.
pub(crate) fn reason(described: &EndDescription, escape: Escape) -> String {
    let words = match (described.kind, described.death_cause()) {
        (NotificationKind::Rollback, _) => match described.rollback_from {
            Some(from) => return format!("The last good deploy was put back, after {from} was not healthy."),
            None => "The last good deploy was put back",
        },
        (NotificationKind::Done, _) => "It is done",
        (_, Some(DeathCause::Failed)) => "It failed, and has no attempts left",
        (_, Some(DeathCause::Rejected)) => "It was rejected",
        (_, Some(DeathCause::InDoubt)) => "It is unknown whether it acted",
        (_, Some(DeathCause::Damaged)) => "What is stored is not what was received",
        (_, Some(DeathCause::Cancelled)) => "An operator cancelled it",
        (_, Some(DeathCause::OverBudget)) => "Its route had no budget left for it",
        (_, Some(DeathCause::Unhealthy)) => "What it deployed is not healthy",
        (_, None) => "It has ended",
    };
    match &*described.why {
        "" => format!("{words}."),
        why => format!("{words}: {}", escape(why)),
    }
}

/// Without control characters: a value never begins a line of its own.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The same for Slack, where these three characters begin links and mentions.
pub(crate) fn escape_slack(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The same for Discord's Markdown.
pub(crate) fn escape_discord(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        if "\\*_~`|>#[]()<@:".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_no_markup_and_no_line() {
        let hostile = "a\n<!channel> & *b*\r\u{1b}[31m@everyone";
        assert_eq!(plain(hostile), "a <!channel> & *b*  [31m@everyone");
        assert_eq!(escape_slack(hostile), "a &lt;!channel&gt; &amp; *b*  [31m@everyone");
        assert_eq!(escape_discord(hostile), "a \\<!channel\\> & \\*b\\*  \\[31m\\@everyone");
    }
}
