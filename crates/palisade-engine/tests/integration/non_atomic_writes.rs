//! Every phase keeps its promise even where a dataplane writes entry by entry.

use crate::flushes::told;
use crate::support::SEED;
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_tables::Atomicity;
use palisade_verification::check_any_order;

/// Pairs of histories that are checked in each flush.
const PAIRS: usize = 60;

#[test]
fn each_prefix_of_a_step_keeps_the_promise_of_its_phase() {
    let (mut flushes, mut writes, mut packets) = (0, 0, 0);
    for (seed, case) in seeded_cases(SEED, cases(150)) {
        let world = ModelWorld::generate(seed, case, 0);
        let detour = ModelWorld::generate(seed ^ 1, case, 0);
        let mut dice = Dice::new(seed, case);
        let mut engine = Engine::new(EngineOptions::of_host(world.state.host_node.clone()));
        for batch in batches(&mut dice, &detour.state, &world.state) {
            let old = engine.tables().clone();
            let delta = engine.apply(batch);
            let new = engine.tables();
            let checked = check_any_order(&old, &delta, new, Atomicity::Entry, PAIRS);
            let violation = checked.as_ref().err();
            let told = told(&delta);
            assert_eq!(violation, None, "seed {seed} case {case}:\n{told}");
            flushes += 1;
            let changes = delta.steps.iter().map(|step| step.changes.len());
            writes += changes.sum::<usize>();
            packets += checked.map_or(0, |checked| checked.packets);
        }
    }
    println!("account: entry by entry: {flushes} flushes, {writes} writes, {packets} packets");
    assert!(flushes == 0 || packets > 0);
}
