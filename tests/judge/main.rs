//! The walk as a sender would recognise it: real payloads in, a verdict out, and the words of the answer.

mod again;
mod answers;
mod identities;
#[path = "../house/seed.rs"]
mod seed;
mod sources;
mod storm;
