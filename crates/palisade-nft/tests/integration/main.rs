//! Rulesets as values: their meaning, plans between them, and what is refused.

#![allow(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod adopt;
mod masquerade;
mod meaning;
mod pairing;
mod proof;
mod redirect;
mod refuses;
mod shared;
mod support;
