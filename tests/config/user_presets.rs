//! Presets of the user's own: files beside the config, and tables in it.

use super::env;
use hookonce::decide::source::Keep;
use hookonce::decide::time::Duration;
use hookonce::internals::config::{self, ColorChoice, Config, ConfigError};
use std::path::Path;

const PRESET: &str = r#"# Our own system.
verify   = { scheme = "hmac", header = "x-acme-signature" }
delivery = "body.id"
[fields]
tag = "body.tag"
[once]
per = ["delivery"]
[route]
when = 'tag == "latest"'
[[handshake]]
when = { "body.type" = "hello" }
text = "body.challenge"
[sender]
name    = "Acme"
version = 3
needs   = ["secret"]
"#;

const SOURCE: &str = "[source.s]\npreset = \"acme\"\nsecret = { env = \"A\" }\n[[source.s.route]]\n";

/// A folder with these presets.
fn folder(presets: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(dir.path().join("presets")).expect("a folder");
    for (name, text) in presets {
        std::fs::write(dir.path().join("presets").join(name), text).expect("a file");
    }
    dir
}

fn parse(text: &str, base: &Path) -> Result<Config, ConfigError> {
    config::parse(text, "hookonce.toml", base, &env)
}

#[track_caller]
fn check(text: &str, base: &Path, expected: &str) {
    let problems = parse(text, base).expect_err("an error").render(ColorChoice::Plain);
    let expected = expected.strip_prefix('\n').unwrap_or(expected);
    assert!(problems == expected, "--- got\n{problems}--- expected\n{expected}---");
}

#[track_caller]
fn check_acme(config: &Config) {
    let source = &config.sources[0];
    assert_eq!(config.notes[&source.name].preset.as_deref(), Some("acme"));
    assert_eq!(source.delivery.as_ref().map(|id| id.at.to_string()).as_deref(), Some("body.id"));
    assert_eq!(source.routes[0].when.as_ref().map(|when| when.text().to_owned()).as_deref(), Some("tag == \"latest\""));
    assert_eq!(source.handshakes.len(), 1);
    assert_eq!(config.recipes()[0].once, "delivery, preset acme 3");
    assert_eq!(config.warnings, []);
}

#[test]
fn a_file_beside_the_config_is_a_preset() {
    let dir = folder(&[("acme.toml", PRESET)]);
    check_acme(&parse(SOURCE, dir.path()).unwrap_or_else(|error| panic!("{error}")));
}

#[test]
fn a_table_of_the_config_is_a_preset() {
    let dir = folder(&[]);
    let tables: String = PRESET
        .lines()
        .map(|line| match (line.strip_prefix("[["), line.strip_prefix('[')) {
            (Some(name), _) => format!("[[preset.acme.{name}\n"),
            (None, Some(name)) => format!("[preset.acme.{name}\n"),
            (None, None) => format!("{line}\n"),
        })
        .collect();
    let text = format!("[preset.acme]\n{tables}\n{SOURCE}");
    check_acme(&parse(&text, dir.path()).unwrap_or_else(|error| panic!("{error}")));
}

#[test]
fn an_error_inside_a_preset_points_to_its_file_and_line() {
    let text = "verify = { scheme = \"hmac\", header = \"x-sig\" }\nwhen = 'tga == \"a\"'\ndeliver = 1\n[fields]\ntag = \"body.tag\"\n";
    let dir = folder(&[("acme.toml", text), ("bad.toml", "a = \nb = 1\n")]);
    check(
        SOURCE,
        dir.path(),
        r#"
error: `when` cannot be read
 --> presets/acme.toml:2:9
  |
2 | when = 'tga == "a"'
  |         ^^^ `tga` is not a declared field; fields: tag
  |
hint: did you mean `tag`?

error: unknown key `deliver` in preset `acme`
 --> presets/acme.toml:3:1
  |
3 | deliver = 1
  | ^^^^^^^
  |
hint: did you mean `delivery`?

2 errors in hookonce.toml; nothing was started
"#,
    );
    let error = parse(&SOURCE.replace("acme", "bad"), dir.path()).expect_err("no TOML").to_string();
    assert!(error.contains("this is not TOML") && error.contains("--> presets/bad.toml:1:"), "{error}");
}

#[test]
fn a_preset_that_is_not_there_is_reported_with_what_was_meant() {
    let dir = folder(&[("acme.toml", PRESET)]);
    check(
        &SOURCE.replace("acme", "acne"),
        dir.path(),
        r#"
error: there is no preset `acne`
 --> hookonce.toml:2:10
  |
2 | preset = "acne"
  |          ^^^^^^ `hookonce presets` lists them
  |
hint: did you mean `acme`?

1 error in hookonce.toml; nothing was started
"#,
    );
    // A name is not a path.
    for name in ["../presets/acme", "presets/acme", "acme.toml", "", "/etc/passwd"] {
        let error = parse(&SOURCE.replace("acme", name), dir.path()).expect_err(name).to_string();
        assert!(error.contains(&format!("there is no preset `{name}`")), "{error}");
    }
}

#[test]
fn a_preset_has_a_name_and_keys_of_its_own() {
    let dir = folder(&[("acme.toml", PRESET)]);
    check(
        &format!(
            "[preset.acme]\nverify = {{ scheme = \"github\" }}\n[preset.stripe]\nverify = \"none\"\nscope = \"x\"\n{SOURCE}"
        ),
        dir.path(),
        r#"
error: there are two presets `acme`
 --> hookonce.toml:1:9
  |
1 | [preset.acme]
  |         ^^^^ presets/acme.toml is one, and this table another

error: there is a built-in preset `stripe`
 --> hookonce.toml:3:9
  |
3 | [preset.stripe]
  |         ^^^^^^ a preset of your own needs another name
  |
hint: to change a built-in one for a source, write keys beside `preset`

error: `scope` is not a key of a preset
 --> hookonce.toml:5:1
  |
5 | scope = "x"
  | ^^^^^ it belongs to a source

3 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_secret_in_a_preset_is_refused_and_not_shown() {
    let text =
        PRESET.replace("header = \"x-acme-signature\"", "header = \"x-acme-signature\", secret = \"hunter2hunter2\"");
    let dir = folder(&[("acme.toml", &text)]);
    let error = parse(&SOURCE.replace("secret = { env = \"A\" }\n", ""), dir.path()).expect_err("a secret").to_string();
    assert!(error.contains("a secret must not be in the config file"), "{error}");
    assert!(error.contains("presets/acme.toml:2") && !error.contains("hunter2"), "{error}");
}

#[test]
fn the_headers_that_a_preset_passes_on_are_no_credentials() {
    let forward = format!("{SOURCE}forward = {{ url = \"http://a/\" }}\n");
    let headers = "kind_headers = [\"X-Acme-Event\"]\nid_headers = [\"x-acme-id\"]\n";
    let dir = folder(&[("acme.toml", &format!("{PRESET}{headers}"))]);
    let config = parse(&forward, dir.path()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.sources[0].routes[0].forwarded_headers, ["x-acme-event", "x-acme-id"]);
    assert_eq!(config.sources[0].kind_headers, ["x-acme-event"]);

    let headers = "kind_headers = [\"x-acme-event\", \"X-Acme-Signature\"]\nid_headers = [\"cookie\", \"host\", \"x-acme-event\", \"a b\"]\n";
    let dir = folder(&[("acme.toml", &format!("{PRESET}{headers}"))]);
    check(
        &forward,
        dir.path(),
        r#"
error: `x-acme-signature` holds the sender's credentials
  --> presets/acme.toml:17:33
   |
17 | kind_headers = ["x-acme-event", "X-Acme-Signature"]
   |                                 ^^^^^^^^^^^^^^^^^^ receivers get it only where the `headers` of a `forward` name it
   |
hint: leave it out

error: `cookie` holds the sender's credentials
  --> presets/acme.toml:18:15
   |
18 | id_headers = ["cookie", "host", "x-acme-event", "a b"]
   |               ^^^^^^^^ receivers get it only where the `headers` of a `forward` name it
   |
hint: leave it out

error: the header `host` cannot be sent
  --> presets/acme.toml:18:25
   |
18 | id_headers = ["cookie", "host", "x-acme-event", "a b"]
   |                         ^^^^^^ it belongs to one connection and means nothing on the next
   |
hint: leave it out

error: `id_headers` lists the same thing twice
  --> presets/acme.toml:18:33
   |
18 | id_headers = ["cookie", "host", "x-acme-event", "a b"]
   |                                 ^^^^^^^^^^^^^^

error: `a b` cannot be the name of a header
  --> presets/acme.toml:18:49
   |
18 | id_headers = ["cookie", "host", "x-acme-event", "a b"]
   |                                                 ^^^^^ letters, digits and -, such as "x-github-event"

5 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_file_that_a_built_in_preset_hides_is_reported() {
    let dir = folder(&[("stripe.toml", "verify = \"none\"\n")]);
    let error = parse(&SOURCE.replace("acme", "stripe"), dir.path()).expect_err("a hidden file").to_string();
    let expected = "there is a built-in preset `stripe`, so presets/stripe.toml has no effect";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_a_preset_needs_is_asked_for_and_is_a_key() {
    let needing = |needs: &str| PRESET.replace("needs   = [\"secret\"]", &format!("needs = {needs}"));
    let dir = folder(&[("acme.toml", &needing("[\"secret\", \"url\"]"))]);
    let error = parse(SOURCE, dir.path()).expect_err("a missing key").to_string();
    assert!(error.contains("the preset `acme` needs `url`, which is missing"), "{error}");
    let dir = folder(&[("acme.toml", &needing("[\"nonsense\"]"))]);
    let error = parse(SOURCE, dir.path()).expect_err("a key that there is not").to_string();
    assert!(error.contains("`needs` names `nonsense`, which is no key of a source"), "{error}");
    let nested = PRESET.replace("x-acme-signature\" }", "x-acme-signature\", secret = { env = \"A\" } }");
    let dir = folder(&[("acme.toml", &nested)]);
    check_acme(&parse(&SOURCE.replace("secret = { env = \"A\" }\n", ""), dir.path()).expect("it has a secret"));
}

#[test]
fn an_event_is_kept_at_least_for_as_long_as_its_sender_sends_again() {
    let keep = |retries: &str, own: &str| {
        let preset = PRESET.replace("version = 3", &format!("version = 3\nretries = \"{retries}\""));
        let preset = preset.replace("per = [\"delivery\"]", &format!("per = [\"delivery\"]{own}"));
        let config = parse(SOURCE, folder(&[("acme.toml", &preset)]).path()).expect("a config");
        (config.sources[0].once.keep, config.warnings.len())
    };
    let days = |days: u64| Keep::For(Duration::from_hours(24 * days));
    assert_eq!(keep("3d", ""), (days(30), 0));
    assert_eq!(keep("40d", ""), (days(40), 0));
    assert_eq!(keep("40d", "\nkeep = \"35d\""), (days(35), 1));
}

#[test]
fn a_preset_has_one_route() {
    let dir = folder(&[("acme.toml", &PRESET.replace("[route]", "[[route]]"))]);
    let error = parse(SOURCE, dir.path()).expect_err("a list").to_string();
    assert!(error.contains("a preset has one `route`: the defaults of its sources' routes"), "{error}");
}

#[test]
fn what_orders_the_deliveries_of_a_preset_is_one_of_its_fields() {
    let with = |order: &str| PRESET.replace("version = 3", &format!("version = 3\norder   = \"{order}\""));
    for fine in ["tag", "none"] {
        check_acme(&parse(SOURCE, folder(&[("acme.toml", &with(fine))]).path()).expect("fine"));
    }
    check(
        SOURCE,
        folder(&[("acme.toml", &with("sent_at"))]).path(),
        r#"
error: `order` of the preset `acme` names a field that is not declared: `sent_at`
  --> presets/acme.toml:16:11
   |
16 | order   = "sent_at"
   |           ^^^^^^^^^ fields: tag
   |
hint: order = "none", if nothing orders its deliveries

1 error in hookonce.toml; nothing was started
"#,
    );
}
