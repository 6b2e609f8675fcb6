//! Random clusters with policies of every dialect, converted to each target: whatever is written gives the flows of
//! the world the same verdicts, and the same connections, alone and with all others.

use crate::manifests::{Input, assert_same_connections};
use crate::scenarios::add_calico_background;
use palisade_convert::TargetDialect;
use palisade_generators::kubernetes::ClusterWorld;
use palisade_generators::{cases, naive, seeded_cases};
use palisade_model::{Flow, FlowOrigin, HairpinAction, L4, ObjectId, PolicyView, Protocol, State};
use palisade_oracle::{OracleOptions, PreparedState, Question};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Flows of each world.
const FLOWS: usize = 24;

/// What a run did, as it is printed.
#[derive(Default)]
struct Tally {
    worlds: u64,
    policies: u64,
    written: BTreeMap<&'static str, u64>,
    of_calico: BTreeMap<&'static str, u64>,
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
                // Each kind has its own rule for what a pod sends to itself through a Service.
                hairpin: HairpinAction::Allow,
                ..OracleOptions::default()
            };
            all.push(prepared.verdict(&Question::from(flow(&trial.flow)), &options));
        }
    }
    all
}

fn check_world(
    world: &ClusterWorld,
    change: &dyn Fn(usize, Value) -> Value,
    has_calico: bool,
    what: &str,
    tally: &mut Tally,
) {
    let objects = world.objects().into_iter().enumerate();
    let texts = objects.map(|(index, object)| change(index, object).to_string());
    let texts: Vec<String> = texts.collect();
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
            .inexpressible
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
        let of_calico = written.iter();
        let of_calico = of_calico.filter(|id| TargetDialect::Calico.has_kind(&id.kind));
        *tally.of_calico.entry(name).or_default() += of_calico.count() as u64;
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
    check_changed_worlds(fixed, generate, |_, object| object)
}

/// Checks worlds whose objects are changed before they are read, by the number of the case and their own.
fn check_changed_worlds(
    fixed: u64,
    generate: fn(u64, u64, usize) -> ClusterWorld,
    change: fn((u64, usize), Value) -> Value,
) -> Tally {
    let mut tally = Tally::default();
    for (seed, case) in seeded_cases(fixed, cases(120)) {
        let world = generate(seed, case, FLOWS);
        // Of some worlds, among policies of Calico of every order.
        let what = format!("seed {seed}, case {case}");
        let change = |index, object| change((case, index), object);
        check_world(&world, &change, case % 3 == 0, &what, &mut tally);
    }
    println!(
        "{} worlds, {} policies; written {:?}, of them of Calico {:?}; refused {:?}; {} verdicts compared",
        tally.worlds, tally.policies, tally.written, tally.of_calico, tally.refused, tally.verdicts
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

/// What more of Calico's policies have that other dialects can say: a place beside theirs, peers that are workloads,
/// rules that allow.
fn ease((case, index): (u64, usize), mut object: Value) -> Value {
    let is_calico = object["apiVersion"].as_str().unwrap().contains("calico");
    let is_policy = object["kind"].as_str().unwrap().ends_with("NetworkPolicy");
    let is_kubernetes = object["kind"] == "StagedKubernetesNetworkPolicy";
    if !is_calico || !is_policy || is_kubernetes || !object["spec"].is_object() {
        return object;
    }
    let spec = &mut object["spec"];
    let is_namespaced = case.is_multiple_of(2);
    if is_namespaced {
        (spec["tier"], spec["order"]) = (json!("default"), json!(1000))
    } else {
        // A priority of its own.
        (spec["tier"], spec["order"]) = (json!("kube-admin"), json!(index + 100));
    }
    if let Some(spec) = spec.as_object_mut() {
        let dropped = ["doNotTrack", "preDNAT", "applyOnForward", "stagedAction"];
        spec.retain(|key, _| !dropped.contains(&&**key));
        if !is_namespaced {
            spec.remove("serviceAccountSelector");
        }
    }
    for (list, own) in [("ingress", "destination"), ("egress", "source")] {
        let mut rules = spec.get_mut(list).and_then(Value::as_array_mut);
        if let Some(rules) = &mut rules {
            rules.truncate(2);
        }
        for rule in rules.into_iter().flatten() {
            let Some(rule) = rule.as_object_mut() else {
                continue;
            };
            if is_namespaced || rule["action"] == "Log" {
                rule.insert("action".to_owned(), json!("Allow"));
            }
            for field in ["ipVersion", "notProtocol", "notICMP", "http"] {
                rule.remove(field);
            }
            if !is_namespaced {
                let other = if list == "ingress" {
                    "source"
                } else {
                    "destination"
                };
                let end = rule.entry(other).or_insert_with(|| json!({}));
                if let Some(end) = end.as_object_mut() {
                    end.remove("services");
                    let all = || json!("all()");
                    end.entry("namespaceSelector").or_insert_with(all);
                }
                for field in ["protocol", "icmp"] {
                    rule.remove(field);
                }
                for end in ["source", "destination"] {
                    if let Some(end) = rule.get_mut(end).and_then(Value::as_object_mut) {
                        end.retain(|key, _| key != "ports" && key != "notPorts");
                    }
                }
            }
            if let Some(end) = rule.get_mut(own).and_then(Value::as_object_mut) {
                end.retain(|key, _| key == "ports");
            }
            for end in ["source", "destination"] {
                if let Some(end) = rule.get_mut(end).and_then(Value::as_object_mut) {
                    ease_end(end);
                }
            }
        }
    }
    object
}

fn ease_end(end: &mut Map<String, Value>) {
    for field in ["notSelector", "notPorts"] {
        end.remove(field);
    }
    let selects = ["selector", "namespaceSelector", "serviceAccounts"];
    if selects.iter().any(|field| end.contains_key(*field)) {
        end.remove("nets");
        end.remove("notNets");
        let workloads = "has(projectcalico.org/orchestrator)";
        let text = end.get("selector").and_then(Value::as_str).unwrap_or("");
        let text = match text.trim() {
            "" => workloads.to_owned(),
            text => format!("{workloads} && ({text})"),
        };
        end.insert("selector".to_owned(), json!(text));
    }
}

#[test]
fn policies_of_calico() {
    let generate = ClusterWorld::generate_with_calico_policies;
    check_worlds(0x0063_616c_6963_6f31, generate);
    let tally = check_changed_worlds(0x0063_616c_6963_6f32, generate, ease);
    if tally.worlds >= 100 {
        let of_calico = |target: TargetDialect| tally.of_calico[target.policy_name()];
        assert!(of_calico(TargetDialect::Kubernetes) > 5);
        assert!(of_calico(TargetDialect::ClusterNetworkPolicy) > 5);
        assert!(of_calico(TargetDialect::Cilium) > 5);
    }
}
