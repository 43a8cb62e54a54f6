//! The targets of `docs/performance.md`, and what was measured of each: runs the benchmarks that most of them need one
//! after the other, and makes one table of their results.
//!
//! ```text
//! cargo bench --bench targets                runs `peers`, `forward` and `scale`: twelve minutes, after they are built
//! cargo bench --bench targets -- --docs      the same, and writes their figures and the table into docs/performance.md
//! cargo bench --bench targets -- --table     only the table, of what was measured before; with --docs into the docs
//! cargo bench --bench targets -- --only forward    one of the three; may be repeated
//! cargo bench --bench targets -- --profile dist    of the build that is shipped
//! cargo bench --bench targets -- --quick     only whether the table is made; `cargo test --bench targets` does the same
//! ```
//!
//! `peers` installs what Hookonce is compared with under `target/peers`. The rows of `gateway` and `growth` are of their
//! last run: run them before.

#[path = "measure/mod.rs"]
mod measure;

use measure::document::{self, Target as Documents, table};
use measure::rounds::Spread;
use serde_json::{Value as Json, json};
use std::process::Command;
use std::time::Instant;

/// 10^7 keys: two of each event.
const MANY_EVENTS: &str = "5000000";
/// What is run, in this order: the benchmark, and its arguments.
const RUNS: [(&str, &[&str]); 3] =
    [("peers", &[]), ("forward", &["--cases", "1"]), ("scale", &["--only", "sqlite", "--many", MANY_EVENTS])];

/// What is wanted of a figure.
#[derive(Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Wanted {
    fn is_reached(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
        }
    }
}

/// One target, and its figure.
struct Row {
    what: &'static str,
    wanted: Wanted,
    unit: &'static str,
    figure: Spread,
    digits: usize,
    command: String,
}

/// The results of the benchmarks, as they are under `target`; `Null` where there is none.
struct Results {
    peers: Json,
    forward: Json,
    scale: Json,
    gateway: Json,
    growth: Json,
}

impl Results {
    fn read() -> Self {
        let read = |name: &str| {
            let text = std::fs::read_to_string(document::folder(name).join("results.json")).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or(Json::Null)
        };
        // Another run of `scale` may have kept fewer.
        let scale = read("scale");
        let is_many = scale["stores"][0]["kept_events"].as_u64() == MANY_EVENTS.parse().ok();
        Self {
            peers: read("peers"),
            forward: read("forward"),
            scale: if is_many { scale } else { Json::Null },
            gateway: read("gateway"),
            growth: read("growth"),
        }
    }

    /// A figure of the rounds of a server in `peers`.
    fn peer(&self, name: &str, figure: impl Fn(&Json) -> Option<f64>) -> Spread {
        let contender = self.contender(name);
        let rounds = contender.and_then(|found| found["rounds"].as_array()).into_iter().flatten();
        Spread::of(rounds.filter_map(figure).collect())
    }

    fn contender(&self, name: &str) -> Option<&Json> {
        self.peers["contenders"].as_array()?.iter().find(|found| found["name"] == name)
    }

    fn of_bare(&self, name: &str) -> Spread {
        self.contender(name).map_or_else(Spread::default, |found| range(&found["of_bare"]))
    }

    /// CPU of the server and its store's server.
    fn cpu(&self, name: &str) -> Spread {
        self.peer(name, |round| Some(round["server_cpu_us"].as_f64()? + round["store_cpu_us"].as_f64()?))
    }

    /// How many times as fast Hookonce without bodies is.
    fn times_as_fast_as(&self, name: &str) -> Spread {
        let of = |found: &Json| range(&found["hookonce_times_as_fast"]["without_body"]);
        self.contender(name).map_or_else(Spread::default, of)
    }

    /// CPU of a repeat that gets its stored response, compared with a delivery that is filtered out.
    fn repeats(&self, kind: &str) -> Spread {
        let all = &self.gateway["repeats"]["Repeats answered from their receipts"];
        let cpu = |kind: &str| {
            let rounds = all[kind]["rounds"].as_array().cloned().unwrap_or_default();
            rounds.iter().filter_map(|round| round["server_cpu_us"].as_f64()).collect::<Vec<_>>()
        };
        Spread::of(cpu(kind).iter().zip(cpu("Ignored")).map(|(repeat, ignored)| repeat / ignored).collect())
    }

    fn forward_done(&self) -> Spread {
        let through = self.forward["cases"][0]["through"].as_array().into_iter().flatten();
        through.filter(|one| one["name"] == "Done").map(|one| range(&one["cpu_us"])).next().unwrap_or_default()
    }

    fn rows(&self) -> Vec<Row> {
        use Wanted::{AtLeast, AtMost};
        const SQLITE: &str = "hookonce-sqlite";
        const SQLITE_BODY: &str = "hookonce-sqlite-with-body";
        let of = |name: &'static str| move |round: &Json| round[name].as_f64();
        let written = |round: &Json| Some(round["written_bytes"].as_f64()? / 1e3);
        let peers = [
            ("SQLite, body stored: rate", AtLeast(0.20), "of bare", self.of_bare(SQLITE_BODY), 3),
            ("SQLite, body stored: CPU", AtMost(80.0), "µs", self.cpu(SQLITE_BODY), 0),
            ("SQLite, body stored: p99", AtMost(6.5), "ms", self.peer(SQLITE_BODY, of("p99_ms")), 1),
            ("SQLite, body stored: written", AtMost(4.0), "KB", self.peer(SQLITE_BODY, written), 1),
            ("SQLite, body stored: memory", AtMost(48.0), "MiB", self.peer(SQLITE_BODY, of("memory_mib")), 0),
            ("SQLite, no body: rate", AtLeast(0.24), "of bare", self.of_bare(SQLITE), 3),
            ("SQLite, no body: CPU", AtMost(70.0), "µs", self.cpu(SQLITE), 0),
            ("memory, no body: rate", AtLeast(0.40), "of bare", self.of_bare("hookonce-memory"), 3),
            (
                "PostgreSQL, body stored: rate",
                AtLeast(0.10),
                "of bare",
                self.of_bare("hookonce-postgresql-with-body"),
                3,
            ),
            ("PostgreSQL, body stored: CPU of both", AtMost(150.0), "µs", self.cpu("hookonce-postgresql-with-body"), 0),
            ("PostgreSQL, no body: rate", AtLeast(0.13), "of bare", self.of_bare("hookonce-postgresql"), 3),
            ("PostgreSQL, no body: CPU of both", AtMost(110.0), "µs", self.cpu("hookonce-postgresql"), 0),
            ("Redis, no body: rate", AtLeast(0.12), "of bare", self.of_bare("hookonce-redis"), 3),
            ("adnanh/webhook", AtLeast(6.0), "times its rate", self.times_as_fast_as("adnanh-webhook--bin-true"), 1),
            (
                "Python stdlib, SQLite",
                AtLeast(14.0),
                "times its rate",
                self.times_as_fast_as("python-stdlib-sqlite"),
                1,
            ),
            ("Express, PostgreSQL", AtLeast(4.0), "times its rate", self.times_as_fast_as("express-postgresql"), 1),
            ("FastAPI, Redis", AtLeast(4.0), "times its rate", self.times_as_fast_as("fastapi-redis"), 1),
            ("Flask, tutorial", AtLeast(50.0), "times its rate", self.times_as_fast_as("flask-tutorial-postgresql"), 1),
        ];
        let forward = [("forward, `done`: CPU", AtMost(200.0), "µs", self.forward_done(), 0)];
        let kept = range(&self.scale["stores"][0]["new_of_small"]);
        let scale = [("SQLite, a claim with 10^7 keys kept", AtMost(1.5), "times that with 10^4 events", kept, 2)];
        let gateway = [
            (
                "a repeat with its response, memory: CPU",
                AtMost(1.5),
                "times filtered out",
                self.repeats("AgainMemory"),
                2,
            ),
            ("a repeat with its response, SQLite: CPU", AtMost(1.5), "times filtered out", self.repeats("Again"), 2),
        ];
        let growth = &self.growth["figures"];
        let (behind, start) = (&growth["behind"], &growth["start"]);
        let is_million = start["kept"] == 1_000_000;
        let large = if is_million { range(&start["large_ms"]) } else { Spread::default() };
        let growth = [
            ("p99 while merging", AtMost(2.0), "times the quiet one", range(&behind["merging"]["of_quiet"]), 2),
            (
                "p99 while checkpointing",
                AtMost(2.0),
                "times the quiet one",
                range(&behind["checkpointing"]["of_quiet"]),
                2,
            ),
            ("p99 while sweeping", AtMost(2.0), "times the quiet one", range(&behind["sweeping"]["of_quiet"]), 2),
            ("start with an empty store", AtMost(50.0), "ms", range(&start["empty_ms"]), 0),
            ("start with 10^6 events", AtMost(500.0), "ms", large, 0),
        ];
        let run = |bench: &str| {
            let arguments = RUNS.iter().find(|(name, _)| *name == bench).map_or(&[][..], |(_, arguments)| arguments);
            [&[bench], arguments].concat().join(" ")
        };
        let parts: [(&str, &[_]); 5] =
            [("peers", &peers), ("forward", &forward), ("scale", &scale), ("gateway", &gateway), ("growth", &growth)];
        let rows = parts.iter().flat_map(|(bench, rows)| {
            rows.iter().map(|&(what, wanted, unit, figure, digits)| Row {
                what,
                wanted,
                unit,
                figure,
                digits,
                command: run(bench),
            })
        });
        rows.collect()
    }

    /// The conditions of the runs, and the table.
    fn document(&self) -> String {
        let header = ["", "Target", "Measured", "Reached", "By `--bench …`"].map(str::to_owned).to_vec();
        let rows: Vec<_> = self.rows();
        let measured = rows.iter().filter(|row| !row.figure.is_empty());
        let reached = measured.clone().filter(|row| row.wanted.is_reached(row.figure.median())).count();
        let summary = format!("{reached} of {} measured targets are reached.", measured.count());
        let cells = rows.iter().map(Row::cells);
        let table = table(&std::iter::once(header).chain(cells).collect::<Vec<_>>());
        let results =
            [("peers", &self.peers), ("forward", &self.forward), ("gateway", &self.gateway), ("growth", &self.growth)];
        let conditions = results.into_iter().filter_map(|(bench, json)| Some((bench, json["conditions"].as_str()?)));
        let conditions = conditions.map(|(bench, text)| format!("- `{bench}`: {text}.")).collect::<Vec<_>>().join("\n");
        format!("{summary}\n\n{table}\n{conditions}\n")
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let (measured, reached) = if self.figure.is_empty() {
            ("not measured".to_owned(), "")
        } else {
            let reached = self.wanted.is_reached(self.figure.median());
            (self.figure.text(self.digits), if reached { "yes" } else { "no" })
        };
        let wanted = format!("{} {}", self.wanted.text(), self.unit);
        vec![self.what.to_owned(), wanted, measured, reached.to_owned(), self.command.clone()]
    }
}

/// Least, median and most, as an array or by their names.
fn range(json: &Json) -> Spread {
    let places = [("least", 0), ("median", 1), ("most", 2)];
    let figure = |(name, place): (&str, usize)| json.get(name).or_else(|| json.get(place))?.as_f64();
    Spread::of(places.into_iter().filter_map(figure).collect())
}

/// Runs one benchmark with cargo, and says how long it took.
fn run(bench: &str, profile: &[&str], arguments: &[&str]) {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(document::repository(".")).args(["bench", "--locked", "--bench", bench]).args(profile);
    let begun = Instant::now();
    let done = command.args(arguments).status().expect("cargo runs");
    assert!(done.success(), "the benchmark {bench} failed");
    println!("{bench} took {:.0} s\n", begun.elapsed().as_secs_f64());
}

fn run_all(args: &[String]) {
    let profile = args.iter().skip_while(|arg| *arg != "--profile").nth(1);
    let profile = profile.map_or_else(Vec::new, |name| vec!["--profile", name]);
    let only: Vec<_> = args.windows(2).filter(|pair| pair[0] == "--only").map(|pair| pair[1].as_str()).collect();
    let wanted = || RUNS.into_iter().filter(|(bench, _)| only.is_empty() || only.contains(bench));
    // All are built first: a compiler beside them would spoil the figures.
    for (bench, _) in wanted() {
        run(bench, &profile, &["--no-run"]);
    }
    let docs = args.iter().any(|arg| arg == "--docs");
    for (bench, arguments) in wanted() {
        let docs: &[&str] = if docs { &["--docs"] } else { &[] };
        run(bench, &profile, &[&["--"], arguments, docs].concat());
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| args.iter().any(|arg| arg == name);
    if has("--list") {
        if !has("--ignored") {
            println!("the_table_is_made: test");
        }
        return;
    }
    if has("--quick") || !has("--bench") {
        return check();
    }
    if !has("--table") {
        run_all(&args);
    }
    let figures = Results::read().document();
    println!("{figures}");
    document::write(&document::folder("targets").join("targets.md"), &figures);
    Documents::of(&args).figures("figures of targets", &figures);
}

/// Checks that the table shows what was measured, and that the document has a place for it.
fn check() {
    let none =
        Results { peers: Json::Null, forward: Json::Null, scale: Json::Null, gateway: Json::Null, growth: Json::Null };
    assert!(none.document().contains("0 of 0 measured targets"), "nothing was measured");
    let round = |p99| json!({"server_cpu_us": 60.0, "store_cpu_us": 5.0, "p99_ms": p99, "written_bytes": 4100.0});
    let of_bare = json!({"least": 0.2, "median": 0.21, "most": 0.3});
    let name = "hookonce-sqlite-with-body";
    let peers =
        json!({"contenders": [{"name": name, "rounds": [round(6.0), round(7.0), round(6.4)], "of_bare": of_bare}]});
    let scale = json!({"stores": [{"new_of_small": [1.3, 1.6, 1.7]}]});
    let some = Results { peers, scale, ..none };
    let found = some
        .rows()
        .iter()
        .map(|row| row.cells()[2..4].join(" "))
        .filter(|cell| cell != "not measured ")
        .collect::<Vec<_>>();
    let expected = ["0.210 (0.200–0.300) yes", "65 yes", "6.4 (6.0–7.0) yes", "4.1 no", "1.60 (1.30–1.70) no"];
    assert_eq!(found, expected);
    Documents::Build.figures("figures of targets", &some.document());
}
