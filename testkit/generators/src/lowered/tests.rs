//! What the generator promises: repeatable states, every feature, detours that arrive.

use super::*;

#[test]
fn a_case_is_a_function_of_seed_and_number() {
    let (one, two) = (ModelWorld::generate(7, 3, 5), ModelWorld::generate(7, 3, 5));
    assert_eq!(one.state, two.state);
    assert_ne!(one.state, ModelWorld::generate(7, 4, 5).state);
}

#[test]
fn every_feature_has_a_say() {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut all = 0;
    for case in 0..1_000 {
        let world = ModelWorld::generate(1, case, 4);
        for trial in &world.trials {
            all += 1;
            for feature in world.tried_features(trial) {
                *counts.entry(feature).or_default() += 1;
            }
        }
    }
    let share = |feature: &str| counts.get(feature).copied().unwrap_or(0) * 100 / all;
    for feature in [
        own_node::OTHER_NODE,
        own_node::NO_NODE,
        own_node::UNKNOWN_NODE,
    ] {
        assert!(share(feature) >= 2, "{feature}");
    }
    let rare: Vec<_> = FEATURES.iter().filter(|f| share(f) < 1).collect();
    assert!(rare.is_empty(), "{rare:?}");
    let unlisted: Vec<_> = counts.keys().filter(|f| !FEATURES.contains(f)).collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
}

#[test]
fn detours_arrive() {
    for case in 0..200 {
        let target = ModelWorld::generate(1, case, 0).state;
        let detour = ModelWorld::generate(1, case + 1, 0).state;
        let batches = batches(&mut Dice::new(1, case), &detour, &target);
        let mut arrived = State::of_host(target.host_node.clone());
        for update in batches.into_iter().flatten() {
            arrived.apply(update);
        }
        assert_eq!(arrived, target);
    }
}

#[test]
fn states_survive_being_written_down() {
    for case in 0..50 {
        let state = ModelWorld::generate(1, case, 0).state;
        let objects: Vec<Object> = state.objects().collect();
        let text = serde_json::to_string(&objects).unwrap();
        let read: Vec<Object> = serde_json::from_str(&text).unwrap();
        let written = State {
            host_node: state.host_node.clone(),
            ..State::from_updates(read.into_iter().map(Update::Upsert))
        };
        assert_eq!(written, state);
    }
}
