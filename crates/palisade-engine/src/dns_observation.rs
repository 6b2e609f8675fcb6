//! Redirection of the DNS of workloads to whose policies its answers matter, and that no rules decide by name; and the
//! verdict of DNS that is redirected and that nobody reads.
//!
//! Promises: nothing is redirected that is not allowed, and no verdict of queries that are read changes. Never: decides
//! whose DNS is observed.

use crate::faults::EngineFault;
use palisade_model::{Policy, PortRange, Protocol, UnreadDnsAction};
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

/// The program with the verdict of this action for DNS that rules with names judge and nobody reads.
pub(crate) fn allow_unread_dns(program: Program, action: UnreadDnsAction) -> Program {
    let allows = action == UnreadDnsAction::Allow || EngineFault::UnreadDnsAllowed.is_injected();
    if allows {
        program.with_unread_dns_allowed()
    } else {
        program
    }
}
