//! nf_tables over netlink with the running kernel, in namespaces created and removed here.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and compare with nft as a user would"
)]

mod alone;
mod content;
mod driver;
mod flow_events;
mod flows;
mod random;
mod reports;
mod steps;
mod support;

use palisade_testkit::need_root;
