//! How long a node takes from `exec` until it is ready: without a store, with an empty one, and with many events.

use crate::Plan;
use crate::measure::deck::mix;
use crate::measure::document::table;
use crate::measure::node::Node;
use crate::measure::rounds::Spread;
use crate::measure::source::SourceConfig;
use hookonce::decide::source::Retention;
use hookonce::decide::time::Duration;
use hookonce::store::conformance::making;
use serde_json::{Value as Json, json};
use std::path::Path;

/// Claims per batch while filling.
const FILL: usize = 512;
/// Starts of each.
const STARTS: usize = 9;

/// Milliseconds.
pub struct Figures {
    kept: usize,
    /// No file is there yet.
    first: Vec<f64>,
    empty: Vec<f64>,
    large: Vec<f64>,
}

/// Starts of each kind in turn, in folders of their own and in that of the large store.
pub fn measure(plan: &Plan, dir: &Path, large: &Path) -> Figures {
    let config = SourceConfig::recorded("\"sqlite:hookonce.db\"", "7d").text();
    let start_in = |folder: &Path| {
        let node = Node::start(folder, &config);
        let took = node.ready_after;
        node.stop();
        took.as_secs_f64() * 1e3
    };
    // The first start on a store that another program filled adds the config's fields to it.
    start_in(large);
    let empty = dir.join("empty");
    start_in(&empty);
    let mut figures = Figures { kept: plan.kept, first: Vec::new(), empty: Vec::new(), large: Vec::new() };
    for round in 0..if plan.is_quick { 1 } else { STARTS } {
        figures.first.push(start_in(&dir.join(format!("first-{round}"))));
        figures.empty.push(start_in(&empty));
        figures.large.push(start_in(large));
    }
    figures
}

/// Fills the store in this folder with this many recorded events without bodies.
pub async fn fill(dir: &Path, many: usize) {
    std::fs::create_dir_all(dir).expect("a folder");
    let file = dir.join("hookonce.db");
    let store = hookonce::store::open(&format!("sqlite:{}", file.display())).await.expect("the store opens");
    let kept = Retention { body: Duration::ZERO, ..Retention::default() };
    for from in (0..many).step_by(FILL) {
        let one = |n: usize| {
            // Random, as senders make them.
            let random = format!("{:016x}{:016x}", mix(n as u64), mix(!(n as u64)));
            let made = making().source("ghcr").delivery(&random);
            made.named(&n.to_string()).recorded().kept(kept).made(store.now()).into()
        };
        store.claim((from..many.min(from + FILL)).map(one).collect()).await.expect("the store claims");
    }
}

impl Figures {
    fn rows(&self) -> [(String, Spread); 3] {
        let spread = |figures: &[f64]| Spread::of(figures.to_vec());
        [
            ("without a store: it creates one".to_owned(), spread(&self.first)),
            ("with an empty store".to_owned(), spread(&self.empty)),
            (format!("with {} events", self.kept), spread(&self.large)),
        ]
    }

    pub fn table(&self) -> String {
        let header = vec!["A start".to_owned(), "ms until `/readyz` is 200".to_owned()];
        let row = |(name, spread): (String, Spread)| vec![name, spread.text(0)];
        table(&std::iter::once(header).chain(self.rows().map(row)).collect::<Vec<_>>())
    }

    pub fn json(&self) -> Json {
        let [first, empty, large] = self.rows().map(|(_, spread)| spread.range());
        json!({"kept": self.kept, "first_ms": first, "empty_ms": empty, "large_ms": large})
    }
}
