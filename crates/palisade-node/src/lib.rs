//! What every part of the agent builds on: the contract of a subsystem, and what the agent knows of its node.
//!
//! [`subsystem`] has the shape of every piece of kernel state and what runs it. Beside it is what subsystems are told:
//! the changes of this host ([`host_changes`]), the nodes of the cluster ([`cluster_nodes`]) with the pools of this one
//! ([`node_pools`]), the records of workloads ([`workload_store`]); and what they run with: the clock, retries, rate
//! limits and the log of repairs.
//!
//! Promises: time comes from a [`clock::Clock`] that the caller passes; a file is replaced atomically.
//!
//! Never: reads or changes the kernel's network or policy, or knows a subsystem.

pub mod clock;
pub mod cluster_nodes;
pub mod host_changes;
pub mod node_pools;
pub mod rate_limit;
pub mod repairs;
mod retry_timer;
pub mod subsystem;
pub mod workload_store;
