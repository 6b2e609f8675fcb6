//! Numbers of nf_tables under their kernel names (`linux/netfilter/nf_tables.h`).
//!
//! Promises: a name missing from an old system's headers is still right here,
//! for the kernel never renumbers. Never: a name of this project's own.

mod expressions;
mod objects;

pub use expressions::*;
pub use objects::*;
