//! Policy: NetworkPolicy.
//!
//! It is validated strictly: what the API server would reject is an error, and so is every unknown field.

pub(crate) mod fields;
mod ip_block;
pub(super) mod isolation;
pub(super) mod network_policy;
mod rule;
