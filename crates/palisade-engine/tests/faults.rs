//! Every named fault of the engine and of the transition is found: faults of the transition by the checker of
//! intermediate states, which does not know the required order of steps; all others by the oracle.

#![cfg(feature = "faults")]

#[path = "whole/support.rs"]
mod support;

use palisade_engine::{Engine, EngineFault, EngineOptions};
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_generators::{Dice, cases};
use palisade_oracle::PreparedState;
use palisade_tables::TransitionFault;
use palisade_verification::{Atomicity, check_any_order};
use support::{SEED, difference};

/// The first difference that the checker or the oracle finds within this many cases.
fn found(cases: u64, by_checker: bool) -> Option<(u64, String)> {
    for case in 0..cases {
        let world = ModelWorld::generate(SEED, case, 40);
        let detour = ModelWorld::generate(SEED ^ 1, case, 0);
        let mut dice = Dice::new(SEED, case);
        let mut engine = Engine::new(EngineOptions::of_host(world.state.host_node.clone()));
        for batch in batches(&mut dice, &detour.state, &world.state) {
            let old = engine.tables().clone();
            let delta = engine.apply(batch);
            if by_checker
                && let Err(violation) =
                    check_any_order(&old, &delta, engine.tables(), Atomicity::Step, 500)
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
    let mut find = |name: String, by_checker| match found(most, by_checker) {
        Some((case, what)) => println!("{name}: case {case}: {what:.100}"),
        None => missed.push(name),
    };
    for fault in TransitionFault::ALL {
        TransitionFault::inject(Some(*fault));
        find(format!("{fault:?}"), true);
    }
    TransitionFault::inject(None);
    // BudgetIgnored changes no verdict: tests/budget.rs finds it. Those of host endpoints are found by the comparison of
    // random clusters, which asks about interfaces of the host.
    let elsewhere = [
        EngineFault::BudgetIgnored,
        EngineFault::EarlyEndDenies,
        EngineFault::ForwardEndDenies,
        EngineFault::ForwardFlagIgnored,
        EngineFault::HostNodeLabelsStale,
        EngineFault::NodeEndpointFirst,
    ];
    let verdicts = EngineFault::ALL
        .iter()
        .filter(|fault| !elsewhere.contains(fault));
    for fault in verdicts {
        EngineFault::inject(Some(*fault));
        find(format!("{fault:?}"), false);
    }
    EngineFault::inject(None);
    for by_checker in [true, false] {
        assert_eq!(found(50, by_checker), None, "without a fault");
    }
    assert_eq!(missed, Vec::<String>::new(), "faults that no test found");
}
