//! The rows of every host in one state, or of a change from one state to another.
//!
//! Promises: a host is looked at in each state by its own host endpoints only; a change opens what only the second state
//! allows, and closes what only the first one does. Never: decides what a row is.

use crate::host_evaluator::HostEvaluator;
use crate::host_states::{HostState, HostStates, address_range_starts};
use crate::state_view::StateView;
use crate::traffic::TrafficSet;
use palisade_model::{FailsafePorts, State, Str};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What becomes a row's traffic, of what each state allows.
pub(crate) type RenderTraffic<'a> = &'a dyn Fn(&[TrafficSet]) -> TrafficSet;

/// What the only state allows.
fn allowed_traffic(sets: &[TrafficSet]) -> TrafficSet {
    sets.first().cloned().unwrap_or_default()
}

/// Lists what only the second state allows, and what only the first one does.
fn list_changes<T>(list: impl Fn(RenderTraffic<'_>) -> Vec<T>) -> [Vec<T>; 2] {
    [(1, 0), (0, 1)].map(|(at, other)| {
        list(&|sets| match (sets.get(at), sets.get(other)) {
            (Some(listed), Some(excluded)) => listed.subtract(excluded),
            _ => TrafficSet::none(),
        })
    })
}

/// What a change opens and closes at hosts, as rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRowDiff<R> {
    /// What only the new state allows.
    pub opened: Vec<R>,
    /// What only the old state allows.
    pub closed: Vec<R>,
}

impl<R> Default for HostRowDiff<R> {
    fn default() -> Self {
        HostRowDiff {
            opened: Vec::new(),
            closed: Vec::new(),
        }
    }
}

/// One host in each of the states.
pub(crate) struct HostInStates<'a> {
    pub(crate) node: &'a Str,
    pub(crate) judges: &'a [HostEvaluator<'a>],
    /// The interfaces that a host endpoint governs in any of them.
    pub(crate) interfaces: BTreeSet<Str>,
    failsafe: &'a FailsafePorts,
}

impl HostInStates<'_> {
    /// What the host sees of each state.
    pub(crate) fn states(&self) -> Vec<&State> {
        self.judges.iter().map(HostEvaluator::state).collect()
    }

    /// See [`address_range_starts`].
    pub(crate) fn address_range_starts(&self) -> BTreeSet<IpAddr> {
        address_range_starts(&self.states(), self.failsafe)
    }
}

/// The rows of one host, whose traffic is made from that of each state.
pub(crate) type HostRows<R> = fn(&HostInStates<'_>, RenderTraffic<'_>) -> Vec<R>;

/// The rows of every host in a state.
pub(crate) fn rows_of_state<R>(
    state: StateView<'_>,
    failsafe: &FailsafePorts,
    rows: HostRows<R>,
) -> Vec<R> {
    list(&[HostStates::new(state)], failsafe, rows, &allowed_traffic)
}

/// The rows that a change from `old` to `new` opens and closes.
pub(crate) fn rows_of_change<R>(
    old: StateView<'_>,
    new: StateView<'_>,
    failsafe: &FailsafePorts,
    rows: HostRows<R>,
) -> HostRowDiff<R> {
    let states = [HostStates::new(old), HostStates::new(new)];
    let [opened, closed] = list_changes(|render| list(&states, failsafe, rows, render));
    HostRowDiff { opened, closed }
}

fn list<R>(
    states: &[HostStates<'_>],
    failsafe: &FailsafePorts,
    rows: HostRows<R>,
    render: RenderTraffic<'_>,
) -> Vec<R> {
    let nodes: BTreeSet<&Str> = states.iter().flat_map(|state| state.hosts.keys()).collect();
    let mut all = Vec::new();
    for node in nodes {
        let hosts: Vec<HostState<'_>> = states.iter().map(|state| state.of_node(node)).collect();
        let judges: Vec<HostEvaluator<'_>> = hosts
            .iter()
            .map(|host| HostEvaluator::new(host, failsafe))
            .collect();
        let host = HostInStates {
            node,
            judges: &judges,
            interfaces: hosts.iter().flat_map(HostState::interfaces).collect(),
            failsafe,
        };
        all.extend(rows(&host, render));
    }
    all
}
