//! Tests that hold for every scheme.

use crate::decide::verify::tests::*;
use proptest::prelude::*;

fn described() -> DescribedSignature {
    DescribedSignature {
        keys: SignatureKeys::hmac(HmacHash::Sha512, &[b"secret".to_vec()], SecretEncoding::Text).expect("a text"),
        prefix: "v1=".into(),
        over: SignedText::parse("{id}:{timestamp}:{body}", None).expect("a template"),
        timestamp: Some(TimestampLocation::At(FieldLocation::Header("x-time".into()))),
        id: Some(FieldLocation::Header("x-id".into())),
        ..DescribedSignature::hmac("x-sig", secrets(&[]))
    }
}

/// One scheme of each kind.
pub(super) fn schemes() -> Vec<VerificationScheme> {
    let hmac = described();
    vec![
        github(),
        standard(),
        VerificationScheme::new(hmac),
        VerificationScheme::bearer(secrets(&[b"t0ken", b"old"])),
        VerificationScheme::none(),
    ]
}

fn sent(headers: &[(String, String)]) -> Vec<HeaderPair<'_>> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn what_a_scheme_signs_it_verifies() {
    for scheme in schemes() {
        let headers = scheme.sign("id-1", AT, b"{}");
        let believed = verify(&scheme, &sent(&headers), b"{}", AT).expect("signed");
        assert_eq!(believed.secret, 0);
        let id = scheme.delivery_id().map(|_| "id-1");
        assert_eq!(believed.delivery_id.as_deref(), id, "{scheme:?}");
    }
    assert_eq!(VerificationScheme::bearer(secrets(&[])).sign("", AT, b"").len(), 1);
    assert_eq!(VerificationScheme::github(secrets(&[])).sign("", AT, b"").len(), 2);
}

#[test]
fn a_bearer_token_must_match_exactly() {
    let scheme = &schemes()[3];
    let believed = |value: &str| verify(scheme, &[("authorization", value)], b"{}", AT).map(|believed| believed.secret);
    assert_eq!(believed("Bearer t0ken"), Ok(0));
    assert_eq!(believed("bearer old"), Ok(1));
    let long = format!("Bearer {}", "x".repeat(5000));
    for wrong in
        ["", "Bearer", "Bearer ", "Bearer t0ke", "Bearer t0kenn", "Bearer  t0ken", "t0ken", "Basic t0ken", &long]
    {
        assert_eq!(believed(wrong), Err(DeliveryRejection::BadSignature), "{wrong}");
    }
    let twice = [("authorization", "Bearer t0ken"), ("authorization", "Bearer t0ken")];
    check(scheme, &twice, b"{}", Err(DeliveryRejection::BadSignature));
    check(scheme, &[], b"{}", Err(DeliveryRejection::BadSignature));
}

/// The lengths are those around one and two turns of the two digests.
#[test]
fn an_hmac_makes_the_digest_of_the_body_on_the_way_whichever_secret_matches() {
    let keys = SignatureKeys::hmac(HmacHash::Sha256, &[b"secret".to_vec()], SecretEncoding::Text).expect("a text");
    let over = SignedText::parse("{id}:{timestamp}:{body}.end", None).expect("a template");
    for scheme in [github(), standard(), VerificationScheme::new(DescribedSignature { keys, over, ..described() })] {
        let secrets = [&b"b3RoZXIgc2VjcmV0LCB3aGljaCBpcyBub3QgdXNlZA=="[..], STANDARD_SECRET].map(<[u8]>::to_vec);
        let rotating = scheme.with_secrets(secrets.into()).expect("secrets");
        let signing = scheme.with_secrets(vec![STANDARD_SECRET.to_vec()]).expect("a secret");
        for length in [0, 1, 63, 64, 127, 128, 129, 255, 256, 257, 10_361] {
            let body: Bytes = (0..=250_u8).cycle().take(length).collect();
            let signed: Vec<_> =
                signing.sign("id-1", AT, &body).into_iter().map(|(n, v)| (n, v.into_bytes())).collect();
            let headers = borrow_headers(&signed);
            let delivery = Delivery { path: "/in/x", query: "", headers: &headers, body: &body, at: AT, wall: AT };
            for (scheme, secret) in [(&signing, 0), (&rotating, 1)] {
                let matched = scheme.scheme.matching_key(&delivery).expect("it is signed").expect("with a secret");
                assert_eq!(
                    (matched.index, matched.body_digest),
                    (secret, Some(Digest::of(&body))),
                    "{scheme:?} {length}"
                );
            }
        }
    }
}

#[test]
fn forms_pages_and_images_are_refused_by_all() {
    for scheme in &schemes()[1..] {
        let mut headers = scheme.sign("id-1", AT, b"{}");
        let mut with = |content: &str| {
            content.clone_into(&mut headers[0].1);
            verify(scheme, &sent(&headers), b"{}", AT).map(|believed| believed.secret)
        };
        for content in [
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/xml",
            "text/xml; charset=utf-8",
            "application/atom+XML",
            "text/html",
            "image/png",
            "audio/ogg",
            "Video/mp4",
        ] {
            assert_eq!(with(content), Err(DeliveryRejection::ContentType), "{content}");
        }
        for content in ["application/json", "application/cloudevents+json; charset=utf-8", "text/plain", "", "json"] {
            assert_eq!(with(content), Ok(0), "{content}");
        }
        let twice: Vec<_> = sent(&headers).into_iter().chain([JSON]).collect();
        check(scheme, &twice, b"{}", Err(DeliveryRejection::ContentType));
        check(scheme, &sent(&headers)[1..], b"{}", Ok(0));
    }
}

#[test]
fn signed_json_under_another_type_is_refused_and_other_text_is_not() {
    for scheme in &schemes()[1..3] {
        let with = |content: &str, body: &[u8]| {
            let mut headers = scheme.sign("id-1", AT, body);
            content.clone_into(&mut headers[0].1);
            verify(scheme, &sent(&headers), body, AT).map(|believed| believed.secret)
        };
        for content in ["application/yaml", "application/x-ndjson", "text/csv", "text/javascript", "application/cbor"] {
            assert_eq!(with(content, b"{\"a\":1}"), Err(DeliveryRejection::ContentType), "{content}");
        }
        assert_eq!(with("text/csv", b"\"a\",\"b\"\n1,2\n"), Ok(0));
        assert_eq!(with("application/x-ndjson", b"{\"a\":1}\n{\"a\":2}\n"), Ok(0));
        assert_eq!(with("application/vnd.api+json", b"{}"), Ok(0));
    }
}

#[test]
fn the_forwarded_headers_are_enough_to_verify_again() {
    let all = schemes();
    for scheme in &all[..3] {
        let signed = scheme.sign("id-1", AT, b"{}");
        let carried = scheme.headers_to_forward();
        let kept: Vec<_> = sent(&signed).into_iter().filter(|(name, _)| carried.iter().any(|c| c == name)).collect();
        check(scheme, &kept.into_iter().chain([JSON]).collect::<Vec<_>>(), b"{}", Ok(0));
        for name in scheme.signature_headers() {
            assert!(carried.contains(&name), "{name} is not carried");
            assert!(scheme.proof_headers().contains(&name), "{name}");
            assert!(!scheme.covers(&FieldLocation::Header(name.clone())), "{name} is no field");
        }
    }
    let svix = ["svix-id", "svix-timestamp", "svix-signature"];
    assert!(svix.iter().all(|name| all[1].headers_to_forward().iter().any(|carried| carried == name)));
    assert_eq!(
        [all[3].headers_to_forward(), all[4].headers_to_forward()],
        [Vec::<String>::new(), Vec::new()],
        "a token is not forwarded"
    );
}

#[test]
fn the_log_names_the_header_that_was_there() {
    let doubts = |scheme: &VerificationScheme, headers: &[HeaderPair<'_>]| {
        let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
        let body = Bytes::from_static(b"{}");
        scheme.rejection_reason(&Delivery {
            path: "",
            query: "",
            headers: &borrow_headers(&headers),
            body: &body,
            at: AT,
            wall: AT,
        })
    };
    let standard = &schemes()[1];
    assert!(doubts(standard, &[]).starts_with("there is no webhook-signature or svix-signature header"));
    for name in ["webhook-signature", "svix-signature"] {
        let told = doubts(standard, &[(name, "v1,x")]);
        assert!(told.starts_with(&format!("{name}: no such header: ")), "{told}");
        let told = doubts(standard, &[(name, "v1,x"), (name, "v1,x")]);
        assert_eq!(told, format!("there is more than one {name} header"));
    }
    let told = doubts(standard, &[("webhook-signature", "v1,x"), ("svix-signature", "v1,x")]);
    assert_eq!(told, "there is more than one signature: webhook-signature and svix-signature");
    assert_eq!(doubts(&VerificationScheme::none(), &[]), "");
    let several = DescribedSignature { headers: vec!["x-one".into(), "x-two".into()], ..described() };
    let told = doubts(&VerificationScheme::new(several), &[("x-one", "v1=00"), ("x-two", "v1=00")]);
    assert!(told.starts_with("x-one and x-two: "), "{told}");
}

#[test]
fn signed_json_is_never_passed_on_as_something_else() {
    for scheme in &schemes()[1..3] {
        for body in [&b"{}"[..], b"[1]", b" \"a=1\""] {
            for (content, coding) in [
                ("application/x-www-form-urlencoded", "identity"),
                ("multipart/form-data; boundary=x", "identity"),
                ("application/json; charset=utf-16", "identity"),
                ("application/json", "gzip"),
            ] {
                let mut headers = scheme.sign("id-1", AT, body);
                content.clone_into(&mut headers[0].1);
                headers.push(("content-encoding".into(), coding.into()));
                let headers: Vec<_> = headers.iter().map(|(n, v)| (n.clone(), v.as_bytes().to_vec())).collect();
                let body = Bytes::copy_from_slice(body);
                let delivery =
                    Delivery { path: "", query: "", headers: &borrow_headers(&headers), body: &body, at: AT, wall: AT };
                assert!(scheme.verify(&delivery).is_err(), "{content} {coding} {body:?}");
            }
        }
        // A form is not JSON, and is passed on as it came.
        let mut headers = scheme.sign("id-1", AT, b"token=x&text=y");
        "application/x-www-form-urlencoded".clone_into(&mut headers[0].1);
        let headers: Vec<_> = headers.iter().map(|(n, v)| (n.clone(), v.as_bytes().to_vec())).collect();
        let body = Bytes::from_static(b"token=x&text=y");
        let delivery =
            Delivery { path: "", query: "", headers: &borrow_headers(&headers), body: &body, at: AT, wall: AT };
        assert!(scheme.verify(&delivery).is_ok());
    }
}

#[test]
fn what_is_covered_is_what_is_signed() {
    let covered = |scheme: &VerificationScheme| {
        [
            "body.a",
            "header.webhook-id",
            "header.svix-timestamp",
            "header.x-id",
            "header.x-time",
            "header.x",
            "query.a",
            "path",
        ]
        .map(|place| u8::from(scheme.covers(&FieldLocation::parse(place).expect("a place"))))
    };
    let all = schemes();
    assert_eq!(covered(&all[0]), [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(covered(&all[1]), [1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(covered(&all[2]), [1, 0, 0, 1, 1, 0, 0, 0]);
    assert_eq!(covered(&all[3]), [1; 8]);
    assert_eq!(covered(&all[4]), [1; 8]);
    let body_only = DescribedSignature { over: SignedText::body(), ..described() };
    assert_eq!(covered(&VerificationScheme::new(body_only)), [1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_scheme_is_described_without_its_secrets() {
    let words: Vec<_> = schemes().iter().map(VerificationScheme::words).collect();
    assert_eq!(
        words,
        [
            "GitHub's signature (SHA-256)",
            "a Standard Webhooks signature (SHA-256)",
            "an HMAC signature (SHA-512) in `x-sig`",
            "a bearer token",
            "nothing"
        ]
    );
    assert_eq!([HmacHash::Sha1.words(), HmacHash::Sha256.words()], ["SHA-1", "SHA-256"]);
    let shown = format!("{:?}", schemes());
    for secret in ["t0ken", "old", "Everybody", "MfKQ", "secret\"", "[115"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("Secrets(•••, 2)"));
}

#[test]
fn an_id_may_be_a_number_in_the_body_but_not_a_bool() {
    let body = Bytes::from_static(br#"{"id":7,"name":"x","yes":true,"empty":""}"#);
    let delivery = Delivery { path: "", query: "", headers: &[], body: &body, at: AT, wall: AT };
    let verified = VerificationScheme::none().verify(&delivery).expect("no scheme");
    let id = |at: &str| {
        let at = FieldLocation::parse(at).expect("a place");
        verified.delivery_id(&DeliveryIdLocation { at, signed: true }).expect("JSON")
    };
    assert_eq!(id("body.id").as_deref(), Some("7"));
    assert_eq!(id("body.name").as_deref(), Some("x"));
    assert_eq!([id("body.yes"), id("body.empty"), id("body.none")], [None, None, None]);
}

proptest! {
    #![proptest_config(crate::seed::cases(256))]

    #[test]
    fn a_delivery_with_a_changed_byte_is_never_verified(body: Vec<u8>, at: prop::sample::Index, flip in 1_u8..=255) {
        for scheme in &schemes()[..3] {
            let mut headers = scheme.sign("id-1", AT, &body);
            prop_assert!(verify(scheme, &sent(&headers), &body, AT).is_ok());
            if !body.is_empty() {
                let mut other = body.clone();
                other[at.index(body.len())] ^= flip;
                prop_assert_eq!(verify(scheme, &sent(&headers), &other, AT), Err(DeliveryRejection::BadSignature));
            }
            let (_, signature) = headers.last_mut().expect("a signature");
            let mut bytes = signature.clone().into_bytes();
            let place = at.index(bytes.len());
            bytes[place] ^= flip;
            // Hex may be written in either case.
            prop_assume!(!bytes[place].eq_ignore_ascii_case(&signature.as_bytes()[place]));
            if let Ok(other) = String::from_utf8(bytes) {
                *signature = other;
                prop_assert_eq!(verify(scheme, &sent(&headers), &body, AT), Err(DeliveryRejection::BadSignature));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_without_panic(value: Vec<u8>, body: Vec<u8>, at: i64) {
        let names = ["x-hub-signature-256", "webhook-id", "webhook-timestamp", "webhook-signature", "x-sig", "x-id",
            "x-time", "authorization", "content-type"];
        let headers: Vec<_> = names.iter().map(|name| ((*name).to_owned(), value.clone())).collect();
        let body = Bytes::from(body);
        let delivery = Delivery { path: "", query: "", headers: &borrow_headers(&headers), body: &body, at: Timestamp(at), wall: Timestamp(at) };
        for scheme in &schemes()[..4] {
            prop_assert_eq!(scheme.verify(&delivery).map(|verified| verified.secret()), Err(DeliveryRejection::BadSignature));
        }
    }
}
