//! The tables of fields against the dialects, and against the schemas that the projects publish.
//!
//! To accept a change of `docs/dialects.md` and the pages in `docs/dialects`, run with `PALISADE_BLESS=1` and review the difference.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "a switch of this test, and files of the source tree"
)]

#[path = "../common/mod.rs"]
mod common;

mod document;
mod json_path;
mod mutations;
mod rows;
mod samples;
mod schema;
mod unknown_fields;
