//! The walk as a sender would recognise it: real payloads in, a verdict out, and the words of the answer.

mod identities;
mod image_push;
mod republish;
mod response_table;
#[path = "../support/seed.rs"]
mod seed;
mod sources;
