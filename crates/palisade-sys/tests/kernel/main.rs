//! Tests of the kernel interfaces on the running kernel, in namespaces created and removed here.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and use nft and the clock as a user would"
)]

mod alone;
mod bpf;
mod conntrack;
mod links;
mod netns;
mod nfnetlink;
mod ring;
mod support;
mod traffic_control;

use palisade_testkit::need_root;
