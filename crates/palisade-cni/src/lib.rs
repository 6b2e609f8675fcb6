//! The CNI plugin: what a container runtime asks, put to the agent.
//!
//! Promises: ADD returns when the endpoint's policy is in the kernel, and not before; DEL succeeds
//! while the agent is down and is carried out when it is back; every answer has the form of the
//! version that the configuration names.
//!
//! Never: touches an interface, an address or a policy itself; keeps state apart from the deletions
//! that wait; starts an async runtime.

mod agent_client;
mod deletion_queue;
mod error;
mod invocation;
mod netconf;
mod plugin;
mod result;

pub use error::CniError;
pub use invocation::{CniCommand, Invocation};
pub use netconf::NetConf;
pub use plugin::run;
pub use result::{CniVersion, add_result};
