//! What operators see of a node: log lines, metrics, traces, and a log of recent deliveries.

pub mod delivery_log;
pub mod exposition;
#[cfg(feature = "store")]
pub mod log;
pub mod metrics;
pub mod otlp;
pub mod time_series;
