//! The agent: one process per host that keeps the kernel enforcing what the source says.
//!
//! [`run::run`] brings it up in order. One thread, the [`core`], owns engine, dataplane and
//! workloads; sources, watchers and the API talk to it by messages. It promises that a crash, a
//! restart or a refused write never opens what was closed, and it decides nothing about policy
//! itself.

pub mod addresses;
pub mod attach;
pub mod attaching;
mod budget;
pub mod cleanup;
pub mod clock;
pub mod cni;
pub mod cni_conf;
pub mod config;
pub mod core;
pub mod counts;
pub mod deletions;
pub mod dry;
pub mod explain;
pub mod host;
pub mod http;
pub mod ipam;
pub mod log;
pub mod manager;
pub mod metrics;
pub mod monitor;
pub mod queue;
pub mod record;
pub mod registry;
pub mod reload;
pub mod report;
pub mod rights;
pub mod run;
pub mod service;
pub mod settings;
mod snapshots;
pub mod startup;
pub mod steps;
pub mod supervise;
pub mod watchers;
pub mod workloads;
