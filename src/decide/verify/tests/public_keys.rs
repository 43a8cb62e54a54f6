use super::*;
use crate::decide::verify::public_key::SMALL_ORDER;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

fn scheme(algorithm: PublicKeyAlgorithm, key: &str, encoding: SignatureEncoding) -> Result<VerificationScheme, String> {
    let keys = SignatureKeys::Public(PublicKeys::new(algorithm, &[key.into()])?);
    Ok(VerificationScheme::new(DescribedSignature {
        keys,
        encoding,
        over: SignedText::parse("{timestamp}{body}", Some(TimestampFormat::Seconds))?,
        timestamp: Some(TimestampLocation::At(FieldLocation::Header("x-time".into()))),
        timestamp_format: Some(TimestampFormat::Seconds),
        ..DescribedSignature::hmac("x-sig", secrets(&[]))
    }))
}

#[test]
fn an_ed25519_signature_is_verified_with_the_public_key_alone() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a pair");
    let public = pair.public_key().as_ref();
    let signature = hex::encode(pair.sign(b"1614265330{}"));
    let spki = [&b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"[..], public].concat();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(&spki));
    for key in [hex::encode(public), BASE64.encode(public), BASE64.encode(&spki), pem] {
        let scheme = scheme(PublicKeyAlgorithm::Ed25519, &key, SignatureEncoding::Hex).expect("a key");
        check(&scheme, &[("x-time", "1614265330"), ("x-sig", &signature)], b"{}", Ok(0));
        let refused = Err(DeliveryRejection::BadSignature);
        check(&scheme, &[("x-time", "1614265330"), ("x-sig", &signature)], b"{ }", refused.clone());
        check(&scheme, &[("x-time", "1614265331"), ("x-sig", &signature)], b"{}", refused.clone());
        check(&scheme, &[("x-time", "161426533"), ("x-sig", &signature)], b"0{}", refused.clone());
        check(&scheme, &[("x-time", "1614265330"), ("x-sig", &signature[2..])], b"{}", refused.clone());
        check(&scheme, &[("x-time", "1614265330"), ("x-sig", &"00".repeat(64))], b"{}", refused);
        assert_eq!(scheme.sign("", AT, b"{}").len(), 1, "nobody here can sign");
        assert!(scheme.has_secret());
    }
}

#[test]
fn sendgrids_vector_is_verified() {
    let key = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
    let signature = "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=";
    let body = "[{\"email\":\"hello@world.com\",\"event\":\"dropped\",\"reason\":\"Bounced Address\",\"sg_event_id\":\"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA\",\"sg_message_id\":\"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0\",\"smtp-id\":\"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>\",\"timestamp\":1600112492}]\r\n";
    let scheme = scheme(PublicKeyAlgorithm::EcdsaP256, key, SignatureEncoding::Base64).expect("a key");
    let believed = |time: &str, signature: &str, body: &str| {
        let headers = [("x-time", time), ("x-sig", signature)];
        verify(&scheme, &headers, body.as_bytes(), Timestamp(1_600_112_502_000_000)).is_ok()
    };
    assert!(believed("1600112502", signature, body));
    assert!(!believed("1600112502", signature, body.trim_end()), "the line's end is signed");
    assert!(!believed("1600112503", signature, body));
    assert!(!believed("1600112502", "AAAA", body));
    assert!(!believed("1600112502", &signature[4..], body));
}

/// With a key whose point has a small order, the signature of the neutral element and zero is right for one message in
/// eight, or for each.
#[test]
fn a_key_of_small_order_for_which_anyone_can_sign_is_refused() {
    let refused = |key: &[u8]| PublicKeys::new(PublicKeyAlgorithm::Ed25519, &[hex::encode(key).into()]).is_err();
    let mut forged = vec![0; 64];
    forged[0] = 1;
    for y in SMALL_ORDER {
        for sign in [0, 0x80] {
            let mut key = y;
            key[31] |= sign;
            assert!(refused(&key), "{}", hex::encode(key));
        }
        let key = aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ED25519, &y);
        let counts = (0..200_u8).any(|n| key.verify(&[n], &forged).is_ok());
        let is_canonical = y[31] != 0x7f || y[0] == 0xec;
        assert!(counts || !is_canonical, "the forgery shows nothing: {}", hex::encode(y));
    }
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a pair");
    assert!(!refused(pair.public_key().as_ref()));
}

#[test]
fn what_is_no_public_key_is_said() {
    for (key, expected) in [
        ("", "not a public key"),
        ("!", "neither hex nor base64"),
        ("00ff", "not a public key of Ed25519"),
        (&*"00".repeat(33), "not a public key of Ed25519"),
    ] {
        let error = scheme(PublicKeyAlgorithm::Ed25519, key, SignatureEncoding::Hex).expect_err(key);
        assert!(error.contains(expected), "{key}: {error}");
    }
    let other = "00".repeat(65);
    assert!(scheme(PublicKeyAlgorithm::EcdsaP256, &other, SignatureEncoding::Hex).is_err(), "not a point");
}
