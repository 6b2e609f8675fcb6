//! Every named fault of the engine and of the transition is found: faults of the transition by the checker of
//! intermediate states, which does not know the required order of steps; all others by the oracle.

#![cfg(feature = "faults")]

#[path = "integration/support.rs"]
#[allow(
    dead_code,
    reason = "the integration tests use the rest of this module"
)]
mod support;

use palisade_engine::{ElementBudget, Engine, EngineFault, EngineOptions};
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_generators::{Dice, cases, line};
use palisade_model::{
    Endpoint, Object, PortMatch, PortRange, PortSpec, Protocol, Rule, TrafficMatch, Update,
};
use palisade_oracle::PreparedState;
use palisade_tables::{Atomicity, TransitionFault};
use palisade_verification::check_any_order;
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

/// Whether a policy of more elements than a set may have is in force.
fn exceeds_its_budget() -> bool {
    let budget = ElementBudget {
        set: 2_000,
        host: 1_000_000,
    };
    let mut engine = Engine::new(EngineOptions {
        budget,
        ..EngineOptions::default()
    });
    let pod = Endpoint {
        interface: Some("pal0".into()),
        ..line::endpoint("shop/web 10.0.0.1 app=web")
    };
    // Every second port: no two are one range.
    let port = |n: u16| PortSpec::Range(PortRange::single(2 * n));
    let term = |n| TrafficMatch::to_port(Protocol::TCP, PortMatch::one_of([port(n)]));
    let rule = Rule {
        traffic: (1..=2_500).map(term).collect(),
        ..line::rule("allow")
    };
    let policy = line::policy("shop/wide app=web", vec![rule]);
    let objects = [Object::Endpoint(pod), Object::Policy(policy)];
    engine.apply(objects.map(Update::Upsert));
    let programs = engine.tables().programs.values();
    let elements = programs.map(|program| program.element_count()).max();
    elements.is_some_and(|elements| elements > budget.set)
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
    // BudgetIgnored takes more, and changes no verdict of these clusters. Those of host endpoints are found by the comparison of
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
    EngineFault::inject(Some(EngineFault::BudgetIgnored));
    assert!(exceeds_its_budget(), "BudgetIgnored");
    EngineFault::inject(None);
    assert!(!exceeds_its_budget(), "without a fault");
    for by_checker in [true, false] {
        assert_eq!(found(50, by_checker), None, "without a fault");
    }
    assert_eq!(missed, Vec::<String>::new(), "faults that no test found");
}
