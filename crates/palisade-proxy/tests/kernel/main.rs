//! The proxy between namespaces: packets that the kernel redirects, servers that see their clients, an agent that
//! confirms or does not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and set up the kernel as a user would"
)]

mod agent;
mod client;
mod enforced;
mod exchange;
mod flood;
mod holding;
mod reporting;
mod server;
mod servers;
mod streams;
mod testbed;

use palisade_testkit::need_root;
