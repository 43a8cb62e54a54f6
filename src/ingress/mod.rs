//! The edge that speaks HTTP: connections with limits, bodies with limits, answers. What a request means is decided
//! elsewhere; here is only how it comes in and how the answer goes out.
//!
//! ```text
//! accept.rs   takes connections, drains them        watch.rs   how long a connection may take for what it does
//! places.rs   which connection goes when there are too many
//! ingest.rs   where webhooks arrive                 admin.rs   where people and their tools ask
//!                                                   admin/     what they ask, and the door to it
//! body.rs     reads a body, bounded in size, time and memory
//! health.rs   whether a node takes deliveries
//! dashboard.rs the page for people, inside the binary
//! reply.rs    an answer on its way out
//! ```
pub mod accept;
pub(crate) mod conn_limit;
pub(crate) mod conn_timeout;
pub(crate) mod http;
pub mod http_response;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "nats")]
pub(crate) mod nats_consumer;
pub(crate) mod readiness;
pub(crate) mod request_body;
