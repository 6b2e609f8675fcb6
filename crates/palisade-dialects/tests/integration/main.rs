//! The dialects: what is read, what is refused, and what it comes to.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests read files, and fail by panicking"
)]

mod accepted;
mod any_input;
mod api_kinds;
mod calico;
mod calico_selector;
mod cilium;
mod common;
mod fields;
mod golden;
mod mode;
mod policy_api;
mod rejections;
mod warnings;
mod whole_input;
