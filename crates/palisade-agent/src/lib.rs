//! The agent: one process per host that makes the kernel enforce the policy of the source.
//!
//! [`run::run`] starts it. One thread, the [`core`], owns engine, dataplane and workloads; sources,
//! watchers and the API send messages to it.
//!
//! Promises: a crash, a restart or a failed write never opens what was closed.
//!
//! Never: decides policy, or holds the state of a subsystem.

pub mod cleanup;
mod cluster_status;
pub mod core;
pub mod core_queue;
pub mod dns_proxy;
pub mod driver;
pub mod dry_run;
pub mod flow_outputs;
mod flow_recording;
pub mod http;
mod hubble;
mod hubble_peers;

pub mod leftovers;
pub mod log;
mod name_threads;
pub mod options;
mod page;
mod page_cache;
pub mod proxy_process;
pub mod reload;
pub mod run;
pub mod run_error;
pub mod service;
pub mod service_manager;
mod service_thread;
mod sources;
pub mod startup;
mod subsystems;
pub mod supervisor;
pub mod watchers;
