//! How deliveries arrive: connections with limits, bodies with limits, responses, NATS streams, polled registries. What a
//! request means is decided elsewhere.
//!
//! ```text
//! accept.rs        accepts connections, and drains them     conn_timeout.rs  how long a connection may take
//! conn_limit.rs    which connection is closed when there are too many
//! http.rs          the webhook port                         nats.rs          a NATS stream as a source
//! client_address.rs who a client is, and which are accepted
//! port_listener.rs the sockets of a port                    tls.rs           its certificate, and the handshake
//! timed_stream.rs  the socket of a connection               http2.rs         many requests on one connection
//! request_body.rs  reads a body, bounded in size, time and memory
//! registry_poll.rs a tag of a container registry as a source
//! readiness.rs     whether the node accepts deliveries      http_response.rs sends a response
//! ```
pub mod accept;
pub(crate) mod client_address;
pub(crate) mod conn_limit;
pub(crate) mod conn_timeout;
pub(crate) mod http;
pub(crate) mod http2;
pub mod http_response;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "nats")]
pub(crate) mod nats_consumer;
pub(crate) mod port_listener;
pub(crate) mod readiness;
pub(crate) mod registry_poll;
pub(crate) mod request_body;
pub(crate) mod timed_stream;
pub(crate) mod tls;
