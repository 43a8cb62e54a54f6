//! The HTTP ingress over real sockets: what a client may do to a port, and what it gets.

#[path = "../support/bare_handler.rs"]
mod bare_handler;
mod bodies;
mod connections;
mod drain;
mod framing;
mod wire;
