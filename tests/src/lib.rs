//! Tests of the workspace as a whole; they live in `tests/`, beside this file.
//!
//! `tidy` holds the house rules: crate edges, purity, module docs, lengths, circles, orphans, names,
//! documents.
