use super::*;

fn signed(signature: &str) -> [HeaderPair<'_>; 2] {
    [JSON, ("x-hub-signature-256", signature)]
}

#[test]
fn the_documented_vector_is_verified() {
    check(&github(), &signed(GITHUB), b"Hello, World!", Ok(0));
    check(&github(), &signed(&format!("sha256={}", GITHUB[7..].to_uppercase())), b"Hello, World!", Ok(0));
}

#[test]
fn the_index_of_the_secret_that_matched_is_returned() {
    let rotating = VerificationScheme::github(secrets(&[b"other", b"", GITHUB_SECRET]));
    check(&rotating, &signed(GITHUB), b"Hello, World!", Ok(2));
    check(
        &VerificationScheme::github(secrets(&[b"other"])),
        &signed(GITHUB),
        b"Hello, World!",
        Err(DeliveryRejection::BadSignature),
    );
    check(
        &VerificationScheme::github(secrets(&[])),
        &signed(GITHUB),
        b"Hello, World!",
        Err(DeliveryRejection::BadSignature),
    );
}

#[test]
fn an_empty_secret_matches_nothing() {
    let empty = VerificationScheme::github(secrets(&[b""]));
    let made = empty.sign("1", AT, b"{}");
    let made: Vec<HeaderPair<'_>> = made.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    check(&empty, &made, b"{}", Err(DeliveryRejection::BadSignature));
    check(
        &VerificationScheme::bearer(secrets(&[b""])),
        &[("authorization", "Bearer ")],
        b"{}",
        Err(DeliveryRejection::BadSignature),
    );
}

#[test]
fn every_other_signature_is_refused_alike() {
    let hex = &GITHUB[7..];
    let wrong = [
        String::new(),
        "sha256=".into(),
        hex.into(),
        format!("sha1={hex}"),
        format!("SHA256={hex}"),
        format!("sha256= {hex}"),
        format!("{GITHUB} "),
        format!("{GITHUB}00"),
        GITHUB[..GITHUB.len() - 2].into(),
        GITHUB[..GITHUB.len() - 1].into(),
        format!("{GITHUB},{GITHUB}"),
        format!("sha256={}", "0".repeat(64)),
        format!("sha256={}", "a".repeat(5000)),
        "sha256=ünïcode".into(),
    ];
    for signature in &wrong {
        check(&github(), &signed(signature), b"Hello, World!", Err(DeliveryRejection::BadSignature));
    }
    let twice = [JSON, ("x-hub-signature-256", GITHUB), ("x-hub-signature-256", GITHUB)];
    check(&github(), &twice, b"Hello, World!", Err(DeliveryRejection::BadSignature));
    check(&github(), &[JSON], b"Hello, World!", Err(DeliveryRejection::BadSignature));
    let sha1 = [JSON, ("x-hub-signature", "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59")];
    check(&github(), &sha1, b"Hello, World!", Err(DeliveryRejection::BadSignature));
    check(&github(), &signed(GITHUB), b"Hello, World", Err(DeliveryRejection::BadSignature));
}

#[test]
fn a_form_carries_its_json_as_payload() {
    let form = "application/x-www-form-urlencoded";
    let sent = |body: &[u8]| {
        let mac = secrets(&[GITHUB_SECRET]).sign(HmacHash::Sha256, &[body]).map(hex::encode).expect("a secret");
        let signature = format!("sha256={mac}");
        verify(&github(), &[("content-type", form), ("x-hub-signature-256", &signature)], body, AT).map(|b| b.json)
    };
    let documented = "sha256=9e518bab52dd49be0a3cab84bf12fed8157f4905144554e29e99e7d137ca8e5c";
    let headers = [("content-type", form), ("x-hub-signature-256", documented)];
    let believed = verify(&github(), &headers, b"payload=%7B%22zen%22%3A%22x%22%7D", AT).expect("the vector");
    assert_eq!(believed.json, br#"{"zen":"x"}"#);
    assert_eq!(sent(b"payload=%7b+%7d"), Ok(b"{ }".to_vec()));
    for body in
        [&b""[..], b"a=1", b"payload=1&payload=1", b"payload=%7", b"a=1&payload=%7b+%7d", b"payload=1&", b"payload=1&a"]
    {
        assert!(matches!(sent(body), Err(DeliveryRejection::Malformed(_))), "{body:?}");
    }
}

#[test]
fn the_bytes_decide_how_they_are_read_and_a_contradicting_header_is_refused() {
    let sent = |headers: &[HeaderPair<'_>], body: &[u8]| {
        let mac = secrets(&[GITHUB_SECRET]).sign(HmacHash::Sha256, &[body]).map(hex::encode).expect("a secret");
        let signature = format!("sha256={mac}");
        let headers: Vec<_> = headers.iter().copied().chain([("x-hub-signature-256", &*signature)]).collect();
        verify(&github(), &headers, body, AT).map(|believed| believed.json)
    };
    let form = ("content-type", "application/x-www-form-urlencoded");
    let inside: &[u8] = br#"{"comment":"&payload=%7B%22registry_package%22%3A%7B%7D%7D&"}"#;
    assert_eq!(sent(&[JSON], inside), Ok(inside.to_vec()));
    for body in [inside, b" {}", b"[]", b"\"&payload=1&\"", b"\xef\xbb\xbf{}"] {
        assert_eq!(sent(&[form], body), Err(DeliveryRejection::NeitherJsonNorForm), "{body:?}");
    }
    assert_eq!(sent(&[form], b"payload=%7B%7D"), Ok(b"{}".to_vec()));
    assert_eq!(sent(&[JSON], b"payload=%7B%7D"), Err(DeliveryRejection::NeitherJsonNorForm));
    for charset in ["utf-16", "utf-7", "\"UTF-16\"", "shift_jis"] {
        let json = format!("application/json; charset={charset}");
        assert_eq!(sent(&[("content-type", &json)], b"{}"), Err(DeliveryRejection::NeitherJsonNorForm), "{charset}");
    }
    for parameters in ["charset =utf-16", "charset*=utf-7", "charset=utf-8;charset =utf-16", "Charset\t= utf-16"] {
        let json = format!("application/json; {parameters}");
        assert_eq!(sent(&[("content-type", &json)], b"{}"), Err(DeliveryRejection::NeitherJsonNorForm), "{parameters}");
    }
    for charset in ["utf-8", "UTF-8", "\"utf-8\"", "iso-8859-1"] {
        assert!(sent(&[("content-type", &format!("application/json;charset={charset}"))], b"{}").is_ok(), "{charset}");
    }
    for coding in ["gzip", "br", "identity, gzip"] {
        let found = sent(&[JSON, ("content-encoding", coding)], b"{}");
        assert!(matches!(found, Err(DeliveryRejection::Malformed(_))), "{coding}: {found:?}");
    }
    assert!(sent(&[JSON, ("content-encoding", "identity")], b"{}").is_ok());
}

#[test]
fn a_wrong_content_type_is_reported_only_if_the_signature_is_right() {
    let sent = |content: &str, signature: &str| {
        verify(&github(), &[("content-type", content), ("x-hub-signature-256", signature)], b"Hello, World!", AT)
    };
    for content in ["text/plain", "application/jsonp", "", "json", "application/x-www-form-urlencoded2", "*/*"] {
        assert_eq!(sent(content, GITHUB), Err(DeliveryRejection::NeitherJsonNorForm), "{content}");
        assert_eq!(sent(content, "sha256=00"), Err(DeliveryRejection::BadSignature), "{content}");
    }
    for content in ["application/json; charset=utf-8", "Application/JSON ;x=y"] {
        assert!(sent(content, GITHUB).is_ok(), "{content}");
    }
    let signature = ("x-hub-signature-256", GITHUB);
    check(&github(), &[signature], b"Hello, World!", Err(DeliveryRejection::NeitherJsonNorForm));
    check(&github(), &[JSON, JSON, signature], b"Hello, World!", Err(DeliveryRejection::NeitherJsonNorForm));
}

#[test]
fn the_delivery_id_is_read_and_not_signed() {
    let with_id = [JSON, ("x-hub-signature-256", GITHUB), ("x-github-delivery", "72d3162e")];
    let believed = verify(&github(), &with_id, b"Hello, World!", AT).expect("signed");
    assert_eq!(believed.delivery_id.as_deref(), Some("72d3162e"));
    assert_eq!(github().delivery_id().map(|id| id.signed), Some(false));
    let twice = [with_id[0], with_id[1], with_id[2], with_id[2]];
    assert!(matches!(verify(&github(), &twice, b"Hello, World!", AT), Err(DeliveryRejection::Malformed(_))));
    let empty = [with_id[0], with_id[1], ("x-github-delivery", "")];
    assert_eq!(verify(&github(), &empty, b"Hello, World!", AT).expect("signed").delivery_id, None);
}

#[test]
fn of_four_thousand_mutants_none_is_verified() {
    let mut tried = 0;
    for (at, original) in GITHUB.bytes().enumerate() {
        for replacement in 0x20..0x7f_u8 {
            let mut mutant = GITHUB.to_owned().into_bytes();
            mutant[at] = replacement;
            let mutant = String::from_utf8(mutant).expect("ASCII");
            let same = at >= 7 && replacement.eq_ignore_ascii_case(&original) || replacement == original;
            if !same {
                check(&github(), &signed(&mutant), b"Hello, World!", Err(DeliveryRejection::BadSignature));
                tried += 1;
            }
        }
    }
    assert!(tried > 4000, "{tried}");
}
