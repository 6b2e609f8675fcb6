//! The CNI plugin: what a container runtime asks, put to the agent.
//!
//! Promises: ADD returns when the endpoint's policy is in the kernel, and not before; DEL succeeds
//! while the agent is down and is carried out when it is back; every answer has the form of the
//! version that the configuration names.
//!
//! Never: touches an interface, an address or a policy itself; keeps state apart from the deletions
//! that wait; starts an async runtime.

mod agent;
mod answer;
mod error;
mod invocation;
mod network;
mod plugin;
mod queue;

pub use answer::{Version, answer};
pub use error::CniError;
pub use invocation::{Command, Invocation};
pub use network::Network;
pub use plugin::run;
