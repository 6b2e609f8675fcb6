//! Every named fault of the engine is found, by the oracle or by the checker of intermediate states.

#![cfg(feature = "faults")]

#[path = "whole/support.rs"]
mod support;

use palisade_engine::faults::{Fault, set};
use palisade_engine::{Engine, Options};
use palisade_model::State;
use palisade_oracle::Prepared;
use palisade_tables::check;
use palisade_testkit::generate::Dice;
use palisade_testkit::generate::lowered::{World, batches};
use support::{SEED, cases, difference};

/// The first thing that shows, within so many cases.
fn found(cases: u64) -> Option<(u64, String)> {
    for case in 0..cases {
        let world = World::generate(SEED, case, 40);
        let detour = World::generate(SEED ^ 1, case, 0);
        let mut dice = Dice::new(SEED, case);
        let mut engine = Engine::new(Options::default());
        let mut state = State::default();
        for batch in batches(&mut dice, &detour.state, &world.state) {
            let old = engine.tables().clone();
            for update in &batch {
                state.apply(update.clone());
            }
            let delta = engine.apply(batch);
            if let Err(violation) = check(&old, &delta, engine.tables(), 500) {
                return Some((case, violation.to_string()));
            }
        }
        let oracle = Prepared::new(&world.state);
        let mut flows = world.trials.iter().map(|trial| &trial.flow);
        if let Some(difference) = flows.find_map(|flow| difference(&engine, &oracle, flow)) {
            return Some((case, difference));
        }
    }
    None
}

#[test]
fn every_fault_is_found() {
    let most = cases(2_000);
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        set(Some(fault));
        match found(most) {
            Some((case, what)) => println!("{fault:?}: case {case}: {what:.100}"),
            None => missed.push(fault),
        }
    }
    set(None);
    assert_eq!(found(50), None, "without a fault");
    assert_eq!(missed, [], "faults that nothing shows");
}
