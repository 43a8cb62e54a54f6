//! A contender that runs: a separate process, so that what it uses can be read, with a store of its own.

use crate::contender::{Bodies, Contender, StoreServer};
use crate::install::Tools;
use crate::measure::deck::{Deck, SECRET};
use crate::measure::load;
use crate::measure::process::{ProcessTree, Used};
use crate::measure::source::SourceConfig;
use crate::{baseline, postgres, redis};
use std::io::{BufRead, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts to start a server: another process may take its free port first.
const STARTS: usize = 3;

const PYTHON: [(&str, &str); 4] = [
    ("flask_tutorial.py", include_str!("programs/flask_tutorial.py")),
    ("flask_pooled.py", include_str!("programs/flask_pooled.py")),
    ("fastapi_redis.py", include_str!("programs/fastapi_redis.py")),
    ("stdlib_sqlite.py", include_str!("programs/stdlib_sqlite.py")),
];
const HOOKS: &str = include_str!("programs/hooks.json");

/// What `webhook` runs for each delivery.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum HookCommand {
    /// `/bin/true`.
    True,
    /// A script that adds a byte to a file, so that its runs can be counted.
    Counted,
}

/// The table of those that insert and let the key decide, and the tutorial's, which looks first.
const TABLE: &str = "create table deliveries (id text primary key, received timestamptz not null default now())";
const TUTORIAL_TABLE: &str = "create table deliveries (id text not null, received timestamptz not null default now());
                              create index on deliveries (id)";

/// The servers of PostgreSQL and Redis: one of each, for all contenders.
pub struct StoreServers {
    postgres: Option<postgres::Server>,
    redis: Option<redis::Server>,
    /// Databases of Redis that are in use.
    databases: u32,
}

impl StoreServers {
    /// Starts what these contenders need; Redis on the disk of the build, where a sync is not free.
    pub async fn start(contenders: &[Contender], dir: &Path) -> Self {
        let wants = |store| contenders.iter().any(|one| one.store() == store);
        let postgres = if wants(StoreServer::Postgres) {
            Some(postgres::Server::start_with(&["max_connections=200"]).await)
        } else {
            None
        };
        let redis = wants(StoreServer::Redis).then(|| {
            let folder = tempfile::tempdir_in(dir).expect("a folder");
            redis::Server::inside(folder, &redis::redis(), &["--databases", "64"])
        });
        Self { postgres, redis, databases: 0 }
    }

    fn postgres(&self) -> &postgres::Server {
        self.postgres.as_ref().expect("it was started for those that need it")
    }

    fn redis(&self) -> &redis::Server {
        self.redis.as_ref().expect("it was started for those that need it")
    }

    /// The processes of a store's server.
    fn tree(&self, store: StoreServer) -> Option<ProcessTree> {
        let pid = match store {
            StoreServer::Memory | StoreServer::Sqlite => None,
            StoreServer::Postgres => {
                let file = self.postgres().dir.path().join("data/postmaster.pid");
                std::fs::read_to_string(file).ok().and_then(|text| text.lines().next()?.parse().ok())
            }
            StoreServer::Redis => {
                let info: String =
                    ::redis::cmd("INFO").arg("server").query(&mut self.redis().client()).expect("Redis answers");
                info.lines().find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok())
            }
        };
        pid.map(ProcessTree)
    }

    /// A place for the deliveries of one contender, and where it is.
    async fn place(&mut self, contender: Contender, dir: &Path) -> String {
        match (contender, contender.store()) {
            (_, StoreServer::Memory) => "memory:".into(),
            (Contender::Hookonce(..), StoreServer::Sqlite) => "sqlite:hookonce.db".into(),
            (_, StoreServer::Sqlite) => dir.join("deliveries.db").display().to_string(),
            (_, StoreServer::Postgres) => {
                let name = self.postgres().database().await;
                if !contender.is_hookonce() {
                    let table = if contender == Contender::FlaskTutorial { TUTORIAL_TABLE } else { TABLE };
                    let table = format!("set search_path = public; {table}");
                    self.postgres().client(&name).await.batch_execute(&table).await.expect("the table is made");
                }
                self.postgres().url(&name)
            }
            (_, StoreServer::Redis) => {
                self.databases += 1;
                format!("redis://127.0.0.1:{}/{}", self.redis().port, self.databases)
            }
        }
    }
}

/// A server; ended with all its processes when it is dropped.
pub struct Running {
    pub contender: Contender,
    pub address: SocketAddr,
    tree: ProcessTree,
    store_tree: Option<ProcessTree>,
    place: String,
    dir: PathBuf,
    shell: Child,
}

impl Running {
    /// Starts one with an empty store in this folder, and waits until it accepts a delivery: the one of this number. The
    /// error says why it cannot run.
    pub async fn start(
        contender: Contender,
        (tools, stores): (&Tools, &mut StoreServers),
        (dir, command): (&Path, HookCommand),
        (deck, number): (&Arc<Deck>, u64),
    ) -> Result<Self, String> {
        let mut error = String::new();
        for attempt in 0..STARTS {
            let dir = dir.join(format!("{}-{attempt}", contender.name()));
            std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
            let place = stores.place(contender, &dir).await;
            let store_tree = stores.tree(contender.store());
            match Self::spawn(contender, (tools, command), &dir, (place, store_tree)) {
                Ok(running) => {
                    let first = load::storm(deck, running.address, number, 1, 1).await;
                    let good = if contender == Contender::Bare { first.fine } else { first.accepted };
                    match good {
                        1 => return Ok(running),
                        _ => error = format!("it does not accept a delivery: {}", running.log()),
                    }
                }
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    fn spawn(
        contender: Contender,
        (tools, command): (&Tools, HookCommand),
        dir: &Path,
        (place, store_tree): (String, Option<ProcessTree>),
    ) -> Result<Self, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let free = free.map_err(|error| error.to_string())?;
        let words = words(contender, (tools, command), dir, free.port())?;
        let mut shell = shell(&words, dir, &place)?;
        let mut pid = String::new();
        let said = shell.stdout.take().ok_or("it has no output")?;
        BufReader::new(said).read_line(&mut pid).map_err(|error| error.to_string())?;
        let tree = ProcessTree(pid.trim().parse().map_err(|_| "it did not start")?);
        let dir = dir.to_owned();
        let mut running = Self { contender, address: free, tree, store_tree, place, dir, shell };
        running.wait()?;
        Ok(running)
    }

    /// Waits until it listens: where it says, or where it was told.
    fn wait(&mut self) -> Result<(), String> {
        let chooses = self.contender.is_hookonce() || self.contender.is_baseline();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.tree.ended() {
            let said = if chooses { said(&self.log()) } else { Some(self.address) };
            if let Some(address) = said
                && TcpStream::connect(address).is_ok()
            {
                self.address = address;
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(format!("it does not listen: {}", self.log()))
    }

    /// What the server and its store's server have used so far.
    pub fn used(&self) -> [Used; 2] {
        [self.tree.used(), self.store_tree.map_or(Used::default(), ProcessTree::used)]
    }

    pub fn memory(&self) -> f64 {
        self.tree.memory()
    }

    /// The end of what it printed.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let from = text.len().saturating_sub(2_000);
        text.get(from..).unwrap_or(&text).trim().to_owned()
    }

    /// How often it acted, as its store shows, after it has ended. For one without a store: how often its command ran,
    /// which may come after the response, so this many are waited for.
    pub async fn effects(self, stores: &StoreServers, accepted: u64) -> u64 {
        match self.contender {
            Contender::Bare | Contender::Axum => accepted,
            Contender::Webhook => self.commands(accepted).await,
            Contender::StdlibSqlite => {
                let db = rusqlite::Connection::open(self.dir.join("deliveries.db")).expect("its database");
                let count = db.query_row("select count(*) from deliveries", [], |row| row.get::<_, i64>(0));
                u64::try_from(count.expect("its table")).unwrap_or_default()
            }
            Contender::FlaskTutorial | Contender::FlaskPooled | Contender::Express => {
                let name = self.place.rsplit('/').next().unwrap_or_default();
                let db = stores.postgres().client(name).await;
                let row = db.query_one("select count(*) from public.deliveries", &[]).await.expect("its table");
                u64::try_from(row.get::<_, i64>(0)).unwrap_or_default()
            }
            Contender::FastApi => {
                let client = ::redis::Client::open(self.place.as_str()).expect("its URL");
                let mut connection = client.get_connection().expect("Redis answers");
                ::redis::cmd("DBSIZE").query(&mut connection).expect("Redis answers")
            }
            Contender::Hookonce(..) => self.events().await,
        }
    }

    async fn commands(&self, accepted: u64) -> u64 {
        let ran = || std::fs::metadata(self.dir.join("ran")).map_or(0, |file| file.len());
        let until = Instant::now() + PATIENCE;
        while ran() < accepted && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
        }
        ran()
    }

    /// How many events a store in memory has made, as the node counts them.
    async fn counted(&self) -> u64 {
        let mut head = [0; 4096];
        let log = std::fs::File::open(self.dir.join("log")).and_then(|mut log| log.read(&mut head));
        let head = String::from_utf8_lossy(&head[..log.expect("its log")]).into_owned();
        let admin =
            head.split_once("dashboard").and_then(|(_, rest)| said(rest)).expect("it says where its admin port is");
        let metrics = reqwest::get(format!("http://{admin}/metrics")).await.expect("it answers");
        let metrics = metrics.text().await.expect("text");
        let done = metrics.lines().filter(|line| line.starts_with("hookonce_event_states_total"));
        let done = done.filter(|line| line.contains("state=\"done\"")).filter_map(|line| line.rsplit(' ').next());
        done.filter_map(|number| number.parse::<u64>().ok()).sum()
    }

    async fn events(self) -> u64 {
        let url = match self.contender.store() {
            StoreServer::Memory => return self.counted().await,
            StoreServer::Sqlite => format!("sqlite:{}", self.dir.join("hookonce.db").display()),
            StoreServer::Postgres | StoreServer::Redis => self.place.clone(),
        };
        drop(self); // only one process has an SQLite file
        let store = hookonce::store::open(&url).await.expect("its store opens");
        store.counts().await.expect("its store counts").done
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().ok();
    }
}

/// The address in the first URL of a log.
fn said(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("http://")?;
    rest.split(['/', ',', ' ']).next()?.parse().ok()
}

/// The command that starts a contender on this port. Its files are written into its folder.
fn words(
    contender: Contender,
    (tools, command): (&Tools, HookCommand),
    dir: &Path,
    port: u16,
) -> Result<Vec<String>, String> {
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).map_err(|error| error.to_string());
    for (name, text) in PYTHON {
        write(name, text)?;
    }
    let (at, number) = (format!("127.0.0.1:{port}"), port.to_string());
    let python =
        |program: &str| -> Result<String, String> { Ok(tools.python.clone()?.join(program).display().to_string()) };
    let gunicorn = |app: &str| -> Result<Vec<String>, String> {
        let threads = ["--workers", "2", "--threads", "16", "--no-control-socket", "--bind", &at, app];
        Ok(std::iter::once(python("gunicorn")?).chain(threads.map(str::to_owned)).collect())
    };
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    Ok(match contender {
        Contender::Bare | Contender::Axum => {
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            let server = if contender == Contender::Bare { baseline::BARE } else { baseline::AXUM };
            list(&[&program.display().to_string(), server])
        }
        Contender::Webhook => {
            let runs = match command {
                HookCommand::True => "/bin/true".into(),
                HookCommand::Counted => counting_script(dir)?,
            };
            write("hooks.json", &HOOKS.replace("COMMAND", &runs).replace("\"SECRET\"", &format!("{SECRET:?}")))?;
            let program = tools.webhook.clone()?.display().to_string();
            list(&[&program, "-hooks", "hooks.json", "-urlprefix", "version", "-ip", "127.0.0.1", "-port", &number])
        }
        Contender::StdlibSqlite => list(&["python3", "stdlib_sqlite.py", &number]),
        Contender::FlaskTutorial => gunicorn("flask_tutorial:app")?,
        Contender::FlaskPooled => gunicorn("flask_pooled:app")?,
        Contender::Express => {
            let server = tools.express.clone()?.join("server.js");
            list(&["node", &server.display().to_string(), &number])
        }
        Contender::FastApi => {
            let app = ["--workers", "2", "--no-access-log", "--port", &number, "fastapi_redis:app"];
            std::iter::once(python("uvicorn")?).chain(app.map(str::to_owned)).collect()
        }
        Contender::Hookonce(_, bodies) => {
            let keep_body = if bodies == Bodies::Kept { "7d" } else { "0s" };
            write("hookonce.toml", &SourceConfig::recorded("{ env = \"STORE\" }", keep_body).text())?;
            list(&[env!("CARGO_BIN_EXE_hookonce"), "serve"])
        }
    })
}

/// A script that adds a byte to a file.
fn counting_script(dir: &Path) -> Result<String, String> {
    use std::os::unix::fs::PermissionsExt;
    let script = dir.join("count.sh");
    let text = format!("#!/bin/sh\nprintf x >>'{}'\n", dir.join("ran").display());
    std::fs::write(&script, text).map_err(|error| error.to_string())?;
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).map_err(|error| error.to_string())?;
    Ok(script.display().to_string())
}

/// Starts the command in its folder. Its processes end when our end of a pipe closes, also if we are killed.
fn shell(words: &[String], dir: &Path, place: &str) -> Result<Child, String> {
    use std::os::unix::process::CommandExt;
    let script = "\"$@\" >log 2>&1 </dev/null & server=$!; echo $server; read -r _; \
                  kill -KILL $server; wait $server; kill -KILL 0";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).args(words).current_dir(dir).process_group(0);
    command.env("SECRET", SECRET).env("STORE", place).env("DATABASE_URL", place).env("REDIS_URL", place);
    command.env("NODE_ENV", "production").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("sh: {error}"))
}
