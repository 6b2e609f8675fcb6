//! Documents in YAML and JSON: values, positions, limits.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod documents;
mod fields;
mod json;
mod objects;
mod properties;
mod scalars;
mod stream;
