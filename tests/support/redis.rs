//! A Redis or Valkey server for one test: on a free port, in a temporary folder, and ended with the test, however that
//! ends.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_mins(2);
/// What a server logs when it listens, and what a sentinel does.
const READY: [&str; 2] = ["Ready to accept connections", "+monitor master"];

/// A server, as durable as it can be, unless more arguments say otherwise.
pub struct Server {
    pub dir: tempfile::TempDir,
    pub port: u16,
    program: PathBuf,
    words: Vec<String>,
    running: Option<Running>,
}

struct Running {
    shell: Child,
    lifeline: ChildStdin,
    pid: i32,
}

/// Debian's Redis.
pub fn redis() -> PathBuf {
    "redis-server".into()
}

/// A Valkey, if there is one: `HOOKONCE_VALKEY` names it, or it is in the path.
pub fn valkey() -> Option<PathBuf> {
    let named = std::env::var_os("HOOKONCE_VALKEY").map(PathBuf::from);
    let found = named.unwrap_or_else(|| "valkey-server".into());
    Command::new(&found).arg("--version").output().ok().map(|_| found)
}

impl Server {
    /// One that keeps everything.
    pub fn start() -> Self {
        Self::with(&redis(), &[])
    }

    /// The same with more arguments on its command line.
    pub fn with(program: &Path, words: &[&str]) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self::inside(dir, program, words)
    }

    /// The same with its files in this folder.
    pub fn inside(dir: tempfile::TempDir, program: &Path, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let mut server = Self { dir, port: 0, program: program.to_owned(), words, running: None };
        // Another process may take the free port before the server has it.
        for _ in 0..5 {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.try_run() {
                return server;
            }
        }
        panic!("the server does not start:\n{}", server.log());
    }

    /// Starts it on the existing data, and waits until it responds.
    pub fn run(&mut self) {
        assert!(self.try_run(), "the server does not start:\n{}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The same; returns whether its port was free.
    fn try_run(&mut self) -> bool {
        assert!(self.running.is_none(), "it is running already");
        // The log of the previous run says nothing about this one.
        std::fs::remove_file(self.dir.path().join("log")).ok();
        // The shell kills it when the test's end of the pipe closes, even if the test was killed.
        let mut shell = Command::new("sh")
            .args(["-c", "\"$@\" >log 2>&1 & echo $!; read -r _; kill -9 $! 2>/dev/null; wait", "sh"])
            .arg(&self.program)
            .args(self.arguments())
            .args(&self.words)
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let lifeline = shell.stdin.take().unwrap();
        self.running = Some(Running { shell, lifeline, pid: pid.trim().parse().unwrap() });
        let begun = Instant::now();
        loop {
            // Another server may have the port, and answer there.
            let (answers, log) = (self.answers(), self.log());
            if log.contains("Address already in use") {
                self.kill();
                return false;
            }
            if answers && READY.iter().any(|words| log.contains(words)) {
                return true;
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not start:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A sentinel that watches this server under the name `main`, with a quorum of two. A busy machine may delay a server
    /// for a second: that is no failure.
    pub fn sentinel_of(primary: &Self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "sentinel monitor main 127.0.0.1 {} 2\nsentinel down-after-milliseconds main 2000\n\
             sentinel failover-timeout main 3000\n",
            primary.port
        );
        std::fs::write(dir.path().join("sentinel.conf"), text).unwrap();
        Self::inside(dir, &redis(), &["--sentinel"])
    }

    fn arguments(&self) -> Vec<String> {
        let port = self.port.to_string();
        let words: &[&str] = if self.words.iter().any(|word| word == "--sentinel") {
            &["sentinel.conf", "--port", &port, "--bind", "127.0.0.1"]
        } else {
            &[
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                "--dir",
                ".",
            ]
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Whether it responds, even with an error.
    fn answers(&self) -> bool {
        use std::io::Write as _;
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let mut line = String::new();
        let asked = stream.write_all(b"PING\r\n").and_then(|()| BufReader::new(stream).read_line(&mut line));
        asked.is_ok() && !line.is_empty() && !line.contains("LOADING")
    }

    /// Kills it as a power failure would.
    pub fn kill(&mut self) {
        if let Some(Running { mut shell, lifeline, pid }) = self.running.take() {
            signal(pid, rustix::process::Signal::KILL);
            drop(lifeline); // otherwise the shell waits for the pipe, and we for the shell
            let _ = shell.wait();
        }
    }

    /// Stops the process (SIGSTOP), or continues it.
    pub fn pause(&self, pause: bool) {
        use rustix::process::Signal;
        let running = self.running.as_ref().unwrap();
        signal(running.pid, if pause { Signal::STOP } else { Signal::CONT });
    }

    /// The store's URL under this prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("redis://127.0.0.1:{}/?prefix={prefix}", self.port)
    }

    /// A plain connection, for commands that no node sends.
    pub fn client(&self) -> ::redis::Connection {
        ::redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap().get_connection().unwrap()
    }

    /// Runs this command on it.
    pub fn order(&self, words: &[&str]) -> ::redis::Value {
        let mut command = ::redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.client()).unwrap()
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
