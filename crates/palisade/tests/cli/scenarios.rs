//! Scenarios that are written in two dialects allow the same connections.

use crate::run;
use std::path::Path;

const CLUSTER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/policies/cluster.yaml"
);

/// The name of a scenario and its documents.
struct Scenario<'t> {
    name: &'t str,
    documents: Vec<&'t str>,
}

fn scenarios(text: &str) -> Vec<Scenario<'_>> {
    let mut all = Vec::new();
    for part in text.split("# scenario: ").skip(1) {
        let (name, documents) = part.split_once('\n').unwrap();
        let documents = documents.split("---\n").map(str::trim);
        all.push(Scenario {
            name,
            documents: documents.filter(|text| !text.is_empty()).collect(),
        });
    }
    all
}

/// What the documents that are kept allow in the cluster of the examples.
fn connections(scenario: &Scenario<'_>, keep: impl Fn(&str) -> bool, file: &Path) -> String {
    let kept = scenario.documents.iter().copied().filter(|text| keep(text));
    let kept: Vec<&str> = kept.collect();
    assert!(!kept.is_empty(), "{}", scenario.name);
    std::fs::write(file, kept.join("\n---\n") + "\n").unwrap();
    let listed = run(&["connections", "-f", CLUSTER, "-f", file.to_str().unwrap()]);
    assert_eq!(listed.code, 0, "{}: {listed:?}", scenario.name);
    listed.out
}

#[test]
fn cilium_says_the_same_as_kubernetes() {
    let text = include_str!("../scenarios/cilium.yaml");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.yaml");
    let all = scenarios(text);
    assert!(all.len() >= 40, "only {}", all.len());
    let nothing = run(&["connections", "-f", CLUSTER]).out;
    let is_policy = |text: &str| text.contains("NetworkPolicy");
    let is_of_cilium = |text: &str| text.starts_with("{apiVersion: cilium.io/");
    for scenario in &all {
        let one = connections(scenario, |t| is_of_cilium(t) || !is_policy(t), &file);
        let other = connections(scenario, |t| !is_of_cilium(t), &file);
        assert!(
            one == other,
            "{}: in Cilium's words\n{one}\nand in those of Kubernetes\n{other}",
            scenario.name
        );
        let is_open = scenario.name.contains("everything") && one.contains(&nothing);
        assert!(
            one != nothing || is_open || scenario.name.contains("everything"),
            "{}",
            scenario.name
        );
    }
}
