//! The schemes with a token: where it is, and in which form.

use super::Provenance;
use super::once::provenance;
use super::resolve::ConfigResolver;
use super::verify::SchemeInput;
use crate::decide::field::FieldLocation;
use crate::decide::verify::VerificationScheme;

impl ConfigResolver<'_> {
    pub(super) fn token(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let Some(node) = input.keys.node("at").filter(|_| input.described) else {
            self.diagnostics
                .error("scheme `token` needs the place of the token")
                .unless(input.described && input.keys.misspells("at"))
                .at(input.at, "`at` is missing")
                .hint("verify = { scheme = \"token\", secret = …, at = \"header.x-token\" }");
            return None;
        };
        let each = input.each;
        let at = self.content_place(node, each);
        if matches!(at, FieldLocation::Outer(_)) {
            self.diagnostics
                .error("a token cannot be around the elements")
                .at(node.at, "with `each`, the token of a body is in each element")
                .hint("at = \"body.token\", which every element must have");
        }
        if at == FieldLocation::Path {
            self.diagnostics
                .error("a token cannot be in the path")
                .at(node.at, "a source has one path")
                .hint("at = \"header.x-token\", \"query.token\" or \"body.token\"");
        }
        let written = provenance(node.at) == Provenance::Written;
        let kept = input.source.section("once").and_then(|once| once.text("keep_body")) != Some("0s");
        if at.body_path().is_some() && (written || kept) {
            let place = if written { node.at } else { input.source.place("preset") };
            let instead = if written { "at = \"header.x-token\", if the sender can; otherwise " } else { "" };
            self.diagnostics
                .warning("the token is in the body, so it is stored and passed on with it")
                .at(place, "whoever sees a body can send as its sender")
                .hint(format!("{instead}keep_body = \"0s\" in `once` removes each body when its event is done"));
        }
        let scheme = match (each, &at) {
            (Some(each), FieldLocation::Body(_)) => {
                VerificationScheme::token_in_elements(input.secrets(), at, each.to_vec())
            }
            _ => VerificationScheme::token(input.secrets(), at),
        };
        Some(self.receivable(input, scheme))
    }

    /// Reports a token that no delivery can bring.
    fn receivable(&mut self, input: &SchemeInput<'_>, scheme: VerificationScheme) -> VerificationScheme {
        if let Err(why) = scheme.with_secrets(input.secrets.clone()) {
            self.diagnostics
                .error(format!("the secret of scheme `{}` can never match", input.name))
                .at(input.secret_place(input.at), why);
        }
        scheme
    }

    pub(super) fn bearer(&mut self, input: &SchemeInput<'_>) -> VerificationScheme {
        let node = if input.described { input.keys.node("query") } else { None };
        let scheme = match node.and_then(|node| Some((node.text()?, node.at))) {
            Some(("", at)) => {
                self.diagnostics.error("`query` is empty").at(at, "the name of a parameter is needed");
                VerificationScheme::bearer(input.secrets())
            }
            Some((name, _)) => VerificationScheme::bearer_or_query(input.secrets(), name),
            None => VerificationScheme::bearer(input.secrets()),
        };
        self.receivable(input, scheme)
    }

    pub(super) fn basic(&mut self, input: &SchemeInput<'_>) -> VerificationScheme {
        if input.secrets.iter().any(|secret| !secret.contains(&b':')) {
            self.diagnostics
                .error("the secret of scheme `basic` is not a user and a password")
                .at(input.secret_place(input.at), "it has no colon, so it can never match")
                .hint("write both into the secret: user:password");
        }
        VerificationScheme::basic(input.secrets())
    }
}
