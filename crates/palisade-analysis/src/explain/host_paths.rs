//! The interfaces of hosts that a flow may cross, and what is judged there.
//!
//! Promises: a flow is judged at the interfaces that the query names, or at every interface with a host endpoint by
//! which it may enter or leave the host of one of its ends. Never: judges what stays within one host, unless the query
//! names an interface.

use super::host_ends::host_endpoints;
use super::resolve::{FlowEndError, QueryFlow};
use palisade_api::ExplainQuery;
use palisade_model::{Endpoint, FailsafePorts, State, Str};
use palisade_oracle::{
    DecisionReason, FlowEnd, HostJudgement, HostPath, OracleOptions, PreparedState, Question,
};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// What is at an end of a flow, as far as interfaces of hosts are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EndPlace {
    /// A host, by the name of its node.
    Host(Str),
    /// A workload, with the node that it runs on, if that is known.
    Workload(Option<Str>),
    /// Neither.
    Outside,
}

impl EndPlace {
    fn of(prepared: &PreparedState<'_>, end: &FlowEnd) -> EndPlace {
        let state = prepared.state();
        if let Some(endpoint) = prepared.endpoint_at(end) {
            return match (endpoint.is_host(), &endpoint.node) {
                (true, Some(node)) => EndPlace::Host(node.clone()),
                (true, None) => EndPlace::Outside,
                (false, _) => {
                    EndPlace::Workload(endpoint.own_node(state.host_node.as_ref()).cloned())
                }
            };
        }
        let FlowEnd::Address(address) = end else {
            return EndPlace::Outside;
        };
        let mut nodes = state.nodes.values();
        let node = nodes.find(|node| node.addresses.contains(address));
        let host_endpoint = || {
            let mut all = state
                .endpoints
                .values()
                .filter(|endpoint| endpoint.is_host());
            let endpoint = all.find(|endpoint| {
                let set = state.network_sets.get(&endpoint.id);
                set.is_some_and(|set| set.nets.iter().any(|net| net.contains(*address)))
            });
            endpoint.and_then(|endpoint| endpoint.node.as_ref())
        };
        let name = node.map(|node| &node.name).or_else(host_endpoint);
        name.map_or(EndPlace::Outside, |name| EndPlace::Host(name.clone()))
    }

    fn node(&self) -> Option<&Str> {
        match self {
            EndPlace::Host(node) => Some(node),
            EndPlace::Workload(node) => node.as_ref(),
            EndPlace::Outside => None,
        }
    }
}

/// The node whose own end this is, if it is a host's.
pub(super) fn host_at(prepared: &PreparedState<'_>, end: &FlowEnd) -> Option<Str> {
    match EndPlace::of(prepared, end) {
        EndPlace::Host(node) => Some(node),
        EndPlace::Workload(_) | EndPlace::Outside => None,
    }
}

/// Whether the source is the host on which the destination, a workload, runs: then the host's own stack sends it.
pub(super) fn is_from_own_node(prepared: &PreparedState<'_>, question: &Question) -> bool {
    let source = EndPlace::of(prepared, &question.source);
    let destination = EndPlace::of(prepared, &question.destination);
    match (source, destination) {
        (EndPlace::Host(host), EndPlace::Workload(node)) => node == Some(host),
        _ => false,
    }
}

/// The interfaces of one host that a flow crosses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Crossing {
    node: Str,
    path: HostPath,
}

/// The state in which a host endpoint that is known by its addresses has an interface: `[ADDRESS]`, the one with the
/// first address. Its name is known to the host alone.
pub(crate) fn name_interfaces(state: &State) -> Cow<'_, State> {
    let named = |endpoint: &Endpoint| {
        let is_unnamed = endpoint.is_host() && endpoint.interface.is_none();
        let set = state
            .network_sets
            .get(&endpoint.id)
            .filter(|_| is_unnamed)?;
        let first = set.nets.iter().find(|net| net.is_host())?;
        Some(Str::from(format!("[{}]", first.address())))
    };
    if !state
        .endpoints
        .values()
        .any(|endpoint| named(endpoint).is_some())
    {
        return Cow::Borrowed(state);
    }
    let mut with_names = state.clone();
    for endpoint in with_names.endpoints.values_mut() {
        if let Some(name) = named(endpoint) {
            endpoint.interface = Some(name);
        }
    }
    Cow::Owned(with_names)
}

/// What to know where the query names an interface, but a host endpoint is known by its addresses alone.
pub(super) fn unnamed_interface_note(state: &State, query: &ExplainQuery) -> Option<String> {
    let named = [&query.input_interface, &query.output_interface];
    named.into_iter().flatten().next()?;
    let all = state
        .endpoints
        .values()
        .filter(|endpoint| endpoint.is_host());
    let mut interfaces = all.filter_map(|endpoint| Some((endpoint, endpoint.interface.as_ref()?)));
    let (endpoint, address) = interfaces.find(|(_, name)| name.starts_with('['))?;
    Some(format!(
        "{} governs the interface with an address, whose name manifests do not tell: if it is the one that you \
         named, name it as {address}",
        endpoint.id
    ))
}

/// What a host decides at one of its interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InterfaceJudgement {
    pub(super) node: Str,
    pub(super) judgement: HostJudgement,
}

/// Judges flows at interfaces of hosts.
pub(super) struct HostJudge<'a> {
    state: &'a State,
    query: &'a ExplainQuery,
    options: &'a OracleOptions,
    failsafe: &'a FailsafePorts,
}

impl<'a> HostJudge<'a> {
    pub(super) fn new(
        state: &'a State,
        query: &'a ExplainQuery,
        options: &'a OracleOptions,
        failsafe: &'a FailsafePorts,
    ) -> Self {
        HostJudge {
            state,
            query,
            options,
            failsafe,
        }
    }

    /// What hosts decide about a flow, for each way by which it may enter and leave them.
    ///
    /// # Errors
    /// If the query names an interface that the flow cannot cross, or no host.
    pub(super) fn judge(
        &self,
        prepared: &PreparedState<'_>,
        flow: &QueryFlow,
    ) -> Result<Vec<Vec<InterfaceJudgement>>, FlowEndError> {
        let ways = self.ways(prepared, &flow.question)?;
        let judged = ways.into_iter().map(|way| {
            let of_crossings = way
                .iter()
                .flat_map(|crossing| self.judge_crossing(prepared, crossing, &flow.question));
            of_crossings.collect()
        });
        Ok(judged.collect())
    }

    /// The crossings of each way, in the order of the packet.
    fn ways(
        &self,
        prepared: &PreparedState<'_>,
        question: &Question,
    ) -> Result<Vec<Vec<Crossing>>, FlowEndError> {
        let source = EndPlace::of(prepared, &question.source);
        let destination = EndPlace::of(prepared, &question.destination);
        let (input, output) = (&self.query.input_interface, &self.query.output_interface);
        let is_outside = [&source, &destination].map(|end| *end == EndPlace::Outside);
        if is_outside == [true, true] {
            if input.is_none() && output.is_none() && self.query.node.is_none() {
                return Ok(vec![Vec::new()]);
            }
            let node = self.node(None)?;
            let mut ways = Vec::new();
            for input in self.interfaces(&node, input.as_deref()) {
                for output in self.interfaces(&node, output.as_deref()) {
                    let path = HostPath {
                        input: input.clone(),
                        output,
                        is_forwarded: true,
                        pre_dnat: question.path.pre_dnat,
                    };
                    let node = node.clone();
                    ways.push(vec![Crossing { node, path }]);
                }
            }
            return Ok(ways);
        }
        if output.is_some() && source == EndPlace::Outside {
            return Err(FlowEndError::NotCrossed {
                flag: "--output-interface",
                reason: "the source is neither a host nor a workload",
            });
        }
        if input.is_some() && destination == EndPlace::Outside {
            return Err(FlowEndError::NotCrossed {
                flag: "--input-interface",
                reason: "the destination is neither a host nor a workload",
            });
        }
        let is_within = source.node().is_some() && source.node() == destination.node();
        let mut ways: Vec<Vec<Crossing>> = vec![Vec::new()];
        let sides = [(&source, output, false), (&destination, input, true)];
        for (end, named, is_input) in sides {
            let node = match (end, named) {
                (EndPlace::Outside, _) => continue,
                (_, None) if is_within => continue,
                (_, None) => match end.node() {
                    Some(node) => node.clone(),
                    None => continue,
                },
                (end, Some(_)) => self.node(end.node())?,
            };
            let is_forwarded = matches!(end, EndPlace::Workload(_));
            let interfaces = self.interfaces(&node, named.as_deref());
            let crossing = |way: &Vec<Crossing>, interface: &Option<Str>| {
                let [input, output] = if is_input {
                    [interface.clone(), None]
                } else {
                    [None, interface.clone()]
                };
                let path = HostPath {
                    input,
                    output,
                    is_forwarded,
                    pre_dnat: question.path.pre_dnat.filter(|_| is_input),
                };
                let node = node.clone();
                let mut way = way.clone();
                way.push(Crossing { node, path });
                way
            };
            let extended = ways.iter();
            ways = extended
                .flat_map(|way| interfaces.iter().map(move |at| crossing(way, at)))
                .collect();
        }
        Ok(ways)
    }

    /// The host of the end, else the one that the query names, else the only one that has a host endpoint.
    fn node(&self, of_end: Option<&Str>) -> Result<Str, FlowEndError> {
        if let Some(node) = of_end.map(|node| &**node).or(self.query.node.as_deref()) {
            return Ok(node.into());
        }
        let endpoints = self.state.endpoints.values().filter(|e| e.is_host());
        let nodes: BTreeSet<&Str> = endpoints.filter_map(|e| e.node.as_ref()).collect();
        match (nodes.first(), nodes.len()) {
            (Some(node), 1) => Ok((*node).clone()),
            _ => Err(FlowEndError::UnknownNode {
                nodes: nodes.into_iter().map(ToString::to_string).collect(),
            }),
        }
    }

    /// The named interface; else each that a host endpoint of the node names, and any other one as `*` if a host
    /// endpoint governs these. `None` where no interface is judged.
    fn interfaces(&self, node: &str, named: Option<&str>) -> Vec<Option<Str>> {
        if let Some(name) = named {
            return vec![Some(name.into())];
        }
        let all = host_endpoints(self.state, node);
        let names: BTreeSet<&Str> = all.filter_map(|e| e.interface.as_ref()).collect();
        if names.is_empty() {
            vec![None]
        } else {
            names.into_iter().cloned().map(Some).collect()
        }
    }

    fn judge_crossing(
        &self,
        prepared: &PreparedState<'_>,
        crossing: &Crossing,
        question: &Question,
    ) -> Vec<InterfaceJudgement> {
        let is_other = |endpoint: &Endpoint| {
            endpoint.is_host() && endpoint.node.as_deref() != Some(&*crossing.node)
        };
        let question = Question {
            path: crossing.path.clone(),
            ..question.clone()
        };
        let answer = if self.state.endpoints.values().any(is_other) {
            // Interfaces of several hosts have the same names: a host knows only its own.
            let mut node_state = self.state.clone();
            node_state
                .endpoints
                .retain(|_, endpoint| !is_other(endpoint));
            node_state.host_node = Some(crossing.node.clone());
            let prepared = PreparedState::new(&node_state).with_failsafe(self.failsafe.clone());
            prepared.judge(&question, self.options)
        } else if self.state.host_node.as_ref() == Some(&crossing.node) {
            prepared.judge(&question, self.options)
        } else {
            let prepared = prepared.clone().with_host_node(&crossing.node);
            prepared.judge(&question, self.options)
        };
        let is_named = |judged: &HostJudgement| {
            let (input, output) = (&self.query.input_interface, &self.query.output_interface);
            [input, output]
                .into_iter()
                .flatten()
                .any(|name| **name == *judged.interface)
        };
        let judged = answer.host.into_iter();
        judged
            .filter(|at| {
                // What every other interface of the host does as well is not worth a line.
                at.judgement.decided_by != DecisionReason::NoForwardPolicy || is_named(at)
            })
            .map(|judgement| InterfaceJudgement {
                node: crossing.node.clone(),
                judgement,
            })
            .collect()
    }
}
