//! Scenarios that are written in several dialects allow the same connections in each.

use super::run;
use std::collections::BTreeSet;
use std::path::Path;

const CLUSTER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/policies/cluster.yaml"
);
/// The files of scenarios, each with how many it has at least.
const FILES: [(&str, usize); 2] = [
    (include_str!("../../scenarios/cilium.yaml"), 40),
    (include_str!("../../scenarios/calico.yaml"), 62),
];
/// The dialects, and the groups of their policies.
const DIALECTS: [(&str, &[&str]); 5] = [
    (
        "Kubernetes",
        &["networking.k8s.io/", "policy.networking.k8s.io/"],
    ),
    (
        "ClusterNetworkPolicy",
        &["policy.networking.k8s.io/v1alpha2"],
    ),
    ("AdminNetworkPolicy", &["policy.networking.k8s.io/v1alpha1"]),
    ("Cilium", &["cilium.io/"]),
    ("Calico", &["projectcalico.org/", "crd.projectcalico.org/"]),
];

/// The name of a scenario, the documents that all dialects share, and those of each dialect.
struct Scenario<'t> {
    name: &'t str,
    shared: Vec<&'t str>,
    dialects: Vec<(&'t str, Vec<&'t str>)>,
}

fn documents(text: &str) -> Vec<&str> {
    let documents = text.split("---\n").map(str::trim);
    documents.filter(|text| !text.is_empty()).collect()
}

fn scenarios(text: &str) -> Vec<Scenario<'_>> {
    let mut all = Vec::new();
    for scenario in text.split("# scenario: ").skip(1) {
        let (name, rest) = scenario.split_once('\n').unwrap();
        let mut parts = rest.split("# in ");
        let shared = documents(parts.next().unwrap());
        let dialects = parts.map(|part| {
            let (dialect, policies) = part.split_once('\n').unwrap();
            (dialect, documents(policies))
        });
        all.push(Scenario {
            name,
            shared,
            dialects: dialects.collect(),
        });
    }
    all
}

/// A part of a scenario has policies of its dialect, and nothing else.
fn check_dialect(name: &str, dialect: &str, policies: &[&str]) {
    let known = DIALECTS.iter().find(|(known, _)| *known == dialect);
    let (_, groups) = known.unwrap_or_else(|| panic!("{name}: {dialect}"));
    assert!(!policies.is_empty(), "{name}: {dialect}");
    for policy in policies {
        let group = policy.strip_prefix("{apiVersion: ").unwrap_or(policy);
        let is_of_it = groups.iter().any(|known| group.starts_with(known));
        assert!(is_of_it, "{name}: {dialect}: {policy}");
    }
}

/// What documents allow in the cluster of the examples.
fn connections(name: &str, documents: &[&str], file: &Path) -> String {
    std::fs::write(file, documents.join("\n---\n") + "\n").unwrap();
    let file = file.to_str().unwrap();
    let valid = run(&["validate", "-f", CLUSTER, "-f", file]);
    assert_eq!(valid.code, 0, "{name}: {valid:?}");
    let listed = run(&["connections", "-f", CLUSTER, "-f", file]);
    assert_eq!(listed.code, 0, "{name}: {listed:?}");
    listed.out
}

/// What a scenario allows in each of its dialects alone.
fn check(scenario: &Scenario<'_>, file: &Path) {
    let name = scenario.name;
    let Scenario {
        shared, dialects, ..
    } = scenario;
    assert!(dialects.len() >= 2, "{name}");
    let listed = dialects.iter().map(|(dialect, policies)| {
        check_dialect(name, dialect, policies);
        let whole = [&shared[..], &policies[..]].concat();
        (*dialect, connections(name, &whole, file))
    });
    let listed: Vec<(&str, String)> = listed.collect();
    let (first, expected) = &listed[0];
    for (dialect, other) in &listed[1..] {
        assert!(
            expected == other,
            "{name}: in {first}\n{expected}\nand in {dialect}\n{other}"
        );
    }
    // A scenario says something, unless it says that everything is allowed.
    let without = connections(name, shared, file);
    let is_open = name.contains("everything");
    assert_eq!(*expected == without, is_open, "{name}: {expected}");
}

#[test]
fn scenarios_are_the_same_in_every_dialect() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.yaml");
    for (text, least) in FILES {
        let all = scenarios(text);
        assert!(all.len() >= least, "only {}", all.len());
        let names: BTreeSet<&str> = all.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all.len(), "a name is there twice");
        for scenario in &all {
            check(scenario, &file);
        }
    }
}
