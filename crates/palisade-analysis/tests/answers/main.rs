//! Connections, diff and explain on small states whose answers are written out whole.

#[path = "../../../palisade-oracle/tests/semantics/build.rs"]
#[allow(dead_code, reason = "the oracle's tests use the rest of it")]
mod build;
mod connections;
mod diff;
mod explain;
mod size;
