//! Hubble's own command and relay, as Cilium 1.18 publishes them, against this service.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: they run other programs, have the time of the machine, and fail by panics"
)]

mod command;
mod export;
mod filters;
mod judge;
mod lines;
mod node;
mod relay;
