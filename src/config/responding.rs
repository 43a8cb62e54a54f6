//! When the sender of a source gets its response, and with which status.

use super::Provenance;
use super::once::provenance;
use super::raw::ConfigSpan;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::source::{AcceptedStatus, ApiStyle, ResponseMode, Source};
use crate::decide::time::{Duration, duration_text};

const RESPOND_WITHIN: Duration = Duration::from_secs(8);

impl ConfigResolver<'_> {
    /// When the sender gets its response.
    pub(super) fn respond(&mut self, section: &ConfigSection<'_>) -> ResponseMode {
        if section.has("from") || section.has("poll") {
            return ResponseMode::Accepted;
        }
        let within = self.positive(section, "respond_within");
        if section.text("respond") == Some("done") {
            return ResponseMode::WhenDone { within: within.unwrap_or(RESPOND_WITHIN) };
        }
        if section.has("respond_within") {
            self.diagnostics
                .warning("`respond_within` has no effect")
                .unless(self.unread.preset || section.misspells("respond"))
                .at(section.key_place("respond_within"), "the sender gets its response as soon as the event is stored")
                .hint("respond = \"done\" makes the sender wait");
        }
        ResponseMode::Accepted
    }

    /// The status for stored events. A preset's is for senders that do not wait for the end.
    pub(super) fn accepted_status(&mut self, section: &ConfigSection<'_>, respond: ResponseMode) -> AcceptedStatus {
        let Some(node) = section.node("accepted_status") else { return AcceptedStatus::default() };
        if respond != ResponseMode::Accepted {
            if provenance(node.at) == Provenance::Written {
                self.diagnostics
                    .error("`accepted_status` and respond = \"done\" cannot be combined")
                    .at(section.key_place("accepted_status"), "a sender that waits for the end gets its status")
                    .hint("remove one of them");
            }
            return AcceptedStatus::default();
        }
        match section.count("accepted_status") {
            Some(200) => AcceptedStatus::Ok,
            Some(204) => AcceptedStatus::NoContent,
            _ => AcceptedStatus::Accepted,
        }
    }

    /// Warns about settings for kept responses if the sender does not wait for one.
    pub(super) fn only_when_done(&mut self, section: &ConfigSection<'_>, respond: ResponseMode) {
        if respond != ResponseMode::Accepted {
            return;
        }
        let once = section.section("once");
        let marks = section.has("mark_duplicates").then(|| ("mark_duplicates", section.key_place("mark_duplicates")));
        let keeps = once.filter(|once| once.has("keep_failures"));
        let keeps = keeps.map(|once| ("keep_failures", once.key_place("keep_failures")));
        // Presets are written for HTTP.
        let told = |at: ConfigSpan| !section.has("from") || provenance(at) == Provenance::Written;
        for (key, at) in marks.into_iter().chain(keeps).filter(|(_, at)| told(*at)) {
            self.diagnostics
                .warning(format!("`{key}` has no effect"))
                .unless(self.unread.preset || section.misspells("respond"))
                .at(at, "the sender gets its response as soon as the event is stored")
                .hint("respond = \"done\" makes the sender wait for a response, and keeps it");
        }
    }
}

/// The status for stored events, if a sender waits for it.
pub(super) fn accepted_status(source: &Source) -> Option<AcceptedStatus> {
    (source.intake.listens() && source.respond == ResponseMode::Accepted).then_some(source.accepted_status)
}

/// When the sender gets its response, in words.
pub(super) fn respond_text(source: &Source) -> String {
    let ResponseMode::WhenDone { within } = source.respond else {
        let status = accepted_status(source).map(|status| format!(", with {}", status.code()));
        return format!("when the event is stored{}", status.unwrap_or_default());
    };
    let mut text = format!("when it is done, within {}", duration_text(within));
    if source.mark_duplicates {
        text += ", duplicates marked with isDuplicate";
    }
    if source.once.keep_failures {
        text += ", failures kept";
    }
    if source.api_style == ApiStyle::Api {
        text += ", problems as application/problem+json";
    }
    text
}
