//! Random clusters of every dialect as states, and their flows as nodes record them.

use palisade_api::{
    ControllerRef, FlowIcmp, MonitorVerdict, PacketReason, RecordedDecision, RecordedEnd,
    RecordedFlow, RecordedFlowList,
};
use palisade_generators::kubernetes::ClusterWorld;
use palisade_generators::{Dice, manifest};
use palisade_model::{Endpoint, Family, L4, Owner, Protocol, State};
use palisade_oracle::PreparedState;
use std::net::IpAddr;

/// The node whose record it is.
pub(crate) const RECORDER: &str = "node-1";

/// A flow between addresses.
#[derive(Clone, Debug)]
pub(crate) struct TriedFlow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) l4: L4,
}

/// A state with flows through it.
pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) flows: Vec<TriedFlow>,
}

/// The world of a case; the dialect by the case.
pub(crate) fn world(seed: u64, case: u64, flows: usize) -> World {
    let generate = [
        ClusterWorld::generate,
        ClusterWorld::generate_with_cluster_policies,
        ClusterWorld::generate_with_cilium_policies,
        ClusterWorld::generate_with_calico_policies,
    ][case as usize % 4];
    let made = generate(seed, case, flows);
    let folder = tempfile::tempdir().unwrap();
    let files = manifest::render_plain(&made.objects());
    manifest::write(folder.path(), &files).unwrap();
    let mut state = palisade_source::load(&[folder.path()]).state;
    let mut dice = Dice::new(seed ^ 0x7072_6576, case);
    own(&mut dice, &mut state);
    let tried = made.trials.iter().map(|trial| {
        let flow = &trial.flow;
        TriedFlow {
            source: flow.source,
            destination: flow.destination,
            protocol: Protocol(flow.protocol),
            l4: match (flow.ports, flow.icmp) {
                // The port that stands for those that are not recorded.
                (Some((_, destination)), _) => L4::Ports {
                    source: 40_000,
                    destination,
                },
                (_, Some((kind, code))) => L4::Icmp { kind, code },
                _ => L4::None,
            },
        }
    });
    World {
        flows: tried.collect(),
        state,
    }
}

/// Some pods of a namespace get a controller in common.
fn own(dice: &mut Dice, state: &mut State) {
    for pod in state.endpoints.values_mut().filter(|e| !e.is_host()) {
        if dice.chance(60) {
            pod.metadata.owner = Some(Owner {
                kind: "StatefulSet".into(),
                name: (*dice.pick(&["one", "two"])).into(),
            });
        }
    }
}

/// The pods that an end stands for.
pub(crate) enum PlainEnd {
    Pods(Vec<Endpoint>),
    Address(IpAddr),
}

/// An address as a record has it, and what that stands for.
pub(crate) fn record_end(state: &State, address: IpAddr) -> (RecordedEnd, PlainEnd) {
    let prepared = PreparedState::new(state);
    let text = Some(address.to_string());
    if let Some(pod) = prepared.address_holder(address).filter(|e| !e.is_host()) {
        let labels = pod.labels.iter();
        let owner = pod.metadata.owner.as_ref();
        let siblings = state.endpoints.values().filter(|other| {
            other.id == pod.id
                || owner.is_some()
                    && other.id.namespace == pod.id.namespace
                    && other.metadata.owner == pod.metadata.owner
        });
        let is_live = |e: &&Endpoint| !e.is_host() && !e.uses_host_network() && !e.is_completed();
        let end = RecordedEnd {
            namespace: pod.id.namespace.as_ref().map(ToString::to_string),
            name: owner.is_none().then(|| pod.id.name.to_string()),
            controller: owner.map(|owner| ControllerRef {
                kind: owner.kind.clone(),
                name: owner.name.clone(),
            }),
            labels: labels
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
            ..RecordedEnd::default()
        };
        return (
            end,
            PlainEnd::Pods(siblings.filter(is_live).cloned().collect()),
        );
    }
    let mut nodes = state.nodes.values();
    let node = nodes.find(|node| node.addresses.contains(&address));
    let end = RecordedEnd {
        address: text,
        node: node.map(|node| node.name.to_string()),
        ..RecordedEnd::default()
    };
    (end, PlainEnd::Address(address))
}

/// The address of a family by which a pod is judged.
pub(crate) fn held_address(
    prepared: &[PreparedState<'_>; 2],
    pod: &Endpoint,
    family: Family,
) -> Option<IpAddr> {
    let mut own = pod.addresses.iter().filter(|a| Family::of(**a) == family);
    let is_held = |address: &&IpAddr| {
        let mut all = prepared.iter();
        all.all(|state| {
            state
                .address_holder(**address)
                .is_some_and(|e| e.id == pod.id)
        })
    };
    own.find(is_held).copied()
}

/// A record of one flow.
pub(crate) fn recorded(
    ends: [RecordedEnd; 2],
    flow: &TriedFlow,
    is_allowed: bool,
    minute: usize,
) -> RecordedFlow {
    let [source, destination] = ends;
    let (port, icmp) = match flow.l4 {
        L4::Ports { destination, .. } => (Some(destination), None),
        L4::Icmp { kind, code } => (None, Some(FlowIcmp { kind, code })),
        L4::None => (None, None),
    };
    RecordedFlow {
        source,
        destination,
        protocol: flow.protocol.into(),
        port,
        icmp,
        verdict: if is_allowed {
            MonitorVerdict::Allowed
        } else {
            MonitorVerdict::Denied
        },
        egress: Some(RecordedDecision {
            reason: PacketReason::Rule,
            rule: None,
            policies: Vec::new(),
            audit: None,
        }),
        ingress: None,
        first: "2026-11-01T00:00:00Z".to_owned(),
        last: format!("2026-11-02T00:{:02}:00Z", minute % 60),
        count: 3,
        traffic: None,
    }
}

/// The record of a node.
pub(crate) fn list(flows: Vec<RecordedFlow>) -> RecordedFlowList {
    RecordedFlowList {
        api_version: palisade_api::api_version(),
        node: RECORDER.to_owned(),
        since: Some("2026-11-01T00:00:00Z".to_owned()),
        flows,
        lost: 0,
        truncated: false,
    }
}
