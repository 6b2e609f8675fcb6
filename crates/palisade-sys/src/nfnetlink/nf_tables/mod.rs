//! Numbers of nf_tables under their kernel names (`linux/netfilter/nf_tables.h`).
//!
//! Promises: a constant missing from an old system's headers is defined here; the kernel never renumbers
//! them. Never: a name of this project's own.

mod expressions;
mod objects;

pub use expressions::*;
pub use objects::*;
