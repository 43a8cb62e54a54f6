//! Schemes, and access to the admin port: the exact texts.

use super::{check, fine, parse, source};
use hookonce::internals::config::ColorChoice;

#[test]
fn an_admin_port_off_loopback_needs_a_token() {
    check(
        r#"admin = { listen = "0.0.0.0:3143" }
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: the admin port can be reached from outside and has no token
 --> hookonce.toml:1:20
  |
1 | admin = { listen = "0.0.0.0:3143" }
  |                    ^^^^^^^^^^^^^^ not a loopback address
  |
hint: add token = { env = "HOOKONCE_ADMIN_TOKEN" }, or listen on 127.0.0.1

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn both_ports_cannot_be_the_same() {
    check(
        r#"listen = "127.0.0.1:3143"
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: webhooks and the admin port listen on the same address
 --> hookonce.toml:1:10
  |
1 | listen = "127.0.0.1:3143"
  |          ^^^^^^^^^^^^^^^^ webhooks: 127.0.0.1:3143, admin: 127.0.0.1:3143
  |
hint: give the admin port its own port

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"listen = "0.0.0.0:80"
admin = { listen = "127.0.0.1:80" }
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: webhooks and the admin port listen on the same address
 --> hookonce.toml:2:20
  |
2 | admin = { listen = "127.0.0.1:80" }
  |                    ^^^^^^^^^^^^^^ webhooks: 0.0.0.0:80, admin: 127.0.0.1:80
  |
hint: give the admin port its own port

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn tokens_of_the_admin_port_differ_and_have_permissions() {
    check(
        r#"[admin]
tokens = [{ token = { env = "A" }, may = "everything" }, { token = { env = "A" } }, { may = "read" }]
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: two tokens of the admin port are equal
 --> hookonce.toml:2:1
  |
2 | tokens = [{ token = { env = "A" }, may = "everything" }, { token = { env = "A" } }, { may = "read" }]
  | ^^^^^^ tokens must be unique: permissions would be ambiguous

error: `may` cannot be read
 --> hookonce.toml:2:42
  |
2 | tokens = [{ token = { env = "A" }, may = "everything" }, { token = { env = "A" } }, { may = "read" }]
  |                                          ^^^^^^^^^^^^ expected "read", "forget" or "all"

error: an entry of `tokens` has no `token`
 --> hookonce.toml:2:85
  |
2 | tokens = [{ token = { env = "A" }, may = "everything" }, { token = { env = "A" } }, { may = "read" }]
  |                                                                                     ^^^^^^^^^^^^^^^^

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn how_a_source_is_verified_must_be_written_out() {
    check(
        r#"[source.s]
secret = { env = "A" }
[[source.s.route]]
"#,
        r#"
error: source `s` has no `verify`
 --> hookonce.toml:1:9
  |
1 | [source.s]
  |         ^ `verify` is required unless a preset sets it
  |
hint: verify = { scheme = "github", secret = { env = "WEBHOOK_SECRET" } }; "none" must be set explicitly

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { secret = { env = "A" } }
[[source.s.route]]
"#,
        r#"
error: `verify` has no `scheme`
 --> hookonce.toml:2:10
  |
2 | verify = { secret = { env = "A" } }
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^ expected "github", "standard-webhooks", "hmac", "ed25519", "ecdsa-p256", "token", "bearer", "basic", "jwt", "sns", "paypal", "adyen", "twilio", "twilio-json", "carried" or "none"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = "github"
[[source.s.route]]
"#,
        r#"
error: scheme `github` needs a secret
 --> hookonce.toml:2:10
  |
2 | verify = "github"
  |          ^^^^^^^^
  |
hint: secret = { env = "WEBHOOK_SECRET" }

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = "none"
secret = { env = "A" }
[[source.s.route]]
"#,
        r#"
error: `verify` is "none", but there is a secret
 --> hookonce.toml:3:10
  |
3 | secret = { env = "A" }
  |          ^^^^^^^^^^^^^ it would not be used

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn keys_of_another_scheme_are_reported() {
    check(
        r#"[source.s]
verify = { scheme = "github", secret = { env = "A" }, header = "x", tolerance = "5m" }
[[source.s.route]]
"#,
        r#"
error: `header` has no meaning for scheme `github`
 --> hookonce.toml:2:55
  |
2 | verify = { scheme = "github", secret = { env = "A" }, header = "x", tolerance = "5m" }
  |                                                       ^^^^^^
  |
hint: remove it, or describe the signature with scheme = "hmac"

error: `tolerance` has no meaning for scheme `github`
 --> hookonce.toml:2:69
  |
2 | verify = { scheme = "github", secret = { env = "A" }, header = "x", tolerance = "5m" }
  |                                                                     ^^^^^^^^^
  |
hint: remove it, or describe the signature with scheme = "hmac"

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_hmac_is_described_completely() {
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" } }
[[source.s.route]]
"#,
        r#"
error: scheme `hmac` needs the header with the signature
 --> hookonce.toml:2:10
  |
2 | verify = { scheme = "hmac", secret = { env = "A" } }
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `header` is missing
  |
hint: verify = { scheme = "hmac", secret = …, header = "x-signature" }

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", over = "{timestamp}.{id}.{body}" }
[[source.s.route]]
"#,
        r#"
error: `over` has a {timestamp}, but `timestamp` is missing
 --> hookonce.toml:2:74
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", over = "{timestamp}.{id}.{body}" }
  |                                                                          ^^^^^^^^^^^^^^^^^^^^^^^^^
  |
hint: set timestamp = "header.x-time"

error: `over` has an {id}, but `delivery` is missing
 --> hookonce.toml:2:74
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", over = "{timestamp}.{id}.{body}" }
  |                                                                          ^^^^^^^^^^^^^^^^^^^^^^^^^
  |
hint: set delivery = "header.x-id" in the source

2 errors in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", timestamp = "header.t" }
[[source.s.route]]
"#,
        r#"
error: `timestamp` is not part of `over`
 --> hookonce.toml:2:79
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", timestamp = "header.t" }
  |                                                                               ^^^^^^^^^^ anyone who repeats a delivery could change it
  |
hint: over = "{timestamp}.{body}", if the sender signs both

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", tolerance = "1m" }
[[source.s.route]]
"#,
        r#"
error: `tolerance` needs a `timestamp`
 --> hookonce.toml:2:79
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", tolerance = "1m" }
  |                                                                               ^^^^ there is no time to compare with

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", over = "{timestamp}" , timestamp = "header.t" }
[[source.s.route]]
"#,
        r#"
error: `over` cannot be read
 --> hookonce.toml:2:74
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", over = "{timestamp}" , timestamp = "header.t" }
  |                                                                          ^^^^^^^^^^^^^ without `{body}` a signature would say nothing about what was sent
  |
hint: over = "{timestamp}.{body}"

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_secret_of_standard_webhooks_has_its_own_form() {
    check(
        r#"[source.s]
verify = "standard-webhooks"
secret = { env = "A" }
[[source.s.route]]
"#,
        r#"
error: the secret is not a Standard Webhooks secret
 --> hookonce.toml:2:10
  |
2 | verify = "standard-webhooks"
  |          ^^^^^^^^^^^^^^^^^^^ the secret is not `whsec_` followed by base64

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn signed_without_a_delivery_id_is_reported() {
    check(
        &source("signed = true"),
        r#"
error: `signed` needs `delivery`, which is missing
 --> hookonce.toml:4:1
  |
4 | signed = true
  | ^^^^^^
  |
hint: set delivery = "header.x-id", or remove `signed`

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn what_can_never_verify_is_refused() {
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "Stripe-Signature", prefix = "v1=", timestamp = "header.stripe-signature", over = "{timestamp}.{body}" }
[[source.s.route]]
"#,
        r#"
error: `timestamp` is the whole header with the signature
 --> hookonce.toml:2:110
  |
2 | …Signature", prefix = "v1=", timestamp = "header.stripe-signature", over = "{timestamp}.{body}" }
  |                                          ^^^^^^^^^^^^^^^^^^^^^^^^^ a signature is not a time, so nothing could be verified
  |
hint: for t=…,v1=… write entry = "v1", timestamp = "entry.t"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", timestamp = "entry.t", over = "{timestamp}.{body}" }
[[source.s.route]]
"#,
        r#"
error: `timestamp` is the entry `t`, but `entry` does not name the signature's
 --> hookonce.toml:2:79
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", timestamp = "entry.t", over = "{timestamp}.{body}" }
  |                                                                               ^^^^^^^^^ a header has entries only if `entry` says so
  |
hint: entry = "v1", timestamp = "entry.t" for t=…,v1=…

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", timestamp = "header.t", over = "{timestamp}{body}" }
[[source.s.route]]
"#,
        r#"
error: `over` cannot be read
 --> hookonce.toml:2:98
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", timestamp = "header.t", over = "{timestamp}{body}" }
  |                                                                                                  ^^^^^^^^^^^^^^^^^^^ two placeholders are side by side: a byte could move from one to the other unnoticed, unless `timestamp_format` says how long the time is
  |
hint: over = "{timestamp}.{body}"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", secret_encoding = "hex" }
[[source.s.route]]
"#,
        r#"
error: the secret cannot be decoded, so nothing could be verified
 --> hookonce.toml:2:85
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", secret_encoding = "hex" }
  |                                                                                     ^^^^^ the secret is not hex
  |
hint: secret_encoding says how the sender shows the key

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_credential_or_url_that_can_never_verify_is_refused() {
    check(
        r#"[source.s]
verify = { scheme = "ed25519", header = "x", public_key = "0a" }
[[source.s.route]]
[source.t]
verify = { scheme = "ed25519", header = "x" }
[[source.t.route]]
"#,
        r#"
error: the public key cannot be read
 --> hookonce.toml:2:59
  |
2 | verify = { scheme = "ed25519", header = "x", public_key = "0a" }
  |                                                           ^^^^ it is not a public key of Ed25519

error: scheme `ed25519` needs the sender's public key
 --> hookonce.toml:5:21
  |
5 | verify = { scheme = "ed25519", header = "x" }
  |                     ^^^^^^^^^
  |
hint: public_key = "…", as the sender shows it

2 errors in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "token", secret = { env = "A" } }
[[source.s.route]]
[source.t]
verify = { scheme = "basic", secret = { env = "B" } }
[[source.t.route]]
"#,
        r#"
error: scheme `token` needs the place of the token
 --> hookonce.toml:2:21
  |
2 | verify = { scheme = "token", secret = { env = "A" } }
  |                     ^^^^^^^ `at` is missing
  |
hint: verify = { scheme = "token", secret = …, at = "header.x-token" }

error: the secret of scheme `basic` is not a user and a password
 --> hookonce.toml:5:21
  |
5 | verify = { scheme = "basic", secret = { env = "B" } }
  |                     ^^^^^^^ it has no colon, so it can never match
  |
hint: write both into the secret: user:password

2 errors in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", over = "{url}{body}" }
[[source.s.route]]
"#,
        r#"
error: the sender signs its URL, but `url` is missing
 --> hookonce.toml:1:9
  |
1 | [source.s]
  |         ^
  |
hint: url = "https://hooks.example.com/in/name", as it is set at the sender

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = { scheme = "hmac", secret = { env = "A" }, header = "x", separator = ";" }
[[source.s.route]]
"#,
        r#"
error: `separator` needs `entry`
 --> hookonce.toml:2:67
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = "x", separator = ";" }
  |                                                                   ^^^^^^^^^ it separates the entries of the header

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_signature_may_be_in_one_of_several_headers() {
    let with = |header: &str| {
        format!(
            "[source.s]\nverify = {{ scheme = \"hmac\", secret = {{ env = \"A\" }}, header = {header} }}\n[[source.s.route]]\n"
        )
    };
    let config = fine(&with("[\"X-One\", \"x-two\"]"));
    assert_eq!(config.sources[0].verify.signature_headers(), ["x-one", "x-two"]);
    check(
        &with("[]"),
        r#"
error: scheme `hmac` needs the header with the signature
 --> hookonce.toml:2:10
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = [] }
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ `header` is missing
  |
hint: verify = { scheme = "hmac", secret = …, header = "x-signature" }

1 error in hookonce.toml; nothing was started
"#,
    );
    let alone = "[source.s]\nverify = \"hmac\"\nsecret = { env = \"A\" }\n[[source.s.route]]\n";
    assert!(parse(alone).is_err_and(|error| error.to_string().contains("needs the header with the signature")));
    check(
        &with("[\"x\", 1]"),
        r#"
error: `header` cannot be read
 --> hookonce.toml:2:68
  |
2 | verify = { scheme = "hmac", secret = { env = "A" }, header = ["x", 1] }
  |                                                                    ^ expected a string, or a list of strings, found an integer in it

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_secret_that_does_not_fit_a_preset_is_reported_where_it_is_written() {
    check(
        r#"[source.s]
preset = "adyen-platform"
secret = { env = "A" }
[[source.s.route]]
"#,
        r#"
error: the secret cannot be decoded, so nothing could be verified
 --> hookonce.toml:3:10
  |
3 | secret = { env = "A" }
  |          ^^^^^^^^^^^^^ the secret is not hex
  |
hint: secret_encoding says how the sender shows the key

1 error in hookonce.toml; nothing was started
"#,
    );
    fine("[source.s]\npreset = \"polar\"\nsecret = { env = \"A\" }\n[[source.s.route]]\n");
}

/// The message about the signature with these keys, or about the handshake with these lines.
fn check_refused(keys: &str, lines: &str, expected: &str) {
    let text = format!("[source.s]\nverify = {{ {keys} }}\n{lines}\n[[source.s.route]]\n");
    let shown = parse(&text).err().map(|problems| problems.render(ColorChoice::Plain)).unwrap_or_default();
    assert!(shown.contains(&format!("error: {expected}\n")), "{text}{shown}");
}

#[test]
fn a_signature_that_could_never_be_found_is_refused() {
    let check_hmac = |keys: &str, expected: &str| {
        check_refused(&format!("scheme = \"hmac\", secret = {{ env = \"A\" }}, {keys}"), "", expected);
    };
    check_hmac("header = \"X Signature\"", "`X Signature` cannot be the name of a header");
    for entry in ["", "v1=", "v1,", "v 1"] {
        let expected = format!("`{entry}` cannot be the name of an entry");
        check_hmac(&format!("header = \"x\", entry = \"{entry}\""), &expected);
    }
    check_hmac(
        "header = \"x\", entry = \"v1\", timestamp = \"entry.v1\", over = \"{timestamp}.{body}\"",
        "`timestamp` is the entry with the signature",
    );
    check_hmac(
        "header = \"x\", entry = \"v1\", prefix = \"a,\"",
        "`prefix` contains what separates the entries, so nothing could be verified",
    );
    check_hmac(
        "header = \"x\", timestamp = \"path\", over = \"{timestamp}.{body}\"",
        "`timestamp` cannot be in the path",
    );
    for prefix in ["v1=", "v1=sha256="] {
        check_hmac(
            &format!("header = \"x\", entry = \"v1\", prefix = \"{prefix}\""),
            "`prefix` repeats the name of the entry, so nothing could be verified",
        );
    }
    check_hmac("header = [\"x-a\", \"X-A\"]", "the header `x-a` is named twice");
    check_hmac("header = \"x\", timestamp = \"header.t\", over = \"{timestamp}1{body}\"", "`over` cannot be read");
    for fine in [
        "header = \"x\", entry = \"v1\", prefix = \"v1\"",
        "header = [\"x-a\", \"x-b\"]",
        "header = \"x\", timestamp = \"header.t\", timestamp_format = \"seconds\", over = \"{timestamp}1{body}\"",
        "header = \"x\", timestamp = \"header.t\", over = \"1{timestamp}.{body}\"",
    ] {
        super::fine(&format!(
            "[source.s]\nverify = {{ scheme = \"hmac\", secret = {{ env = \"A\" }}, {fine} }}\n[[source.s.route]]\n"
        ));
    }
}

/// The claims of a token are known when it has been verified, and what verifies it is read before.
#[test]
fn a_claim_is_no_place_of_what_verifies() {
    let claim = |name: &str| format!("`claim.{name}` cannot be read here, so nothing could match");
    let secret = "secret = { env = \"A\" }";
    check_refused(&format!("scheme = \"token\", {secret}, at = \"claim.s\""), "", &claim("s"));
    check_refused(&format!("scheme = \"token\", {secret}, at = \"claim.s\""), "each = \"body\"", &claim("s"));
    let hmac = format!("scheme = \"hmac\", {secret}");
    let over = "over = \"{timestamp}.{body}\"";
    check_refused(&format!("{hmac}, header = \"x\", timestamp = \"claim.t\", {over}"), "", &claim("t"));
    check_refused(&format!("{hmac}, at = \"claim.sig\""), "", &claim("sig"));
    let jwt = format!("scheme = \"jwt\", {secret}, audience = \"a\"");
    for handshake in [
        "when = { \"claim.x\" = \"*\" }",
        "when = { \"body.x\" = \"*\" }, text = \"claim.x\"",
        "when = { \"body.x\" = \"*\" }, members = { a = \"claim.x\" }",
    ] {
        check_refused(&jwt, &format!("handshake = {{ {handshake} }}"), &claim("x"));
    }
    // Fields and the delivery id are read from a verified token.
    let read = "delivery = \"claim.jti\"\nfields = { who = \"claim.sub\" }";
    fine(&format!("[source.s]\nverify = {{ {jwt} }}\n{read}\n[[source.s.route]]\n"));
}

/// A token that no header can bring, and one of them that a body can.
#[test]
fn a_token_that_can_never_be_received_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("secret");
    let told = |keys: &str, secret: &[u8]| {
        std::fs::write(&file, secret).expect("written");
        let text = format!(
            "[source.s]\nverify = {{ {keys}, secret = {{ file = \"{}\" }} }}\n[[source.s.route]]\n",
            file.display()
        );
        parse(&text).err().map(|error| error.render(ColorChoice::Plain)).unwrap_or_default()
    };
    let (header, bearer) = ("scheme = \"token\", at = \"header.x-token\"", "scheme = \"bearer\"");
    let long = [b'a'; 5_000];
    for (keys, secret, why) in [
        (header, &b"a token of two\nlines and more"[..], "it has a line break"),
        (bearer, b"a token of two\nlines and more", "it has a line break"),
        (header, b"a token with a \x01 in the middle", "another control character"),
        (header, b" a token that begins with a blank", "it has a blank at an end"),
        (header, b"a token that ends with a blank ", "it has a blank at an end"),
        (bearer, b"a token that ends with a blank\t", "it has a blank at an end"),
        (header, b"a token that is not text \xff\xfe", "it is not UTF-8"),
        (bearer, b"a token that is not text \xff\xfe", "it is not UTF-8"),
        ("scheme = \"token\", at = \"body.token\"", b"a token that is not text \xff\xfe", "it is not UTF-8"),
        (header, &long, "it is longer than any token that is read"),
    ] {
        let shown = told(keys, secret);
        let title =
            format!("error: the secret of scheme `{}` can never match", keys.split('"').nth(1).expect("a name"));
        assert!(shown.contains(&title) && shown.contains(why), "{keys} {why}: {shown}");
        assert!(!shown.contains("a token"), "{shown}");
    }
    for (keys, secret) in [
        (bearer, &b" a token that begins with a blank"[..]),
        ("scheme = \"token\", at = \"body.token\"", b"a token of two\nlines and more"),
        ("scheme = \"token\", at = \"query.token\"", b" a token between two blanks "),
        ("scheme = \"bearer\", query = \"token\"", b"a token that ends with a blank "),
        ("scheme = \"basic\"", b"user: a password between blanks "),
        (header, "a token with an ü in the middle".as_bytes()),
    ] {
        let shown = told(keys, secret);
        assert!(!shown.contains("error:"), "{keys}: {shown}");
    }
}

#[test]
fn a_public_key_that_is_no_point_of_its_curve_is_refused() {
    let told = |algorithm: &str, key: &str| {
        let verify = format!("verify = {{ scheme = \"{algorithm}\", header = \"x\", public_key = \"{key}\" }}");
        let parsed = parse(&format!("[source.s]\n{verify}\n[[source.s.route]]\n"));
        parsed.err().map(|error| error.render(ColorChoice::Plain)).unwrap_or_default()
    };
    let sendgrid = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
    assert_eq!(told("ecdsa-p256", sendgrid), "");
    let bent = sendgrid.replace("3F+g==", "3F+w==");
    for (algorithm, key, words) in [
        ("ecdsa-p256", "04".repeat(65), "ECDSA P-256"),
        ("ecdsa-p256", bent, "ECDSA P-256"),
        ("ed25519", format!("02{}", "00".repeat(31)), "Ed25519"),
        ("ed25519", "04".repeat(32), "Ed25519"),
    ] {
        let shown = told(algorithm, &key);
        let why = format!("it is not a public key of {words}: there is no such point on its curve");
        assert!(shown.contains(&why), "{algorithm} {key}: {shown}");
    }
}

#[test]
fn an_answer_is_signed_only_with_a_secret_and_is_no_header_of_a_browser() {
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let ed25519 = format!("scheme = \"ed25519\", header = \"x\", public_key = \"{key}\"");
    let signed = "handshake = { method = \"GET\", members = { a = \"hmac.hex(query.a)\" } }";
    check_refused(&ed25519, signed, "the answer to a handshake is signed, but this source has no secret to sign with");
    for (header, expected) in [
        ("Set-Cookie", "the header `set-cookie` cannot be the answer to a handshake"),
        ("a b", "`a b` cannot be the name of a header"),
    ] {
        let echo = format!("handshake = {{ method = \"GET\", text = \"query.a\", header = \"{header}\" }}");
        check_refused(&ed25519, &echo, expected);
    }
}

#[test]
fn every_scheme_with_a_key_may_have_callers() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().display();
    for keys in
        ["scheme = \"basic\"", "scheme = \"ed25519\", header = \"x\"", "scheme = \"ecdsa-p256\", header = \"x\""]
    {
        let config = fine(&format!(
            "[source.s]\nverify = {{ {keys} }}\nsecret = {{ dir = \"{folder}\" }}\nfields = {{ who = \"header.x-who\" }}\nkey_id = \"who\"\n[[source.s.route]]\n"
        ));
        assert!(config.sources[0].verify.callers().is_some(), "{keys}");
    }
}

#[test]
fn a_token_in_the_body_is_stored_with_it() {
    check(
        r#"[source.s]
verify = { scheme = "token", secret = { env = "A" }, at = "body.passcode" }
[[source.s.route]]
"#,
        r#"
warning: the token is in the body, so it is stored and passed on with it
 --> hookonce.toml:2:59
  |
2 | verify = { scheme = "token", secret = { env = "A" }, at = "body.passcode" }
  |                                                           ^^^^^^^^^^^^^^^ whoever sees a body can send as its sender
  |
hint: at = "header.x-token", if the sender can; otherwise keep_body = "0s" in `once` removes each body when its event is done
"#,
    );
    check(
        r#"[source.s]
preset = "figma"
secret = { env = "A" }
[[source.s.route]]
"#,
        r#"
warning: the token is in the body, so it is stored and passed on with it
 --> hookonce.toml:2:10
  |
2 | preset = "figma"
  |          ^^^^^^^ whoever sees a body can send as its sender
  |
hint: keep_body = "0s" in `once` removes each body when its event is done
"#,
    );
}

#[test]
fn what_would_have_no_effect_in_a_scheme_or_a_handshake_is_refused() {
    let key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    let error = |text: String| parse(&text).expect_err(&text).to_string();
    let beside = error(format!(
        "[source.s]\nverify = {{ scheme = \"ed25519\", header = \"x\", public_key = \"{key}\" }}\nsecret = {{ env = \"A\" }}\n[[source.s.route]]\n"
    ));
    assert!(beside.contains("scheme `ed25519` has no secret"), "{beside}");
    let format = error(
        "[source.s]\nverify = { scheme = \"hmac\", secret = { env = \"A\" }, header = \"x\", timestamp_format = \"seconds\" }\n[[source.s.route]]\n".into(),
    );
    assert!(format.contains("`timestamp_format` needs a `timestamp`"), "{format}");
    let empty = error(
        "[source.s]\nverify = \"none\"\nhandshake = { method = \"GET\", text = \"query.c\", status = 204 }\n[[source.s.route]]\n".into(),
    );
    assert!(empty.contains("a handshake that is answered with 204 has no content"), "{empty}");
}

#[test]
fn a_signed_query_holds_nothing_else_and_a_header_begins_with_no_blank() {
    let told = |verify: &str, lines: &str| {
        let text = format!("[source.s]\nverify = {{ {verify} }}\n{lines}\n[[source.s.route]]\n");
        parse(&text).err().map(|error| error.render(ColorChoice::Plain)).unwrap_or_default()
    };
    let hmac = |more: &str, lines: &str| {
        told(
            &format!("scheme = \"hmac\", secret = {{ env = \"A\" }}, {more}"),
            &format!("url = \"https://h/in/s\"\n{lines}"),
        )
    };
    for (key, verify, lines) in [
        ("at", "at = \"query.sig\", over = \"{url}{body}\"", ""),
        ("timestamp", "header = \"x\", timestamp = \"query.t\", over = \"{timestamp}.{url}{body}\"", ""),
        ("delivery", "header = \"x\", over = \"{id}.{url}{body}\"", "delivery = \"query.id\""),
    ] {
        let shown = hmac(verify, lines);
        assert!(shown.contains(&format!("error: `{key}` is in the query, but the sender signs its URL")), "{shown}");
        assert!(shown.contains("1 error "), "{shown}");
        assert_eq!(
            told(&format!("scheme = \"hmac\", secret = {{ env = \"A\" }}, {}", verify.replace("{url}", "")), lines),
            ""
        );
    }
    assert_eq!(hmac("header = \"x\", timestamp = \"header.t\", over = \"{timestamp}.{url}{body}\"", ""), "");
    let folder = tempfile::tempdir().expect("a folder");
    let callers = format!(
        "url = \"https://h/in/s\"\nkey_id = \"who\"\nfields = {{ who = \"query.who\" }}\nsecret = {{ dir = \"{}\" }}",
        folder.path().display()
    );
    for scheme in ["scheme = \"twilio\"", "scheme = \"hmac\", header = \"x\", over = \"{url}{body}\""] {
        let shown = told(scheme, &callers);
        assert!(
            shown.contains("error: `key_id` is `who`, which is in the query, but the sender signs its URL\n"),
            "{shown}"
        );
    }
    let prefixed = "header = \"x\", prefix = \" v1=\"";
    let jwt = "scheme = \"jwt\", secret = { env = \"A\" }, audience = \"x\", header = \"x\", prefix = \" v1=\"";
    for shown in [told(&format!("scheme = \"hmac\", secret = {{ env = \"A\" }}, {prefixed}"), ""), told(jwt, "")] {
        assert!(shown.contains("error: `prefix` begins with a blank, so nothing could be verified\n"), "{shown}");
    }
    // An entry may have one after its name, and there may be one after the prefix.
    for fine in ["header = \"x\", entry = \"v1\", prefix = \" a\"", "header = \"x\", prefix = \"HMAC \""] {
        assert_eq!(told(&format!("scheme = \"hmac\", secret = {{ env = \"A\" }}, {fine}"), ""), "");
    }
}
