use super::*;

const SIGNED: [HeaderPair<'_>; 3] =
    [("webhook-id", STANDARD_ID), ("webhook-timestamp", "1614265330"), ("webhook-signature", STANDARD)];

fn with(name: &str, value: &str) -> Vec<(String, String)> {
    let one = |(n, v): HeaderPair<'_>| (n.to_owned(), if n == name { value } else { v }.to_owned());
    SIGNED.map(one).to_vec()
}

fn check_with(name: &str, value: &str, expected: Result<usize, DeliveryRejection>) {
    let headers = with(name, value);
    let headers: Vec<HeaderPair<'_>> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    check(&standard(), &headers, STANDARD_BODY, expected);
}

#[test]
fn the_documented_vector_is_verified_under_both_names() {
    let believed = verify(&standard(), &SIGNED, STANDARD_BODY, AT).expect("the vector");
    assert_eq!(believed.delivery_id.as_deref(), Some(STANDARD_ID));
    let svix = SIGNED.map(|(name, value)| (name.replace("webhook", "svix"), value));
    let svix: Vec<HeaderPair<'_>> = svix.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let believed = verify(&standard(), &svix, STANDARD_BODY, AT).expect("the vector");
    assert_eq!(believed.delivery_id.as_deref(), Some(STANDARD_ID));
    assert_eq!(standard().delivery_id().map(|id| id.signed), Some(true));
}

#[test]
fn the_two_names_are_not_mixed() {
    let extra = |name| [SIGNED[0], SIGNED[1], SIGNED[2], (name, STANDARD_ID)];
    for name in ["svix-id", "svix-timestamp", "svix-signature", "webhook-id", "webhook-timestamp"] {
        check(&standard(), &extra(name), STANDARD_BODY, Err(DeliveryRejection::BadSignature));
    }
    for missing in 0..3 {
        let rest: Vec<_> = (0..3).filter(|n| *n != missing).map(|n| SIGNED[n]).collect();
        check(&standard(), &rest, STANDARD_BODY, Err(DeliveryRejection::BadSignature));
    }
    check(&standard(), &[], STANDARD_BODY, Err(DeliveryRejection::BadSignature));
}

#[test]
fn any_of_a_few_signatures_is_enough() {
    let bad = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for list in [
        format!("{bad} {STANDARD}"),
        format!("{STANDARD} {bad}"),
        format!("v1a,xyz v2,{} {STANDARD}", &STANDARD[3..]),
        format!("{bad} {bad} {bad} {bad} {bad} {bad} {bad} {STANDARD}"),
    ] {
        check_with("webhook-signature", &list, Ok(0));
    }
    for list in [
        format!("{bad} {bad} {bad} {bad} {bad} {bad} {bad} {bad} {STANDARD}"),
        format!("v0,{}", &STANDARD[3..]),
        format!("v2,{}", &STANDARD[3..]),
        STANDARD[3..].into(),
        format!("V1,{}", &STANDARD[3..]),
        format!("{bad},{STANDARD}"),
        STANDARD.trim_end_matches('=').into(),
        "v1,".into(),
        String::new(),
        bad.into(),
    ] {
        check_with("webhook-signature", &list, Err(DeliveryRejection::BadSignature));
    }
}

#[test]
fn old_and_future_times_are_refused() {
    let at = |seconds: i64| {
        verify(&standard(), &SIGNED, STANDARD_BODY, Timestamp(AT.0 + seconds * 1_000_000)).map(|b| b.secret)
    };
    assert_eq!([at(-300), at(300)], [Ok(0), Ok(0)]);
    assert_eq!([at(-301), at(301)], [Err(DeliveryRejection::BadSignature), Err(DeliveryRejection::BadSignature)]);
    for stamp in [
        "",
        "-1614265330",
        "+1614265330",
        "1614265330.0",
        " 1614265330",
        "99999999999999999999",
        "9223372036854775807",
        "x",
    ] {
        check_with("webhook-timestamp", stamp, Err(DeliveryRejection::BadSignature));
    }
}

#[test]
fn a_dot_in_the_id_is_refused_even_if_it_was_signed() {
    let made = standard().sign("a.b", AT, STANDARD_BODY);
    let made: Vec<HeaderPair<'_>> = made.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    check(&standard(), &made, STANDARD_BODY, Err(DeliveryRejection::BadSignature));
    check_with("webhook-id", "", Err(DeliveryRejection::BadSignature));
    check_with("webhook-id", "other", Err(DeliveryRejection::BadSignature));
}

#[test]
fn a_secret_that_cannot_be_decoded_is_refused_and_not_shown() {
    for secret in ["whsec_", "", "whsec_not base64", "hunter2!", "whsk_MfKQ9r8G", "whpk_MfKQ9r8G"] {
        let error = VerificationScheme::standard_webhooks(&[secret.into()], FIVE_MINUTES).expect_err(secret);
        assert!(!error.contains("hunter2") && !error.contains("MfKQ"), "{error}");
    }
    let bare = VerificationScheme::standard_webhooks(&[STANDARD_SECRET[6..].to_vec()], FIVE_MINUTES).expect("base64");
    check(&bare, &SIGNED, STANDARD_BODY, Ok(0));
    let shown = [b"v1,", STANDARD_SECRET].concat();
    let shown = VerificationScheme::standard_webhooks(&[shown], FIVE_MINUTES).expect("with its version");
    check(&shown, &SIGNED, STANDARD_BODY, Ok(0));
}

/// Made with OpenSSL: `openssl genpkey -algorithm ed25519`, `openssl pkeyutl -sign -rawin`.
const PUBLIC_KEY: &str = "whpk_NZoqFjv1XSViO0YavnlJBFvwhv4sfRs1M/nkEyrWHQs=";
const OTHER_PUBLIC_KEY: &str = "whpk_UJXpO1m+4YXrK5yR2Ykbkuj8hga8SYyJJNSQh+gW794=";
const BY_PRIVATE_KEY: &str =
    "v1a,cbZI1K5G8dXYUOrKCs6YpPxKN3tPCjdMQTkgd8k7HAk76JeT4NqR7ZD3i2OeVcgTy3hZXK9Lyfn1hOWbfIFtDg==";

fn public(keys: &[&str]) -> VerificationScheme {
    let keys: Vec<_> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    VerificationScheme::standard_webhooks_public(&keys, FIVE_MINUTES).expect("a public key")
}

#[test]
fn a_v1a_signature_is_verified_with_the_public_key() {
    let check_list = |scheme: &VerificationScheme, list: &str, expected: Result<usize, DeliveryRejection>| {
        let headers = with("webhook-signature", list);
        let headers: Vec<HeaderPair<'_>> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        check(scheme, &headers, STANDARD_BODY, expected);
    };
    let scheme = public(&[PUBLIC_KEY]);
    check_list(&scheme, BY_PRIVATE_KEY, Ok(0));
    // While the sender exchanges its key, both count; so does a sender that signs in both ways.
    check_list(&public(&[OTHER_PUBLIC_KEY, PUBLIC_KEY]), BY_PRIVATE_KEY, Ok(1));
    check_list(&scheme, &format!("{STANDARD} {BY_PRIVATE_KEY}"), Ok(0));
    check_list(&standard(), &format!("{STANDARD} {BY_PRIVATE_KEY}"), Ok(0));
    let bare = BY_PRIVATE_KEY.trim_start_matches("v1a");
    let refused = [format!("v1{bare}"), format!("v1b{bare}"), bare.to_owned(), STANDARD.to_owned(), "v1a,".to_owned()];
    for list in refused {
        check_list(&scheme, &list, Err(DeliveryRejection::BadSignature));
    }
    check_list(&public(&[OTHER_PUBLIC_KEY]), BY_PRIVATE_KEY, Err(DeliveryRejection::BadSignature));
    check_list(&standard(), BY_PRIVATE_KEY, Err(DeliveryRejection::BadSignature));
    assert_eq!(scheme.delivery_id().map(|id| id.signed), Some(true));
    assert!(scheme.has_secret() && !scheme.has_shared_hmac_key());
}

#[test]
fn a_v1a_signature_covers_the_id_the_time_and_the_body() {
    let scheme = public(&[PUBLIC_KEY]);
    let genuine = [SIGNED[0], SIGNED[1], ("webhook-signature", BY_PRIVATE_KEY)];
    check(&scheme, &genuine, STANDARD_BODY, Ok(0));
    check(&scheme, &genuine, b"{}", Err(DeliveryRejection::BadSignature));
    for (at, value) in [(0, "msg_p5jXN8AQM9LWM0D4loKWxJel"), (1, "1614265331"), (0, ""), (1, "")] {
        let mut forged = genuine;
        forged[at].1 = value;
        check(&scheme, &forged, STANDARD_BODY, Err(DeliveryRejection::BadSignature));
    }
    let late = verify(&scheme, &genuine, STANDARD_BODY, Timestamp(AT.0 + 301_000_000));
    assert_eq!(late, Err(DeliveryRejection::BadSignature));
}

#[test]
fn a_private_key_is_no_public_key_and_is_not_shown() {
    for secret in ["whsk_NZoqFjv1XSViO0YavnlJBFvwhv4sfRs1M", "whsec_NZoqFjv1XSViO0YavnlJBFvwhv4sfRs1M", "whpk_NZoqFjv1"]
    {
        let error = VerificationScheme::standard_webhooks_public(&[secret.into()], FIVE_MINUTES).expect_err(secret);
        assert!(!error.contains("NZoq"), "{error}");
    }
    let point_of_order_one = format!("whpk_AQ{}=", "A".repeat(41));
    let error = VerificationScheme::standard_webhooks_public(&[point_of_order_one.into()], FIVE_MINUTES);
    assert!(error.expect_err("anyone can sign").contains("small order"));
}

#[test]
fn a_secret_may_be_the_key_itself_or_in_hex() {
    let encoded = |secret: &[u8], encoding| {
        VerificationScheme::standard_webhooks_encoded(&[secret.to_vec()], encoding, FIVE_MINUTES).expect("a secret")
    };
    // The text is the key, whatever it begins with.
    let text = encoded(b"whsec_any text!", SecretEncoding::Text);
    let made = text.sign(STANDARD_ID, AT, STANDARD_BODY);
    let made: Vec<HeaderPair<'_>> = made.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    check(&text, &made, STANDARD_BODY, Ok(0));
    check(&standard(), &made, STANDARD_BODY, Err(DeliveryRejection::BadSignature));
    let hex = encoded(hex::encode(b"whsec_any text!").as_bytes(), SecretEncoding::Hex);
    check(&hex, &made, STANDARD_BODY, Ok(0));
    let again = text.with_secrets(vec![b"whsec_any text!".to_vec()]).expect("a text");
    check(&again, &made, STANDARD_BODY, Ok(0));
}

#[test]
fn of_four_thousand_mutants_none_is_verified() {
    let mut tried = 0;
    for (name, value) in SIGNED {
        for (at, original) in value.bytes().enumerate() {
            for replacement in (0x20..0x7f_u8).filter(|replacement| *replacement != original) {
                let mut mutant = value.to_owned().into_bytes();
                mutant[at] = replacement;
                check_with(name, &String::from_utf8(mutant).expect("ASCII"), Err(DeliveryRejection::BadSignature));
                tried += 1;
            }
        }
    }
    assert!(tried > 4000, "{tried}");
}
