//! What is in force: which version of an object is accepted, and the sources together.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod acceptance;
mod sources;
