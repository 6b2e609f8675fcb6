//! The worlds that are judged with real packets, as the lab can have them.
//!
//! Promises: a world is a function of the seed and its number; the interface towards the outside is the lab's.

use super::lab_flows::{UPLINK, is_node, node_addresses};
use super::report::ReplayCase;
use super::{GeneratorKind, cluster, flows_of};
use crate::lab;
use palisade_generators::{Dice, kubernetes, lowered};
use palisade_model::{Flow, FlowOrigin, State};
use std::net::IpAddr;

/// Flows drawn for one world: some of them are not sent.
const DRAWN: usize = 14;

/// The flows of a world, and of some the same with the node at one end; what the node sends is its own
/// stack's.
fn add_node_flows(dice: &mut Dice, flows: Vec<Flow>) -> Vec<Flow> {
    let mut all = Vec::new();
    for flow in flows {
        let node = node_addresses().find(|node| node.is_ipv4() == flow.source.is_ipv4());
        if let (true, Some(node)) = (dice.chance(20), node) {
            let mut twin = flow;
            if dice.chance(50) {
                twin.source = node;
            } else {
                twin.destination = node;
            }
            all.push(twin);
        }
        all.push(flow);
    }
    for flow in all.iter_mut().filter(|flow| is_node(flow.source)) {
        flow.origin = FlowOrigin::HostStack;
    }
    all
}

/// The flows of a world, and of some with one local end the same with another local endpoint at the other one: most pairs
/// of a world are not both local.
fn add_local_flows(dice: &mut Dice, state: &State, flows: Vec<Flow>) -> Vec<Flow> {
    let local = state.endpoints.values();
    let local = local.filter(|e| e.interface.is_some() && !e.is_host());
    let local: Vec<IpAddr> = local.flat_map(|e| e.addresses.iter().copied()).collect();
    let mut all = Vec::new();
    for flow in flows {
        let ends = [flow.source, flow.destination];
        let [from_local, to_local] = ends.map(|end| local.contains(&end));
        let others = local.iter().copied();
        let others = others.filter(|own| own.is_ipv4() == ends[0].is_ipv4() && !ends.contains(own));
        let others: Vec<IpAddr> = others.collect();
        let has_node = ends.into_iter().any(is_node);
        if from_local != to_local && !has_node && !others.is_empty() && dice.chance(50) {
            let mut twin = flow;
            let other = *dice.pick(&others);
            if from_local {
                twin.destination = other;
            } else {
                twin.source = other;
            }
            all.push(twin);
        }
        all.push(flow);
    }
    all
}

/// A world that was drawn, some of its endpoints local.
pub(super) struct GeneratedCase {
    pub(super) state: State,
    pub(super) flows: Vec<Flow>,
    pub(super) left: ReplayCase,
}

impl GeneratedCase {
    pub(super) fn generate(
        half: GeneratorKind,
        seed: u64,
        case: u64,
    ) -> Result<GeneratedCase, String> {
        let mut drawn = GeneratedCase::draw(half, seed, case)?;
        for endpoint in drawn.state.endpoints.values_mut().filter(|e| e.is_host()) {
            if endpoint.interface.as_deref() == Some(UPLINK) {
                endpoint.interface = Some(lab::OUTSIDE_INTERFACE.into());
            }
        }
        let mut dice = Dice::new(seed ^ 0x006c_6f63_616c, case);
        drawn.flows = add_local_flows(&mut dice, &drawn.state, drawn.flows);
        if let ReplayCase::State(_, flows) = &mut drawn.left {
            flows.clone_from(&drawn.flows);
        }
        Ok(drawn)
    }

    fn draw(half: GeneratorKind, seed: u64, case: u64) -> Result<GeneratedCase, String> {
        // Other worlds than those of the run without a kernel.
        let seed = seed ^ 0x6b65_726e_656c;
        match half {
            GeneratorKind::Kubernetes
            | GeneratorKind::PolicyApi
            | GeneratorKind::Cilium
            | GeneratorKind::Calico => {
                let make = match half {
                    GeneratorKind::Calico => {
                        kubernetes::ClusterWorld::generate_with_calico_policies
                    }
                    GeneratorKind::Cilium => {
                        kubernetes::ClusterWorld::generate_with_cilium_policies
                    }
                    GeneratorKind::PolicyApi => {
                        kubernetes::ClusterWorld::generate_with_cluster_policies
                    }
                    _ => kubernetes::ClusterWorld::generate,
                };
                let world = make(seed, case, DRAWN);
                let files = cluster::render_manifests(&world, seed, case, false);
                let mut state =
                    cluster::lower(&files).map_err(|f| format!("{}: {}", f.stage, f.detail))?;
                cluster::mark_local_endpoints(&mut Dice::new(seed, case), &mut state);
                let trials = world.trials.iter();
                let flows = trials
                    .map(|trial| cluster::model_flow(&trial.flow))
                    .collect();
                Ok(GeneratedCase {
                    state,
                    flows: add_node_flows(&mut Dice::new(seed ^ 0x6e6f_6465, case), flows),
                    left: ReplayCase::Cluster(world, files),
                })
            }
            GeneratorKind::Lowered => {
                let world = lowered::ModelWorld::generate(seed, case, DRAWN);
                let flows =
                    add_node_flows(&mut Dice::new(seed ^ 0x6e6f_6465, case), flows_of(&world));
                Ok(GeneratedCase {
                    state: world.state.clone(),
                    flows: flows.clone(),
                    left: ReplayCase::State(world.state, flows),
                })
            }
        }
    }
}
