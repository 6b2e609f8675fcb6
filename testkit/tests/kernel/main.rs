//! The lab, the runtimes, the demos and a cluster, on the real kernel.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run other programs, measure real time, and fail by panicking"
)]

mod cluster;
mod demo;
mod executor_stops;
mod lab;
mod runtimes;
