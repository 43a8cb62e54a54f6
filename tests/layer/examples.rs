//! The examples, run as their reader would.

use super::Client;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// An example that cargo built beside this test.
fn example(name: &str) -> Command {
    let deps = std::env::current_exe().unwrap();
    let path: PathBuf = deps.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built: cargo build --examples", path.display());
    Command::new(path)
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn the_axum_service_answers_a_retry_with_the_first_answer_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("uploads.db").display());
    let mut first = String::new();
    for start in 0..2 {
        let mut command = example("axum_service");
        let mut child = Ends(command.args(["127.0.0.1:0", &store]).stdout(Stdio::piped()).spawn().unwrap());
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
fn the_worker_does_each_job_once_also_when_it_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", dir.path().join("jobs.db").display());
    let run = || {
        let output = example("worker").arg(&store).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let now = "now: invoice-1 is sent\nnow: invoice-2 is sent\nbefore: invoice-1 is sent\nnow: invoice-3 is sent\n\
               failed: there is no such invoice\nbefore: invoice-3 is sent\n";
    assert_eq!(run(), now);
    assert_eq!(run(), now.replace("now:", "before:"));
}
