//! The network of this host: its interfaces, routes and sysctls, and the subsystems that keep them.
//!
//! [`network_driver`] is what the agent does to interfaces, namespaces and routes, as traits with the kernel's
//! implementation; tests have their own. [`forwarding`], [`node_routes`] and [`dns_redirect`] are subsystems. [`node_state`] is what
//! subsystems act through: the policy, forwarding, and what is known of the cluster's nodes.
//!
//! Promises: reads come before writes, and a removal is exact: what another program made or changed stays.
//!
//! Never: decides which workloads there are, or a verdict.

pub mod dns_redirect;
pub mod forwarding;
pub mod interfaces;
pub mod network_driver;
mod network_error;
pub mod node_routes;
pub mod node_state;
