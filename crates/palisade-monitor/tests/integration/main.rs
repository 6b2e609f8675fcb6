//! Reports without a kernel: what they are attributed to.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod attribution;
