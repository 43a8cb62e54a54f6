//! The walk as a sender would recognise it: real payloads in, a verdict and the content of the response out.

mod elements;
mod identities;
mod image_push;
mod republish;
mod response_table;
#[path = "../support/seed.rs"]
mod seed;
mod sources;
