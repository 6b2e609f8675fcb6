//! Conversions by hand and at random: what is written is what was expected, and means the same to oracle and analysis.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test: a failing helper fails it"
)]

mod manifests;
mod mixed;
mod random;
mod scenarios;
