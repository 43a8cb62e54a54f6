//! Receivers: what is valid, and the exact texts for what is not.

use super::{check, fine, parse, route};
use hookonce::internals::action::plan::{ActionPlan, Http2Mode, ReceiverHeaderValue};
use hookonce::internals::config::ColorChoice;

/// A source with the fields `repo` and `tenant`, whose one route forwards like this.
fn forward(keys: &str) -> String {
    format!(
        "[source.s]\nverify = \"none\"\nfields = {{ repo = \"body.repo\", tenant = \"body.tenant\" }}\n[[source.s.route]]\nforward = {{ {keys} }}\n"
    )
}

fn wrong(text: &str) -> String {
    parse(text).expect_err(text).render(ColorChoice::Plain)
}

fn says(keys: &str, title: &str, label: &str) {
    let text = forward(keys);
    let problems = wrong(&text);
    assert!(problems.contains(&format!("error: {title}\n")), "{keys}:\n{problems}");
    assert!(problems.contains(label), "{keys}:\n{problems}");
    assert!(problems.contains("hookonce.toml:5:"), "it names the line: {problems}");
}

#[test]
fn every_setting_of_a_receiver_is_understood() {
    let text = forward(
        "url = \"https://{tenant}.example.com:8443/hooks/{repo}?r={repo}\", headers = [\"X-GitHub-Event\"], \
         set = { \"X-Repo\" = \"r:{repo}\", authorization = { env = \"TOKEN\" } }, sign = { secret = { env = \"WHSEC\" } }, \
         allow = [\"10.0.0.0/8\", \"fd00::/8\"], http2 = \"prior\", at_once = 4, receipt_headers = [\"X-Upload\"]",
    );
    let config = fine(&text);
    let ActionPlan::Forward(receivers) = config.actions.values().next().unwrap() else { panic!("{config:?}") };
    let receiver = &receivers[0];
    assert_eq!(receiver.url.to_string(), "https://{tenant}.example.com:8443/hooks/{repo}?r={repo}");
    assert_eq!(
        (receiver.pass.as_slice(), receiver.receipt_headers.as_slice()),
        (&["x-github-event".to_owned()][..], &["x-upload".to_owned()][..])
    );
    assert!(
        matches!(&receiver.set[..], [(repo, ReceiverHeaderValue::Template(_)), (auth, ReceiverHeaderValue::Secret(_))]
        if repo == "x-repo" && auth == "authorization"),
        "{:?}",
        receiver.set
    );
    assert!(receiver.sign.is_some() && receiver.http2 == Http2Mode::Prior && receiver.at_once == Some(4));
    assert_eq!(receiver.allow.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "fd00::/8"]);
    let route = &config.sources[0].routes[0];
    assert_eq!((route.forwarded_headers.as_slice(), route.needs.len()), (&["x-github-event".to_owned()][..], 4));
    assert!(!format!("{config:?}").contains("s3cret"), "no secret is shown");
}

#[test]
fn a_field_is_allowed_in_a_url_only_as_one_component() {
    let label = "a field may be one whole label of the host, or be in the path or in a value of the query";
    for url in [
        "http://a:{repo}/",
        "http://{repo}@a/",
        "http://a{repo}.test/",
        "http://{repo}a.test/",
        "http://a/?{repo}=1",
        "http://a/x#{repo}",
    ] {
        let text = wrong(&forward(&format!("url = \"{url}\"")));
        assert!(text.contains(label) || text.contains("`url` is not a valid URL to send to"), "{url}: {text}");
    }
    says("url = \"{repo}://a/\"", "`url` is not a valid URL to send to", "neither http nor https");
    says("url = \"http://{nobody}.test/\"", "`{nobody}` is not a declared field", "fields of source `s`: repo, tenant");
}

#[test]
fn an_unknown_field_in_a_url_is_underlined() {
    check(
        &forward("url = \"http://a.test/{repos}\""),
        r#"
error: `{repos}` is not a declared field
 --> hookonce.toml:5:34
  |
5 | forward = { url = "http://a.test/{repos}" }
  |                                  ^^^^^^^ fields of source `s`: repo, tenant
  |
hint: did you mean `repo`?

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_url_with_a_field_and_a_forbidden_address_is_an_error() {
    check(
        &forward("url = \"http://127.0.0.1:8080/{repo}\""),
        r#"
error: `url` has a field in it, and its address is not allowed
 --> hookonce.toml:5:19
  |
5 | forward = { url = "http://127.0.0.1:8080/{repo}" }
  |                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 127.0.0.1 is loopback
  |
hint: allow = ["127.0.0.1"], if this is intended

1 error in hookonce.toml; nothing was started
"#,
    );
    says("url = \"http://localhost/{repo}\"", "`url` has a field in it, and its address is not allowed", "loopback");
    says("url = \"http://[fe80::1]/{repo}\"", "`url` has a field in it, and its address is not allowed", "link-local");
    fine(&forward("url = \"http://127.0.0.1:8080/{repo}\", allow = [\"127.0.0.0/8\"]"));
    fine(&forward("url = \"http://127.0.0.1:8080/\""));
    says("url = \"http://a/{repo}\", allow = [\"10.0.0.1/8\"]", "`allow` cannot be read", "not the first address");
    says("url = \"http://a/{repo}\", allow = [\"home\"]", "`allow` cannot be read", "expected a range of addresses");
}

#[test]
fn some_headers_cannot_be_set_by_the_user() {
    for (name, why) in [
        ("Host", "it belongs to one connection"),
        ("content-length", "it belongs to one connection"),
        ("Transfer-Encoding", "it belongs to one connection"),
        ("connection", "it belongs to one connection"),
        ("Idempotency-Key", "hookonce sets it itself"),
        ("hookonce-event", "hookonce sets it itself"),
        ("traceparent", "hookonce sets it itself"),
        ("content-type", "the body is sent unchanged"),
        ("Content-Encoding", "the body is sent unchanged"),
    ] {
        let title = format!("the header `{}` cannot be sent", name.to_lowercase());
        says(&format!("url = \"http://a/\", headers = [\"{name}\"]"), &title, why);
        says(&format!("url = \"http://a/\", set = {{ \"{name}\" = \"x\" }}"), &title, why);
    }
    let signed = "url = \"http://a/\", sign = { secret = { env = \"WHSEC\" } }, headers = [\"webhook-id\"]";
    says(signed, "the header `webhook-id` cannot be sent", "it is part of the signature");
    fine(&forward("url = \"http://a/\", headers = [\"webhook-id\", \"x-hub-signature-256\"]"));
    says("url = \"http://a/\", headers = [\"a b\"]", "`a b` cannot be the name of a header", "letters, digits and -");
    says("url = \"http://a/\", headers = [\"x\", \"X\"]", "`headers` lists the same thing twice", "");
    says("url = \"http://a/\", headers = [\"x\"], set = { X = \"1\" }", "the header `x` is written twice", "");
    says("url = \"http://a/\", set = { x = \"a\\nb\" }", "`x` cannot be a header's value", "control character");
    says("url = \"http://a/\", set = { x = \"{nobody}\" }", "`{nobody}` is not a declared field", "");
    says("url = \"http://a/\", receipt_headers = [\"set-cookie\"]", "`set-cookie` cannot be kept", "");
    says("url = \"http://a/\", http2 = \"yes\"", "`http2` cannot be read", "\"auto\" or \"prior\"");
    says("url = \"http://a/\", header = [\"x\"]", "unknown key `header` in `forward`", "did you mean `headers`?");
}

/// The headers that the one receiver of a source with these keys gets, with these keys of its own.
fn passed(source: &str, keys: &str) -> Vec<String> {
    let text = format!(
        "[source.s]\nsecret = {{ env = \"WHSEC\" }}\n{source}\n[[source.s.route]]\nforward = {{ url = \"http://a/\"{keys} }}\n"
    );
    let config = fine(&text);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let Some(ActionPlan::Forward(receivers)) = config.actions.values().next() else { panic!("{config:?}") };
    receivers[0].pass.clone()
}

#[test]
fn by_default_a_receiver_gets_the_kind_and_the_id_that_the_preset_knows_of() {
    let github = "preset = \"github\"";
    assert_eq!(passed(github, ""), ["x-github-event", "x-github-delivery"]);
    assert_eq!(passed("verify = \"github\"", ""), Vec::<String>::new());
    // What the user writes counts instead.
    assert_eq!(passed(github, ", headers = []"), Vec::<String>::new());
    assert_eq!(passed(github, ", headers = [\"x-hub-signature-256\"]"), ["x-hub-signature-256"]);
    assert_eq!(passed(github, ", set = { X-GitHub-Event = \"{event}\" }"), ["x-github-delivery"]);
    // The signature of the node has an id of its own.
    let signing = "preset = \"gitlab-signing\"";
    let sign = ", sign = { secret = { env = \"WHSEC\" } }";
    let of_gitlab = ["x-gitlab-event", "x-gitlab-instance", "x-gitlab-event-uuid", "x-gitlab-webhook-uuid"];
    assert_eq!(passed(signing, sign), of_gitlab);
    assert!(passed(signing, "").contains(&"webhook-id".to_owned()));
    // An element does not have the id of the delivery that it came in.
    let elements = "preset = \"bitbucket\"\neach = \"body.push.changes\"\ndelivery = \"body.new.target.hash\"";
    assert_eq!(passed(elements, ""), ["x-event-key"]);
}

#[test]
fn a_secret_of_a_receiver_is_never_in_the_file_and_never_shown() {
    for keys in [
        "url = \"http://a/\", set = { authorization = \"Bearer canary\" }",
        "url = \"http://a/\", sign = { secret = \"canary\" }",
    ] {
        let problems = wrong(&forward(keys));
        assert!(problems.contains("is written in the config file") && !problems.contains("canary"), "{problems}");
    }
    says(
        "url = \"http://a/\", sign = { secret = { env = \"A\" } }",
        "the secret is not a Standard Webhooks secret",
        "",
    );
    says("url = \"http://a/\", sign = {}", "`sign` has no `secret`", "");
    fine(&forward("url = \"http://a/\", set = { authorization = \"{repo}\" }"));
}

#[test]
fn settings_without_effect_are_reported() {
    let config = fine(&route("forward = { url = \"http://10.0.0.1/\", allow = [\"10.0.0.0/8\"] }"));
    assert!(config.warnings.iter().any(|warning| warning.render(ColorChoice::Plain).contains("`allow` has no effect")));
}
