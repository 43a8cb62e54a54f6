//! Schemes of one sender each, which no description fits: Adyen's and Twilio's.

use super::resolve::ConfigResolver;
use super::verify::SchemeInput;
use crate::decide::verify::{AdyenScheme, TwilioBodies, TwilioScheme, VerificationScheme};

impl ConfigResolver<'_> {
    pub(super) fn adyen(&mut self, input: &SchemeInput<'_>) -> Option<VerificationScheme> {
        let made = AdyenScheme::new(&input.secrets).map_err(|why| {
            self.diagnostics.error("the secret is not an HMAC key of Adyen").at(input.secret_place(input.at), why);
        });
        made.ok().map(VerificationScheme::new)
    }

    pub(super) fn twilio(&mut self, input: &SchemeInput<'_>, bodies: TwilioBodies) -> Option<VerificationScheme> {
        let url = self.required_url(input)?;
        Some(VerificationScheme::new(TwilioScheme { secrets: input.secrets(), url, bodies }))
    }
}
