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
        (&["binary", "--set", "n=1"], "--set cannot change this body: this is not JSON"),
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

#[tokio::test]
async fn a_preset_is_tried_without_a_config() {
    let house = House::new(
        "[source.stripe]\npreset = \"stripe\"\nsecret = { env = \"SECRET\" }\n\
         [source.square]\npreset = \"square\"\nsecret = { env = \"SECRET\" }\nurl = \"https://hooks.example.com/in/square\"\n",
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let send = |args: &[&str], variable: &str| {
        let mut command = house.command(&["send", "--sample"]);
        command
            .args(args)
            .current_dir(elsewhere.path())
            .env_remove("STRIPE_SECRET")
            .env(variable, crate::support::SECRET);
        let output = command.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let url = house.url("");
    let said = send(&["--preset", "stripe", "--url", &url, "--times", "2"], "STRIPE_SECRET");
    assert!(
        said.starts_with("202 accepted ") && said.contains("\n202 duplicate") || said.contains("\n200 duplicate"),
        "{said}"
    );
    let said = send(&["--preset", "stripe", "--url", &url, "--secret-env", "MINE"], "MINE");
    assert!(said.starts_with("202 accepted "), "{said}");
    let said = send(&["--preset", "stripe", "--url", &url], "MINE");
    assert!(said.contains("the variable STRIPE_SECRET is not set"), "{said}");
    let signed = ["--preset", "square", "--url", &url, "--signed-url", "https://hooks.example.com/in/square"];
    let said = send(&signed, "SQUARE_SECRET");
    assert!(said.contains(" accepted "), "{said}");
    let said = send(&["--preset", "strip"], "X");
    assert!(said.contains("there is no built-in preset `strip`; did you mean `stripe`?"), "{said}");
    let said = send(&["--preset", "docker-hub", "--url", &url], "X");
    assert!(said.contains("the path is the secret of `docker-hub`: give it with --url"), "{said}");
}

/// With a key pair that `send` makes, for both algorithms.
#[tokio::test]
async fn a_source_with_a_public_key_is_sent_to_with_a_key_pair_of_ones_own() {
    for algorithm in ["ed25519", "ecdsa-p256"] {
        let verify = format!(
            "verify = {{ scheme = \"{algorithm}\", header = \"x-signature\", timestamp = \"header.x-time\", over = \"{{timestamp}}.{{body}}\" }}"
        );
        let config = |key: &str| format!("[source.signed]\n{verify}\npublic_key = \"{key}\"\ndelivery = \"body.id\"\n");
        // Keys of vectors; whose private halves they are is not known here.
        let theirs = match algorithm {
            "ed25519" => "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            _ => {
                "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
            }
        };
        let mut house = House::empty(&config(theirs));
        let missing = run_knowing(&house, &["send", "--sample", "--url", "http://127.0.0.1:1"]);
        assert!(missing.err.contains("signs with a private key: name a file with --key"), "{missing:?}");
        let made = run_knowing(&house, &["send", "--sample", "--key", "key.pem", "--url", "http://127.0.0.1:1"]);
        let public = made.err.split("public_key = \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let permissions =
            std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(house.path("key.pem")).unwrap().permissions());
        assert_eq!(permissions & 0o777, 0o600);
        house.configure(&config(public));
        house.start();
        let url = house.url("");
        let said = run_knowing(&house, &["send", "--sample", "--key", "key.pem", "--url", &url]).fine();
        assert!(said.starts_with("202 accepted "), "{algorithm}: {said}");
        std::fs::remove_file(house.path("key.pem")).unwrap();
        let other = run_knowing(&house, &["send", "--sample", "--key", "key.pem", "--url", &url]);
        assert!(other.out.starts_with("401 "), "{other:?}");
        std::fs::write(house.path("key.pem"), "no key").unwrap();
        let bad = run_knowing(&house, &["send", "--sample", "--key", "key.pem", "--url", &url]);
        assert!(bad.err.contains("key.pem: it is not a private key of"), "{bad:?}");
    }
}
