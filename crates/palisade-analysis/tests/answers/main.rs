//! Tests of connections, diff and explain on small states with complete expected output.

#[path = "../../../palisade-oracle/tests/semantics/build.rs"]
#[allow(dead_code, reason = "the oracle's tests use the rest of this module")]
mod build;
mod connections;
mod diff;
mod explain;
mod lint;
mod size;
