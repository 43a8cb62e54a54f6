//! A node with the config of the fixtures, run by any binary.

use crate::backend::{Backend, Does};
use crate::folder;
use crate::server::StoreServer;
use crate::support::{House, until};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The response of the services behind the node.
const ANSWER: &str = "{\"ingested\":12}";

/// A node, its store, and the services it forwards to.
pub(crate) struct UpgradedNode {
    pub(crate) house: House,
    pub(crate) server: StoreServer,
    backend: Backend,
    hangs_up: Backend,
    /// The binary that was started last: it can read the schema.
    binary: PathBuf,
}

impl UpgradedNode {
    pub(crate) async fn new(server: StoreServer) -> Self {
        let house = House::empty(&std::fs::read_to_string(folder().join("hookonce.toml")).unwrap());
        std::fs::create_dir(house.path("callers")).unwrap();
        for caller in std::fs::read_dir(folder().join("callers")).unwrap() {
            let caller = caller.unwrap();
            std::fs::copy(caller.path(), house.path("callers").join(caller.file_name())).unwrap();
        }
        let backend = Backend::answers(201, ANSWER).await;
        let hangs_up = Backend::new(vec![Does::Dies(200, ANSWER.into())]).await;
        let binary = env!("CARGO_BIN_EXE_hookonce").into();
        Self { house, server, backend, hangs_up, binary }
    }

    /// A command of this binary in the node's folder, with the environment of the fixtures.
    pub(crate) fn command(&self, binary: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command.args(args).current_dir(self.house.dir.path()).env_remove("HOOKONCE_CONFIG");
        for line in std::fs::read_to_string(folder().join("environment")).unwrap().lines() {
            let (name, value) = line.split_once('=').unwrap();
            command.env(name, value);
        }
        command.env("STORE", self.server.url());
        command.env("BACKEND", &self.backend.url).env("BACKEND_THAT_HANGS_UP", &self.hangs_up.url);
        command
    }

    pub(crate) fn start(&mut self) {
        self.start_by(Path::new(env!("CARGO_BIN_EXE_hookonce")));
    }

    pub(crate) fn start_by(&mut self, binary: &Path) {
        let command = self.command(binary, &["serve"]);
        binary.clone_into(&mut self.binary);
        self.house.try_start_by(command).unwrap_or_else(|said| panic!("the node did not start: {said}"));
    }

    /// Runs today's binary with these arguments, which must succeed, and returns its output.
    pub(crate) fn run(&self, args: &[&str]) -> String {
        self.run_by(Path::new(env!("CARGO_BIN_EXE_hookonce")), args)
    }

    fn run_by(&self, binary: &Path, args: &[&str]) -> String {
        let done = self.command(binary, args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    pub(crate) fn has_schema(&self) -> bool {
        !matches!(self.server, StoreServer::Redis(_))
    }

    /// What the commands did, in order.
    pub(crate) fn acts(&self) -> Vec<String> {
        self.house.lines("acts")
    }

    /// The number of calls to the services.
    pub(crate) fn called(&self) -> usize {
        self.backend.calls().len() + self.hangs_up.calls().len()
    }

    /// Lets the waiting commands succeed.
    pub(crate) fn let_go(&self) {
        std::fs::write(self.house.path("go"), "").unwrap();
    }

    /// The state of every event, with its cause, by its id.
    pub(crate) fn states(&self) -> BTreeMap<String, String> {
        let store = self.server.url();
        let listed = self.run_by(&self.binary, &["list", "--json", "--limit", "1000", "--store", &store]);
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let state = |event: &serde_json::Value| {
            let word = |at: &str| event[at].as_str().unwrap_or("").to_owned();
            (word("event"), format!("{} {}", word("state"), word("cause")).trim_end().to_owned())
        };
        listed["events"].as_array().unwrap().iter().map(state).collect()
    }

    /// Waits until every event has ended.
    pub(crate) async fn quiet(&self) {
        until("every event to end", || self.states().values().all(|state| state.starts_with('d'))).await;
    }
}
