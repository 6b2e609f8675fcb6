//! Roundabout ways to a state: every intermediate state is right, and the end is that of the
//! straight way.

use crate::from_scratch;
use crate::support::{SEED, cases, difference};
use palisade_engine::{Counts, Engine, Options};
use palisade_model::{State, Update};
use palisade_oracle::Prepared;
use palisade_tables::{Delta, Tables, check};
use palisade_testkit::generate::Dice;
use palisade_testkit::generate::lowered::{World, batches};

/// How many different pairs of histories are judged in one flush.
const BOUND: usize = 2_000;

/// A delta, one change a line.
fn told(delta: &Delta) -> String {
    let mut out = String::new();
    for step in &delta.steps {
        out += &format!("{:?}\n", step.phase);
        for change in &step.changes {
            out += &format!("  {change:?}\n");
        }
    }
    out
}

#[test]
fn every_intermediate_state_is_right() {
    let mut judged = 0;
    let mut flushes = 0;
    for case in 0..cases(150) {
        let world = World::generate(SEED, case, 20);
        let detour = World::generate(SEED ^ 1, case, 0);
        let mut dice = Dice::new(SEED, case);
        let mut engine = Engine::new(Options::default());
        let mut now = State::default();
        for (at, batch) in batches(&mut dice, &detour.state, &world.state)
            .into_iter()
            .enumerate()
        {
            let old = engine.tables().clone();
            for update in &batch {
                now.apply(update.clone());
            }
            let delta = engine.apply(batch);
            match check(&old, &delta, engine.tables(), BOUND) {
                Ok(checked) => judged += checked.packets,
                Err(violation) => panic!("case {case} batch {at}: {violation}\n{}", told(&delta)),
            }
            flushes += 1;
        }
        assert_eq!(now, world.state, "case {case}");
        let straight = from_scratch(&world.state);
        assert_eq!(
            engine.tables().canonical(),
            straight.tables().canonical(),
            "case {case}"
        );
        let oracle = Prepared::new(&world.state);
        for trial in &world.trials {
            let difference = difference(&engine, &oracle, &trial.flow);
            assert_eq!(difference, None, "case {case}");
        }
        let rest = world
            .state
            .objects()
            .map(|object| Update::Delete(object.key()));
        let old = engine.tables().clone();
        let delta = engine.apply(rest);
        assert_eq!(
            check(&old, &delta, engine.tables(), BOUND).map(|_| ()),
            Ok(()),
            "case {case}: all goes"
        );
        assert_eq!(
            *engine.tables(),
            Tables::default(),
            "case {case}: all is gone"
        );
        assert_eq!(
            engine.counts(),
            Counts::default(),
            "case {case}: something is left"
        );
    }
    assert!(judged > 10_000, "{judged} packets in {flushes} flushes");
    println!("{judged} kinds of packet judged in {flushes} flushes");
}
