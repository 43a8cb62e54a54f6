//! Twilio's signature: the header, the query that is signed with it, and the form whose values are joined.
#![no_main]

use hookonce::decide::verify::{TwilioScheme, VerificationScheme};
use hookonce_fuzz::{check_refused, secrets};
use libfuzzer_sys::fuzz_target;

const SIGNATURE: &[u8] = b"RSOYDt4T1cUTdK1PDd93/VVr8B8=";
const FORM: &[u8] = b"AccountSid=AC1&Body=hello&From=%2B15005550006";

fuzz_target!(|input: &[u8]| {
    let url = "https://hooks.example.com/in/twilio?a=1".to_owned();
    let scheme = VerificationScheme::new(TwilioScheme { secrets: secrets(), url });
    let text = String::from_utf8_lossy(input);
    check_refused(&scheme, &[("x-twilio-signature", input)], "a=1", FORM);
    check_refused(&scheme, &[("x-twilio-signature", SIGNATURE)], &text, FORM);
    check_refused(&scheme, &[("x-twilio-signature", SIGNATURE)], &format!("a=1&bodySHA256={text}"), FORM);
    check_refused(&scheme, &[("x-twilio-signature", SIGNATURE)], "a=1", input);
});
