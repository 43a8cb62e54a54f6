//! What a config says is signed, and where something is: a place is read as it is written.
#![no_main]

use hookonce::decide::field::FieldLocation;
use hookonce::decide::verify::{SignedText, TimestampFormat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    for format in
        [None, Some(TimestampFormat::Seconds), Some(TimestampFormat::Milliseconds), Some(TimestampFormat::Rfc3339)]
    {
        let _ = SignedText::parse(&text, format);
    }
    if let Ok(place) = FieldLocation::parse(&text) {
        assert_eq!(FieldLocation::parse(&place.to_string()), Ok(place));
    }
});
