//! Conversions by hand and at random: what is written is what was expected, and means the same to oracle and analysis.
//!
//! Policies of Calico are read by a reading of their own (`calico_reading`), until a dialect reads them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test: a failing helper fails it"
)]

mod calico_reading;
mod manifests;
mod mixed;
mod random;
mod scenarios;
