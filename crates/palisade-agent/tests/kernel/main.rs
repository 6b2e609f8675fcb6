//! The agent's core on a real kernel.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: `ip` is their witness, and they fail by panicking"
)]

#[path = "../integration/faulty_ports.rs"]
mod faulty_ports;
#[path = "../integration/requests.rs"]
mod requests;
mod steps;
