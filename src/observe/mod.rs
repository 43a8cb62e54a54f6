//! What operators see of a node: log lines, metrics, traces, and a log of recent deliveries.

pub(crate) mod delivery_log;
#[cfg(feature = "node")]
pub(crate) mod exposition;
mod histogram;
#[cfg(feature = "store")]
pub(crate) mod log;
#[cfg(feature = "node")]
pub(crate) mod log_layer;
pub(crate) mod metrics;
#[cfg(feature = "node")]
pub(crate) mod otlp;
#[cfg(feature = "node")]
mod process_stats;
pub(crate) mod time_series;
#[cfg(feature = "store")]
pub(crate) mod trace_span;

/// The name of a node in metrics and traces, the same after a restart: the host and the admin port.
#[cfg(feature = "node")]
pub(crate) fn node_name(admin: std::net::SocketAddr) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", admin.port())
}
