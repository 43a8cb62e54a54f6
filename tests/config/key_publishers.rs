//! Senders that publish their keys, and those that sign parts: what must be written, and what would never verify.

use hookonce::internals::config::{self, ColorChoice, Config, ConfigError, presets};
use std::path::Path;

/// This config; each of its secrets is a key in hex.
fn parse(text: &str) -> Result<Config, ConfigError> {
    let env = |_: &str| Some("6120736563726574207468617420697320".to_owned());
    config::parse(text, "hookonce.toml", Path::new("/etc"), &env)
}

/// The errors and warnings of a source with these keys.
fn told(keys: &str) -> String {
    match parse(&format!("[source.s]\n{keys}\n[[source.s.route]]\n")) {
        Ok(config) => config.warnings.iter().map(ToString::to_string).collect(),
        Err(error) => error.render(ColorChoice::Plain),
    }
}

fn check_told(keys: &str, expected: &[&str]) {
    let told = told(keys);
    for part in expected {
        assert!(told.contains(part), "{keys}\n{told}\nlacks {part}");
    }
}

fn check_fine(keys: &str) {
    assert_eq!(told(keys), "", "{keys}");
}

/// Where a signature proves only the platform, the preset asks for exactly what pins the owner.
#[test]
fn a_preset_asks_for_what_pins_the_owner_and_for_nothing_else() {
    for (preset, needs) in [
        ("github-actions", &["audience", "claims"][..]),
        ("gitlab-ci", &["audience", "claims"]),
        ("event-grid-jwt", &["issuer", "audience", "claims"]),
        ("pubsub", &["audience", "claims"]),
        ("artifact-registry", &["audience", "claims"]),
        ("sns", &["topic"]),
        ("paypal", &["webhook_id"]),
        ("twilio", &["secret", "url"]),
        ("adyen", &["secret"]),
        ("mailgun", &["secret"]),
        ("mailgun-form", &["secret"]),
        ("netlify", &["secret"]),
        ("monday", &["secret", "audience"]),
    ] {
        let preset = presets::find(preset).expect(preset);
        assert_eq!(preset.sender().needs, needs, "{}", preset.name);
        let example = preset.example();
        for key in needs {
            let without: String = example
                .lines()
                .filter(|line| !line.starts_with(key))
                .fold(String::new(), |all, line| all + line + "\n");
            let error = parse(&without).expect_err(preset.name).render(ColorChoice::Plain);
            assert!(error.contains(key), "{} without {key}:\n{error}", preset.name);
            assert!(error.contains("1 error "), "{} without {key}:\n{error}", preset.name);
        }
    }
}

#[test]
fn an_issuer_that_signs_for_everyone_needs_a_claim_that_names_the_owner() {
    let jwt = |more: &str| format!("verify = {{ scheme = \"jwt\", audience = \"x\", {more} }}");
    for issuer in
        ["https://gitlab.com", "https://token.actions.githubusercontent.com", "https://oidc.circleci.com/org/1"]
    {
        check_told(&jwt(&format!("issuer = \"{issuer}\", claims = {{ ref = \"main\" }}")), &["needs `claims`"]);
        check_fine(&jwt(&format!("issuer = \"{issuer}\", claims = {{ sub = \"owner\" }}")));
    }
    // Google writes its name without what begins a URL, too.
    let google = "issuer = \"accounts.google.com\", keys = \"https://www.googleapis.com/oauth2/v3/certs\"";
    check_told(&jwt(google), &["needs `claims`"]);
    check_fine(&jwt(&format!("{google}, claims = {{ email = \"push@project.iam.gserviceaccount.com\" }}")));
    // Another host, whose name only begins alike.
    check_fine(&jwt("issuer = \"https://gitlab.company.example\""));
    check_told(&jwt("issuer = \"http://gitlab.example\""), &["keys cannot be fetched", "over https only"]);
    check_told(&jwt("issuer = \"https://a:b@gitlab.example\""), &["keys cannot be fetched"]);
    check_told(&jwt("issuer = \"gitlab\""), &["needs `secret`"]);
    check_told("verify = { scheme = \"jwt\", audience = \"x\" }", &["needs `issuer`"]);
    check_told(
        &jwt("secret = { env = \"A\" }, issuer = \"https://a.example\", keys = \"https://a.example/keys\""),
        &["not with both"],
    );
    check_told(&jwt("issuer = \"https://a.example\", claims = { a = [] }"), &["the claim `a` has no value"]);
    check_told(
        &jwt("issuer = \"https://a.example\", claims = { a = 7 }"),
        &["each with a string or a list of strings"],
    );
    check_told(&jwt("issuer = \"https://a.example\", claims = { \"\" = \"x\" }"), &["is not the name of a claim"]);
    check_fine(&jwt("issuer = \"https://a.example\", claims = { '\"https://a.example/role\"' = [\"x\", \"y\"] }"));
}

/// Its sender signs tokens for others with the same secret, and a token for one body is for nobody else.
#[test]
fn a_token_that_comes_with_any_body_is_for_somebody() {
    let jwt = |more: &str| format!("verify = {{ scheme = \"jwt\", secret = {{ env = \"A\" }}{more} }}");
    check_told(&jwt(""), &["scheme `jwt` needs `audience`"]);
    check_fine(&jwt(", audience = \"https://hooks.example.com\""));
    check_fine(&jwt(", body_digest = \"sha256\""));
}

#[test]
fn what_no_delivery_can_have_is_refused() {
    let jwt = |more: &str| format!("verify = {{ scheme = \"jwt\", issuer = \"https://a.example\", {more} }}");
    check_told(&jwt("audience = \" \""), &["`audience` is empty"]);
    check_told(&jwt("audience = \"x\", claims = { sub = \"\" }"), &["the claim `sub` has no value"]);
    check_told("verify = \"paypal\"\nwebhook_id = \"\"", &["`webhook_id` is empty"]);
    check_told("verify = \"sns\"\ntopic = \"arn:aws:sns:eu-west-1:123456789012:*\"", &["`topic` has a wildcard"]);
    let described =
        "verify = { scheme = \"hmac\", header = \"x-s\", over = \"{url}{body}\", secret = { env = \"A\" } }";
    let twilio = "preset = \"twilio\"\nsecret = { env = \"A\" }";
    for url in ["", "hello", "not a url", "/in/s", "ftp://a.example/in/s"] {
        check_told(&format!("{twilio}\nurl = \"{url}\""), &["`url` is not a URL"]);
        check_told(&format!("{described}\nurl = \"{url}\""), &["`url` is not a URL"]);
    }
    check_fine(&format!("{described}\nurl = \"https://a.example/in/s?x=1\""));
}

#[test]
fn what_is_missing_beside_a_preset_is_asked_for_at_once_and_as_its_sender_has_it() {
    check_told("preset = \"monday\"", &["needs `secret`", "needs `audience`"]);
    check_told(
        "preset = \"pubsub\"\naudience = \"x\"",
        &["needs `claims`", "claims = { email = \"push@PROJECT.iam.gserviceaccount.com\" }"],
    );
    check_told("preset = \"github-actions\"\naudience = \"x\"", &["claims = { repository = \"owner/name\" }"]);
}

#[test]
fn what_a_user_writes_beside_a_preset_is_reported_where_it_is_written() {
    check_told(
        "preset = \"gocardless\"\nsecret = { env = \"A\" }\nrespond = \"done\"",
        &["`each` and respond", "hookonce.toml:4:1"],
    );
    check_told("preset = \"azure-devops\"\nsecret = { env = \"A\" }", &["it has no colon", "hookonce.toml:3:10"]);
}

#[test]
fn claims_are_there_only_with_tokens() {
    let verify = "verify = { scheme = \"bearer\", secret = { env = \"A\" } }";
    check_told(
        &format!("{verify}\nfields = {{ repository = \"claim.repository\" }}"),
        &["`claim.repository` is never there", "only tokens of scheme `jwt`"],
    );
    check_told(&format!("{verify}\ndelivery = \"claim.jti\""), &["`claim.jti` is never there"]);
}

#[test]
fn a_topic_says_which_host_its_certificates_are_at() {
    check_fine("verify = \"sns\"\ntopic = \"arn:aws:sns:eu-west-1:123456789012:jobs\"");
    check_told("verify = \"sns\"\ntopic = \"jobs\"", &["`jobs` is not a topic of SNS", "expected an ARN"]);
    let iso = "topic = \"arn:aws-iso:sns:us-iso-east-1:123456789012:jobs\"";
    check_told(&format!("verify = \"sns\"\n{iso}"), &["set `certificates`"]);
    check_fine(&format!("verify = \"sns\"\n{iso}\ncertificates = \"https://sns.us-iso-east-1.c2s.ic.gov\""));
    for (host, why) in [
        ("http://sns.example", "over https only"),
        ("https://sns.example/certs", "not the address of a host"),
        ("https://sns.example?x", "not the address of a host"),
        ("ftp://sns.example", "begins with https://"),
    ] {
        check_told(&format!("verify = \"sns\"\n{iso}\ncertificates = \"{host}\""), &[why]);
    }
    check_told(
        "verify = \"sns\"\ntopic = \"arn:aws:sns:eu-west-1:123456789012:jobs\"\nsecret = { env = \"A\" }",
        &["scheme `sns` has no secret"],
    );
}

#[test]
fn identities_take_only_what_is_signed() {
    let secret = "secret = { env = \"A\" }";
    for (source, not_signed) in [
        (format!("preset = \"mailgun\"\n{secret}"), "event_id"),
        ("preset = \"paypal\"\nwebhook_id = \"x\"".to_owned(), "event_id"),
        ("preset = \"sns\"\ntopic = \"arn:aws:sns:eu-west-1:1:jobs\"\nfields = { reason = \"body.Other\" }".to_owned(), "reason"),
        ("preset = \"adyen\"\nsecret = { env = \"HEX\" }\nfields = { reason = \"body.notificationItems.0.NotificationRequestItem.reason\" }".to_owned(), "reason"),
    ] {
        let per = |what: &str| told(&format!("{source}\nonce = {{ per = [{what}] }}"));
        assert!(per(&format!("\"{not_signed}\"")).contains("which is not signed"), "{source}: {}", per("\"x\""));
        assert!(per("\"body\"").contains("uses the body, which is not signed"), "{source}");
        let change = format!("{source}\nonce = {{ change = {{ of = [\"{not_signed}\"], to = [\"{not_signed}\"] }} }}");
        assert!(told(&change).contains("which is not signed"), "{change}");
    }
}

#[test]
fn an_installation_of_ones_own_does_not_pin_the_owner_either() {
    for preset in ["github-actions", "gitlab-ci", "pubsub", "artifact-registry", "event-grid-jwt"] {
        let with = |more: &str| {
            format!(
                "preset = \"{preset}\"\nissuer = \"https://git.example.com\"\naudience = \"https://a.example\"\n{more}"
            )
        };
        let what = "error: scheme `jwt` needs `claims`: this issuer signs for all of its users";
        check_told(&with(""), &[what, "hint: claims = {", "1 error "]);
        check_told(&with("claims = { ref = \"main\" }"), &[what]);
        check_fine(&with("claims = { sub = \"me\" }"));
    }
    // What a preset of the user's own needs is asked for once.
    let own = "verify = { scheme = \"jwt\", issuer = \"https://git.example.com\" }\n[preset.own.sender]\nneeds = [\"claims\"]";
    let source = "[source.s]\npreset = \"own\"\naudience = \"https://a.example\"\n[[source.s.route]]\n";
    let told = parse(&format!("[preset.own]\n{own}\n{source}")).expect_err("no claims").render(ColorChoice::Plain);
    assert!(told.contains("the preset `own` needs `claims`") && told.contains("1 error "), "{told}");
}

/// Of Twilio's form there is no value that could be taken instead.
#[test]
fn what_is_wrong_with_a_value_of_a_joined_form_can_be_followed() {
    let twilio = "preset = \"twilio\"\nsecret = { env = \"A\" }\nurl = \"https://a.example/in/s\"";
    let told = told(&format!("{twilio}\nonce = {{ per = [[\"message\"]] }}"));
    assert!(told.contains("`once.per` uses `message`, which is not signed"), "{told}");
    assert!(told.contains("hint: no value of a joined form is proven by itself"), "{told}");
    assert!(!told.contains("take a value from the body"), "{told}");
}

#[test]
fn events_are_kept_while_what_was_captured_of_them_counts() {
    let keep = |keep: &str| {
        format!(
            "preset = \"mailgun\"\nsecret = {{ env = \"A\" }}\nonce = {{ per = [\"delivery\"], keep = \"{keep}\", keep_body = \"1h\" }}"
        )
    };
    check_told(&keep("17h"), &["error: `keep` is too short", "a captured delivery counts for 18h"]);
    check_fine(&keep("18h"));
}

#[test]
fn a_signature_that_is_not_in_a_header_has_one_place() {
    let hmac = |more: &str| {
        format!("verify = {{ scheme = \"hmac\", secret = {{ env = \"A\" }}, {more} }}\ndelivery = \"body.token\"")
    };
    let once = "timestamp = \"body.time\", timestamp_format = \"seconds\", over = \"{timestamp}{id}\"";
    check_fine(&hmac(&format!("at = \"body.signature\", {once}")));
    check_told(&hmac(&format!("at = \"body.signature\", header = \"x\", {once}")), &["the signature has two places"]);
    check_told(&hmac(&format!("at = \"header.x\", {once}")), &["for a signature in the body or in the query"]);
    check_told(&hmac("at = \"body.signature\""), &["a signature in the body cannot be over the body"]);
    let form = |more: &str| hmac(more).replace("body.", "form.");
    check_fine(&form(&format!("at = \"body.signature\", {once}")));
    check_told(&form("at = \"body.signature\""), &["a signature in the body cannot be over the body"]);
    check_told(&hmac(&format!("at = \"form.signature\", {once}")), &["as forms or as JSON, not as both"]);
    check_told(&hmac("header = \"x\", over = \"{id}\""), &["neither {body} nor {timestamp}"]);
}

#[test]
fn a_proxy_is_a_url() {
    for (proxy, fine) in [("http://10.0.0.1:3128", true), ("10.0.0.1:3128", false), ("socks5://a", false), ("", false)]
    {
        let text = format!("proxy = \"{proxy}\"\n[source.s]\nverify = \"none\"\n[[source.s.route]]\n");
        let failed = parse(&text).err().map(|error| error.render(ColorChoice::Plain));
        assert_eq!(failed.is_none(), fine, "{proxy}: {failed:?}");
        assert!(failed.is_none_or(|failed| failed.contains("not the address of a proxy")), "{proxy}");
    }
}

#[test]
fn a_proxy_with_a_password_is_not_written_in_the_file() {
    let with = |proxy: &str, value: Option<&str>| {
        let env = |_: &str| value.map(str::to_owned);
        let text = format!("proxy = {proxy}\n[source.s]\nverify = \"none\"\n[[source.s.route]]\n");
        let parsed = config::parse(&text, "hookonce.toml", Path::new("/etc"), &env);
        parsed.err().map(|error| error.render(ColorChoice::Plain)).unwrap_or_default()
    };
    let literal = with("\"http://user:pa55word@10.0.0.1:3128\"", None);
    assert!(literal.contains("the password of `proxy` is written in the config file"), "{literal}");
    assert!(literal.contains("proxy = { env = \"PROXY_URL\" }") && !literal.contains("pa55"), "{literal}");
    assert_eq!(with("\"http://10.0.0.1:3128\"", None), "");
    assert_eq!(with("{ env = \"PROXY\" }", Some("http://user:pa55word@10.0.0.1:3128")), "");
    let wrong = with("{ env = \"PROXY\" }", Some("ftp://user:pa55word@10.0.0.1"));
    assert!(wrong.contains("not the address of a proxy") && !wrong.contains("pa55"), "{wrong}");
    assert!(with("{ env = \"PROXY\" }", None).contains("the environment variable `PROXY` is not set"));
}

#[test]
fn keys_are_fetched_from_private_addresses_only_where_that_is_allowed() {
    let jwt = |issuer: &str, more: &str| {
        format!("verify = {{ scheme = \"jwt\", issuer = \"{issuer}\", audience = \"me\" }}\n{more}")
    };
    for address in ["10.0.0.7", "127.0.0.1", "[::1]", "169.254.169.254", "192.168.1.1:8443"] {
        let issuer = format!("https://{address}");
        let bare = address.trim_end_matches(":8443").trim_matches(['[', ']']);
        check_told(&jwt(&issuer, ""), &["keys cannot be fetched from", &format!("allow_keys_from = [\"{bare}\"]")]);
        check_told(&jwt(&issuer, "allow_keys_from = [\"172.16.0.0/12\"]"), &["keys cannot be fetched from"]);
        check_fine(&jwt(&issuer, &format!("allow_keys_from = [\"{bare}\"]")));
    }
    // Loopback over plain HTTP is for tests and for proxies on this machine.
    check_fine(&jwt("http://127.0.0.1:8080", ""));
    check_fine(&jwt("https://8.8.8.8", ""));
    check_fine(&jwt("https://git.internal", "allow_keys_from = [\"10.0.0.0/8\"]"));
    check_told(
        &jwt("https://git.internal", "allow_keys_from = [\"10.0.0.1/8\"]"),
        &["`allow_keys_from` cannot be read"],
    );
    let sns = "preset = \"sns\"\ntopic = \"arn:aws:sns:eu-west-1:123456789012:a\"\ncertificates = \"https://10.0.0.7\"";
    check_told(sns, &["keys cannot be fetched from `https://10.0.0.7`"]);
    check_fine(&format!("{sns}\nallow_keys_from = [\"10.0.0.0/8\"]"));
    let github = "preset = \"github\"\nsecret = { env = \"A\" }\nallow_keys_from = [\"10.0.0.0/8\"]";
    check_told(github, &["warning: `allow_keys_from` has no effect", "this source fetches no keys"]);
    let text = format!(
        "proxy = \"http://10.0.0.1:3128\"\n[source.s]\n{}\n[[source.s.route]]\n",
        jwt("https://a.example", "allow_keys_from = [\"10.0.0.0/8\"]")
    );
    let warnings = parse(&text).expect("fine").warnings;
    assert!(warnings.iter().any(|warning| warning.to_string().contains("through `proxy`")), "{warnings:?}");
}

/// Ed25519 keys, as OpenSSL made them.
const KEYS: [&str; 2] =
    ["NZoqFjv1XSViO0YavnlJBFvwhv4sfRs1M/nkEyrWHQs=", "UJXpO1m+4YXrK5yR2Ykbkuj8hga8SYyJJNSQh+gW794="];

#[test]
fn several_public_keys_count_while_a_sender_exchanges_its_own() {
    let [one, other] = KEYS;
    let verify = |keys: &str| format!("verify = {{ scheme = \"ed25519\", header = \"x-s\", public_key = {keys} }}");
    check_fine(&verify(&format!("\"{one}\"")));
    check_fine(&verify(&format!("[\"{one}\", \"{other}\"]")));
    check_fine(&format!("preset = \"discord\"\npublic_key = [\"{one}\", \"{other}\"]"));
    check_told(&verify("[]"), &["`public_key` has 0 keys"]);
    check_told(&verify(&format!("[\"{one}\", \"{one}\"]")), &["`public_key` has the same key twice"]);
    check_told(&verify(&format!("[\"{one}\", \"x\"]")), &["the public key cannot be read"]);
    check_told(&verify(&format!("[\"{one}\", 7]")), &["`public_key` cannot be read"]);
    let many: Vec<_> = (0..100).map(|n| format!("\"{n}\"")).collect();
    check_told(&verify(&format!("[{}]", many.join(", "))), &["`public_key` has 100 keys"]);
}

#[test]
fn a_sender_of_standard_webhooks_has_a_secret_or_public_keys() {
    let [one, other] = KEYS.map(|key| format!("\"whpk_{key}\""));
    let preset = "preset = \"standard-webhooks\"";
    check_fine(&format!("{preset}\npublic_key = {one}"));
    check_fine(&format!("{preset}\npublic_key = [{one}, {other}]"));
    check_fine(&format!("verify = {{ scheme = \"standard-webhooks\", public_key = {one}, tolerance = \"1m\" }}"));
    check_told(
        &format!("{preset}\npublic_key = {one}\nsecret = {{ env = \"A\" }}"),
        &["there are a public key and a secret", "1 error "],
    );
    let both = format!("verify = {{ scheme = \"standard-webhooks\", public_key = {one}, secret = {{ env = \"A\" }} }}");
    check_told(&both, &["`secret` has no meaning"]);
    check_told(&format!("{preset}\npublic_key = \"whsk_{}\"", KEYS[0]), &["it is a secret of the sender"]);
    check_told(preset, &["scheme `standard-webhooks` needs a secret"]);
}

#[test]
fn a_password_in_a_url_that_cannot_be_used_is_not_shown() {
    for (top, keys) in [
        ("proxy = \"ftp://user:pa55word@10.0.0.1:3128\"", ""),
        ("proxy = \"user:pa55word@10.0.0.1:3128\"", ""),
        ("proxy = \"http://user:pa55/word@10.0.0.1:3128\"", ""),
        ("proxy = \"http://user:pa55word@10.0.0.1:3128", ""),
        ("store = \"postgre://user:pa55word@db/x\"", ""),
        ("", "from = { stream = \"S\", url = \"http://user:pa55word@nats:4222\" }"),
        ("", "forward = { url = \"ftp://user:pa55word@host\" }"),
        ("", "publish = { url = \"http://user:pa55word@nats\", subject = \"a\" }"),
        ("", "verify = { scheme = \"jwt\", issuer = \"https://user:pa55word@host\", audience = \"x\" }"),
    ] {
        let text = format!("{top}\n[source.s]\n{keys}\n[[source.s.route]]\n{keys}\n");
        let told = parse(&text).expect_err(&text).render(ColorChoice::Plain);
        assert!(!told.contains("pa55"), "{told}");
        assert!(top.is_empty() || told.contains("•••@"), "{told}");
    }
}

#[test]
fn a_change_without_an_order_is_told_what_orders_the_deliveries_of_its_preset() {
    let with = |preset: &str, subject: &str| {
        format!(
            "preset = \"{preset}\"\nsecret = {{ env = \"A\" }}\nonce = {{ change = {{ of = [\"{subject}\"], to = [\"commit\"] }} }}"
        )
    };
    let forever = "`change` has no `order`, so its keys are kept forever";
    check_told(&with("circleci", "project"), &[forever, "hint: order = \"happened_at\", as the preset's sender"]);
    check_told(&with("github", "repository"), &[forever, "hint: name a field that orders the changes"]);
}
