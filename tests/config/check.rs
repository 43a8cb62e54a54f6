//! `hookonce check`: its output and exit codes.

use super::{LONG, SHORT, env};
use hookonce::internals::cli::check::{CheckExit, ReportFormat, check};
use hookonce::internals::config::ColorChoice;
use std::path::Path;

fn told(folder: &Path, text: &str, form: ReportFormat) -> (CheckExit, String) {
    let file = folder.join("hookonce.toml");
    std::fs::write(&file, text).expect("the folder is ours");
    let mut out = Vec::new();
    let verdict = check(Some(&file), form, &env, &mut out).expect("a vector takes everything");
    (verdict, String::from_utf8(out).expect("it is text").replace(&folder.display().to_string(), "DIR"))
}

#[test]
fn check_prints_the_meaning_of_a_config() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{SHORT}at_once = 4\n[source.plain]\nverify = 'none'\n[[source.plain.route]]\n");
    let (verdict, shown) = told(folder.path(), &text, ReportFormat::Text(ColorChoice::Plain));
    assert_eq!(verdict, CheckExit::Fine);
    let expected = r#"listen     127.0.0.1:3142
admin      127.0.0.1:3143, without a token
store      sqlite:DIR/hookonce.db

source ghcr
  preset     github-package
  url        http://127.0.0.1:3142/version/1
  signed by  GitHub's signature (SHA-256)
  signs      body
  kind       x-github-event is registry_package, and the body has registry_package
             x-github-event is package, and the body has package
  fields     package     body.registry_package.name or body.package.name
             tag         body.registry_package.package_version.container_metadata.tag.name or body.package.package_version.container_metadata.tag.name
             version_id  body.registry_package.package_version.id or body.package.package_version.id
             sha         body.registry_package.package_version.version or body.package.package_version.version
             updated_at  body.registry_package.updated_at or body.package.updated_at
             namespace   body.registry_package.namespace or body.package.namespace
             repository  body.repository.full_name
             commit      body.registry_package.package_version.target_oid or body.package.package_version.target_oid
  acts when  tag == "latest"
  once per   the delivery id (header.x-github-delivery) with the body's digest, since the id is not signed  (preset)
             the body  (preset)
             a change of package + tag to version_id + sha, ordered by updated_at  (preset)
  keeps      events for 30d (default), bodies for 7d (default)
  captured   a delivery sent again under another id is a repeat for 30d after its event ended
  answers    when the event is stored, with 202
  limits     body 25MB
  route jamiec_ts
    when       package == "jamiec_ts"
    runs       in /, within 10m
                 docker compose pull
                 docker compose up -d
    retry      3 attempts, waiting 5s to 1m
    in doubt   retry, at most 3 attempts lost to a crash, a lost lease or a broken connection
    redelivery retry a dead event: the same delivery after 5s, another after 1m
    group      one at a time per package
    when busy  replace: of those that wait, only the newest is kept
    lease      30s
    at once    4

source plain
  url        http://127.0.0.1:3142/in/plain
  signed by  nothing
  signs      none
  acts when  always
  once per   the body  (default)
  keeps      events for 30d (default), bodies for 7d (default)
  answers    when the event is stored, with 202
  limits     body 25MB
  route 1
    when       always
    does       nothing: events are only recorded

DIR/hookonce.toml is fine
"#;
    assert!(shown == expected, "--- got\n{shown}--- expected\n{expected}---");
}

#[test]
fn check_distinguishes_a_wrong_config_from_a_missing_one() {
    let folder = tempfile::tempdir().unwrap();
    let (verdict, shown) = told(folder.path(), "a = 1", ReportFormat::Text(ColorChoice::Plain));
    assert_eq!(verdict as u8, 1);
    assert!(shown.ends_with("2 errors in DIR/hookonce.toml; nothing was started\n"), "{shown}");
    let mut out = Vec::new();
    let missing = folder.path().join("none.toml");
    let verdict = check(Some(&missing), ReportFormat::Text(ColorChoice::Plain), &env, &mut out).unwrap();
    assert_eq!(verdict as u8, 2);
}

#[test]
fn check_prints_the_same_as_json_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (_, shown) = told(folder.path(), LONG, ReportFormat::Json);
    let json: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(json["status"], "fine");
    let source = &json["sources"][0];
    assert_eq!(source["once"]["per"][1], serde_json::json!({ "identity": "body", "from": "written" }));
    assert_eq!(source["routes"][0]["group"], serde_json::json!(["package", "tag"]));
    assert!(!shown.contains("s3cret") && !shown.contains("t0ken"), "{shown}");
    let (verdict, shown) = told(folder.path(), "listen = 1", ReportFormat::Json);
    let json: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (verdict, &json["status"], &json["problems"][1]["line"]),
        (CheckExit::Wrong, &"wrong".into(), &1.into())
    );
}
