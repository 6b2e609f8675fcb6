//! The reachability of a state: its workloads, the outside, and the traffic allowed between them.

use crate::end_classes::EndClassifier;
use crate::own_nodes::resolve_own_nodes;
use crate::pair_evaluator::{PairEvaluator, TrafficSetInterner};
use crate::reachability_matrix::ReachabilityMatrix;
use crate::rules::{StateRules, to_u32};
use crate::state_view::StateView;
use crate::workload::group_endpoints;
use palisade_api::WorkloadRef;
use palisade_model::{Endpoint, Family, RangeSet};
use palisade_oracle::{FlowEnd, PreparedState};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

/// A unit of reports (a workload, pod or pod address): its class in each family in which it exists.
#[derive(Clone, Debug)]
pub(crate) struct ReportUnit {
    pub(crate) classes: [Option<u32>; 2],
    /// The pod, if the unit is one of its addresses.
    pub(crate) pod: Option<WorkloadRef>,
}

/// An endpoint with the end classes of its addresses.
struct GroupMember {
    name: WorkloadRef,
    address_classes: [Vec<(Option<IpAddr>, u32)>; 2],
}

/// One unit for members that policy treats alike.
fn merged_unit(members: &[GroupMember]) -> ReportUnit {
    let class = |family: Family| {
        let mut points = members
            .iter()
            .flat_map(|m| &m.address_classes[family as usize]);
        points.next().map(|(_, class)| *class)
    };
    ReportUnit {
        classes: Family::BOTH.map(class),
        pod: None,
    }
}

impl GroupMember {
    /// One unit for each address.
    fn units(&self) -> impl Iterator<Item = (WorkloadRef, ReportUnit)> + '_ {
        let points = Family::BOTH.into_iter().flat_map(|family| {
            let points = self.address_classes[family as usize].iter();
            points.map(move |point| (family, *point))
        });
        points.map(|(family, (address, class))| {
            let name = WorkloadRef {
                address,
                ..self.name.clone()
            };
            let mut classes = [None, None];
            classes[family as usize] = Some(class);
            let part_of = Some(self.name.clone());
            (
                name,
                ReportUnit {
                    classes,
                    pod: part_of,
                },
            )
        })
    }
}

/// The workloads that are not reported as one unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct SplitWorkloads {
    /// Owners whose pods policy treats differently.
    owners: BTreeSet<WorkloadRef>,
    /// Pods whose addresses of one family policy treats differently.
    pods: BTreeSet<WorkloadRef>,
}

impl SplitWorkloads {
    /// The workloads that are split in either.
    pub(crate) fn union(mut self, other: SplitWorkloads) -> SplitWorkloads {
        self.owners.extend(other.owners);
        self.pods.extend(other.pods);
        self
    }
}

/// The reachability of one state.
pub(crate) struct Reachability {
    /// The allowed traffic between end classes, by family.
    pub(crate) matrices: [ReachabilityMatrix; 2],
    /// The outside, by family: address sets (which may enclose workload addresses) with their classes.
    pub(crate) outside: [Vec<(RangeSet<u128>, u32)>; 2],
    /// The addresses that workloads hold, by family.
    pub(crate) workload_addresses: [RangeSet<u128>; 2],
    groups: BTreeMap<WorkloadRef, Vec<GroupMember>>,
}

impl Reachability {
    pub(crate) fn new(state_view: StateView<'_>, sets: &Rc<TrafficSetInterner>) -> Self {
        let resolved = resolve_own_nodes(state_view.state);
        let state_view = StateView {
            state: &resolved,
            ..state_view
        };
        let StateView { state, .. } = state_view;
        let prepared = PreparedState::new(state);
        let rules = StateRules::new(state_view, &prepared);
        let mut ends = Family::BOTH.map(|family| EndClassifier::new(family, &prepared, &rules));
        let mut members = BTreeMap::new();
        for (name, endpoints) in group_endpoints(state) {
            let of_group = endpoints.into_iter();
            let of_group = of_group.map(|e| group_member(&mut ends, &prepared, &rules, e));
            members.insert(name, of_group.collect());
        }
        let matrices = Family::BOTH.map(|family| {
            let ends = &ends[family as usize];
            let judge = PairEvaluator {
                family,
                state,
                rules: &rules,
                classes: &ends.classes,
                sets,
                cache: Default::default(),
            };
            ReachabilityMatrix::new(&judge, ends, Rc::clone(sets))
        });
        let [v4, v6] = ends;
        let outside = |ends: &EndClassifier<'_>| {
            let outside = ends.outside.iter();
            let outside = outside.map(|(region, class)| (region.clone(), to_u32(*class)));
            outside.collect()
        };
        Reachability {
            outside: [outside(&v4), outside(&v6)],
            workload_addresses: [v4.workload_addresses, v6.workload_addresses],
            matrices,
            groups: members,
        }
    }

    /// The workloads that cannot be reported as one unit.
    pub(crate) fn find_split_workloads(&self) -> SplitWorkloads {
        let mut split = SplitWorkloads::default();
        for (name, members) in &self.groups {
            if self.are_alike(members) {
                continue;
            }
            split.owners.insert(name.clone());
            let pods = members
                .iter()
                .filter(|m| !self.are_alike(std::slice::from_ref(m)));
            split.pods.extend(pods.map(|m| m.name.clone()));
        }
        split
    }

    fn are_alike(&self, members: &[GroupMember]) -> bool {
        Family::BOTH.into_iter().all(|family| {
            let twins = &self.matrices[family as usize].representatives;
            let points = members
                .iter()
                .flat_map(|m| &m.address_classes[family as usize]);
            let mut twins = points.map(|(_, class)| twins[*class as usize]);
            let first = twins.next();
            twins.all(|twin| Some(twin) == first)
        })
    }

    /// The report units, given the workloads to split.
    pub(crate) fn units(&self, split: &SplitWorkloads) -> BTreeMap<WorkloadRef, ReportUnit> {
        let mut units = BTreeMap::new();
        for (name, members) in &self.groups {
            if !split.owners.contains(name) {
                units.insert(name.clone(), merged_unit(members));
                continue;
            }
            for member in members {
                if split.pods.contains(&member.name) {
                    units.extend(member.units());
                } else {
                    let unit = merged_unit(std::slice::from_ref(member));
                    units.insert(member.name.clone(), unit);
                }
            }
        }
        units
    }

    /// Collects the workloads that `wanted` selects, by their own name or that of one of their pods.
    pub(crate) fn collect_named(
        &self,
        wanted: &dyn Fn(&WorkloadRef) -> bool,
        found: &mut BTreeSet<WorkloadRef>,
    ) {
        for (name, members) in &self.groups {
            let pods = members.iter().map(|member| &member.name);
            let mut pods = pods.filter(|pod| wanted(pod)).peekable();
            if wanted(name) || pods.peek().is_some() {
                found.insert(name.clone());
                if wanted(name) {
                    found.extend(members.iter().map(|m| m.name.clone()))
                } else {
                    found.extend(pods.cloned())
                }
            }
        }
    }
}

fn group_member<'a>(
    ends: &mut [EndClassifier<'a>; 2],
    prepared: &PreparedState<'a>,
    rules: &StateRules<'a>,
    endpoint: &'a Endpoint,
) -> GroupMember {
    GroupMember {
        name: WorkloadRef::from_endpoint(endpoint),
        address_classes: classify_endpoint(ends, prepared, rules, endpoint),
    }
}

/// The class of each address that an endpoint holds, by family; if its addresses are unknown, of the endpoint
/// itself.
pub(crate) fn classify_endpoint<'a>(
    ends: &mut [EndClassifier<'a>; 2],
    prepared: &PreparedState<'a>,
    rules: &StateRules<'a>,
    endpoint: &'a Endpoint,
) -> [Vec<(Option<IpAddr>, u32)>; 2] {
    let mut points = [Vec::new(), Vec::new()];
    for family in Family::BOTH {
        let ends = &mut ends[family as usize];
        let points = &mut points[family as usize];
        if endpoint.addresses.is_empty() {
            let end = FlowEnd::Endpoint(endpoint.id.clone());
            points.push((None, to_u32(ends.classify(end, prepared, rules))));
        }
        let own: BTreeSet<IpAddr> = endpoint.addresses.iter().copied().collect();
        let own = own.into_iter().filter(|a| Family::of(*a) == family);
        for address in own {
            let holder = prepared.address_holder(address);
            if holder.is_some_and(|holder| holder.id == endpoint.id) {
                let end = FlowEnd::Address(address);
                let class = ends.classify(end, prepared, rules);
                points.push((Some(address), to_u32(class)));
            }
        }
    }
    points
}
