//! What hosts let pass that they forward, where a policy judges it, and what a change opens and closes there.
//!
//! Promises: exact for every pair of addresses, whoever holds them, as packets have them after destination NAT; an
//! interface and direction at which no policy judges what is forwarded lets everything pass, and is not listed. Never:
//! joins the judgements of two interfaces, or of a workload beyond them.

use crate::connection_end::IpBlocks;
use crate::host_connections::{AddressRangeList, ranges};
use crate::host_evaluator::HostEvaluator;
use crate::host_rows::{HostInStates, HostRowDiff, RenderTraffic, rows_of_change, rows_of_state};
use crate::state_view::StateView;
use crate::traffic::TrafficSet;
use palisade_api::{ForwardedConnectionReport, TrafficReport};
use palisade_model::{Direction, FailsafePorts, Family, FlowOrigin, L4, Protocol, RangeSet, Str};
use palisade_oracle::{FlowEnd, HostPath, Question};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// What an interface of a host lets pass of what the host forwards.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForwardedConnection {
    /// The node of the host.
    pub node: Str,
    /// The interface; `*` for every one that no other host endpoint of the node governs.
    pub interface: Str,
    /// Ingress: the interface is that by which it arrives. Egress: by which it leaves.
    pub direction: Direction,
    /// The addresses of the source.
    pub sources: IpBlocks,
    /// The addresses of the destination.
    pub destinations: IpBlocks,
    /// The allowed traffic; never empty.
    pub connections: Rc<TrafficSet>,
}

impl ForwardedConnection {
    /// The connection for output.
    pub fn report(&self) -> ForwardedConnectionReport {
        let texts = |blocks: &IpBlocks| blocks.0.iter().map(ToString::to_string).collect();
        ForwardedConnectionReport {
            node: self.node.to_string(),
            interface: self.interface.to_string(),
            direction: self.direction,
            sources: texts(&self.sources),
            destinations: texts(&self.destinations),
            connections: TrafficReport::from(&*self.connections),
        }
    }
}

/// What a change opens and closes of what hosts forward.
pub type ForwardedDiff = HostRowDiff<ForwardedConnection>;

/// Everything that hosts let pass of what they forward, by node, interface and direction, where a policy judges it.
pub fn forwarded_connections<'a>(
    state: impl Into<StateView<'a>>,
    failsafe: &FailsafePorts,
) -> Vec<ForwardedConnection> {
    let mut rows = rows_of_state(state.into(), failsafe, rows_of_host);
    rows.sort();
    rows
}

/// What a change from `old` to `new` opens and closes.
pub fn forwarded_diff<'a>(
    old: impl Into<StateView<'a>>,
    new: impl Into<StateView<'a>>,
    failsafe: &FailsafePorts,
) -> ForwardedDiff {
    let mut diff = rows_of_change(old.into(), new.into(), failsafe, rows_of_host);
    diff.opened.sort();
    diff.closed.sort();
    diff
}

/// The rows of a host, at each interface and direction at which a policy judges what is forwarded.
fn rows_of_host(host: &HostInStates<'_>, render: RenderTraffic<'_>) -> Vec<ForwardedConnection> {
    let judged: Vec<(&Str, Direction)> = host
        .interfaces
        .iter()
        .flat_map(|interface| Direction::BOTH.map(|direction| (interface, direction)))
        .filter(|(interface, direction)| {
            let mut judges = host.judges.iter();
            judges.any(|judge| judges_forwarded(judge, interface, *direction))
        })
        .collect();
    if judged.is_empty() {
        return Vec::new();
    }
    let starts = host.address_range_starts();
    let mut rows = Vec::new();
    for family in Family::BOTH {
        let classes = AddressClasses::new(host.node, host.judges, &starts, family);
        for (interface, direction) in &judged {
            rows.extend(classes.rows(host.node, interface, *direction, host.judges, render));
        }
    }
    rows
}

/// Whether a policy judges what is forwarded by an interface in a direction.
fn judges_forwarded(judge: &HostEvaluator<'_>, interface: &str, direction: Direction) -> bool {
    let Some(endpoint) = judge.host_endpoint(interface) else {
        return false;
    };
    let path = HostPath {
        is_forwarded: true,
        ..HostPath::default()
    };
    let stages = path.stages(direction);
    let labels = judge.state().endpoint_labels(endpoint);
    let mut policies = judge.state().policies.values();
    policies.any(|policy| {
        let list = match direction {
            Direction::Ingress => &policy.ingress,
            Direction::Egress => &policy.egress,
        };
        let has_stage = stages.iter().any(|stage| policy.has_stage(*stage));
        list.is_some() && has_stage && policy.subject.matches(&labels)
    })
}

/// The addresses of one family, those together that every policy treats alike.
struct AddressClasses(Vec<(IpAddr, AddressRangeList)>);

impl AddressClasses {
    fn new(
        node: &Str,
        judges: &[HostEvaluator<'_>],
        starts: &BTreeSet<IpAddr>,
        family: Family,
    ) -> AddressClasses {
        let mut classes: BTreeMap<Vec<Vec<u32>>, (IpAddr, AddressRangeList)> = BTreeMap::new();
        for (address, range) in ranges(starts, family) {
            let signature = judges.iter().map(|judge| judge.signature(node, address));
            let class = classes.entry(signature.collect());
            let (_, ranges) = class.or_insert_with(|| (address, Vec::new()));
            ranges.push(range);
        }
        AddressClasses(classes.into_values().collect())
    }

    /// The rows of an interface and direction: one for the destinations to which the same traffic passes from the same
    /// sources.
    fn rows(
        &self,
        node: &Str,
        interface: &Str,
        direction: Direction,
        judges: &[HostEvaluator<'_>],
        render: RenderTraffic<'_>,
    ) -> Vec<ForwardedConnection> {
        let mut rows: BTreeMap<(TrafficSet, Vec<usize>), Vec<usize>> = BTreeMap::new();
        for (to, (destination, _)) in self.0.iter().enumerate() {
            let mut sources: BTreeMap<TrafficSet, Vec<usize>> = BTreeMap::new();
            for (from, (source, _)) in self.0.iter().enumerate() {
                let sets = judges.iter().map(|judge| {
                    let question = question(*source, *destination, interface, direction);
                    judge.traffic(question, direction, &|end| judge.endpoint_at(end))
                });
                let set = render(&sets.collect::<Vec<_>>());
                if !set.is_empty() {
                    sources.entry(set).or_default().push(from);
                }
            }
            for (set, from) in sources {
                rows.entry((set, from)).or_default().push(to);
            }
        }
        let rows = rows
            .into_iter()
            .map(|((set, from), to)| ForwardedConnection {
                node: node.clone(),
                interface: interface.clone(),
                direction,
                sources: self.blocks(&from),
                destinations: self.blocks(&to),
                connections: Rc::new(set),
            });
        rows.collect()
    }

    /// The addresses of some classes.
    fn blocks(&self, classes: &[usize]) -> IpBlocks {
        let mut found = [(); 2].map(|()| AddressRangeList::new());
        for (address, ranges) in classes.iter().filter_map(|at| self.0.get(*at)) {
            found[Family::of(*address) as usize].extend(ranges);
        }
        let none = [(); 2].map(|()| RangeSet::default());
        IpBlocks::from_address_sets(&found.map(RangeSet::from_iter), &none)
    }
}

/// A packet between two addresses that the host forwards by an interface.
fn question(
    source: IpAddr,
    destination: IpAddr,
    interface: &Str,
    direction: Direction,
) -> Question {
    let at = Some(interface.clone());
    let (input, output) = match direction {
        Direction::Ingress => (at, None),
        Direction::Egress => (None, at),
    };
    Question {
        source: FlowEnd::Address(source),
        destination: FlowEnd::Address(destination),
        family: Family::of(source),
        protocol: Protocol::TCP,
        l4: L4::None,
        origin: FlowOrigin::Network,
        path: HostPath {
            input,
            output,
            is_forwarded: true,
            ..HostPath::default()
        },
    }
}
