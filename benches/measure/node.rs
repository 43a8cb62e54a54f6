//! A node: the real binary, as a process of its own.

use super::deck::SECRET;
use super::process::{ProcessTree, Used};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take until it accepts deliveries.
const PATIENCE: Duration = Duration::from_mins(5);

/// A node that accepts deliveries; ended on drop.
pub struct Node {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    /// How long it took from `exec` until `/readyz` was 200.
    pub ready_after: Duration,
    child: Child,
}

impl Node {
    /// Starts one with this config in this folder, and waits until it is ready.
    pub fn start(dir: &Path, config: &str) -> Self {
        std::fs::create_dir_all(dir).expect("a folder");
        std::fs::write(dir.join("hookonce.toml"), config).expect("a config");
        let log = File::create(dir.join("log")).expect("a file for the log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_hookonce"));
        command.arg("serve").current_dir(dir).env("SECRET", SECRET).env_remove("HOOKONCE_CONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let begun = Instant::now();
        let mut child = command.spawn().expect("the node starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines().map_while(Result::ok);
        let mut urls = lines.by_ref().filter_map(|line| address(&line));
        let (Some(address), Some(admin)) = (urls.next(), urls.next()) else {
            child.kill().ok();
            let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
            panic!("the node did not start: {}", log.trim());
        };
        while get(address, "/readyz").is_none_or(|answer| !answer.starts_with("HTTP/1.1 200")) {
            assert!(begun.elapsed() < PATIENCE, "the node does not become ready");
        }
        let ready_after = begun.elapsed();
        std::thread::spawn(move || lines.for_each(drop));
        Self { address, admin, ready_after, child }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has used so far.
    pub fn used(&self) -> Used {
        ProcessTree(self.id()).used()
    }

    /// PSS in MiB.
    pub fn memory(&self) -> f64 {
        ProcessTree(self.id()).memory()
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = get(self.admin, "/metrics").expect("it answers");
        let lines =
            text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Ends it in order.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The address in the URL of a line.
fn address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("http://")?;
    rest.split(['/', ',', ' ']).next()?.parse().ok()
}

/// The response to a request.
fn get(from: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(from).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {from}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
