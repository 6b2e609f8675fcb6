//! Random clusters with policies of every dialect, converted to each target: whatever is written gives the flows of
//! the world the same verdicts, and the same connections, alone and with all others.

use crate::manifests::{Input, assert_same_connections};
use crate::scenarios::add_calico_background;
use palisade_convert::TargetDialect;
use palisade_generators::kubernetes::ClusterWorld;
use palisade_generators::{cases, naive, seeded_cases};
use palisade_model::{Flow, FlowOrigin, L4, ObjectId, PolicyView, Protocol, State};
use palisade_oracle::{OracleOptions, PreparedState, Question};
use std::collections::BTreeMap;

/// Flows of each world.
const FLOWS: usize = 24;

/// What a run did, as it is printed.
#[derive(Default)]
struct Tally {
    worlds: u64,
    policies: u64,
    written: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
    verdicts: u64,
}

fn flow(of: &naive::NaiveFlow) -> Flow {
    let l4 = match (of.ports, of.icmp) {
        (Some((source, destination)), _) => L4::Ports {
            source,
            destination,
        },
        (None, Some((kind, code))) => L4::Icmp { kind, code },
        (None, None) => L4::None,
    };
    Flow {
        source: of.source,
        destination: of.destination,
        protocol: Protocol(of.protocol),
        l4,
        origin: FlowOrigin::Network,
    }
}

fn verdicts(state: &State, world: &ClusterWorld) -> Vec<(bool, bool)> {
    let prepared = PreparedState::new(state);
    let mut all = Vec::new();
    for trial in &world.trials {
        for view in PolicyView::BOTH {
            let options = OracleOptions {
                view,
                ..OracleOptions::default()
            };
            all.push(prepared.verdict(&Question::from(flow(&trial.flow)), &options));
        }
    }
    all
}

fn check_world(world: &ClusterWorld, has_calico: bool, what: &str, tally: &mut Tally) {
    let texts: Vec<String> = world.objects().iter().map(ToString::to_string).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|text| ("world", &**text)).collect();
    let mut input = Input::of(&files);
    if has_calico {
        add_calico_background(&mut input.state);
    }
    let before = verdicts(&input.state, world);
    tally.worlds += 1;
    tally.policies += input.sources.len() as u64;
    for target in TargetDialect::ALL {
        let name = target.policy_name();
        let converts = |id: &ObjectId| !target.has_kind(&id.kind);
        let all = input.convert(target, converts);
        let failed = all
            .unsayable
            .iter()
            .find(|of| of.reason.to_string().contains("internal check"));
        assert!(failed.is_none(), "{what}, {name}: {failed:?}");
        let refused = input.sources.iter().filter(|source| converts(source.id()));
        let refused =
            refused.filter(|source| all.objects.iter().all(|of| of.source != *source.id()));
        *tally.refused.entry(name).or_default() += refused.count() as u64;
        let mut sets = vec![all.objects.clone()];
        // Each by itself, among the others as they were.
        let mut written: Vec<&ObjectId> = all.objects.iter().map(|object| &object.source).collect();
        written.dedup();
        *tally.written.entry(name).or_default() += written.len() as u64;
        if written.len() > 1 {
            let of = |id: &ObjectId| input.convert(target, |other| other == id).objects;
            sets.extend(written.into_iter().map(of));
        }
        for set in sets.iter().filter(|set| !set.is_empty()) {
            let after = input.replaced(set);
            let found = verdicts(&after, world);
            assert_eq!(before, found, "{what}, {name}: {set:#?}");
            tally.verdicts += found.len() as u64;
            assert_same_connections(&input.state, &after, &format!("{what}, {name}"));
        }
    }
}

fn check_worlds(fixed: u64, generate: fn(u64, u64, usize) -> ClusterWorld) -> Tally {
    let mut tally = Tally::default();
    for (seed, case) in seeded_cases(fixed, cases(120)) {
        let world = generate(seed, case, FLOWS);
        // Of some worlds, among policies of Calico of every order.
        let what = format!("seed {seed}, case {case}");
        check_world(&world, case % 3 == 0, &what, &mut tally);
    }
    println!(
        "{} worlds, {} policies; written {:?}; refused {:?}; {} verdicts compared",
        tally.worlds, tally.policies, tally.written, tally.refused, tally.verdicts
    );
    tally
}

/// The number of policies that were written for a target.
fn written(tally: &Tally, target: TargetDialect) -> u64 {
    tally
        .written
        .get(target.policy_name())
        .copied()
        .unwrap_or(0)
}

#[test]
fn policies_of_kubernetes() {
    let tally = check_worlds(0x6b38, ClusterWorld::generate);
    if tally.worlds >= 100 {
        assert!(written(&tally, TargetDialect::Calico) > 100);
        assert!(written(&tally, TargetDialect::Cilium) > 30);
    }
}

#[test]
fn policies_of_the_network_policy_api() {
    let tally = check_worlds(0x616e70, ClusterWorld::generate_with_cluster_policies);
    if tally.worlds >= 100 {
        assert!(written(&tally, TargetDialect::ClusterNetworkPolicy) > 5);
        assert!(written(&tally, TargetDialect::Calico) > 30);
    }
}

#[test]
fn policies_of_cilium() {
    let tally = check_worlds(0x63696c, ClusterWorld::generate_with_cilium_policies);
    if tally.worlds >= 100 {
        assert!(written(&tally, TargetDialect::Kubernetes) > 0);
        assert!(written(&tally, TargetDialect::Calico) > 10);
    }
}

#[test]
fn policies_of_calico() {
    let tally = check_worlds(
        0x0063_616c_6963_6f,
        ClusterWorld::generate_with_calico_policies,
    );
    if tally.worlds >= 100 {
        assert!(written(&tally, TargetDialect::Kubernetes) > 5);
        assert!(written(&tally, TargetDialect::ClusterNetworkPolicy) > 5);
        assert!(written(&tally, TargetDialect::Cilium) > 5);
    }
}
