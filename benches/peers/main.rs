//! Hookonce beside what a user would pick instead, doing the same work. See `docs/performance.md`.
//!
//! ```text
//! cargo bench --bench peers                        installs the peers, and measures all: some minutes
//! cargo bench --bench peers -- --rounds 9 --seconds 2
//! cargo bench --bench peers -- --only express --only hookonce-postgresql
//! cargo bench --bench peers -- --repeats 50        half of the deliveries are repeats; or 95
//! cargo bench --bench peers -- --copies 1000       a larger storm
//! cargo bench --bench peers -- --only hookonce-sqlite --bytes 1000000 --connections 8
//! cargo bench --bench peers -- --docs              writes the figures and charts into docs/performance.md
//! cargo bench --bench peers -- --quick             only whether it still works, without what needs the network;
//!                                                  `cargo test --bench peers` does the same
//! ```
//!
//! All verify the signature over the same body, recognise a repeat by its delivery id, and record it; `programs` has the
//! peers, and each says what it does not do. Rounds alternate, so that other load on the machine affects all alike. Only
//! ratios of one run are comparable.
#![expect(unreachable_pub, reason = "the parts of one program")]
#![expect(clippy::cast_precision_loss, reason = "figures are only printed")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of the command line")]

#[path = "../../tests/support/bare_handler.rs"]
mod bare_handler;
mod baseline;
mod contender;
mod install;
#[path = "../measure/mod.rs"]
mod measure;
#[path = "../../tests/support/postgres.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "each bench uses a part of it")]
mod postgres;
#[path = "../../tests/support/redis.rs"]
#[allow(clippy::unwrap_used, reason = "a failing `unwrap` says where it failed")]
mod redis;
mod report;
mod running;

use contender::Contender;
use install::Tools;
use measure::deck::{BODY_BYTES, Deck, Repeats};
use measure::document::{self, Target};
use measure::load::{self, LoadResult, Round};
use measure::process::used_when_quiet;
use measure::rounds::Sample;
use report::{Report, Storm};
use running::{HookCommand, Running, StoreServers};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// More than any server that remembers handles in a second.
const RATE_MAX: f64 = 60_000.0;
/// Deliveries that warm a server up before it is measured.
const WARM_UP: u64 = 256;
/// The burst: this many deliveries, this many copies of each; and the one of the quick check.
const STORM: (u64, u64) = (20, 200);
const STORM_QUICK: (u64, u64) = (20, 20);

struct Plan {
    contenders: Vec<Contender>,
    installs: bool,
    rounds: usize,
    lasts: Duration,
    repeats: Repeats,
    storm: (u64, u64),
    /// Bytes of a body.
    bytes: usize,
    connections: usize,
    target: Target,
}

impl Plan {
    /// `cargo bench` passes `--bench`; without it only a quick check runs.
    fn of(args: &[String]) -> Self {
        let has = |name: &str| args.iter().any(|arg| arg == name);
        let words =
            |name: &'static str| args.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].as_str());
        let number = |name, otherwise: f64| words(name).next().and_then(|word| word.parse().ok()).unwrap_or(otherwise);
        if has("--quick") || !has("--bench") {
            let (contenders, lasts) = (Contender::OFFLINE.to_vec(), Duration::from_millis(150));
            return Self {
                contenders,
                installs: false,
                rounds: 1,
                lasts,
                repeats: Repeats::NONE,
                storm: STORM_QUICK,
                bytes: BODY_BYTES,
                connections: load::CONNECTIONS,
                target: Target::Build,
            };
        }
        let only: Vec<_> = words("--only").collect();
        let chosen = |one: &Contender| {
            one.is_baseline() || only.is_empty() || only.iter().any(|name| one.name().starts_with(name))
        };
        Self {
            contenders: Contender::ALL.into_iter().filter(chosen).collect(),
            installs: true,
            rounds: number("--rounds", 4.0) as usize,
            lasts: Duration::from_secs_f64(number("--seconds", 3.0)),
            repeats: match number("--repeats", 0.0) as u64 {
                0 => Repeats::NONE,
                50 => Repeats::HALF,
                95 => Repeats::MOST,
                other => panic!("--repeats {other}: 0, 50 or 95"),
            },
            storm: (STORM.0, number("--copies", STORM.1 as f64) as u64),
            bytes: number("--bytes", BODY_BYTES as f64) as usize,
            connections: number("--connections", load::CONNECTIONS as f64) as usize,
            target: Target::of(args),
        }
    }

    /// How many distinct deliveries any contender may get.
    fn deliveries(&self) -> usize {
        let rounds = RATE_MAX * self.lasts.as_secs_f64() * self.rounds as f64;
        rounds as usize + usize::try_from(WARM_UP + self.storm.0).unwrap_or(0) + 2
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if baseline::serve(&args) {
        return;
    }
    if args.iter().any(|arg| arg == "--list") {
        if !args.iter().any(|arg| arg == "--ignored") {
            println!("the_benchmark_works: test");
        }
        return;
    }
    let plan = Plan::of(&args);
    // On the disk of the build: on a file system in memory every sync would be free.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build();
    runtime.expect("a runtime").block_on(measure(&plan, dir.path()));
}

async fn measure(plan: &Plan, dir: &Path) {
    // A quick check leaves the figures of the last measurement alone.
    let folder = document::folder(if plan.installs { "peers" } else { "peers-quick" });
    let tools = if plan.installs { Tools::install(&folder) } else { Tools::none() };
    let mut report = Report::new(plan, dir);
    let mut stores = StoreServers::start(&plan.contenders, dir).await;
    println!("{}\n", report.conditions());
    let deck = Arc::new(Deck::sized(plan.deliveries(), plan.bytes));
    let mut runners = Vec::new();
    for contender in &plan.contenders {
        let wanted = (&tools, &mut stores);
        match Running::start(*contender, wanted, (&dir.join("rounds"), HookCommand::True), (&deck, 0)).await {
            Ok(running) => runners.push(Runner { running, used: 1 }),
            Err(why) => report.leave_out(*contender, tools.missing(*contender).unwrap_or(&why)),
        }
    }
    for runner in &mut runners {
        runner.warm_up(&deck).await;
    }
    for round in 0..plan.rounds {
        for turn in 0..runners.len() {
            // Each is the first equally often: what one leaves behind is cleared while the next one runs.
            let at = (round + turn) % runners.len();
            runners[at].measure(plan, &deck, &mut report).await;
        }
    }
    let ran: Vec<_> = runners.iter().map(|runner| runner.running.contender).collect();
    for runner in runners {
        runner.end(&stores, &mut report).await;
    }
    for contender in ran.into_iter().filter(|one| !one.is_baseline()) {
        let (wanted, dir) = ((&tools, &mut stores), dir.join("storm"));
        match Running::start(contender, wanted, (&dir, HookCommand::Counted), (&deck, plan.storm.0)).await {
            Ok(running) => report.storm(contender, storm(running, plan.storm, &stores, &deck).await),
            Err(why) => report.leave_out(contender, &why),
        }
    }
    report.print();
    report.write(&folder, plan.target);
}

/// A contender during the rounds.
struct Runner {
    running: Running,
    /// How many distinct deliveries it got.
    used: u64,
}

impl Runner {
    async fn warm_up(&mut self, deck: &Arc<Deck>) {
        let result = load::storm(deck, self.running.address, self.used, WARM_UP, 1).await;
        let contender = self.running.contender;
        assert!(!contender.is_hookonce() || result.accepted == WARM_UP, "{contender:?} accepts every new delivery");
        self.used += WARM_UP;
    }

    async fn measure(&mut self, plan: &Plan, deck: &Arc<Deck>, report: &mut Report) {
        let contender = self.running.contender;
        // Those that remember nothing may get the same ones again.
        let from = if contender.remembers() { self.used } else { 0 };
        let (to, room) = (self.running.address, deck.len() as u64 - from);
        let round = Round { to, repeats: plan.repeats, from, room, lasts: plan.lasts, connections: plan.connections };
        let before = self.running.used();
        let result = load::run(deck, round).await;
        let memory = self.running.memory();
        let after = used_when_quiet(|| self.running.used()).await;
        let [server, store] = [0, 1].map(|at| after[at] - before[at]);
        let new = if contender.remembers() { result.distinct } else { result.answers() };
        self.used += new;
        let right = contender == Contender::Bare || is_right(&result, new);
        assert!(!contender.is_hookonce() || right, "{contender:?}: {} new of {new}", result.accepted);
        report.add(contender, Sample::with_store(&result, server, store, memory));
        report.answers(contender, result.answers(), right);
    }

    /// Ends it, and counts what it recorded.
    async fn end(self, stores: &StoreServers, report: &mut Report) {
        let Self { running, used } = self;
        let contender = running.contender;
        if contender.remembers() {
            let recorded = running.effects(stores, used).await;
            assert!(!contender.is_hookonce() || recorded == used, "{contender:?}: {recorded} events of {used}");
            report.answers(contender, 0, recorded == used);
        }
    }
}

/// Whether each new delivery was answered with 202, and each repeat with 200.
fn is_right(result: &LoadResult, new: u64) -> bool {
    (result.accepted, result.other) == (new, 0)
}

/// Many copies of a few deliveries at once.
async fn storm(running: Running, (distinct, copies): (u64, u64), stores: &StoreServers, deck: &Arc<Deck>) -> Storm {
    let contender = running.contender;
    let result = load::storm(deck, running.address, 0, distinct, copies).await;
    let (accepted, repeats, failed) = (result.accepted, result.fine, result.other);
    // The delivery that it was started with acted, too.
    let effects = running.effects(stores, accepted + 1).await - 1;
    if contender.is_hookonce() {
        let all = (distinct * copies - distinct, distinct);
        assert_eq!((accepted, repeats, effects), (distinct, all.0, all.1), "{contender:?}: each acts once");
    }
    Storm { accepted, repeats, failed, effects, took: result.took }
}
