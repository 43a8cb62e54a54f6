//! `path`: where the deliveries of a source arrive.

use super::presets::SenderFacts;
use super::raw::ConfigNode;
use super::resolve::ConfigResolver;
use super::section::ConfigSection;
use crate::decide::field::FieldLocation;
use crate::decide::ingest_path::IngestPath;
use crate::decide::limits;
use crate::decide::response::problem_json::PAGE_PATH;
use crate::decide::verify::VerificationScheme;

/// Paths that the node serves itself.
const OWN_PATHS: [&str; 3] = ["/healthz", "/readyz", PAGE_PATH];

impl ConfigResolver<'_> {
    /// The path of a source.
    pub(super) fn path(
        &mut self,
        name: &str,
        section: &ConfigSection<'_>,
        sender: Option<&SenderFacts>,
        scheme: Option<&VerificationScheme>,
    ) -> IngestPath {
        let written = section.node("path");
        // The path is all that protects the source, unless the config verifies deliveries in another way.
        let needs_path = |sender: &&SenderFacts| sender.needs.iter().any(|key| key == "path");
        let sender = sender.filter(needs_path).filter(|_| scheme.is_none_or(VerificationScheme::is_none));
        if let Some(node) = written.filter(|node| node.table().is_some()) {
            self.never_read();
            return self.secret_path(name, node);
        }
        let Some((path, at)) = written.and_then(|node| Some((node.text()?, node.at))) else {
            if let Some(sender) = sender {
                self.diagnostics
                    .error(format!("source `{name}` needs a `path` that cannot be guessed"))
                    .unless(section.has("path") || section.misspells("path"))
                    .at(section.at, format!("{} signs nothing", sender.name))
                    .hint("path = { env = \"NAME\" }, with a long random word in it");
            }
            return IngestPath::open(&format!("/in/{name}"));
        };
        if let Some(wrong) = unusable(path) {
            self.diagnostics.error(format!("`{path}` cannot be a path")).at(at, wrong);
        } else if let Some((sender, why)) = sender.zip(guessable(name, path)) {
            self.diagnostics
                .error(format!("source `{name}` needs a `path` that cannot be guessed: {} signs nothing", sender.name))
                .at(at, why)
                .hint(format!("path = {{ env = \"NAME\" }}; make one with: echo /in/{name}/$(openssl rand -hex 16)"));
        }
        IngestPath::open(path)
    }

    /// Reports where a secret path is read from a delivery: it would be logged, stored and passed on.
    fn never_read(&mut self) {
        for (_, at) in self.places.iter().filter(|(place, _)| *place == FieldLocation::Path) {
            self.diagnostics
                .error("`path` is a secret of this source, and cannot be read from a delivery")
                .at(*at, "it must not be logged, stored or passed on")
                .hint("use a value that is not a secret");
        }
    }

    /// A path from outside of the config file: a secret, so that no message contains it.
    fn secret_path(&mut self, name: &str, node: &ConfigNode) -> IngestPath {
        let Some(secret) = self.credential("path", node) else { return IngestPath::unknown() };
        let secret = String::from_utf8_lossy(secret.expose());
        let path = secret.strip_suffix('\n').unwrap_or(&secret);
        let path = path.strip_suffix('\r').unwrap_or(path);
        let most = limits::SECRET_PATH_BYTES_MAX;
        let too_long = || (path.len() > most).then(|| format!("it is longer than {most} characters"));
        let wrong = unusable(path).map(str::to_owned).or_else(|| guessable(name, path)).or_else(too_long);
        let Some(wrong) = wrong else { return IngestPath::secret(path) };
        self.diagnostics
            .error("the value of `path` cannot be a secret path")
            .at(node.at, wrong)
            .hint(format!("make one with: echo /in/{name}/$(openssl rand -hex 16)"));
        IngestPath::unknown()
    }
}

/// Why the path of this source would be no secret.
fn guessable(name: &str, path: &str) -> Option<String> {
    let least = limits::SECRET_BYTES_MIN;
    // What everyone would try first protects nothing.
    let random = path.strip_prefix(&format!("/in/{name}")).unwrap_or(path);
    (random.len() < least).then(|| format!("it could be guessed: {least} characters are needed, after /in/{name}"))
}

/// Why nothing could be received on this path.
fn unusable(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        Some("it must begin with /")
    } else if OWN_PATHS.contains(&path) {
        Some("hookonce uses this path itself")
    } else if path.chars().any(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#')) {
        Some("a path is ASCII without spaces, ? and #")
    } else {
        None
    }
}
