//! Keys, presets and the file as a whole: the exact texts.

use super::{check, route, source};

#[test]
fn an_unknown_key_is_reported_with_a_suggestion() {
    check(
        &source(r#"whne = "x""#),
        r#"
error: unknown key `whne` in source `s`
 --> hookonce.toml:4:1
  |
4 | whne = "x"
  | ^^^^
  |
hint: did you mean `when`?

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        r#"lisen = "x"
[source.g]
verify = { scheme = "github", secret = { env = "A" } }
[[source.g.route]]
"#,
        r#"
error: unknown key `lisen` at the top level
 --> hookonce.toml:1:1
  |
1 | lisen = "x"
  | ^^^^^
  |
hint: did you mean `listen`?

1 error in hookonce.toml; nothing was started
"#,
    );
    check(
        &route(r#"colour = "red""#),
        r#"
error: unknown key `colour` in a route of source `s`
 --> hookonce.toml:6:1
  |
6 | colour = "red"
  | ^^^^^^
  |
hint: keys here: name, when, group, retry, lookup, in_doubt, redelivery, rearm_after, lease, at_once, when_busy, debounce, debounce_max, budget, health_check, on_unhealthy, env, run, forward, publish, sql, notify

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn a_config_without_a_source_is_refused() {
    check(
        r#"listen = "127.0.0.1:1"
"#,
        r"
error: no source is configured
hint: add [source.NAME] with `verify` and a route, or start with `hookonce init`

1 error in hookonce.toml; nothing was started
",
    );
    check(
        "",
        r"
error: no source is configured
hint: add [source.NAME] with `verify` and a route, or start with `hookonce init`

1 error in hookonce.toml; nothing was started
",
    );
}

#[test]
fn a_password_in_the_stores_url_is_refused() {
    check(
        r#"store = "postgres://u:s3cret@localhost/x"
[source.s]
verify = "none"
[[source.s.route]]
"#,
        r#"
error: the password of `store` is written in the config file
 --> hookonce.toml:1:9
  |
1 | store = "postgres://u:•••@localhost/x"
  |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a secret must not be in the config file
  |
hint: put the whole URL in an environment variable and write store = { env = "DATABASE_URL" }

1 error in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn an_unknown_preset_is_reported_with_a_suggestion() {
    let expected = r#"
error: there is no preset `github-packages`
 --> hookonce.toml:2:10
  |
2 | preset = "github-packages"
  |          ^^^^^^^^^^^^^^^^^ `hookonce presets` lists them
  |
hint: did you mean `github-package`?

1 error in hookonce.toml; nothing was started
"#;
    check(
        r#"[source.s]
preset = "github-packages"
verify = "none"
[[source.s.route]]
"#,
        expected,
    );
}

#[test]
fn all_toml_errors_are_reported_at_once() {
    check(
        r#"listen = 
store = "memory:"
store = "memory:"
"#,
        r#"
error: this is not TOML: string values must be quoted, expected literal string
 --> hookonce.toml:1:10
  |
1 | listen = 
  |          ^

error: this is not TOML: duplicate key
 --> hookonce.toml:3:1
  |
3 | store = "memory:"
  | ^^^^^

2 errors in hookonce.toml; nothing was started
"#,
    );
}

#[test]
fn every_problem_is_reported_at_once_in_the_order_of_the_file() {
    check(
        r#"listen = 1
[source.a]
path = "x"
[[source.a.route]]
lease = "1x"
when = "nope"
"#,
        r#"
error: `listen` cannot be read
 --> hookonce.toml:1:10
  |
1 | listen = 1
  |          ^ expected an address such as "127.0.0.1:3142", ":3142" or "localhost:3142", found an integer

error: source `a` has no `verify`
 --> hookonce.toml:2:9
  |
2 | [source.a]
  |         ^ `verify` is required unless a preset sets it
  |
hint: verify = { scheme = "github", secret = { env = "WEBHOOK_SECRET" } }; "none" must be set explicitly

error: `x` cannot be a path
 --> hookonce.toml:3:8
  |
3 | path = "x"
  |        ^^^ it must begin with /

error: `lease` cannot be read
 --> hookonce.toml:5:9
  |
5 | lease = "1x"
  |         ^^^^ expected a whole number with ms, s, m, h or d, such as "30s"

error: `when` cannot be read
 --> hookonce.toml:6:9
  |
6 | when = "nope"
  |         ^^^^ `nope` is not a declared field; none is declared

5 errors in hookonce.toml; nothing was started
"#,
    );
}
