//! An nginx for one test: Debian's package, on a free port, in a temporary folder.

#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to start.
const PATIENCE: Duration = Duration::from_mins(2);

/// A proxy.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Nginx {
    /// Starts a server with this in its `server` block, and nginx's defaults otherwise.
    pub(crate) fn start(server: &str) -> Self {
        Self::start_beside("", server)
    }

    /// The same, with this in the `http` block beside the server.
    pub(crate) fn start_beside(beside: &str, server: &str) -> Self {
        let patience = Instant::now() + PATIENCE;
        // Another process may take the free port first: then nginx exits, and another port is tried.
        loop {
            assert!(Instant::now() < patience, "nginx does not listen");
            if let Some(proxy) = Self::try_start(beside, server, patience) {
                return proxy;
            }
        }
    }

    fn try_start(beside: &str, server: &str, patience: Instant) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let at = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
    uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
    {beside}
    server {{
        listen {address};
{server}
    }}
}}
"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir.path()).arg("-e").arg(dir.path().join("error.log"));
        command.arg("-c").arg(dir.path().join("nginx.conf")).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nginx is installed: ./test does that");
        let mut proxy = Self { child, address, _dir: dir };
        while std::net::TcpStream::connect(proxy.address).is_err() {
            if proxy.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < patience, "nginx does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(proxy)
    }

    /// The id of its only process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The proxy's URL for this path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The code block of this language in a page of the documentation.
pub(crate) fn documented(page: &str, language: &str) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page)).unwrap();
    let (_, block) = text.split_once(&format!("```{language}\n")).expect("the page has such a block");
    block.split_once("```").expect("the block ends").0.to_owned()
}
