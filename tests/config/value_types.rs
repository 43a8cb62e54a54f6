//! Types of values and their limits: the exact texts.

use super::{check, fine, route, source};

#[test]
fn two_sources_on_one_path_are_refused() {
    check(
        r#"[source.a]
verify = "none"
[[source.a.route]]
[source.b]
verify = "none"
path = "/in/a"
[[source.b.route]]
"#,
        r#"
error: two sources listen on `/in/a`
 --> hookonce.toml:6:8
  |
6 | path = "/in/a"
  |        ^^^^^^^ also the path of source `a`

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_value_of_another_type_is_reported_with_the_expected_one() {
    check(
        &route("lease = 30"),
        r#"
error: `lease` cannot be read
 --> hookonce.toml:6:9
  |
6 | lease = 30
  |         ^^ expected a duration such as "30s", found an integer

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"at_once = "many""#),
        r#"
error: `at_once` cannot be read
 --> hookonce.toml:6:11
  |
6 | at_once = "many"
  |           ^^^^^^ expected an integer ≥ 1, found a string

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source("body_max = 1024"),
        r#"
error: `body_max` cannot be read
 --> hookonce.toml:4:12
  |
4 | body_max = 1024
  |            ^^^^ expected a size such as "25MB", found an integer

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"[source.s]
verify = "none"
fields = 1
[[source.s.route]]
"#,
        r"
error: `fields` cannot be read
 --> hookonce.toml:3:10
  |
3 | fields = 1
  |          ^ expected a table of names and places, found an integer

1 error in hookonce.toml; nothing was started
",
    );
    check(
        &route(r#"run = { steps = ["a", 1] }"#),
        r#"
error: `steps` cannot be read
 --> hookonce.toml:6:23
  |
6 | run = { steps = ["a", 1] }
  |                       ^ expected a list of steps, each a string or a list of strings, found an integer in it

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r"listen = true
[source]
s = 1
",
        r#"
error: `listen` cannot be read
 --> hookonce.toml:1:10
  |
1 | listen = true
  |          ^^^^ expected an address such as "127.0.0.1:3142", ":3142" or "localhost:3142", found true

error: `source` cannot be read
 --> hookonce.toml:3:5
  |
3 | s = 1
  |     ^ expected tables, each under a name, found an integer in it

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_invalid_duration_size_or_address_is_reported() {
    check(
        &route(r#"lease = "30 seconds""#),
        r#"
error: `lease` cannot be read
 --> hookonce.toml:6:9
  |
6 | lease = "30 seconds"
  |         ^^^^^^^^^^^^ expected a whole number with ms, s, m, h or d, such as "30s"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"body_max = "25""#),
        r#"
error: `body_max` cannot be read
 --> hookonce.toml:4:12
  |
4 | body_max = "25"
  |            ^^^^ expected a whole number with KB, MB or GB, such as "25MB"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"listen = "127.0.0.1-3142"
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: `listen` cannot be read
 --> hookonce.toml:1:10
  |
1 | listen = "127.0.0.1-3142"
  |          ^^^^^^^^^^^^^^^^ expected an address and a port, such as "127.0.0.1:3142", ":3142" or "localhost:3142"

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"lease = "999999d""#),
        r#"
error: `lease` cannot be read
 --> hookonce.toml:6:9
  |
6 | lease = "999999d"
  |         ^^^^^^^^^ longer than a hundred years

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_number_out_of_range_is_reported() {
    check(
        &route("at_once = 0"),
        r"
error: `at_once` cannot be read
 --> hookonce.toml:6:11
  |
6 | at_once = 0
  |           ^ expected an integer from 1 to 4294967295

1 error in hookonce.toml; nothing was started
",
    );
    check(
        &route(r#"lease = "10ms""#),
        r#"
error: `lease` is too short
 --> hookonce.toml:6:9
  |
6 | lease = "10ms"
  |         ^^^^^^ at least 1s: it is renewed at a third

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"body_max = "1GB""#),
        r#"
error: `body_max` is out of range
 --> hookonce.toml:4:12
  |
4 | body_max = "1GB"
  |            ^^^^^ from 1KB to 64MB, the limit of all bodies in a node's memory

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(
            r#"respond = "done"
respond_within = "0s""#,
        ),
        r#"
error: `respond_within` is zero
 --> hookonce.toml:5:18
  |
5 | respond_within = "0s"
  |                  ^^^^ it must be longer than zero

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"retry = { first = "1h", longest = "1m" }"#),
        r#"
error: `longest` is shorter than `first`
 --> hookonce.toml:6:35
  |
6 | retry = { first = "1h", longest = "1m" }
  |                                   ^^^^ `first` is 1h

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"once = { keep = "5d", keep_body = "6d" }"#),
        r#"
error: `keep_body` is longer than `keep`
 --> hookonce.toml:4:35
  |
4 | once = { keep = "5d", keep_body = "6d" }
  |                                   ^^^^ the event itself is kept for 5d
  |
hint: make `keep` longer or `keep_body` shorter

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_misspelt_word_is_reported_with_a_suggestion() {
    check(
        &route(r#"in_doubt = "holt""#),
        r#"
error: `in_doubt` cannot be read
 --> hookonce.toml:6:12
  |
6 | in_doubt = "holt"
  |            ^^^^^^ expected "retry" or "hold"
  |
hint: did you mean `hold`?

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"respond = "later""#),
        r#"
error: `respond` cannot be read
 --> hookonce.toml:4:11
  |
4 | respond = "later"
  |           ^^^^^^^ expected "accepted" or "done"

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_path_is_absolute_and_not_one_of_our_own() {
    check(
        &source(r#"path = "hook""#),
        r#"
error: `hook` cannot be a path
 --> hookonce.toml:4:8
  |
4 | path = "hook"
  |        ^^^^^^ it must begin with /

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"path = "/healthz""#),
        r#"
error: `/healthz` cannot be a path
 --> hookonce.toml:4:8
  |
4 | path = "/healthz"
  |        ^^^^^^^^^^ hookonce uses this path itself

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &source(r#"path = "/a b?""#),
        r#"
error: `/a b?` cannot be a path
 --> hookonce.toml:4:8
  |
4 | path = "/a b?"
  |        ^^^^^^^ a path is ASCII without spaces, ? and #

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_source_has_a_name_that_is_valid_in_a_path() {
    check(
        r#"[source."My Source"]
verify = "none"
path = "/x"
[[source."My Source".route]]
"#,
        r#"
error: `My Source` cannot be the name of a source
 --> hookonce.toml:1:9
  |
1 | [source."My Source"]
  |         ^^^^^^^^^^^ lower-case letters, digits, _ and -

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_unknown_kind_of_store_is_reported() {
    check(
        r#"store = "memory"
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: `store` cannot be read
 --> hookonce.toml:1:9
  |
1 | store = "memory"
  |         ^^^^^^^^ expected memory:, sqlite:PATH, postgres://HOST/DATABASE or redis://HOST

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn the_state_folder_is_the_configs_else_systemds_else_the_default() {
    use hookonce::internals::config::{StateFolder, parse};
    let check = |lines: &str, systemd: Option<&str>, expected: StateFolder| {
        let env = |name: &str| systemd.filter(|_| name == "STATE_DIRECTORY").map(str::to_owned);
        let text = format!("{lines}\n{}", source(""));
        let config = parse(&text, "hookonce.toml", std::path::Path::new("/etc"), &env).unwrap();
        assert_eq!(config.state, expected, "{lines} {systemd:?}");
        assert!(config.secret_env_names.is_empty(), "it is not a secret");
    };
    let named = |path: &str| StateFolder::Named(path.into());
    check("state = \"here\"", Some("/var/lib/a"), named("/etc/here"));
    check("state = \"/here\"", None, named("/here"));
    check("", Some("/var/lib/a:/var/lib/b"), named("/var/lib/a"));
    check("", Some(""), StateFolder::Default);
    check("", None, StateFolder::Default);
}

#[test]
fn a_status_for_stored_events_is_one_of_three_and_only_for_senders_that_do_not_wait() {
    check(
        &source("accepted_status = 201"),
        r"
error: `accepted_status` cannot be read
 --> hookonce.toml:4:19
  |
4 | accepted_status = 201
  |                   ^^^ expected 200, 202 or 204

1 error in hookonce.toml; nothing was started
",
    );
    check(
        &source("respond = \"done\"\naccepted_status = 204"),
        r#"
error: `accepted_status` and respond = "done" cannot be combined
 --> hookonce.toml:5:1
  |
5 | accepted_status = 204
  | ^^^^^^^^^^^^^^^ a sender that waits for the end gets its status
  |
hint: remove one of them

1 error in hookonce.toml; nothing was started
"#,
    );
    for (text, expected) in [("", 202), ("accepted_status = 200", 200), ("accepted_status = 204", 204)] {
        assert_eq!(fine(&source(text)).sources[0].accepted_status.code(), expected);
    }
    let paddle = |keys: &str| {
        fine(&format!(
            "[source.s]\npreset = \"paddle\"\nsecret = {{ env = \"A\" }}\n{keys}\n[[source.s.route]]\nrun = {{ steps = [\"true\"] }}\n"
        ))
    };
    assert_eq!(paddle("").sources[0].accepted_status.code(), 200);
    assert!(paddle("respond = \"done\"").warnings.is_empty());
}
