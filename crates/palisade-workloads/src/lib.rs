//! The workloads of this host: attached, enforced, opened, repaired and detached.
//!
//! [`workloads`] has the operations, by container runtimes ([`workloads::cni`]) and by name ([`workloads::named`]),
//! and the host side of each workload as a subsystem. Beside it: what the policy knows of them ([`registry`]), their
//! addresses ([`ipam`]), the interfaces of host endpoints ([`host_endpoints`]), who may do what ([`access`]), and the
//! runtime's configuration and plugin ([`cni_conf`], [`plugin_file`]).
//!
//! Promises: an interface is opened only after its policy is in the kernel; what is half done when the agent ends is
//! cleared away by the next; a failed attach leaves nothing.
//!
//! Never: computes policy, or writes it.

pub mod access;
pub mod cni_conf;
pub mod host_endpoints;
pub mod ipam;
pub mod plugin_file;
pub mod registry;
pub mod workloads;
