//! The road in and out, over real sockets: what a client may do to a port, and what it then sees.

#[path = "../support/bare_handler.rs"]
mod bare_handler;
mod bodies;
mod connections;
mod drain;
mod framing;
mod wire;
