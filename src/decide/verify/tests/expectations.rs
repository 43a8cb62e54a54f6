use super::*;

/// Stripe's signature, with its time in the same header.
fn stripe() -> VerificationScheme {
    VerificationScheme::new(DescribedSignature {
        entries: Some(SignatureEntries { signature: "v1".into(), separator: ',' }),
        timestamp: Some(TimestampLocation::Entry("t".into())),
        timestamp_format: Some(TimestampFormat::Seconds),
        over: SignedText::parse("{timestamp}.{body}", None).expect("a template"),
        ..DescribedSignature::hmac("stripe-signature", secrets(&[b"a secret"]))
    })
}

const EXPECTED: &str =
    "expected header stripe-signature with the entries t and v1 (hex, 64 digits) over {timestamp}.{body}";

/// What is told of a delivery with these headers.
fn told(scheme: &VerificationScheme, headers: &[(&str, &str)]) -> String {
    let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
    let body = Bytes::from_static(b"{}");
    let headers = borrow_headers(&headers);
    let delivery = Delivery { path: "", query: "", headers: &headers, body: &body, at: AT, wall: AT };
    assert!(scheme.verify(&delivery).is_err(), "{headers:?}");
    scheme.expectation(&delivery).expect("it tells")
}

#[test]
fn each_part_of_a_signature_that_is_missing_is_named() {
    let (digits, short) = ("0".repeat(64), "0".repeat(40));
    let now = AT.0.div_euclid(1_000_000);
    let with = |signature: &str| format!("t={now},v1={signature}");
    for (header, found) in [
        (format!("t={now}"), "no entry v1".to_owned()),
        (format!("t={now},v0={digits}"), "no entry v1".to_owned()),
        (with("no hex"), "no signature of the form hex".to_owned()),
        (with(&short), "a signature of another length".to_owned()),
        (format!("v1={digits}"), "no entry t, or more than one".to_owned()),
        (format!("t=1,t=2,v1={digits}"), "no entry t, or more than one".to_owned()),
        (format!("t=soon,v1={digits}"), "a time of another form (seconds)".to_owned()),
        (format!("t={},v1={digits}", now - 720), "a time that is 12m ago, at most 5m".to_owned()),
        (format!("t={},v1={digits}", now + 3_600), "a time that is 1h ahead, at most 5m".to_owned()),
        (String::new(), "an empty header".to_owned()),
        (with(&digits), "a signature of other bytes, or with another secret".to_owned()),
        (["v1=00"; 200].join(","), format!("more than {} entries", crate::decide::limits::SIGNATURES_MAX)),
    ] {
        assert_eq!(
            told(&stripe(), &[("stripe-signature", &header)]),
            format!("{EXPECTED}; found: {found}"),
            "{header}"
        );
    }
    assert_eq!(told(&stripe(), &[]), format!("{EXPECTED}; found: no such header"));
    let twice = [("stripe-signature", &*digits), ("stripe-signature", &*digits)];
    assert_eq!(told(&stripe(), &twice), format!("{EXPECTED}; found: the header more than once"));
}

#[test]
fn other_schemes_tell_it_too() {
    let github = VerificationScheme::github(secrets(&[b"a secret"]));
    let expected = "expected header x-hub-signature-256 with sha256= and 64 hex digits over {body}";
    for (header, found) in [
        ("sha1=00", "no sha256= at its beginning"),
        ("sha256=xy", "digits that are not hex"),
        ("sha256=00", "2 digits"),
    ] {
        assert_eq!(told(&github, &[("x-hub-signature-256", header)]), format!("{expected}; found: {found}"));
    }
    let standard = VerificationScheme::standard_webhooks(&[STANDARD_SECRET.to_vec()], FIVE_MINUTES).expect("a secret");
    let now = AT.0.div_euclid(1_000_000).to_string();
    let headers = [("webhook-id", "a"), ("webhook-timestamp", &*now), ("webhook-signature", "v1a,x")];
    assert!(told(&standard, &headers).ends_with("found: no whole v1 signature"));
    assert!(told(&standard, &headers[..2]).ends_with("found: no such header: webhook-signature"));
    assert!(told(&standard, &[headers[0], ("svix-id", "b")]).ends_with("found: headers of both names, or none"));
    let bearer = VerificationScheme::bearer(secrets(&[b"a secret"]));
    assert!(told(&bearer, &[("authorization", "Basic x")]).ends_with("found: no bearer at its beginning"));
    assert!(told(&bearer, &[("authorization", "Bearer x")]).ends_with("found: another token"));
}

/// Of every scheme: a wrong delivery's sentence has neither the right signature nor the secret nor what was sent.
#[test]
fn no_sentence_has_a_secret_a_signature_or_what_was_sent() {
    for scheme in all_schemes::schemes() {
        let right = scheme.sign("an-id", AT, b"{}");
        for (name, _) in &right {
            let told = told_anyway(&scheme, name, "sent-by-someone");
            for (_, value) in right.iter().filter(|(_, value)| value.len() > 12) {
                assert!(!told.contains(value.as_str()), "{told}");
            }
            assert!(!told.contains("sent-by-someone"), "{told}");
        }
    }
}

fn told_anyway(scheme: &VerificationScheme, name: &str, value: &str) -> String {
    let headers = [(name.to_owned(), value.as_bytes().to_vec())];
    let body = Bytes::from_static(b"{}");
    let headers = borrow_headers(&headers);
    let delivery = Delivery { path: "", query: "", headers: &headers, body: &body, at: AT, wall: AT };
    scheme.expectation(&delivery).unwrap_or_default()
}

#[test]
fn a_signature_that_is_not_in_a_header_is_looked_for_where_it_is() {
    let place = |text: &str| FieldLocation::parse(text).expect("a place");
    let mailgun = VerificationScheme::new(DescribedSignature {
        at: Some(place("body.signature.signature")),
        headers: Vec::new(),
        timestamp: Some(TimestampLocation::At(place("body.signature.timestamp"))),
        timestamp_format: Some(TimestampFormat::Seconds),
        id: Some(place("body.signature.token")),
        over: SignedText::parse("{timestamp}{id}", Some(TimestampFormat::Seconds)).expect("a template"),
        ..DescribedSignature::hmac("", secrets(&[b"a secret"]))
    });
    let told = |signature: &str, time: i64| {
        let text = format!(r#"{{"signature":{{{signature}"timestamp":{time},"token":"t"}}}}"#);
        let body = Bytes::from(text);
        let delivery = Delivery { path: "", query: "", headers: &[], body: &body, at: AT, wall: AT };
        assert!(mailgun.verify(&delivery).is_err());
        (mailgun.expectation(&delivery).expect("it tells"), mailgun.rejection_reason(&delivery))
    };
    let now = AT.0.div_euclid(1_000_000);
    let signature = |text: &str| format!(r#""signature":"{text}","#);
    for (signature, time, found) in [
        (String::new(), now, "nothing there"),
        (signature("no hex"), now, "no signature of the form hex"),
        (signature("00"), now, "a signature of another length"),
        (signature(&"0".repeat(64)), now - 720, "a time that is 12m ago, at most 5m"),
        (signature(&"0".repeat(64)), now, "a signature of other bytes, or with another secret"),
    ] {
        let expected = "expected body.signature.signature (hex, 64 digits) over {timestamp}{id}, \
                        the time in body.signature.timestamp (seconds), the id in body.signature.token";
        let (told, reason) = told(&signature, time);
        assert_eq!(told, format!("{expected}; found: {found}"));
        let guess = if found.contains("secret") { " (is the secret at the sender the one here?)" } else { "" };
        assert_eq!(reason, format!("body.signature.signature: {found}{guess}; {expected}"));
    }
}

#[test]
fn a_guess_is_made_only_where_it_can_be_right() {
    let now = AT.0.div_euclid(1_000_000);
    let reason = |scheme: &VerificationScheme, name: &str, value: &str| {
        let body = Bytes::from_static(b"{}");
        let headers = [(name, value.as_bytes())];
        let delivery = Delivery { path: "", query: "", headers: &headers, body: &body, at: AT, wall: AT };
        assert!(scheme.verify(&delivery).is_err());
        let told = scheme.rejection_reason(&delivery);
        told.split_once("; expected ").expect("it says what was expected").0.to_owned()
    };
    let digits = "0".repeat(64);
    for (signature, told) in [
        (format!("t={},v1={digits}", now - 720), "stripe-signature: a time that is 12m ago, at most 5m"),
        (format!("t={},v1={digits}", now + 720), "stripe-signature: a time that is 12m ahead, at most 5m"),
        (
            format!("t={now},v1={digits}"),
            "stripe-signature: a signature of other bytes, or with another secret \
             (is the secret at the sender the one here?)",
        ),
    ] {
        assert_eq!(reason(&stripe(), "stripe-signature", &signature), told);
    }
    let github = VerificationScheme::github(secrets(&[b"a secret"]));
    let told = reason(&github, "x-hub-signature-256", "sha1=00");
    assert_eq!(told, "x-hub-signature-256: no sha256= at its beginning");
    let bearer = VerificationScheme::bearer(secrets(&[b"a token"]));
    let told = reason(&bearer, "authorization", "Bearer x");
    assert_eq!(told, "authorization: another token (is the token at the sender the one here?)");
    assert_eq!(reason(&bearer, "authorization", "Basic x"), "authorization: no bearer at its beginning");
}

#[test]
fn a_token_is_looked_for_where_it_may_be() {
    let found = |scheme: &VerificationScheme, query: &str, body: &'static str| {
        let body = Bytes::from_static(body.as_bytes());
        let delivery = Delivery { path: "", query, headers: &[], body: &body, at: AT, wall: AT };
        assert!(scheme.verify(&delivery).is_err());
        scheme.expectation(&delivery).expect("it tells")
    };
    let bearer = VerificationScheme::bearer_or_query(secrets(&[b"a token"]), "token");
    let expected = "expected header authorization with Bearer and the token, or the token in query.token; found: ";
    assert_eq!(found(&bearer, "token=x", ""), format!("{expected}another token"));
    assert_eq!(found(&bearer, "", ""), format!("{expected}nothing there"));
    let at = FieldLocation::parse("body.token").expect("a place");
    let elements = VerificationScheme::token_in_elements(secrets(&[b"a token"]), at, vec!["all".into()]);
    let expected = "expected the token in body.token of each element; found: an element with another token or none";
    assert!(found(&elements, "", r#"{"all":[{"token":"x"}]}"#).starts_with(expected));
}
