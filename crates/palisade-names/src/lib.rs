//! The addresses of domain names, as DNS answers have them.
//!
//! A [`NameCache`] takes in answers and gives network sets, one for each name, with which the engine computes policy
//! as with any other network set. Each address stays for the TTL of its answer, with a floor and a grace, and beyond
//! that as long as a flow uses it. What one workload learns is charged to that workload alone.
//!
//! Promises: a value, without IO and without a clock: times are parameters, in milliseconds since the Unix epoch, so
//! that they outlive a restart; the cost of an answer follows the answer, not the cache; every bound of
//! [`NameLimits`] holds after each call, and what a bound removes is counted.
//!
//! Never: decides who may teach, parses a message, or removes an address that a flow uses while another can go.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cache;
mod limits;
mod stored_name;

pub use cache::{AnsweredAddress, ConnectionLookup, NameAnswer, NameCache, NameCounts};
pub use limits::NameLimits;
pub use stored_name::{StoredAddress, StoredName};
