//! Connections, diff, explain and lint: on small states with complete expected output, and at random against the oracle.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../../../palisade-oracle/tests/integration/build.rs"]
#[allow(dead_code, reason = "the oracle's tests use the rest of this module")]
mod build;
mod connections;
mod diff;
mod explain;
mod lint;
mod names;
mod random;
mod size;
