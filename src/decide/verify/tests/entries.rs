//! Signatures in a header with several entries, as Stripe and Paddle write them.

use super::*;

const BODY: &[u8] = br#"{"id":"evt_test_webhook","object":"event"}"#;
const STRIPE: &str = "3c5817089d739023dd6190f70a3757e04f7a2fd8b5dab12c2e000f51970dccff";

fn entries(header: &str, names: [&str; 2], separator: char, over: &str) -> DescribedSignature {
    DescribedSignature {
        entries: Some(SignatureEntries { signature: names[1].into(), separator }),
        over: SignedText::parse(over, None).expect("a template"),
        timestamp: Some(TimestampLocation::Entry(names[0].into())),
        ..DescribedSignature::hmac(header, secrets(&[b"whsec_test_secret"]))
    }
}

fn stripe() -> VerificationScheme {
    VerificationScheme::new(entries("stripe-signature", ["t", "v1"], ',', "{timestamp}.{body}"))
}

fn check_stripe(header: &str, expected: Result<usize, DeliveryRejection>) {
    check(&stripe(), &[("stripe-signature", header)], BODY, expected);
}

#[test]
fn an_entry_has_the_signature_and_another_the_time() {
    check_stripe(&format!("t=1614265330,v1={STRIPE}"), Ok(0));
    check_stripe(&format!("v1={STRIPE},t=1614265330"), Ok(0));
    check_stripe(&format!("t=1614265330, v1={STRIPE}"), Ok(0));
    let other = "0".repeat(64);
    check_stripe(&format!("t=1614265330,v1={other},v1={STRIPE},v0={other}"), Ok(0));
    let headers = stripe().sign("", AT, BODY);
    assert_eq!(headers[1], ("stripe-signature".into(), format!("t=1614265330,v1={STRIPE}")));
    assert_eq!((stripe().signs_time(), stripe().signs_body()), (true, true));
}

#[test]
fn a_downgraded_doubled_or_missing_entry_is_refused() {
    for wrong in [
        STRIPE.to_owned(),
        format!("v1={STRIPE}"),
        format!("t=1614265330,v0={STRIPE}"),
        format!("t=1614265330,V1={STRIPE}"),
        format!("t=1614265330;v1={STRIPE}"),
        format!("t=1614265330,t=1614265330,v1={STRIPE}"),
        format!("t=1614265331,t=1614265330,v1={STRIPE}"),
        format!("t=,v1={STRIPE}"),
        format!("t=1614265331,v1={STRIPE}"),
        format!("t=01614265330,v1={STRIPE}"),
        format!("t= 1614265330,v1={STRIPE}"),
        format!("t=1614265330,v1= {STRIPE}"),
        format!("t=1614265330,v1={}", &STRIPE[..62]),
        format!("t=1614265330,v1={STRIPE}00"),
        format!("t=1614265330,{}v1={STRIPE}", "v1=00,".repeat(8)),
        "t=1614265330".to_owned(),
        "t=1614265330,v1=".to_owned(),
        ",=,".to_owned(),
    ] {
        check_stripe(&wrong, Err(DeliveryRejection::BadSignature));
    }
    let good = format!("t=1614265330,v1={STRIPE}");
    let twice = [("stripe-signature", &*good), ("stripe-signature", &*good)];
    check(&stripe(), &twice, BODY, Err(DeliveryRejection::BadSignature));
}

#[test]
fn a_semicolon_may_separate_entries() {
    let paddle = VerificationScheme::new(entries("paddle-signature", ["ts", "h1"], ';', "{timestamp}:{body}"));
    let made = paddle.sign("", AT, BODY);
    let (_, value) = &made[1];
    assert!(value.starts_with("ts=1614265330;h1="), "{value}");
    check(&paddle, &[("paddle-signature", value)], BODY, Ok(0));
    check(&paddle, &[("paddle-signature", &value.replace(';', ","))], BODY, Err(DeliveryRejection::BadSignature));
}

#[test]
fn an_old_time_is_refused_in_an_entry_too() {
    let header = format!("t=1614265330,v1={STRIPE}");
    let at = |seconds: i64| {
        let at = Timestamp(AT.0 + seconds * 1_000_000);
        verify(&stripe(), &[("stripe-signature", &header)], BODY, at).is_ok()
    };
    assert_eq!([-301, -300, 300, 301].map(at), [false, true, true, false]);
}

#[test]
fn a_key_may_be_written_in_base64_or_hex() {
    let keyed = |secret: &str, encoding| SignatureKeys::hmac(HmacHash::Sha256, &[secret.into()], encoding);
    let body = b"Hello, World!";
    let signature = "fcfaffa7fef86515c7beb6b62d779fa4ccf092f2e61c164376054271252821ff";
    let written = [
        ("secret", SecretEncoding::Text),
        ("c2VjcmV0", SecretEncoding::Base64),
        ("736563726574", SecretEncoding::Hex),
        ("736563726574", SecretEncoding::Hex),
    ];
    for (secret, encoding) in written {
        let keys = keyed(secret, encoding).expect("a key");
        let scheme =
            VerificationScheme::new(DescribedSignature { keys, ..DescribedSignature::hmac("x-sig", secrets(&[])) });
        check(&scheme, &[("x-sig", signature)], body, Ok(0));
        let again = scheme.with_secrets(vec![secret.into()]).expect("a key");
        check(&again, &[("x-sig", signature)], body, Ok(0));
    }
    for (wrong, encoding) in [
        ("", SecretEncoding::Base64),
        ("!", SecretEncoding::Base64),
        ("", SecretEncoding::Hex),
        ("xy", SecretEncoding::Hex),
        ("123", SecretEncoding::Hex),
    ] {
        let error = keyed(wrong, encoding).expect_err(wrong);
        assert!(error.starts_with("the secret is not "), "{error}");
    }
}

#[test]
fn one_of_two_headers_is_enough_and_a_doubled_one_is_not() {
    let headers = vec!["box-signature-primary".into(), "box-signature-secondary".into()];
    let scheme =
        VerificationScheme::new(DescribedSignature { headers, ..DescribedSignature::hmac("", secrets(&[b"secret"])) });
    let good = "fcfaffa7fef86515c7beb6b62d779fa4ccf092f2e61c164376054271252821ff";
    let body = b"Hello, World!";
    let bad = "0".repeat(64);
    check(&scheme, &[("box-signature-primary", good)], body, Ok(0));
    check(&scheme, &[("box-signature-primary", &bad), ("box-signature-secondary", good)], body, Ok(0));
    check(&scheme, &[("box-signature-primary", &bad)], body, Err(DeliveryRejection::BadSignature));
    let doubled = [("box-signature-primary", good), ("box-signature-primary", good), ("box-signature-secondary", good)];
    check(&scheme, &doubled, body, Err(DeliveryRejection::BadSignature));
    check(&scheme, &[], body, Err(DeliveryRejection::BadSignature));
}

#[test]
fn a_signed_url_is_the_configured_one_and_its_query_counts() {
    let scheme = |url: &str| {
        VerificationScheme::new(DescribedSignature {
            over: SignedText::parse("{url}{body}", None).expect("a template"),
            url: Some(SignedUrl::new(url.into())),
            encoding: SignatureEncoding::Base64,
            ..DescribedSignature::hmac("x-square-hmacsha256-signature", secrets(&[b"secret"]))
        })
    };
    let believed = |url: &str, query: &str, body: &[u8]| {
        let signed = scheme(url).sign("", AT, b"{}");
        let headers: Vec<_> = signed.iter().map(|(n, v)| (n.clone(), v.as_bytes().to_vec())).collect();
        let body = Bytes::copy_from_slice(body);
        let headers = borrow_headers(&headers);
        let delivery = Delivery { path: "/in/x", query, headers: &headers, body: &body, at: AT, wall: AT };
        scheme(url).verify(&delivery).is_ok()
    };
    assert!(believed("https://a.example/in/x", "", b"{}"));
    assert!(believed("https://a.example/in/x?a=1", "a=1", b"{}"));
    assert!(!believed("https://a.example/in/x?a=1", "", b"{}"));
    assert!(!believed("https://a.example/in/x", "a=1", b"{}"));
    assert!(!believed("https://a.example/in/x?a=1", "a=1{", b"}"));
    assert!(!scheme("").sign("", AT, b"{}").iter().any(|(name, _)| name.contains("square")), "no URL, no signature");
}
