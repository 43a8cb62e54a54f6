//! A node under systemd, which the test plays: it binds the socket for notifications, and passes listening sockets.

use super::support::{House, Sent, until};
use super::{IN, number, numbers, touch};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RUN: &str = "run = { steps = [\"echo $HOOKONCE_FIELD_N >> runs\"] }";

/// What a node has told its service manager.
#[derive(Clone)]
struct Notifications(Arc<Mutex<Vec<String>>>);

impl Notifications {
    /// Listens in the folder of this node, and makes `command` tell it.
    fn listen(house: &House, command: &mut Command, watchdog: Duration) -> Self {
        let path = house.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        let told = Self(Arc::default());
        let own = told.clone();
        std::thread::spawn(move || {
            let mut message = [0; 1000];
            while let Ok(length @ 1..) = socket.recv(&mut message) {
                own.0.lock().unwrap().push(String::from_utf8_lossy(&message[..length]).into_owned());
            }
        });
        told
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// How many of them begin so.
    fn count(&self, begin: &str) -> usize {
        self.all().iter().filter(|told| told.starts_with(begin)).count()
    }
}

#[tokio::test]
async fn systemd_is_told_when_the_node_is_ready_is_reloaded_lives_and_stops() {
    let mut house = House::empty(&numbers("", RUN));
    let mut command = house.command(&["serve"]);
    let told = Notifications::listen(&house, &mut command, Duration::from_millis(400));
    house.try_start_by(command).unwrap();
    until("it to be ready", || told.count("READY=1") == 1).await;
    assert_eq!(house.ask("GET", "/readyz").await.status, 200);
    assert!(told.all()[0].starts_with("STATUS=starting"), "{:?}", told.all());
    assert!(told.all().contains(&"READY=1\nSTATUS=sources: 1, routes: 1".to_owned()), "{:?}", told.all());
    until("signs of life", || told.count("WATCHDOG=1") >= 3).await;
    let monotonic = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
    };
    let before = monotonic();
    house.signal(Signal::HUP);
    until("it to be ready again", || told.count("READY=1") == 2).await;
    let reloading = told.all().into_iter().find(|told| told.starts_with("RELOADING=1\nMONOTONIC_USEC=")).unwrap();
    let at: i64 = reloading.lines().nth(1).unwrap().split('=').nth(1).unwrap().parse().unwrap();
    assert!((before..=monotonic()).contains(&at), "{before} {at}");
    house.configure("[source.x]\n");
    house.signal(Signal::HUP);
    until("the refusal", || told.all().last().is_some_and(|told| told.contains("the last reload was refused"))).await;
    assert!(house.stop().success());
    until("the stop", || told.count("STOPPING=1") == 1).await;
    let order = |begin: &str| told.all().iter().position(|told| told.starts_with(begin)).unwrap();
    assert!(order("READY=1") < order("RELOADING=1") && order("RELOADING=1") < order("STOPPING=1"));
}

#[tokio::test]
async fn the_watchdog_hears_nothing_while_the_writer_of_the_store_does_not_answer() {
    let mut house = House::empty(&numbers("", RUN));
    let mut command = house.command(&["serve"]);
    let told = Notifications::listen(&house, &mut command, Duration::from_millis(400));
    house.try_start_by(command).unwrap();
    until("signs of life", || told.count("WATCHDOG=1") >= 2).await;
    let other = rusqlite::Connection::open(house.path("hookonce.db")).unwrap();
    other.execute_batch("begin immediate").unwrap();
    // The writer waits for the other program's lock, in the middle of this claim.
    let waits = async { house.post(IN, &number("a", 1).headers, &number("a", 1).body).await.map(|a| a.status).ok() };
    let silent = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        let before = told.count("WATCHDOG=1");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let after = told.count("WATCHDOG=1");
        other.execute_batch("rollback").unwrap();
        (before, after)
    };
    let (_, (before, after)) = tokio::join!(waits, silent);
    assert_eq!(before, after, "{:?}", told.all());
    until("signs of life", || told.count("WATCHDOG=1") > after + 1).await;
}

/// A command that starts the node as systemd does with sockets: as the descriptors from 3 on, with these names.
fn with_sockets(house: &House, sockets: &[(&TcpListener, &str)]) -> Command {
    let mut script = String::new();
    for (index, (socket, _)) in sockets.iter().enumerate() {
        fcntl_setfd(socket, FdFlags::empty()).unwrap();
        let (from, to) = (socket.as_raw_fd(), 100 + index);
        write!(script, "exec {to}<&{from} {from}<&-; ").unwrap();
    }
    for index in 0..sockets.len() {
        write!(script, "exec {}<&{from} {from}<&-; ", 3 + index, from = 100 + index).unwrap();
    }
    let names: Vec<_> = sockets.iter().map(|(_, name)| *name).collect();
    let (count, names) = (sockets.len(), names.join(":"));
    write!(script, "export LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names}; exec \"$0\" serve").unwrap();
    let like = house.command(&["serve"]);
    let mut command = Command::new("bash");
    command.args(["-c", &script]).arg(like.get_program()).current_dir(house.dir.path());
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_the_socket_kept_refuses_nobody() {
    let mut house = House::empty(&numbers("", RUN));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    house.try_start_by(with_sockets(&house, &[(&socket, "webhooks")])).unwrap();
    assert_eq!(house.url(""), format!("http://{address}"));
    let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load = |_| {
        let (over, sent) = (over.clone(), sent.clone());
        tokio::spawn(async move {
            // Each delivery on a connection of its own, as most senders do it.
            let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
            while !over.load(Ordering::SeqCst) {
                let n = sent.fetch_add(1, Ordering::SeqCst);
                let Sent { headers, body } = number(&n.to_string(), n);
                let mut request = client.post(format!("http://{address}{IN}")).body(body);
                for (name, value) in &headers {
                    request = request.header(name, value);
                }
                assert_eq!(request.send().await.unwrap().status(), 202, "{n}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    let senders: Vec<_> = (0..4).map(load).collect();
    for _ in 0..3 {
        let before = sent.load(Ordering::SeqCst);
        until("deliveries", || sent.load(Ordering::SeqCst) > before + 20).await;
        assert!(house.stop().success());
        house.try_start_by(with_sockets(&house, &[(&socket, "webhooks")])).unwrap();
    }
    over.store(true, Ordering::SeqCst);
    for sender in senders {
        sender.await.unwrap();
    }
    house.quiet().await;
    let mut runs: Vec<u64> = house.lines("runs").iter().map(|n| n.parse().unwrap()).collect();
    runs.sort_unstable();
    assert_eq!(runs, (0..sent.load(Ordering::SeqCst)).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_socket_named_admin_is_the_admin_port_s_and_two_for_one_port_are_refused() {
    let mut house = House::empty(&numbers("", RUN));
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second] = &sockets;
    house.try_start_by(with_sockets(&house, &[(first, "admin"), (second, "webhooks")])).unwrap();
    assert_eq!(house.admin_url(""), format!("http://{}", first.local_addr().unwrap()));
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 202);
    assert_eq!(house.url(""), format!("http://{}", second.local_addr().unwrap()));
    house.quiet().await;
    house.stop();
    let said = house.try_start_by(with_sockets(&house, &[(first, "a"), (second, "b")])).unwrap_err();
    assert!(said.contains("several sockets for the same port"), "{said}");
}

#[tokio::test]
async fn a_socket_that_is_reached_from_outside_is_no_admin_port_without_a_token() {
    let mut house = House::empty(&numbers("", RUN));
    let socket = TcpListener::bind("0.0.0.0:0").unwrap();
    let said = house.try_start_by(with_sockets(&house, &[(&socket, "admin")])).unwrap_err();
    assert!(said.contains("can be reached from outside") && said.contains("add token"), "{said}");
}

#[tokio::test]
async fn a_secret_comes_from_a_credential() {
    let mut house = House::empty(&numbers("", RUN).replace("env = \"SECRET\"", "credential = \"webhook\""));
    let said = house.try_start().unwrap_err();
    assert!(said.contains("CREDENTIALS_DIRECTORY is not set") && said.contains("LoadCredential=webhook:"), "{said}");
    let folder = house.path("credentials");
    std::fs::create_dir(&folder).unwrap();
    let with = |house: &House| {
        let mut command = house.command(&["serve"]);
        command.env("CREDENTIALS_DIRECTORY", &folder);
        command
    };
    let said = house.try_start_by(with(&house)).unwrap_err();
    assert!(said.contains("the credential `webhook` cannot be used: it is not in "), "{said}");
    touch(&house, "credentials/webhook");
    std::fs::write(folder.join("webhook"), super::support::SECRET).unwrap();
    house.try_start_by(with(&house)).unwrap();
    assert_eq!(house.deliver(IN, &number("a", 1)).await.status, 202);
    let wrong = House::empty(&numbers("", RUN).replace("env = \"SECRET\"", "credential = \"../webhook\""));
    let said = wrong.command(&["check"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stdout).contains("is not the name of a credential"), "{said:?}");
}
