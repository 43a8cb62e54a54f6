//! The examples, run as a reader would.

use super::Client;
use serde_json::Value as Json;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// An example, built by the cargo that runs this test: not every way to run tests builds examples first.
fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().and_then(|deps| deps.parent()?.file_name()?.to_str()).unwrap_or("debug");
    let profile = if folder == "debug" { "dev" } else { folder };
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--locked", "--message-format", "json", "--profile", profile, "--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "cargo could not build the example {name}: {said}");
    let messages = String::from_utf8(built.stdout).unwrap();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let path = messages
        .filter(|made| made["target"]["name"] == name)
        .find_map(|made| made["executable"].as_str().map(str::to_owned));
    path.unwrap_or_else(|| panic!("cargo does not print the path of the example {name}: {said}")).into()
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn the_axum_service_answers_a_retry_with_the_first_response_even_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("uploads.db").display());
    let (service, mut first) = (example("axum_service"), String::new());
    for start in 0..2 {
        let mut child =
            Ends(Command::new(&service).args(["127.0.0.1:0", &store]).stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        let client = Client { url: format!("{url}/ingest"), http: reqwest::Client::new() };
        for ask in 0..2 {
            let request = client.http.post(&client.url).header("idempotency-key", "\"8e03978e\"").body("hello");
            let said = client.send(request).await;
            assert_eq!(said.body, "upload 1 has 5 bytes\n");
            assert_eq!(said.replayed(), start + ask > 0);
            first = said.body;
        }
    }
    assert!(!first.is_empty());
}

#[test]
fn the_worker_does_each_job_once_even_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("jobs.db").display());
    let worker = example("worker");
    let run = || {
        let output = Command::new(&worker).arg(&store).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let now = "now: invoice-1 is sent\nnow: invoice-2 is sent\nbefore: invoice-1 is sent\nnow: invoice-3 is sent\n\
               failed: there is no such invoice\nbefore: invoice-3 is sent\n";
    assert_eq!(run(), now);
    assert_eq!(run(), now.replace("now:", "before:"));
}
