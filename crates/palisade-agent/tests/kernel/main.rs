//! The agent's core on a real kernel.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../integration/faulty_ports.rs"]
mod faulty_ports;
#[path = "../integration/requests.rs"]
mod requests;
mod steps;
