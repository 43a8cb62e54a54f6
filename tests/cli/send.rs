//! `send`: a delivery as its sender would sign and send it.

use crate::support::{House, payload};
use crate::{end, numbers, on_known_ports, run, run_knowing};
use serde_json::{Value as Json, json};
use std::io::Write;
use std::process::Stdio;

const GHCR: &str = r#"
[source.ghcr]
preset = "github-package"
secret = { env = "SECRET" }
[[source.ghcr.route]]
name = "deploy"
run  = { steps = ["echo $HOOKONCE_FIELD_PACKAGE $HOOKONCE_FIELD_TAG >> runs"] }
"#;

#[tokio::test]
async fn a_file_is_sent_unchanged_and_signed_and_its_repeat_is_a_duplicate() {
    let house = House::new(GHCR);
    std::fs::write(house.path("push.json"), payload("ghcr_latest.json")).unwrap();
    let url = house.url("");
    let said = run_knowing(&house, &["send", "push.json", "--url", &url, "--times", "2"]).fine();
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("202 accepted ") && lines[1].contains("duplicate"), "{said}");
    house.quiet().await;
    assert_eq!(house.lines("runs"), ["jamiec_ts latest"]);
    let again = run_knowing(&house, &["send", "push.json", "--source", "ghcr", "--url", &url, "--json"]).json();
    assert_eq!((&again["status"], &again["answer"]["same"]), (&json!(200), &json!("body")));
    let other = ["send", "push.json", "--url", &url, "--set", "tag=main"];
    let said = run_knowing(&house, &other).fine();
    assert_eq!(said, "200 ignored: tag was \"main\", wanted tag == \"latest\"\n");
}

#[tokio::test]
async fn a_sample_is_new_each_time_and_is_followed_to_its_end() {
    let house = on_known_ports("");
    let sent = ["send", "--sample", "--set", "n=5", "--set", "word=hello", "--wait"];
    let said = run_knowing(&house, &sent).fine();
    assert!(said.starts_with("202 accepted ") && said.contains(" | acting on 5\n"), "{said}");
    assert!(said.ends_with("state       done: attempt 1 acted\n"), "{said}");
    let failed = run_knowing(&house, &["send", "--sample", "--set", "n=13", "--wait", "--json"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let last: Json = serde_json::from_str(failed.out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["kind"], &last["end"]["cause"]), (&json!("end"), &json!("failed")));
    let id = ["send", "--sample", "--set", "n=6", "--id", "mine"];
    run_knowing(&house, &id).fine();
    assert!(run(&house, &["show", "mine"]).fine().contains("fields      n     6\n"));
    let again = run_knowing(&house, &["send", "--sample", "--set", "n=6", "--id", "mine", "--wait"]).fine();
    assert!(again.contains("duplicate") && again.contains("done: attempt 1 acted"), "{again}");
    let package = House::new(GHCR);
    let sent = ["send", "--sample", "--url", &package.url(""), "--set", "package=app"];
    for _ in 0..2 {
        assert!(run_knowing(&package, &sent).fine().starts_with("202 accepted"));
    }
    package.quiet().await;
    assert_eq!(package.lines("runs"), ["app latest", "app latest"]);
    let fields = run(&package, &["list", "--json"]).json()["events"][0]["fields"].clone();
    assert_eq!((&fields["repository"], &fields["commit"]), (&json!("octocat/sample"), &json!(format!("{:040}", 0))));
}

#[tokio::test]
async fn standard_input_can_be_the_body_and_a_refusal_exits_with_1() {
    let house = House::new(&numbers());
    let url = house.url("/in");
    let sent = |body: &[u8]| {
        let mut command = house.command(&["send", "-", "--url", &url]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = sent(b"{\"n\":4}");
    assert!(code == Some(0) && said.starts_with("202 accepted"), "{said}");
    let (code, said) = sent(b"\xff\x00 not JSON");
    assert!(code == Some(1) && said.starts_with("400 refused: malformed"), "{said}");
    let mut forged = house.command(&["send", "--sample", "--url", &url]);
    forged.env("SECRET", "another secret");
    let said = end(forged);
    assert_eq!((said.code, &*said.out), (Some(1), "401 refused: bad_signature\n"));
    let nowhere = run_knowing(&house, &["send", "--sample", "--url", &house.url("/nowhere")]);
    assert_eq!((nowhere.code, &*nowhere.out), (Some(1), "404 refused: unknown_path\n"));
}

#[tokio::test]
async fn a_delivery_that_cannot_be_sent_exits_with_2_and_a_sentence() {
    let mut house = on_known_ports("");
    std::fs::create_dir(house.path("folder")).unwrap();
    std::fs::write(house.path("binary"), [0xff, 0, 1]).unwrap();
    for (args, part) in [
        (&["missing.json"][..], "there is no file missing.json"),
        (&["folder"], "folder is a folder; name a file in it"),
        (&["binary", "--set", "n=1"], "--set needs a JSON body"),
        (&["--sample", "--source", "numbrs"], "did you mean `numbers`?"),
        (&["--sample", "--set", "nn=1"], "has no field `nn`: n, word"),
        (&["--sample", "--set", "n"], "expected NAME=VALUE"),
        (&["--sample", "--url", "ftp://x/"], "expected http:// or https://"),
        (&["--sample", "--url", "http://127.0.0.1:1/in"], "could not send to http://127.0.0.1:1/in"),
        (&["--sample", "--wait", "--admin", "http://127.0.0.1:1"], "no node responds at http://127.0.0.1:1"),
        (&[], "required"),
        (&["--sample", "binary"], "cannot be used with"),
        (&["--sample", "--times", "0"], "0 is not in 1.."),
        (&["/dev/zero"], "/dev/zero is larger than its source allows: 25MB"),
        (&["--sample", "-c", "no.toml"], "there is no config at no.toml"),
    ] {
        run_knowing(&house, &[&["send"], args].concat()).check(2, part);
    }
    run(&house, &["send", "--sample"]).check(2, "`SECRET` is not set");
    house.stop();
    run_knowing(&house, &["send", "--sample"]).check(2, "is `hookonce serve` running?");
    let unknown = House::empty(&numbers());
    run_knowing(&unknown, &["send", "--sample"]).check(2, "name the address with --url");
}
