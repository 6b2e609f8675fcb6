//! The CNI plugin: passes the requests of a container runtime to the agent.
//!
//! Promises: ADD returns only after the endpoint's policy is in the kernel; DEL succeeds while the agent is
//! down and is executed when it is back; every result has the form of the version in the configuration.
//!
//! Never: changes an interface, an address or a policy itself; keeps state other than the queue of deletions;
//! starts an async runtime.

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
