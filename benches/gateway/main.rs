//! The cost of the gateway, compared with what it is built on. See `docs/performance.md`.
//!
//! ```text
//! cargo bench                     all of it, in under three minutes
//! cargo bench -- --quick          only whether it still works; `cargo test --benches` does the same
//! cargo bench -- --rounds 9 --seconds 2
//! cargo bench -- --docs           writes the figures into docs/performance.md
//! cargo bench -- --page           only what an open dashboard costs
//! cargo bench -- --only Whole     this one beside the bare handler, without repeats: to look at it with a profiler
//! ```
//!
//! Rounds of the servers alternate, so that other load on the machine affects all alike. Only ratios of one run are
//! comparable.
#![expect(unreachable_pub, reason = "the parts of one program")]
#![expect(clippy::cast_precision_loss, reason = "figures are only printed")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "indexes into a list of latencies")]

#[path = "../../tests/support/bare_handler.rs"]
mod bare_handler;
mod figures;
mod limit;
#[path = "../measure/mod.rs"]
mod measure;
mod page;
mod per_row;
mod server;

use measure::deck::{self, Deck, Repeats};
use measure::document::{self, Target};
use measure::load::{self, Round};
use measure::process::used_when_quiet;
use measure::rounds::{Rounds, Sample, Spread, file_system, machine};
use page::Page;
use serde_json::json;
use server::{Kind, Server};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// More than any server handles in a second.
const RATE_MAX: f64 = 45_000.0;
/// The burst: this many deliveries, this many copies of each.
const STORM: (u64, u64) = (20, 200);

struct Plan {
    rounds: usize,
    lasts: Duration,
    only: Option<Kind>,
    page: bool,
    target: Target,
}

impl Plan {
    const QUICK: Self =
        Self { rounds: 1, lasts: Duration::from_millis(150), only: None, page: false, target: Target::Build };
    /// As long as it takes until keys are merged into their index in each round.
    const WHOLE: Self =
        Self { rounds: 4, lasts: Duration::from_secs(3), only: None, page: false, target: Target::Build };

    /// `cargo bench` passes `--bench`; without it only a quick check runs.
    fn of(args: &[String]) -> Self {
        let has = |name: &str| args.iter().any(|arg| arg == name);
        let word = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1);
        let after = |name: &str| word(name).and_then(|value| value.parse().ok());
        if has("--quick") || !has("--bench") {
            return Self::QUICK;
        }
        Self {
            rounds: after("--rounds").map_or(Self::WHOLE.rounds, |rounds: f64| rounds as usize),
            lasts: after("--seconds").map_or(Self::WHOLE.lasts, Duration::from_secs_f64),
            only: word("--only").map(|name| Kind::named(name)),
            page: has("--page"),
            target: Target::of(args),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, kind] = &args[..]
        && flag == "--server"
    {
        return server::serve(kind);
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
    let Plan { rounds, lasts, only, page, target } = *plan;
    let conditions = format!(
        "{} connections, bodies of {} bytes, {rounds} rounds of {lasts:?}, store on {}; {}, which also ran the load",
        load::CONNECTIONS,
        deck::BODY_BYTES,
        file_system(dir),
        machine()
    );
    println!("{conditions}\n");
    let each = (RATE_MAX * lasts.as_secs_f64()) as usize;
    let deck = Arc::new(Deck::new(each * rounds * 8 / 5 + usize::try_from(STORM.0).unwrap_or(0)));
    if only.is_some_and(|only| Kind::ANSWERS.contains(&only)) {
        again(plan, &deck, dir).await;
        return;
    }
    if page {
        figures::print(&interleave(plan, &deck, Repeats::HALF, &[Kind::Whole, Kind::Watched], dir).await);
        return;
    }
    if let Some(only) = only {
        figures::print(&interleave(plan, &deck, Repeats::NONE, &[Kind::Bare, only], dir).await);
        return;
    }
    let (mut tables, mut json) = (format!("{conditions}.\n"), serde_json::Map::new());
    for (repeats, kinds) in [
        (Repeats::NONE, &Kind::ALL[..]),
        (Repeats::HALF, &[Kind::Bare, Kind::Memory, Kind::NoBody, Kind::Whole]),
        (Repeats::MOST, &[Kind::Bare, Kind::Memory, Kind::NoBody, Kind::Whole]),
    ] {
        let name = format!("{} % repeats", repeats.percent);
        println!("{name}");
        let figures = interleave(plan, &deck, repeats, kinds, &dir.join(repeats.percent.to_string())).await;
        figures::print(&figures);
        tables = tables + "\n" + &figures::markdown(&name, &figures) + "\n" + &figures::comparisons(&figures);
        json.insert(name, figures::json(&figures));
    }
    let answered = again(plan, &deck, &dir.join("again")).await;
    let name = "Repeats answered from their receipts";
    tables = tables + "\n" + &figures::markdown(name, &answered) + "\n" + &figures::comparisons(&answered);
    json.insert(name.to_owned(), figures::json(&answered));
    let figures = limits(plan, dir);
    println!("SQLite alone, a row, two keys and a body, 64 to a commit, synced: {figures} claims/s\n");
    let alone = "- SQLite alone, a row, two keys and a body, 64 to a commit, synced, claims per second: ";
    tables = tables
        + alone
        + &figures
        + "
";
    for kind in [Kind::Memory, Kind::Whole] {
        tables = tables + "- " + &storm(&deck, kind, &dir.join(format!("storm-{kind:?}"))).await + "\n";
    }
    // A quick check leaves the figures of the last measurement alone.
    let folder = document::folder(if lasts == Plan::QUICK.lasts { "gateway-quick" } else { "gateway" });
    println!("written:");
    let json = json!({"conditions": conditions, "repeats": json});
    document::write(&folder.join("results.json"), &format!("{json:#}\n"));
    target.figures("figures of the gateway", &tables);
}

/// Fresh servers, one round of each in turn. Every request must be answered, and each event made once.
async fn interleave(plan: &Plan, deck: &Arc<Deck>, repeats: Repeats, kinds: &[Kind], dir: &Path) -> Rounds<Kind> {
    let mut servers: Vec<_> =
        kinds.iter().map(|kind| (Server::start(*kind, &dir.join(format!("{kind:?}"))), 0_u64)).collect();
    let mut figures = Rounds::default();
    for _ in 0..plan.rounds {
        for (server, used) in &mut servers {
            let room = deck.len() as u64 - *used;
            let round = Round {
                to: server.address,
                repeats,
                from: *used,
                room,
                lasts: plan.lasts,
                connections: load::CONNECTIONS,
            };
            let watching = (server.kind == Kind::Watched).then(|| server.admin.map(Page::open));
            let before = server.used();
            let result = load::run(deck, round).await;
            drop(watching);
            let [after] = used_when_quiet(|| [server.used()]).await;
            // The bare handler does not deduplicate, and may get the same ones again.
            let new = if server.kind == Kind::Bare { 0 } else { result.distinct };
            *used += new;
            assert_eq!((result.other, result.accepted), (0, new), "{:?}: of {} answers", server.kind, result.answers());
            figures.add(server.kind, Sample::of(&result, after - before, server.memory()));
        }
        // Each is the first equally often.
        servers.rotate_left(1);
    }
    for (server, used) in &mut servers {
        if server.kind != Kind::Bare {
            assert_eq!(server.events(), *used, "{:?}: each distinct delivery is one event", server.kind);
        }
    }
    drop(servers);
    std::fs::remove_dir_all(dir).ok();
    figures
}

/// The extra cost of a duplicate that is answered from its receipt, compared with a delivery that is filtered out.
async fn again(plan: &Plan, deck: &Arc<Deck>, dir: &Path) -> Rounds<Kind> {
    let receiver = Server::start(Kind::Bare, &dir.join("receiver"));
    let start = |kind: Kind| Server::start_before(kind, &dir.join(format!("{kind:?}")), Some(&receiver));
    let servers = Kind::ANSWERS.map(start);
    for server in &servers {
        let result = load::storm(deck, server.address, 0, deck::REACH, 1).await;
        assert_eq!((result.fine, result.other), (deck::REACH, 0), "{:?}: all are answered when done", server.kind);
    }
    let mut figures = Rounds::default();
    for _ in 0..plan.rounds {
        for server in &servers {
            let round = Round {
                to: server.address,
                repeats: Repeats::ALL,
                from: 0,
                room: deck::REACH,
                lasts: plan.lasts,
                connections: load::CONNECTIONS,
            };
            let before = server.used();
            let result = load::run(deck, round).await;
            let [after] = used_when_quiet(|| [server.used()]).await;
            assert_eq!((result.accepted, result.other), (0, 0), "{:?}: all are repeats", server.kind);
            figures.add(server.kind, Sample::of(&result, after - before, server.memory()));
        }
    }
    println!("repeats answered from their receipts");
    figures::print(&figures);
    figures
}

fn limits(plan: &Plan, dir: &Path) -> String {
    let once = |round| limit::claims_per_second(&dir.join(format!("limit-{round}.db")), plan.lasts / 2);
    Spread::of((0..plan.rounds).map(once).collect()).text(0)
}

async fn storm(deck: &Arc<Deck>, kind: Kind, dir: &Path) -> String {
    let (distinct, copies) = STORM;
    let mut server = Server::start(kind, dir);
    let result = load::storm(deck, server.address, 0, distinct, copies).await;
    let events = server.events();
    let said = format!(
        "{copies} copies of {distinct} at once, {}: {} accepted, {events} events",
        kind.words(),
        result.accepted
    );
    println!("{said}");
    assert_eq!((result.accepted, result.fine + result.accepted, events), (distinct, distinct * copies, distinct));
    said
}
