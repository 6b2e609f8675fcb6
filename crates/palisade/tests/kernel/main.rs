//! The real agent with real packets, in network namespaces: every test of this crate that needs root.
//!
//! They run side by side in one process, except those of [`alone`] and [`paired`]. Hosts and directories are of each
//! test; none changes the process: no variable, no working directory, and namespaces are entered by threads of their own.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: they run other programs, measure real time, and fail by panicking"
)]

mod agent;
mod alone;
mod audit;
mod budget;
mod calico;
mod chart;
mod cni;
mod cnitool;
mod config;
mod containerd;
mod counts;
mod edits;
mod encapsulation;
mod enforcement;
mod etcd;
mod failures;
mod flow_loss;
mod flow_program;
mod flows;
mod guest;
mod hairpin;
mod host;
mod host_policies;
mod host_stages;
mod hosts;
mod hubble;
mod hubble_relay;
mod kubernetes;
mod monitor;
mod names;
mod node;
mod nodes;
mod owner;
mod page;
mod paired;
mod plugin;
mod reject;
mod repair;
mod rights;
mod schemas;
mod service;
mod uninstall;
mod upgrade;
