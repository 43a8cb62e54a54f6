//! What operators see of a node: log lines, metrics, traces, and a log of recent deliveries.

pub(crate) mod delivery_log;
pub(crate) mod exposition;
#[cfg(feature = "store")]
pub(crate) mod log;
#[cfg(feature = "node")]
pub(crate) mod log_layer;
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod time_series;
