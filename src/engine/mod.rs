//! The engine of a node: receives deliveries, and runs the events that they become, each under a lease.

pub(crate) mod dispatcher;
pub(crate) mod gateway;
pub(crate) mod handover;
pub(crate) mod received;
