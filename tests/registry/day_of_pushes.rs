//! `examples/ghcr-compose` through days of pushes, made from seeds: GitHub's five deliveries per push, shuffled; some are
//! lost, some are late, some are sent again; the tag is moved back; images are not healthy; docker fails; the registry or the
//! node is away; the node is killed.
//!
//! The node learns of a change of the tag only from a delivery, and asks the registry when it acts. So:
//!
//! - A change of the tag is **known** once a delivery was accepted that was sent after it, of whichever push; or once a
//!   delivery that was sent because of this change got any 2xx response (it may be the duplicate of one whose response
//!   was lost, or be older than one that was accepted).
//! - A moment is **quiet** when the registry and the node run, no delivery is on its way, and every event has ended.
//!
//! 1. At a quiet moment, if the last change is known, what runs is what the tag points to; or, if that image is not
//!    healthy, the last good one before it, if there was one. An image is good when its event has ended well: a healthy one
//!    whose attempt was cut off may never have been.
//! 2. If it is not known, what runs is what ran at the last quiet moment, or what the first law allows for something that the
//!    tag pointed to then or later: an attempt that began before the last change may have found it.
//! 3. Images are started in the order in which the tag pointed to them, none after a newer one; only a roll-back starts an
//!    older one, and that one is healthy.
//! 4. No event is dead, except those of images that are not healthy.
//! 5. An image is started again right after itself only if docker failed when it had started it, or if an attempt may have
//!    been cut off by a kill or a stop.

use crate::docker_registry::{Access, Registry};
use crate::example;
use crate::support::{House, Sent, package};
use rustix::process::Signal;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

#[path = "../support/seed.rs"]
mod seed;

/// Days that are played at the same time.
const AT_ONCE: usize = 4;
/// What happens on one day.
const STEPS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_becomes_of_the_deliveries_what_runs_is_what_the_registry_says() {
    let registry = Arc::new(Registry::start(&Access::Open));
    let last = if std::env::var_os("HOOKONCE_FULL").is_some() { 1_000 } else { 20 };
    let (permits, mut days) = (Arc::new(Semaphore::new(AT_ONCE)), tokio::task::JoinSet::new());
    let mut tally = Tally::default();
    for number in seed::given_or_all(1..=last) {
        let permit = permits.clone().acquire_owned().await.unwrap();
        let (registry, repeat) = (registry.clone(), seed::repeat(number));
        days.spawn(async move {
            let failed = SaysHow(repeat);
            let tally = Day::begin(number, registry).await.play().await;
            drop((failed, permit));
            tally
        });
        while let Some(day) = days.try_join_next() {
            tally.add(&day.unwrap());
        }
    }
    while let Some(day) = days.join_next().await {
        tally.add(&day.unwrap());
    }
    println!("{tally:?}");
    if seed::given().is_none() {
        assert!(tally.is_eventful(), "these days show little: {tally:?}");
    }
}

/// Prints how a day is repeated, if it fails.
struct SaysHow(String);

impl Drop for SaysHow {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// What happened.
#[derive(Default, Debug)]
struct Tally {
    pushes: usize,
    unhealthy: usize,
    moved_back: usize,
    lost: usize,
    late: usize,
    repeated: usize,
    kills: usize,
    stops: usize,
    registry_outages: usize,
    failures: usize,
    starts: usize,
    quiet_and_known: usize,
    quiet_and_unknown: usize,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.pushes += other.pushes;
        self.unhealthy += other.unhealthy;
        self.moved_back += other.moved_back;
        self.lost += other.lost;
        self.late += other.late;
        self.repeated += other.repeated;
        self.kills += other.kills;
        self.stops += other.stops;
        self.registry_outages += other.registry_outages;
        self.failures += other.failures;
        self.starts += other.starts;
        self.quiet_and_known += other.quiet_and_known;
        self.quiet_and_unknown += other.quiet_and_unknown;
    }

    /// Whether everything happened.
    fn is_eventful(&self) -> bool {
        [
            self.unhealthy,
            self.moved_back,
            self.lost,
            self.late,
            self.repeated,
            self.kills,
            self.stops,
            self.registry_outages,
            self.failures,
            self.quiet_and_unknown,
        ]
        .iter()
        .all(|times| *times >= 5)
            && self.starts >= self.pushes / 2
            && self.quiet_and_known >= self.quiet_and_unknown
    }
}

/// A way to the registry that can be closed.
struct Gate {
    address: String,
    open: watch::Sender<bool>,
}

impl Gate {
    async fn to(registry: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (mut is_open, registry) = (is_open.clone(), registry.clone());
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(registry).await else { return };
                    tokio::select! {
                        biased;
                        _ = is_open.wait_for(|open| !open) => {}
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                    }
                });
            }
        });
        Self { address, open }
    }

    fn is_open(&self) -> bool {
        *self.open.borrow()
    }
}

/// A delivery, and the change of the tag that it is sent because of: its index in the history. One that is sent before the
/// tag moves belongs to the change before.
#[derive(Clone)]
struct Hint {
    sent: Sent,
    change: usize,
}

/// One seed's day.
struct Day {
    random: seed::Random,
    house: House,
    registry: Arc<Registry>,
    gate: Gate,
    package: String,
    client: reqwest::Client,
    /// The images, by what they differ in.
    texts: Vec<String>,
    /// The image that the tag pointed to before, and the one that it points to.
    previous: String,
    latest: String,
    /// The sender's clock, in seconds.
    clock: u32,
    /// What the tag pointed to, in order.
    history: Vec<String>,
    /// Whether the last change is known to the node.
    known: bool,
    /// Deliveries that GitHub sends later.
    late: Vec<Hint>,
    /// Deliveries that were sent, for Redeliver.
    sent: Vec<Hint>,
    /// The length of the history at the last quiet moment.
    seen: usize,
    /// What ran then.
    ran: Option<String>,
    /// How many images had been started then, and how many attempts may have been cut off.
    before: (usize, usize),
    /// Images that are not healthy.
    bad: Vec<String>,
    /// Attempts that may have been cut off, or have failed.
    cut_off: usize,
    tally: Tally,
}

impl Day {
    async fn begin(number: u64, registry: Arc<Registry>) -> Self {
        let gate = Gate::to(registry.authority()).await;
        let package = format!("app{number}");
        let house = example::house(&gate.address, &package);
        let mut day = Self {
            random: seed::Random::new(number),
            house,
            registry,
            gate,
            package,
            client: reqwest::Client::new(),
            texts: Vec::new(),
            previous: String::new(),
            latest: String::new(),
            clock: 0,
            history: Vec::new(),
            known: false,
            late: Vec::new(),
            sent: Vec::new(),
            seen: 0,
            ran: None,
            before: (0, 0),
            bad: Vec::new(),
            cut_off: 0,
            tally: Tally::default(),
        };
        day.start();
        day
    }

    async fn play(mut self) -> Tally {
        for _ in 0..STEPS {
            if self.chance(60) {
                self.all_up();
            }
            match self.random.below(100) {
                0..40 => self.push().await,
                40..52 => self.move_back().await,
                52..59 => self.repeat().await,
                59..66 => self.send_late().await,
                66..73 => self.close_the_gate(),
                73..78 => self.stop(),
                78..83 => self.kill(),
                83..89 => self.let_docker_fail(),
                _ => self.quiet().await,
            }
        }
        self.quiet().await;
        self.tally.starts = self.starts().len();
        self.tally
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// A new image is pushed as `latest`.
    async fn push(&mut self) {
        self.tally.pushes += 1;
        let health = if self.chance(12) { "bad" } else { "good" };
        self.tally.unhealthy += usize::from(health == "bad");
        let text = format!("{} {} {health}", self.package, self.tally.pushes);
        self.texts.push(text.clone());
        self.change(&text).await;
    }

    /// The tag is moved to an image that it pointed to before.
    async fn move_back(&mut self) {
        if self.texts.len() > 1 {
            self.tally.moved_back += 1;
            let some = self.random.one(&self.texts);
            let text = if self.chance(50) { self.previous.clone() } else { some };
            self.change(&text).await;
        }
    }

    /// Moves the tag, and sends what GitHub sends about it: before that for what does not name the tag, then the rest.
    async fn change(&mut self, text: &str) {
        self.clock += 10;
        let mut hints = self.hints();
        let early = if self.chance(30) { hints.iter().filter(|hint| !hint.1).count() } else { 0 };
        hints.sort_by_key(|hint| hint.1);
        let rest: Vec<Hint> = hints.split_off(early).into_iter().map(|hint| hint.0).collect();
        let early: Vec<Hint> = hints.into_iter().map(|hint| hint.0).collect();
        self.send(early).await;
        let image = format!("treejamie/{}", self.package);
        if text.ends_with("bad") {
            let digest = self.registry.push(&image, "next", text).await;
            if !self.bad.contains(&digest) {
                self.bad.push(digest);
                std::fs::write(self.house.path("unhealthy"), self.bad.join("\n")).unwrap();
            }
        }
        let digest = self.registry.push(&image, "latest", text).await;
        if self.history.last() != Some(&digest) {
            self.previous = std::mem::replace(&mut self.latest, text.to_owned());
            self.history.push(digest);
            self.known = false;
        }
        let change = self.history.len();
        let mut rest: Vec<Hint> = rest.into_iter().map(|hint| Hint { change, ..hint }).collect();
        self.random.shuffle(&mut rest);
        let all_lost = self.chance(10);
        let mut now = Vec::new();
        for hint in rest {
            match self.random.below(10) {
                0..2 => self.tally.lost += 1,
                _ if all_lost => self.tally.lost += 1,
                2 | 3 => self.late.push(hint),
                _ => now.push(hint),
            }
        }
        self.send(now).await;
    }

    /// The five deliveries of one push, and whether each names the tag `latest`: two of single platforms, and three of the
    /// image, either under one tag and with the time moving on, or under three tags.
    fn hints(&mut self) -> Vec<(Hint, bool)> {
        let (one_tag, before, clock) = (self.chance(50), self.history.len(), self.clock);
        let names = [("", 0), ("", 0), ("sha-a911955", 0), ("main", 0), ("latest", 0)];
        let latest = [("", 0), ("", 0), ("latest", 0), ("latest", 1), ("latest", 2)];
        let tags = if one_tag { latest } else { names };
        let one = |(n, (tag, later)): (usize, (&str, u32))| {
            let version = u64::from(clock) * 10 + n.min(2) as u64;
            let time = clock + later;
            let time = format!("2026-02-07T16:{:02}:{:02}Z", time / 60, time % 60);
            let body = package(tag, version, 0).replace("2026-02-07T16:20:00Z", &time);
            let body = body.replace("\"name\":\"jamiec_ts\"", &format!("\"name\":\"{}\"", self.package));
            let sent = Sent::github("registry_package", &format!("{clock}-{n}"), &body);
            (Hint { sent, change: before }, tag == "latest")
        };
        tags.into_iter().enumerate().map(one).collect()
    }

    /// Someone presses Redeliver.
    async fn repeat(&mut self) {
        if !self.sent.is_empty() {
            self.tally.repeated += 1;
            let hint = self.random.one(&self.sent);
            self.send(vec![hint]).await;
        }
    }

    /// What GitHub sends late.
    async fn send_late(&mut self) {
        let mut late = std::mem::take(&mut self.late);
        self.random.shuffle(&mut late);
        self.tally.late += late.len();
        self.send(late).await;
    }

    /// Sends these, one after the other or all at once; sometimes the node is killed meanwhile.
    async fn send(&mut self, hints: Vec<Hint>) {
        if hints.is_empty() {
            return;
        }
        self.sent.extend(hints.iter().cloned());
        if !self.is_up() {
            self.tally.lost += hints.len();
            return;
        }
        let url = self.house.url("/version/1");
        let (at_once, killed) = (self.chance(50), self.chance(8));
        let mut sending = tokio::task::JoinSet::new();
        for hint in hints {
            let one = deliver(self.client.clone(), url.clone(), hint);
            if at_once || killed {
                sending.spawn(one);
            } else {
                let (hint, word) = one.await;
                self.heard(&hint, word.as_deref());
            }
        }
        if killed {
            let pause = self.random.millis(0, 40);
            tokio::time::sleep(pause).await;
            self.kill();
        }
        while let Some(done) = sending.join_next().await {
            let (hint, word) = done.unwrap();
            self.heard(&hint, word.as_deref());
        }
    }

    /// Notes a response; `None` if there was none.
    fn heard(&mut self, hint: &Hint, word: Option<&str>) {
        match word {
            Some("accepted") => self.known = true,
            Some("duplicate" | "stale") => self.known |= hint.change == self.history.len(),
            Some(other) => panic!("a delivery was answered with {other}"),
            None => self.tally.lost += 1,
        }
    }

    fn is_up(&mut self) -> bool {
        !self.house.has_ended()
    }

    fn start(&mut self) {
        let mut serve = self.house.command(&["serve"]);
        let path = std::env::var("PATH").unwrap();
        serve.env("PATH", format!("{}:{path}", self.house.path("bin").display()));
        self.house.try_start_by(serve).unwrap();
        self.client = reqwest::Client::new();
    }

    /// The registry can be reached, docker works, and the node runs.
    fn all_up(&mut self) {
        self.gate.open.send_replace(true);
        std::fs::remove_file(self.house.path("fail")).ok();
        if !self.is_up() {
            self.start();
        }
    }

    fn close_the_gate(&mut self) {
        self.tally.registry_outages += usize::from(self.gate.is_open());
        self.cut_off += 1;
        self.gate.open.send_replace(false);
    }

    fn stop(&mut self) {
        if self.is_up() {
            self.tally.stops += 1;
            self.cut_off += 1;
            self.house.signal(Signal::TERM);
            self.house.wait();
        }
    }

    /// Docker fails from now on, after it has started the image.
    fn let_docker_fail(&mut self) {
        self.tally.failures += 1;
        self.cut_off += 1;
        std::fs::write(self.house.path("fail"), "").unwrap();
    }

    fn kill(&mut self) {
        if self.is_up() {
            self.tally.kills += 1;
            self.cut_off += 1;
            self.house.kill();
        }
    }

    /// Everything runs again; waits until every event has ended, and checks.
    async fn quiet(&mut self) {
        self.all_up();
        self.house.quiet().await;
        let (runs, starts) = (self.house.lines("running").pop(), self.starts());
        let told = format!("it runs {runs:?}, {self:?}, started were {starts:?}");
        if self.known {
            let tag = self.history.last().expect("a delivery was accepted");
            assert!(self.allowed(tag, &starts).contains(&runs), "1: {told}");
            self.tally.quiet_and_known += 1;
        } else {
            let since = &self.history[self.seen.saturating_sub(1)..];
            let is_allowed = runs == self.ran || since.iter().any(|tag| self.allowed(tag, &starts).contains(&runs));
            assert!(is_allowed, "2: {told}");
            self.tally.quiet_and_unknown += 1;
        }
        self.check_order(&starts);
        let dead = self.house.sql("select cause || ' ' || coalesce(resolved, '') from events where state = 'dead'");
        let is_bad = |dead: &String| dead.strip_prefix("unhealthy ").is_some_and(|digest| self.is_bad(digest));
        assert!(dead.iter().all(is_bad), "4: {dead:?}, {told}");
        (self.seen, self.ran, self.before) = (self.history.len(), runs, (starts.len(), self.cut_off));
    }

    fn is_bad(&self, digest: &str) -> bool {
        self.bad.iter().any(|bad| bad == digest)
    }

    /// What may run once it is known that the tag points to this image.
    fn allowed(&self, tag: &str, starts: &[Start]) -> Vec<Option<String>> {
        if !self.is_bad(tag) {
            return vec![Some(tag.to_owned())];
        }
        let (started, cut_off) = self.before;
        // At the last quiet moment, a healthy image that ran was good.
        let good = self.ran.as_deref().filter(|ran| !self.is_bad(ran));
        let since = starts[started..].iter().filter(|start| !start.rollback).map(|start| &*start.digest);
        let mut candidates: Vec<&str> = good.into_iter().chain(since.filter(|digest| !self.is_bad(digest))).collect();
        if self.cut_off == cut_off {
            candidates.drain(..candidates.len().saturating_sub(1));
        }
        if good.is_none() && (candidates.is_empty() || self.cut_off != cut_off) {
            candidates.push(tag); // there is nothing to go back to
        }
        candidates.into_iter().map(|digest| Some(digest.to_owned())).collect()
    }

    /// The images that were started, in order.
    fn starts(&self) -> Vec<Start> {
        let start = |line: String| {
            let digest = line.strip_prefix("compose up -d ")?;
            let (digest, failed) = digest.strip_suffix(" (failed)").map_or((digest, false), |digest| (digest, true));
            let (digest, rollback) =
                digest.strip_suffix(" (rollback)").map_or((digest, false), |digest| (digest, true));
            Some(Start { digest: digest.to_owned(), rollback, failed })
        };
        self.house.lines("docker.log").into_iter().filter_map(start).collect()
    }

    fn check_order(&self, starts: &[Start]) {
        let (mut from, mut again) = (0, 0);
        for (n, start) in starts.iter().enumerate() {
            if start.rollback {
                assert!(!self.is_bad(&start.digest), "3: rolled back to a bad image: {starts:?}, {self:?}");
                continue;
            }
            let found = self.history[from..].iter().position(|digest| *digest == start.digest);
            let Some(found) = found else { panic!("3: {self:?}, started were {starts:?}") };
            from += found;
            again += usize::from(n > 0 && starts[n - 1] == Start { digest: start.digest.clone(), ..Start::default() });
        }
        assert!(again <= self.cut_off, "5: {} attempts were cut off, started were {starts:?}", self.cut_off);
    }
}

/// An image that docker started.
#[derive(PartialEq, Eq, Default)]
struct Start {
    digest: String,
    rollback: bool,
    failed: bool,
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rollback = if self.rollback { " (rollback)" } else { "" };
        let failed = if self.failed { " (failed)" } else { "" };
        write!(f, "{}{rollback}{failed}", &self.digest[..14])
    }
}

impl fmt::Debug for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |digests: &[String]| digests.iter().map(|digest| digest[..14].to_owned()).collect::<Vec<_>>();
        let (history, bad) = (short(&self.history), short(&self.bad));
        write!(f, "the tag pointed to {history:?}, bad are {bad:?}, at the last quiet moment ran {:?}", self.ran)
    }
}

/// Sends a delivery; returns the word of the response, if there was one.
async fn deliver(client: reqwest::Client, url: String, hint: Hint) -> (Hint, Option<String>) {
    let mut request = client.post(url).body(hint.sent.body.clone()).timeout(Duration::from_mins(1));
    for (name, value) in &hint.sent.headers {
        request = request.header(name, value);
    }
    let Ok(response) = request.send().await else { return (hint, None) };
    let json: Option<serde_json::Value> = response.bytes().await.ok().and_then(|b| serde_json::from_slice(&b).ok());
    let word = json.and_then(|json| json["status"].as_str().map(str::to_owned));
    (hint, word)
}
