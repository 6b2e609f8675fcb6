//! The checker of transitions.

#![allow(clippy::unwrap_used, reason = "the test's own data is valid")]

mod violations;
