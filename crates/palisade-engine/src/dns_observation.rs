//! Redirection of the DNS of workloads to whose policies its answers matter, and that no rules decide by name.
//!
//! Promises: no verdict changes, and nothing is redirected that is not allowed. Never: decides whose DNS is observed.

use crate::faults::EngineFault;
use palisade_model::{Policy, PortRange, Protocol};
use palisade_tables::Program;

/// The most elements that the observation adds to a program: for both protocols a default, the port, and the ranges
/// into which it divides one.
pub(crate) const MAX_OBSERVATION_ELEMENTS: usize = 8;

/// The program with a redirect of the DNS that it allows, without names.
pub(crate) fn observe_dns(program: Program) -> Program {
    if EngineFault::ObservedDnsNotRedirected.is_injected() {
        return program;
    }
    let ports = if EngineFault::DnsObservedAtEveryPort.is_injected() {
        PortRange::ALL
    } else {
        PortRange::single(Policy::DNS_PORT)
    };
    program.with_observed_dns(&[Protocol::TCP, Protocol::UDP], ports)
}
