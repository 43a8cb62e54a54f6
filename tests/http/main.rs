//! The road in and out, over real sockets: what a client may do to a port, and what it then sees.

mod bodies;
mod connections;
mod drain;
mod framing;
mod wire;
