//! What the generator promises: repeatable worlds, flows that fall both ways, every feature.

use super::*;
use std::collections::BTreeMap;

#[test]
fn a_case_is_a_function_of_seed_and_number() {
    let one = ClusterWorld::generate(7, 3, 5);
    let two = ClusterWorld::generate(7, 3, 5);
    assert_eq!(one.objects(), two.objects());
    assert_ne!(one.objects(), ClusterWorld::generate(7, 4, 5).objects());
    assert_ne!(one.objects(), ClusterWorld::generate(8, 3, 5).objects());
}

#[test]
fn worlds_with_cluster_policies_are_of_their_own() {
    let one = ClusterWorld::generate_with_cluster_policies(7, 3, 5);
    let two = ClusterWorld::generate_with_cluster_policies(7, 3, 5);
    assert_eq!(one.objects(), two.objects());
    assert_ne!(one.objects(), ClusterWorld::generate(7, 3, 5).objects());
}

#[test]
fn flows_fall_both_ways_and_every_feature_has_a_say() {
    check_features(ClusterWorld::generate, FEATURES, true);
    let generate = ClusterWorld::generate_with_cluster_policies;
    check_features(generate, POLICY_API_FEATURES, false);
    let generate = ClusterWorld::generate_with_cilium_policies;
    check_features(generate, CILIUM_FEATURES, false);
}

/// Whether each feature has a say in one flow of a hundred. Other features may be tried if `are_all` is false.
fn check_features(generate: fn(u64, u64, usize) -> ClusterWorld, expected: &[&str], are_all: bool) {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut allowed, mut all) = (0, 0);
    for case in 0..1_000 {
        let world = generate(1, case, 4);
        let objects = world.objects();
        for trial in &world.trials {
            let reading = naive::read(&objects, &trial.flow);
            all += 1;
            allowed += u32::from(reading.egress && reading.ingress);
            for feature in world.tried_features(trial, &reading) {
                *counts.entry(feature).or_default() += 1;
            }
        }
    }
    let percent = |n: u32| f64::from(n) * 100.0 / f64::from(all);
    let rare: Vec<_> = expected
        .iter()
        .map(|feature| (feature, percent(counts.get(feature).copied().unwrap_or(0))))
        .filter(|(_, share)| *share < 1.0)
        .collect();
    assert!(rare.is_empty(), "{rare:?}");
    let unlisted: Vec<_> = counts.keys().filter(|f| !expected.contains(f)).collect();
    assert!(unlisted.is_empty() || !are_all, "{unlisted:?}");
    assert!(
        (38.0..66.0).contains(&percent(allowed)),
        "{}",
        percent(allowed)
    );
}
