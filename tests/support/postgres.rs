//! A PostgreSQL server for tests: Debian's package, on a free port, in a temporary folder, and ended with the test.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_mins(2);

/// Client authentication: `locked` needs a password, `tlsonly` needs TLS, other users need nothing.
const HBA: &str = "host all locked 127.0.0.1/32 scram-sha-256\n\
                   hostssl all tlsonly 127.0.0.1/32 trust\n\
                   hostnossl all tlsonly 127.0.0.1/32 reject\n\
                   host all all 127.0.0.1/32 trust\n\
                   host replication all 127.0.0.1/32 trust\n\
                   local all all trust\n";

/// A server; stopped on drop.
pub struct Server {
    pub dir: tempfile::TempDir,
    pub port: u16,
    settings: Vec<String>,
    program: PathBuf,
    watcher: Option<Child>,
    databases: AtomicU32,
}

impl Server {
    /// A new server with default settings.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with these settings.
    pub async fn start_with(settings: &[&str]) -> Self {
        Self::start_by(&program("postgres"), settings).await
    }

    /// The same, started by this program, which becomes the server.
    pub async fn start_by(by: &Path, settings: &[&str]) -> Self {
        let dir = folder();
        let data = dir.path().join("data");
        let mut initdb = as_owner(&program("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        run(&mut initdb);
        write_as_owner(&data.join("pg_hba.conf"), HBA);
        Self::over(dir, by, settings).await
    }

    /// A replica of this server.
    pub async fn replica(&self) -> Self {
        let dir = folder();
        let mut copy = as_owner(&program("pg_basebackup"));
        copy.args([
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "-U",
            "postgres",
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
        ]);
        run(copy.arg("-D").arg(dir.path().join("data")));
        Self::over(dir, &program("postgres"), &[]).await
    }

    async fn over(dir: tempfile::TempDir, by: &Path, settings: &[&str]) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        let program = by.to_owned();
        let mut server = Self { dir, port: 0, settings, program, watcher: None, databases: AtomicU32::new(0) };
        // Another process may take the free port before the server has it.
        for _ in 0..5 {
            server.port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.start_again().await {
                return server;
            }
        }
        panic!("PostgreSQL did not start:\n{}", server.log());
    }

    /// Starts it again on the same port, after it was stopped; returns whether it runs.
    pub async fn start_again(&mut self) -> bool {
        let log = self.dir.path().join("log");
        // The log of the previous run says nothing about this start.
        std::fs::remove_file(&log).unwrap_or_default();
        let mut watcher = as_owner(Path::new("sh"));
        // The server ends when this pipe closes: also when the test is killed.
        let script =
            r#"log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & server=$!; read -r _; kill -QUIT $server; wait $server"#;
        watcher.args(["-c", script, "sh"]).arg(log).arg(&self.program);
        watcher
            .arg("-D")
            .arg(self.dir.path().join("data"))
            .args(["-p", &self.port.to_string()])
            .arg("-k")
            .arg(self.dir.path());
        for setting in ["listen_addresses=127.0.0.1", "shared_buffers=64MB", "max_connections=60"] {
            watcher.args(["-c", setting]);
        }
        for setting in &self.settings {
            watcher.args(["-c", setting]);
        }
        self.watcher = Some(watcher.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.connect("postgres").await.is_ok() {
                return true;
            }
            if self.log().contains("could not bind")
                || self.log().contains("database system is shut down") && self.pid().is_none()
            {
                self.end();
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Starts it again with TLS.
    pub async fn use_tls(&mut self, key: &Path, certificate: &Path) {
        let files = [(key, "server.key"), (certificate, "server.crt")].map(|(from, name)| {
            let to = self.dir.path().join("data").join(name);
            std::fs::copy(from, &to).unwrap();
            std::fs::set_permissions(&to, PermissionsExt::from_mode(0o600)).unwrap();
            let owner = std::fs::metadata(self.dir.path().join("data")).unwrap();
            std::os::unix::fs::chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
            name
        });
        self.settings.extend([
            "ssl=on".into(),
            format!("ssl_key_file={}", files[0]),
            format!("ssl_cert_file={}", files[1]),
        ]);
        self.end();
        assert!(self.start_again().await, "{}", self.log());
    }

    /// Creates a folder that belongs to the server's user.
    pub fn make_folder(&self, path: &Path) {
        std::fs::create_dir(path).unwrap();
        let owner = std::fs::metadata(self.dir.path().join("data")).unwrap();
        std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    /// Its log since it was started.
    pub fn log(&self) -> String {
        let mut text = String::new();
        if let Ok(mut file) = std::fs::File::open(self.dir.path().join("log")) {
            file.read_to_string(&mut text).unwrap_or_default();
        }
        text
    }

    fn pid(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.dir.path().join("data/postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }

    /// Stops it at once, as a crash would (`-m immediate`).
    pub fn crash(&mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            drop(watcher.stdin.take());
            watcher.wait().unwrap();
        }
    }

    /// The URL of this database.
    pub fn url(&self, database: &str) -> String {
        self.url_of("postgres", database)
    }

    /// The same for this user, or `user:password`.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }

    async fn connect(&self, database: &str) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url(database), NoTls).await?;
        tokio::spawn(connection);
        // The search path finds the store's tables, wherever they are; tables that a test creates are in `public`.
        client.batch_execute("set search_path = public, hookonce").await?;
        Ok(client)
    }

    /// A connection for looking into a database from outside.
    pub async fn client(&self, database: &str) -> Client {
        self.connect(database).await.unwrap()
    }

    /// Creates a new database; returns its name.
    pub async fn database(&self) -> String {
        let name = format!("d{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.client("postgres").await.batch_execute(&format!("create database {name}")).await.unwrap();
        name
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A folder that the server's user can access.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    dir
}

/// One of Debian's programs: not all of them are on the PATH.
pub fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).collect();
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}

/// A command that runs as the server's user: PostgreSQL refuses to run as root, so there it runs as its package's user.
pub fn as_owner(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program).current_dir("/");
    command
}

/// Writes a file of the server in place, so that its owner stays.
pub fn write_as_owner(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn run(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
