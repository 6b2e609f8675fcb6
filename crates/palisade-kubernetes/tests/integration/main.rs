//! The source and the writers of conditions and states, against an API server in memory.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests fail by panicking, wait and write files"
)]

mod node_status;
mod policy_feedback;
mod source;
