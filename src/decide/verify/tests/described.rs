use super::*;

const SLACK_BODY: &[u8] = b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";

fn hmac(
    secret: &[u8],
    header: &str,
    prefix: &str,
    hash: HmacHash,
    encoding: SignatureEncoding,
    over: &str,
) -> DescribedSignature {
    DescribedSignature {
        keys: SignatureKeys::hmac(hash, &[secret.to_vec()], SecretEncoding::Text).expect("a text"),
        prefix: prefix.into(),
        encoding,
        over: SignedText::parse(over, None).expect("a template"),
        ..DescribedSignature::hmac(header, secrets(&[]))
    }
}

fn at(text: &str) -> TimestampLocation {
    TimestampLocation::At(place(text))
}

fn place(text: &str) -> FieldLocation {
    FieldLocation::parse(text).expect("a place")
}

fn slack() -> DescribedSignature {
    let timestamp = Some(at("header.x-slack-request-timestamp"));
    let over = "v0:{timestamp}:{body}";
    let secret = b"8f742231b10e8888abcd99yyyzzz85a5";
    DescribedSignature {
        timestamp,
        ..hmac(secret, "x-slack-signature", "v0=", HmacHash::Sha256, SignatureEncoding::Hex, over)
    }
}

/// Made with Python.
#[test]
fn a_signature_and_a_secret_in_base64_for_urls_are_read_with_and_without_padding() {
    for secret in ["----IGEgc2VjcmV0IHRoYXQgaXMgbG9uZw==", "----IGEgc2VjcmV0IHRoYXQgaXMgbG9uZw"] {
        let keys = SignatureKeys::hmac(HmacHash::Sha256, &[secret.into()], SecretEncoding::Base64Url);
        let scheme = VerificationScheme::from(DescribedSignature {
            keys: keys.expect("base64url"),
            encoding: SignatureEncoding::Base64Url,
            ..DescribedSignature::hmac("x-s", secrets(&[]))
        });
        let signature = "DFGkD-ztMpToO2CMD8k93oJejDJzKKoE7BQhR-5i2fk";
        let padded = format!("{signature}=");
        for right in [signature, &padded] {
            check(&scheme, &[("x-s", right)], br#"{"a":7}"#, Ok(0));
            check(&scheme, &[("x-s", right)], br#"{"a":8}"#, Err(DeliveryRejection::BadSignature));
        }
        let standard = signature.replace('-', "+");
        check(&scheme, &[("x-s", &standard)], br#"{"a":7}"#, Err(DeliveryRejection::BadSignature));
        assert!(scheme.sign("", AT, br#"{"a":7}"#).contains(&("x-s".to_owned(), signature.to_owned())));
    }
    let standard = SignatureKeys::hmac(HmacHash::Sha256, &[b"++++".to_vec()], SecretEncoding::Base64Url);
    assert!(standard.is_err_and(|why| why.contains("base64url")));
}

#[test]
fn a_key_of_nul_bytes_is_no_key() {
    // HMAC takes it for the empty key: anyone can sign with that.
    let anyone = VerificationScheme::new(DescribedSignature::hmac("x-sig", secrets(&[b"\0"])));
    let forged = anyone.proof("", AT, b"{}");
    let forged: Vec<_> = forged.iter().map(|(name, value)| (&**name, &**value)).collect();
    for key in [&b""[..], b"\0", b"\0\0\0\0"] {
        let scheme = VerificationScheme::new(DescribedSignature::hmac("x-sig", secrets(&[key])));
        check(&scheme, &forged, b"{}", Err(DeliveryRejection::BadSignature));
        assert!(!scheme.has_secret());
    }
    for (secret, encoding) in [("00000000", SecretEncoding::Hex), ("AAAAAAAA", SecretEncoding::Base64)] {
        let keys = SignatureKeys::hmac(HmacHash::Sha256, &[secret.into()], encoding);
        assert!(keys.expect_err(secret).contains("everyone has"));
    }
    assert!(VerificationScheme::standard_webhooks(&[b"whsec_AAAAAAAA".to_vec()], FIVE_MINUTES).is_err());
}

#[test]
fn the_providers_vectors_are_verified() {
    let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let generic = "fcfaffa7fef86515c7beb6b62d779fa4ccf092f2e61c164376054271252821ff";
    let shopify = "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc=";
    let sha1 = "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59";
    let hello = b"Hello, World!";
    let of = |secret: &[u8], prefix, hash, encoding| {
        VerificationScheme::new(hmac(secret, "x-sig", prefix, hash, encoding, "{body}"))
    };
    check(&of(GITHUB_SECRET, "", HmacHash::Sha256, SignatureEncoding::Hex), &[("x-sig", hex)], hello, Ok(0));
    check(&of(b"secret", "", HmacHash::Sha256, SignatureEncoding::Hex), &[("x-sig", generic)], hello, Ok(0));
    check(&of(GITHUB_SECRET, "", HmacHash::Sha256, SignatureEncoding::Base64), &[("x-sig", shopify)], hello, Ok(0));
    check(&of(GITHUB_SECRET, "sha1=", HmacHash::Sha1, SignatureEncoding::Hex), &[("x-sig", sha1)], hello, Ok(0));
    // Gitea signs the JSON that its form carries.
    let gitea = "eb1372a523dc74783f89c0f177a5ab15fc608b4720b33e697cee863f8b0d0d51";
    check(
        &of(GITHUB_SECRET, "", HmacHash::Sha256, SignatureEncoding::Hex),
        &[("x-sig", gitea)],
        br#"{"zen":"x"}"#,
        Ok(0),
    );
}

#[test]
fn slacks_vector_is_verified_within_its_tolerance() {
    let signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
    let headers = [("x-slack-request-timestamp", "1531420618"), ("x-slack-signature", signature)];
    let at = |seconds: i64| {
        verify(&VerificationScheme::new(slack()), &headers, SLACK_BODY, Timestamp(seconds * 1_000_000))
            .map(|believed| believed.secret)
    };
    assert_eq!([at(1_531_420_618), at(1_531_420_918)], [Ok(0), Ok(0)]);
    assert_eq!(
        [at(1_531_420_919), at(1_531_420_317)],
        [Err(DeliveryRejection::BadSignature), Err(DeliveryRejection::BadSignature)]
    );
    check(&VerificationScheme::new(slack()), &headers[1..], SLACK_BODY, Err(DeliveryRejection::BadSignature));
}

#[test]
fn one_header_may_hold_a_few_signatures() {
    let good = "fcfaffa7fef86515c7beb6b62d779fa4ccf092f2e61c164376054271252821ff";
    let pagerduty = hmac(b"secret", "x-pagerduty-signature", "v1=", HmacHash::Sha256, SignatureEncoding::Hex, "{body}");
    let pagerduty = VerificationScheme::new(pagerduty);
    let believed = |list: &str| verify(&pagerduty, &[("x-pagerduty-signature", list)], b"Hello, World!", AT).is_ok();
    assert!(believed(&format!("v1={good}")));
    assert!(believed(&format!("v1=00,v1={good}")));
    assert!(believed(&format!("v0=00, v1={good}, v1=xyz")));
    assert!(believed(&format!("{}v1={good}", "v1=00,".repeat(7))));
    assert!(!believed(&format!("{}v1={good}", "v1=00,".repeat(8))));
    assert!(!believed(&format!("v0={good}")));
    assert!(!believed(good));
    assert!(!believed(&format!("v1={}", &good[..62])));
    assert!(!believed(""));
    assert!(!believed("v1="));
    assert!(!believed(","));
}

#[test]
fn a_header_with_neither_entries_nor_a_prefix_holds_one_signature() {
    let good = "fcfaffa7fef86515c7beb6b62d779fa4ccf092f2e61c164376054271252821ff";
    let gitea = hmac(b"secret", "x-gitea-signature", "", HmacHash::Sha256, SignatureEncoding::Hex, "{body}");
    let gitea = VerificationScheme::new(gitea);
    let believed = |value: &str| verify(&gitea, &[("x-gitea-signature", value)], b"Hello, World!", AT).is_ok();
    assert!(believed(good));
    for list in [format!("{good},00"), format!("00,{good}"), format!("{good},{good}"), format!("{good},")] {
        assert!(!believed(&list), "{list}");
    }
}

#[test]
fn a_prefix_with_a_comma_is_not_cut_at_it() {
    let odd =
        VerificationScheme::new(hmac(b"secret", "x-sig", "v1,", HmacHash::Sha512, SignatureEncoding::Base64, "{body}"));
    let made = odd.sign("", AT, b"{}");
    let made: Vec<HeaderPair<'_>> = made.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    check(&odd, &made, b"{}", Ok(0));
}

#[test]
fn a_time_may_be_written_in_three_ways() {
    let timed = DescribedSignature {
        timestamp: Some(at("header.x-time")),
        ..hmac(b"secret", "x-sig", "", HmacHash::Sha256, SignatureEncoding::Hex, "{body}")
    };
    let signature = "fcfaffa7fef86515c7beb6b62d779fa4ccf092f2e61c164376054271252821ff";
    let timed = VerificationScheme::new(timed);
    let at = |time: &str| {
        let headers = [("x-time", time), ("x-sig", signature)];
        verify(&timed, &headers, b"Hello, World!", AT).map(|believed| believed.secret)
    };
    for time in ["1614265330", "1614265330000", "1614265330999", "2021-02-25T15:02:10Z", "2021-02-25T16:02:10.5+01:00"]
    {
        assert_eq!(at(time), Ok(0), "{time}");
    }
    for time in ["", "-1614265330", "1614265029", "1614265631000", "16142653300000", "99999999999999999999", "x"] {
        assert_eq!(at(time), Err(DeliveryRejection::BadSignature), "{time}");
    }
}

#[test]
fn an_id_is_read_from_its_configured_location() {
    let over = "{id}.{timestamp}.{body}";
    let with = |id: &str, timestamp: &str| {
        let plain = hmac(b"secret", "x-sig", "", HmacHash::Sha256, SignatureEncoding::Hex, over);
        VerificationScheme::new(DescribedSignature { id: Some(place(id)), timestamp: Some(at(timestamp)), ..plain })
    };
    let body = br#"{"id":"e1","sent":1614265330,"n":7,"late":true}"#;
    for scheme in [with("header.x-id", "header.x-time"), with("body.id", "body.sent"), with("body.n", "header.x-time")]
    {
        let made = scheme.sign("1", AT, body);
        let made: Vec<HeaderPair<'_>> = made.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        check(&scheme, &made, body, Ok(0));
        check(&scheme, &made[1..made.len() - 1], body, Err(DeliveryRejection::BadSignature));
    }
    for scheme in [with("body.late", "body.sent"), with("body.none", "body.sent"), with("query.id", "body.sent")] {
        check(&scheme, &[("x-sig", &"0".repeat(64))], body, Err(DeliveryRejection::BadSignature));
        check(&scheme, &[("x-sig", &"0".repeat(64))], b"not json", Err(DeliveryRejection::BadSignature));
    }
}

#[test]
fn a_byte_cannot_move_from_the_id_to_the_body() {
    let scheme = DescribedSignature {
        id: Some(place("header.x-id")),
        ..hmac(b"secret", "x-sig", "", HmacHash::Sha256, SignatureEncoding::Hex, "{id}.{body}")
    };
    let mac = secrets(&[b"secret"]).sign(HmacHash::Sha256, &[b"a.b.{}"]).map(hex::encode).expect("a secret");
    check(&VerificationScheme::new(scheme.clone()), &[("x-id", "a"), ("x-sig", &mac)], b"b.{}", Ok(0));
    check(
        &VerificationScheme::new(scheme),
        &[("x-id", "a.b"), ("x-sig", &mac)],
        b"{}",
        Err(DeliveryRejection::BadSignature),
    );
}

#[test]
fn a_byte_cannot_move_where_the_separator_overlaps_itself() {
    for separator in ["--", "..", "::"] {
        let plain = hmac(
            b"secret",
            "x-sig",
            "",
            HmacHash::Sha256,
            SignatureEncoding::Hex,
            &format!("{{id}}{separator}{{body}}"),
        );
        let scheme = VerificationScheme::new(DescribedSignature { id: Some(place("header.x-id")), ..plain.clone() });
        let byte = &separator[..1];
        let all = format!("8{separator}{byte}5");
        let mac = secrets(&[b"secret"]).sign(HmacHash::Sha256, &[all.as_bytes()]).map(hex::encode).expect("a secret");
        check(&scheme, &[("x-id", "8"), ("x-sig", &mac)], format!("{byte}5").as_bytes(), Ok(0));
        check(&scheme, &[("x-id", &*format!("8{byte}")), ("x-sig", &mac)], b"5", Err(DeliveryRejection::BadSignature));
    }
}

#[test]
fn a_template_without_its_locations_verifies_nothing() {
    let scheme = VerificationScheme::new(hmac(
        b"secret",
        "x-sig",
        "",
        HmacHash::Sha256,
        SignatureEncoding::Hex,
        "{id}.{timestamp}.{body}",
    ));
    let mac = secrets(&[b"secret"]).sign(HmacHash::Sha256, &[b"..{}"]).map(hex::encode).expect("a secret");
    check(&scheme, &[("x-sig", &mac)], b"{}", Err(DeliveryRejection::BadSignature));
}

#[test]
fn of_several_headers_one_good_signature_is_enough() {
    let headers = vec!["x-primary".to_owned(), "x-secondary".to_owned()];
    let scheme = DescribedSignature { headers, ..DescribedSignature::hmac("x-primary", secrets(&[b"secret"])) };
    let scheme = VerificationScheme::new(scheme);
    let good = secrets(&[b"secret"]).sign(HmacHash::Sha256, &[b"{}"]).map(hex::encode).expect("a secret");
    let bad = "0".repeat(64);
    for (primary, secondary, expected) in [
        (Some(&good), None, Ok(0)),
        (None, Some(&good), Ok(0)),
        (Some(&bad), Some(&good), Ok(0)),
        (Some(&bad), Some(&bad), Err(DeliveryRejection::BadSignature)),
        (Some(&bad), None, Err(DeliveryRejection::BadSignature)),
        (None, None, Err(DeliveryRejection::BadSignature)),
    ] {
        let both = [("x-primary", primary), ("x-secondary", secondary)];
        let both: Vec<_> = both.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?.as_str()))).collect();
        check(&scheme, &both, b"{}", expected);
    }
    let twice = [("x-primary", &*bad), ("x-secondary", &*good), ("x-secondary", &*good)];
    check(&scheme, &twice, b"{}", Err(DeliveryRejection::BadSignature));
}
