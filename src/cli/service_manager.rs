//! systemd, if it has started the node: the sockets that it passes, and what it is told (`sd_notify`).
//!
//! ```text
//! start ─▶ READY=1 ─▶ WATCHDOG=1, WATCHDOG=1, … ─▶ STOPPING=1
//!            ▲  └─ RELOADING=1 ─┐   only while the store's writer answers
//!            └──────────────────┘
//! ```

use crate::config::EnvLookup;
use crate::ingress::readiness::Readiness;
use crate::node::InheritedSockets;
use listenfd::ListenFd;
use rustix::time::{ClockId, clock_gettime};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// How often a node that is not ready is asked again.
const READY_EVERY: Duration = Duration::from_millis(100);
/// The name of the socket for the admin port.
const ADMIN_SOCKET: &str = "admin";

/// The service manager. Cheap to clone; without one, nothing is told.
#[derive(Clone)]
pub(super) struct ServiceManager {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    /// Within which time it wants to hear that the node is alive.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    pub(super) fn of(env: EnvLookup<'_>) -> Self {
        let address = env("NOTIFY_SOCKET").and_then(|name| match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name).ok(),
            None => SocketAddr::from_pathname(&name).ok(),
        });
        let socket = address.and_then(|to| Some(Arc::new((UnixDatagram::unbound().ok()?, to))));
        let is_for_us = env("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = env("WATCHDOG_USEC").filter(|_| is_for_us).and_then(|usec| usec.parse().ok());
        Self { socket, watchdog: watchdog.filter(|usec| *usec > 0).map(Duration::from_micros) }
    }

    /// Tells what is the case. A manager that does not listen is no reason to stop.
    fn tell(&self, what: &str) {
        if let Some((socket, to)) = self.socket.as_deref() {
            socket.send_to_addr(what.as_bytes(), to).map_or_else(drop, drop);
        }
    }

    /// The node is starting.
    pub(super) fn starting(&self) {
        self.tell("STATUS=starting; waiting for the store");
    }

    /// The config is read again.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={usec}\nSTATUS=reloading"));
    }

    /// The node works, with this to say.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The node is about to stop.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=draining");
    }

    /// Tells when the node accepts deliveries, and from then on that it is alive, as long as it is and until it drains.
    pub(super) async fn watch(self, health: Readiness, status: String) {
        if self.socket.is_none() {
            return;
        }
        let draining = health.draining.clone();
        let told = async {
            while health.ready().await.status != 200 {
                tokio::time::sleep(READY_EVERY).await;
            }
            self.ready(&status);
            let Some(within) = self.watchdog else { return };
            loop {
                tokio::time::sleep(within / 2).await;
                if health.is_alive(within / 2).await {
                    self.tell("WATCHDOG=1");
                }
            }
        };
        draining.run_until_cancelled(told).await;
    }
}

/// The sockets that systemd passes: one with the name `admin` is the admin port's, the other is for webhooks. An error is
/// a sentence. Called before there is another thread: it takes the variables out of the environment.
pub(super) fn inherited_sockets(env: EnvLookup<'_>) -> Result<InheritedSockets, String> {
    // Without a process id they may be meant for the process that has started this one.
    if env("LISTEN_PID").is_none() {
        return Ok(InheritedSockets::default());
    }
    let names = env("LISTEN_FDNAMES").unwrap_or_default();
    let mut passed = ListenFd::from_env();
    let mut sockets = InheritedSockets::default();
    for (index, name) in (0..passed.len()).zip(names.split(':').chain(std::iter::repeat(""))) {
        let socket: Option<TcpListener> = passed
            .take_tcp_listener(index)
            .map_err(|error| format!("socket {} that systemd passed cannot be used: {error}", index + 1))?;
        let place = if name == ADMIN_SOCKET { &mut sockets.admin } else { &mut sockets.ingest };
        if place.is_some() {
            return Err(format!(
                "systemd passed several sockets for the same port\n\
                 hint: one ListenStream= for webhooks, and one with FileDescriptorName={ADMIN_SOCKET} for the admin port"
            ));
        }
        *place = socket;
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify").display().to_string();
        let abstract_name = format!("hookonce-test-{}", std::process::id());
        let at_path = UnixDatagram::bind(&path).unwrap();
        let at_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap();
        for (socket, name) in [(at_path, path), (at_name, format!("@{abstract_name}"))] {
            let env = |asked: &str| match asked {
                "NOTIFY_SOCKET" => Some(name.clone()),
                "WATCHDOG_USEC" => Some("3000000".to_owned()),
                "WATCHDOG_PID" => Some("1".to_owned()),
                _ => None,
            };
            let manager = ServiceManager::of(&env);
            manager.ready("two sources");
            let mut heard = [0; 100];
            let length = socket.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1\nSTATUS=two sources");
            assert_eq!(manager.watchdog, None, "it is for another process");
        }
        ServiceManager::of(&|_| None).stopping();
        ServiceManager::of(&|_| Some("/nowhere/at/all".to_owned())).stopping();
    }

    #[test]
    fn sockets_without_a_process_id_are_not_ours() {
        let sockets = inherited_sockets(&|name| (name == "LISTEN_FDS").then(|| "1".to_owned())).unwrap();
        assert!(sockets.ingest.is_none() && sockets.admin.is_none());
    }
}
