//! The cause comes before its consequences, and mere consequences are not reported.

use super::parse;
use hookonce::internals::config::ColorChoice;

/// The first lines of every problem, in order.
#[track_caller]
fn check(text: &str, expected: &[&str]) {
    let shown = parse(text).expect_err("a config with an error").render(ColorChoice::Plain);
    let titles: Vec<_> =
        shown.lines().filter(|line| line.starts_with("error: ") || line.starts_with("warning: ")).collect();
    assert_eq!(titles, expected, "{shown}");
}

/// The config of a user who relies on everything a preset sets.
fn with_preset(preset: &str) -> String {
    format!(
        r#"[source.ghcr]
{preset}
secret = {{ env = "A" }}
when = 'tag == "latest"'
once = {{ per = ["delivery", ["package", "tag"]], change = {{ of = ["package"], to = ["sha"] }}, equal_bodies = "new" }}
[[source.ghcr.route]]
when = 'package == "x"'
group = ["package"]
run = {{ dir = "/{{package}}", steps = [["echo", "{{tag}}"]] }}
"#
    )
}

#[test]
fn a_misspelt_preset_is_the_only_error_of_what_it_would_have_set() {
    for preset in ["github-packages", "nothing-like-it"] {
        check(&with_preset(&format!("preset = \"{preset}\"")), &[&format!("error: there is no preset `{preset}`")]);
    }
    check(&with_preset("preset = 5"), &["error: `preset` cannot be read"]);
    check(&with_preset("perset = \"github-package\""), &["error: unknown key `perset` in source `ghcr`"]);
}

#[test]
fn a_misspelt_preset_comes_first_and_hides_no_error_of_its_own_right() {
    check(
        "[source.s]\npath = \"no-slash\"\nsecret = { env = \"UNSET\" }\nverify = \"github\"\npreset = \"gihub\"\n",
        &[
            "error: there is no preset `gihub`",
            "warning: source `s` has no route, so its events are only recorded",
            "error: `no-slash` cannot be a path",
            "error: the environment variable `UNSET` is not set",
        ],
    );
}

#[test]
fn one_source_with_a_misspelt_preset_hides_nothing_in_another() {
    let other = "[source.b]\nverify = \"none\"\nwhen = 'nosuch == 1'\n[[source.b.route]]\n";
    check(
        &format!("[source.a]\npreset = \"gihub\"\nwhen = 'tag == 1'\n[[source.a.route]]\n{other}"),
        &["error: there is no preset `gihub`", "error: `when` cannot be read"],
    );
}

#[test]
fn a_misspelt_scheme_hides_what_it_would_have_needed() {
    let route = "[[source.s.route]]\n";
    check(&format!("[source.s]\nverify = \"gihub\"\n{route}"), &["error: `verify` cannot be read"]);
    let hmac = "verify = { scheme = \"hmca\", header = \"x-sig\", over = \"{timestamp}.{body}\" }";
    check(&format!("[source.s]\n{hmac}\n{route}"), &["error: `scheme` cannot be read"]);
    let unset = "verify = { scheme = \"gihub\", secret = { env = \"UNSET\" } }";
    check(
        &format!("[source.s]\n{unset}\n{route}"),
        &["error: `scheme` cannot be read", "error: the environment variable `UNSET` is not set"],
    );
}

#[test]
fn a_misspelt_key_is_not_also_missing() {
    let route = |lines: &str| format!("[source.s]\nverify = \"none\"\n[[source.s.route]]\n{lines}\n");
    let source = |lines: &str| format!("[source.s]\n{lines}\n[[source.s.route]]\n");
    for (text, key, within) in [
        (source("verfiy = \"none\""), "verfiy", "source `s`"),
        (source("verify = { shceme = \"none\" }"), "shceme", "`verify`"),
        (source("verify = \"github\"\nsecert = { env = \"A\" }"), "secert", "source `s`"),
        (source("verify = { scheme = \"hmac\", secret = { env = \"A\" }, heeder = \"x\" }"), "heeder", "`verify`"),
        (source("verify = \"none\"\nfeilds = { tag = \"body.tag\" }\nwhen = 'tag == 1'"), "feilds", "source `s`"),
        (source("verify = \"none\"\nfields.tag = { att = \"body.tag\" }"), "att", "field `tag`"),
        (source("verify = \"none\"\ndelivry = \"body.id\"\nonce = { per = [\"delivery\"] }"), "delivry", "source `s`"),
        (route("run = { setps = [\"true\"] }"), "setps", "`run`"),
        (route("env = [\"X\"]\nrnu = { steps = [\"true\"] }"), "rnu", "a route of source `s`"),
        (route("forward = { ulr = \"http://a/\" }"), "ulr", "`forward`"),
        (route("sql = { statment = \"select 1\" }"), "statment", "`sql`"),
        (route("publish = { nats = \"nats://h:4222\", subjet = \"a\" }"), "subjet", "`publish`"),
        ("[source.s]\nverify = \"none\"\n[[source.s.rotue]]\n".to_owned(), "rotue", "source `s`"),
    ] {
        check(&text, &[&format!("error: unknown key `{key}` in {within}")]);
    }
    check("[soruce.s]\nverify = \"none\"\n", &["error: unknown key `soruce` at the top level"]);
    check(
        &format!("[admin]\nlisten = \"0.0.0.0:1\"\ntokne = {{ env = \"A\" }}\n{}", route("")),
        &["error: unknown key `tokne` in `admin`"],
    );
}

#[test]
fn an_undeclared_field_of_change_is_not_also_a_group_outside_of_it() {
    let once = "once = { change = { of = [\"pakage\"], to = [\"tag\"] } }";
    check(
        &format!(
            "[source.s]\nverify = \"none\"\nfields = {{ package = \"body.p\", tag = \"body.t\" }}\n{once}\n\
             [[source.s.route]]\ngroup = [\"package\"]\n"
        ),
        &["error: `change.of` names a field that is not declared: `pakage`"],
    );
}
