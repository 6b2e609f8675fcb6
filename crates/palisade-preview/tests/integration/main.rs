//! Previews and suggestions against a plain evaluation of every flow by the oracle, on random clusters.

#![allow(
    clippy::unwrap_used,
    reason = "the inputs of the tests are well-formed"
)]

mod random;
mod world;
