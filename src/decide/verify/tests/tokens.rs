use super::*;

fn place(text: &str) -> FieldLocation {
    FieldLocation::parse(text).expect("a place")
}

fn believed(scheme: &VerificationScheme, query: &str, headers: &[HeaderPair<'_>], body: &[u8]) -> Option<usize> {
    let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
    let body = Bytes::copy_from_slice(body);
    let delivery = Delivery { path: "/in/x", query, headers: &borrow_headers(&headers), body: &body, at: AT, wall: AT };
    scheme.verify(&delivery).ok().map(|verified| verified.secret())
}

#[test]
fn a_token_may_be_in_a_header_the_query_or_the_body() {
    let tokens = || secrets(&[b"t0ken", b"old"]);
    let header = VerificationScheme::token(tokens(), place("header.x-gitlab-token"));
    assert_eq!(believed(&header, "", &[("x-gitlab-token", "t0ken")], b"{}"), Some(0));
    assert_eq!(believed(&header, "", &[("x-gitlab-token", "old")], b"{}"), Some(1));
    let raw = VerificationScheme::token(tokens(), place("header.authorization"));
    assert_eq!(believed(&raw, "", &[("authorization", "t0ken")], b"{}"), Some(0));
    assert_eq!(believed(&raw, "", &[("authorization", "Bearer t0ken")], b"{}"), None);
    let query = VerificationScheme::token(tokens(), place("query.token"));
    assert_eq!(believed(&query, "token=t0ken", &[], b"{}"), Some(0));
    for wrong in ["", "token=", "token=t0ke", "token=t0ken&token=t0ken", "token=%zz", "toke=t0ken", "token=T0ken"] {
        assert_eq!(believed(&query, wrong, &[], b"{}"), None, "{wrong}");
    }
    let body = VerificationScheme::token(tokens(), place("body.passcode"));
    assert_eq!(believed(&body, "", &[], br#"{"passcode":"t0ken"}"#), Some(0));
    for wrong in
        [&b""[..], b"{}", br#"{"passcode":""}"#, br#"{"passcode":["t0ken"]}"#, br#"{"passcode":true}"#, b"t0ken"]
    {
        assert_eq!(believed(&body, "", &[], wrong), None, "{wrong:?}");
    }
    for scheme in [&header, &raw, &query, &body] {
        assert_eq!(believed(scheme, "", &[], b"{}"), None);
        assert!(!scheme.signs_body() && scheme.covers(&place("query.a")));
    }
    let doubled = [("x-gitlab-token", "t0ken"), ("x-gitlab-token", "t0ken")];
    assert_eq!(believed(&header, "", &doubled, b"{}"), None);
}

#[test]
fn a_token_of_an_empty_secret_matches_nothing() {
    for at in ["header.x-token", "query.token", "body.token"] {
        let scheme = VerificationScheme::token(secrets(&[b""]), place(at));
        assert_eq!(believed(&scheme, "token=", &[("x-token", "")], br#"{"token":""}"#), None, "{at}");
    }
}

#[test]
fn basic_takes_user_and_password_together() {
    let scheme = VerificationScheme::basic(secrets(&[b"hook:t0ken"]));
    let at = |value: &str| believed(&scheme, "", &[("authorization", value)], b"{}");
    assert_eq!(at("Basic aG9vazp0MGtlbg=="), Some(0));
    assert_eq!(at("basic aG9vazp0MGtlbg=="), Some(0));
    for wrong in [
        "",
        "Basic",
        "Basic ",
        "Basic aG9vazp0MGtlbg",
        "Bearer aG9vazp0MGtlbg==",
        "aG9vazp0MGtlbg==",
        "Basic hook:t0ken",
        "Basic dDBrZW4=",
        "Basic  aG9vazp0MGtlbg==",
    ] {
        assert_eq!(at(wrong), None, "{wrong}");
    }
    assert_eq!(scheme.sign("", AT, b"")[1].1, "Basic aG9vazp0MGtlbg==");
    assert_eq!(scheme.signature_headers(), ["authorization"]);
}
