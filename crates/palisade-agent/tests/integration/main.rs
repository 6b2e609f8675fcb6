//! The agent without a kernel: its core on a host in memory, its API, its reports.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod api;
mod core_operations;
mod faulty_ports;
mod monitoring;
mod requests;
mod sequences;
mod support;
