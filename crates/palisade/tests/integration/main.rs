//! The command line, the chart and the unit of the service, without kernel access and privileges.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: they run other programs, and fail by panicking"
)]

mod chart;
mod cli;
mod unit;
