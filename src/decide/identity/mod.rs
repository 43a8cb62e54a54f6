//! What makes two deliveries the same: keys, the recipes that they are made by, and the `Idempotency-Key` header.

pub mod idempotency_key;
pub mod key;
pub mod recipe;
