use super::*;
use crate::decide::verify::signed_text::SignedParts;
use proptest::prelude::*;

const UUID: &str = "e76c6bd4-55c9-4987-8304-da1588d8988b";

/// The pieces of a template, written back.
fn parsed(text: &str, time: Option<TimestampFormat>) -> Result<String, String> {
    SignedText::parse(text, time).map(|parsed| format!("{parsed:?}"))
}

fn check_refused(text: &str, time: Option<TimestampFormat>, expected: &str) {
    let error = parsed(text, time).expect_err(text);
    assert!(error.contains(expected), "{text}: {error}");
}

#[test]
fn a_signature_template_is_parsed_or_rejected_with_a_reason() {
    for fine in ["{body}", "v0:{timestamp}:{body}", "{id}.{body}}", "{url}{body}", "{body}{url}", "{method}{url}{body}"]
    {
        assert!(parsed(fine, None).is_ok(), "{fine}");
    }
    check_refused("{timestamp}{body}", None, "side by side");
    check_refused("{timestamp}{id}.{body}", None, "side by side");
    check_refused("{body}{timestamp}", None, "follows `{body}`");
    check_refused("{body}.{timestamp}", None, "follows `{body}`");
    check_refused("{body}.{body}", None, "`{body}` is there twice");
    check_refused("{timestamp}{id}", None, "side by side");
    check_refused("{id}{timestamp}", None, "follows `{id}`");
    for without in ["", "{timestamp}", "{url}", "{id}.{id}"] {
        check_refused(without, Some(TimestampFormat::Seconds), "without `{body}`");
    }
    check_refused("{bdy}", None, "did you mean `{body}`?");
    check_refused("{uri}{body}", None, "`{uri}` is not one of");
    check_refused("{body}.{id", None, "has no `}`");
}

#[test]
fn a_time_of_known_shape_may_touch_what_is_beside_it() {
    for format in [TimestampFormat::Seconds, TimestampFormat::Milliseconds, TimestampFormat::Rfc3339] {
        for fine in
            ["{timestamp}{body}", "{body}{timestamp}", "{method}{url}{body}{timestamp}", "{id}{timestamp}{body}"]
        {
            assert!(parsed(fine, Some(format)).is_ok(), "{fine}");
        }
    }
}

#[test]
fn a_template_without_a_body_leaves_the_rest_to_the_id() {
    let format = TimestampFormat::Seconds;
    for fine in ["{timestamp}{id}", "{id}{timestamp}", "{timestamp}.{id}", "a{timestamp}b{id}c"] {
        let text = SignedText::parse(fine, Some(format)).expect(fine);
        let signed = joined(&text, format, "1token", "1614265330", b"{}").expect(fine);
        // Any other time of this shape with any other id is another text.
        for (id, time) in [("token", "1614265330"), ("11token", "1614265330"), ("1token", "6142653301")] {
            assert_ne!(joined(&text, format, id, time, b"{}"), Some(signed.clone()), "{fine}: {time} {id}");
        }
        assert_eq!(joined(&text, format, "1token", "16142653301", b"{}"), None);
        assert_eq!(joined(&text, format, "", "1614265330", b"{}"), None);
    }
}

/// The signed bytes of these parts, joined.
fn joined(text: &SignedText, format: TimestampFormat, id: &str, timestamp: &str, body: &[u8]) -> Option<Vec<u8>> {
    format.parse(timestamp)?;
    let parts = SignedParts { id, timestamp, url: "https://a.example/in", decoded_url: "https://a.example/in", body };
    text.message(parts, Some(format)).map(|message| message.concat())
}

#[test]
fn a_shape_is_exact() {
    let good = [
        (TimestampFormat::Seconds, "1614265330"),
        (TimestampFormat::Milliseconds, "1614265330000"),
        (TimestampFormat::Rfc3339, "2021-02-25T15:02:10Z"),
        (TimestampFormat::Rfc3339, "2021-02-25T16:02:10+01:00"),
    ];
    for (format, text) in good {
        assert_eq!(format.parse(text), Some(AT), "{text}");
        assert_eq!(format.parse(&format.write(AT)), Some(AT), "{format:?}");
    }
    assert!(TimestampFormat::Rfc3339.parse("2021-02-25T15:02:10.123456789Z").is_some());
    for format in [TimestampFormat::Seconds, TimestampFormat::Milliseconds, TimestampFormat::Rfc3339] {
        for other in [
            "",
            "161426533",
            "16142653300",
            "161426533000",
            "-161426533",
            "+161426533",
            " 1614265330",
            "161426533x",
            "１614265330",
            "2021-02-25t15:02:10Z",
            "2021-02-25 15:02:10Z",
            "2021-02-25T15:02:10z",
            "2021-02-25T15:02:10",
            "2021-02-25T15:02:10.Z",
            "2021-02-25T15:02:10ZZ",
            "2021-02-25T15:02Z",
            "2021-02-25T15:02:10+0100",
            "2021-02-25T15:02:10Z[UTC]",
            "2021-13-25T15:02:10Z",
            "+002021-02-25T15:02:10Z",
        ] {
            assert_eq!(format.parse(other), None, "{format:?} {other:?}");
        }
    }
}

#[test]
fn an_id_beside_another_part_must_be_a_uuid() {
    let text = SignedText::parse("{id}{timestamp}{body}", Some(TimestampFormat::Seconds)).expect("a template");
    let time = "1614265330";
    assert!(joined(&text, TimestampFormat::Seconds, UUID, time, b"{}").is_some());
    for other in ["", "a", &UUID[1..], &format!("{UUID}0"), &UUID.replace('-', "0"), &UUID.replace('e', "x")] {
        assert_eq!(joined(&text, TimestampFormat::Seconds, other, time, b"{}"), None, "{other}");
    }
}

#[test]
fn an_id_before_an_rfc3339_time_may_be_any_text_without_a_colon() {
    let twitch = SignedText::parse("{id}{timestamp}{body}", Some(TimestampFormat::Rfc3339)).expect("a template");
    let time = "2021-02-25T15:02:10.123456789Z";
    for id in [UUID, "a", "YKOeTtmLzRxIYLfHzWXCzQKtK8tl9VvqCkTVV2FwmUs=", "2021-02-25T15"] {
        assert!(joined(&twitch, TimestampFormat::Rfc3339, id, time, b"{}").is_some(), "{id}");
    }
    for id in ["", "a:b", &format!("{UUID}{time}")] {
        assert_eq!(joined(&twitch, TimestampFormat::Rfc3339, id, time, b"{}"), None, "{id}");
    }
}

/// A time of some shape, or something that looks like one.
fn stamp() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{9,14}",
        "20[0-9]{2}-0[1-9]-1[0-9]T0[0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]0[0-9]:[0-5][0-9])",
        "[0-9TZ:.+-]{0,32}",
    ]
}

proptest! {
    #![proptest_config(crate::seed::cases(2_000))]

    /// What the templates promise: the joined text has one split, wherever its bytes are cut.
    #[test]
    fn a_signed_text_has_one_split(stamp in stamp(), id in prop_oneof![Just(UUID.to_owned()), "[0-9a-f-]{0,40}", "[0-9TZ:.+-]{0,24}", "20[0-9]{2}-0[1-9]-1[0-9](T0[0-9])?"], body in "[0-9TZ:.+{}-]{0,40}") {
        for format in [TimestampFormat::Seconds, TimestampFormat::Milliseconds, TimestampFormat::Rfc3339] {
            for template in ["{timestamp}{body}", "{body}{timestamp}", "{id}{timestamp}{body}", "{timestamp}.{body}", "{body}{id}"] {
                let text = SignedText::parse(template, Some(format)).expect("a template");
                let Some(whole) = joined(&text, format, &id, &stamp, body.as_bytes()) else { continue };
                // Every other way to cut the same bytes into an id, a time and a body of the same template.
                let whole = String::from_utf8(whole).expect("ASCII");
                let cuts = || 0..=whole.len();
                for (a, b) in cuts().flat_map(|a| cuts().map(move |b| (a, b))).filter(|(a, b)| a <= b) {
                    let (first, second, third) = (&whole[..a], &whole[a..b], &whole[b..]);
                    let (other_id, other_stamp, other_body) = match template {
                        "{timestamp}{body}" => (&*id, first, &whole[a..]),
                        "{body}{timestamp}" => (&*id, &whole[a..], first),
                        "{id}{timestamp}{body}" => (first, second, third),
                        "{timestamp}.{body}" => (&*id, first, whole.get(a + 1..).unwrap_or_default()),
                        _ => (&whole[a..], &*stamp, first),
                    };
                    let other = joined(&text, format, other_id, other_stamp, other_body.as_bytes());
                    if other.as_deref() == Some(whole.as_bytes()) {
                        let signed_stamp = if template.contains("timestamp") { other_stamp } else { &*stamp };
                        let signed_id = if template.contains("id") { other_id } else { &*id };
                        prop_assert_eq!((signed_id, signed_stamp, other_body), (&*id, &*stamp, &*body), "{}", template);
                    }
                }
            }
        }
    }
}
