//! A path that is a secret: what it may be, and that no text contains it.

use super::{check, fine, parse};
use hookonce::decide::source::Sources;
use hookonce::internals::config::ColorChoice;

/// A part of every secret path here.
const SECRET: &str = "5ec4e7";

fn config(path: &str, lines: &str) -> String {
    format!("[source.s]\nverify = \"none\"\npath = {path}\n{lines}\n[[source.s.route]]\n")
}

#[test]
fn it_is_found_but_never_shown() {
    let config = fine(&config("{ env = \"SECRET_PATH\" }", ""));
    let source = &config.sources[0];
    assert!(source.path.is_secret());
    assert_eq!(source.path.shown(), "/•••");
    assert!(!format!("{source:?} {config:?}").contains(SECRET));
    let sources = Sources::new(config.sources.clone());
    let found = |path: &str| sources.at(path).map(|source| source.name.to_string());
    assert_eq!(found("/in/s/5ec4e7-n0-0ne-kn0ws").as_deref(), Some("s"));
    for other in
        ["/in/s", "/•••", "/in/s/5ec4e7-n0-0ne-kn0w", "/in/s/5ec4e7-n0-0ne-kn0ws\n", "/in/s/5ec4e7-n0-0ne-kn0ws/"]
    {
        assert_eq!(found(other), None, "{other}");
    }
    assert!(sources.have_secret_path());
    let open = Sources::new(fine(&self::config("\"/in/s\"", "")).sources.clone());
    assert!(!open.have_secret_path() && open.at("/in/s").is_some());
}

#[test]
fn one_that_cannot_be_a_path_is_refused_and_not_shown() {
    for (variable, why) in [
        ("RELATIVE_PATH", "it must begin with /"),
        ("QUERY_PATH", "a path is ASCII without spaces, ? and #"),
        ("SPACED_PATH", "a path is ASCII without spaces, ? and #"),
        ("OWN_PATH", "hookonce uses this path itself"),
        ("LONG_PATH", "it is longer than 1024 characters"),
        ("SHORT_PATH", "it could be guessed: 16 characters are needed, after /in/s"),
        ("EMPTY", "needed for `path`"),
        ("NOPE", "needed for `path`"),
    ] {
        let error = parse(&config(&format!("{{ env = \"{variable}\" }}"), "")).expect_err(variable);
        let error = error.render(ColorChoice::Plain);
        assert!(error.contains(why) && error.contains("1 error "), "{variable}: {error}");
        assert!(!error.contains(SECRET), "{variable}: {error}");
    }
    check(
        &config("{ env = \"SHORT_PATH\" }", ""),
        r#"
error: the value of `path` cannot be a secret path
 --> hookonce.toml:3:8
  |
3 | path = { env = "SHORT_PATH" }
  |        ^^^^^^^^^^^^^^^^^^^^^^ it could be guessed: 16 characters are needed, after /in/s
  |
hint: make one with: echo /in/s/$(openssl rand -hex 16)

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn two_sources_with_one_secret_path_are_refused_and_it_is_not_shown() {
    for [first, second] in [
        ["{ env = \"SECRET_PATH\" }", "{ env = \"SAME_PATH\" }"],
        ["{ env = \"SECRET_PATH\" }", "\"/in/s/5ec4e7-n0-0ne-kn0ws\""],
        ["\"/in/s/5ec4e7-n0-0ne-kn0ws\"", "{ env = \"SECRET_PATH\" }"],
    ] {
        let text = config(first, "") + &config(second, "").replace("source.s", "source.t");
        let error = parse(&text).expect_err("one path").render(ColorChoice::Plain);
        assert!(error.contains("error: two sources listen on `/•••`\n"), "{error}");
        assert!(error.contains("also the path of source `s`"), "{error}");
        assert_eq!(error.contains(SECRET), second.contains(SECRET), "only what is in the file is shown: {error}");
    }
}

#[test]
fn it_is_never_read_from_a_delivery() {
    for lines in [
        "fields = { at = \"path\" }",
        "fields = { at = [\"body.at\", \"path\"] }",
        "fields = { at = { at = \"path\", default = \"x\" } }",
        "delivery = \"path\"",
        "each = \"body.events\"\nfields = { at = \"path\" }",
        "handshake = { method = \"GET\", text = \"path\" }",
    ] {
        let error = parse(&config("{ env = \"SECRET_PATH\" }", lines)).expect_err(lines).render(ColorChoice::Plain);
        let expected = "`path` is a secret of this source, and cannot be read from a delivery";
        assert!(error.contains(expected), "{lines}: {error}");
        assert!(!error.contains(SECRET), "{lines}: {error}");
    }
    fine(&config("\"/in/s\"", "fields = { at = \"path\" }"));
}

#[test]
fn its_variable_is_not_passed_to_commands() {
    let text = config("{ env = \"SECRET_PATH\" }", "") + "run = { steps = [\"true\"], env = [\"SECRET_PATH\"] }\n";
    let error = parse(&text).expect_err("a secret").render(ColorChoice::Plain);
    assert!(error.contains("`SECRET_PATH` cannot be passed to a command"), "{error}");
}
