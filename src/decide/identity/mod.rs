//! What makes two deliveries the same event: keys, the recipes they are made by, and the `Idempotency-Key` header.

pub mod idempotency_key;
pub mod key;
pub mod recipe;
