//! Every named fault of the engine is found: faults in the steps of a delta by the checker of
//! intermediate states, which does not know the required order of steps; all others by the oracle.

#![cfg(feature = "faults")]

#[path = "whole/support.rs"]
mod support;

use palisade_engine::faults::{EngineFault, set};
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_generators::{Dice, cases};
use palisade_oracle::PreparedState;
use palisade_tables::check_any_order;
use support::{SEED, difference};

/// Faults that affect only the steps of a delta, not the tables after it.
const IN_STEPS: [EngineFault; 6] = [
    EngineFault::SplitAfterLoosen,
    EngineFault::TightenAfterLoosen,
    EngineFault::MergeBeforeLoosen,
    EngineFault::DeleteFirst,
    EngineFault::IntersectionSkipped,
    EngineFault::RevokeForgotten,
];

/// The first difference that the checker or the oracle finds within this many cases.
fn found(cases: u64, by_checker: bool) -> Option<(u64, String)> {
    for case in 0..cases {
        let world = ModelWorld::generate(SEED, case, 40);
        let detour = ModelWorld::generate(SEED ^ 1, case, 0);
        let mut dice = Dice::new(SEED, case);
        let mut engine = Engine::new(EngineOptions::default());
        for batch in batches(&mut dice, &detour.state, &world.state) {
            let old = engine.tables().clone();
            let delta = engine.apply(batch);
            if by_checker
                && let Err(violation) = check_any_order(&old, &delta, engine.tables(), 500)
            {
                return Some((case, violation.to_string()));
            }
        }
        let oracle = PreparedState::new(&world.state);
        let mut flows = world.trials.iter().map(|trial| &trial.flow);
        if !by_checker
            && let Some(difference) = flows.find_map(|flow| difference(&engine, &oracle, flow))
        {
            return Some((case, difference));
        }
    }
    None
}

#[test]
fn every_fault_is_found_where_it_must_be() {
    let most = cases(2_000);
    let mut missed = Vec::new();
    for fault in EngineFault::ALL {
        set(Some(fault));
        match found(most, IN_STEPS.contains(&fault)) {
            Some((case, what)) => println!("{fault:?}: case {case}: {what:.100}"),
            None => missed.push(fault),
        }
    }
    set(None);
    for by_checker in [true, false] {
        assert_eq!(found(50, by_checker), None, "without a fault");
    }
    assert_eq!(missed, [], "faults that no test found");
}
