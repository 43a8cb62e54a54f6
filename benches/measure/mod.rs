//! What the benchmarks have in common: the deliveries, the load, what a process uses, figures and charts.
#![allow(dead_code, unreachable_pub, reason = "each benchmark uses a part of it")]
#![allow(clippy::cast_precision_loss, reason = "figures are only printed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "indexes into a list of latencies")]

pub mod chart;
pub mod deck;
pub mod document;
pub mod load;
pub mod node;
pub mod process;
pub mod rounds;
pub mod source;
