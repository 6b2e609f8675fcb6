//! Hubble's own command and relay, as Cilium 1.18 publishes them, against this service.

#![allow(
    clippy::disallowed_methods,
    reason = "tests run other programs, and have the time of the machine"
)]

mod command;
mod filters;
mod judge;
mod lines;
mod node;
mod relay;
