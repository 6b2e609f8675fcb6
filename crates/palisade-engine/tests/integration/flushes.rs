//! States reached by detours: every intermediate state is right, and the final tables equal those
//! of a fresh start.

use crate::from_scratch;
use crate::kinds::Kinds;
use crate::support::{SEED, difference};
use palisade_engine::{Engine, EngineCounts, EngineOptions};
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_generators::{Dice, cases, seeded_cases};
use palisade_model::{State, Update};
use palisade_oracle::PreparedState;
use palisade_tables::{Delta, Tables};
use palisade_verification::{canonical, check};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most pairs of histories checked in one flush: far above what any flush has.
const BOUND: usize = 1_000_000;
/// Number of generated worlds: each takes about eleven flushes.
const CASES: u64 = 2_000;
/// The least number of flushes of which every intermediate state is checked, unless fewer cases
/// were requested.
const FLUSHES: usize = 20_000;

/// A delta with one change on each line.
pub(crate) fn told(delta: &Delta) -> String {
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
    let (wanted, next) = (seeded_cases(SEED, cases(CASES)), AtomicUsize::new(0));
    let work = || {
        let mut kinds = Kinds::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((seed, case)) = wanted.get(at) else {
                return kinds;
            };
            roundabout(*seed, *case, &mut kinds);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let kinds = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Kinds::default();
        for worker in workers {
            match worker.join() {
                Ok(kinds) => all.merge(kinds),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    println!("account: {}", kinds.told());
    assert_eq!(kinds.missing(), [""; 0], "kinds of flush below their share");
    assert_eq!(
        kinds.sampled,
        (0, 0),
        "flushes with unchecked pairs of histories"
    );
    assert!(
        cases(CASES) < CASES || kinds.flushes >= FLUSHES,
        "{}",
        kinds.told()
    );
}

/// Applies one batch and checks every intermediate state.
fn flush(engine: &mut Engine, state: &State, batch: Vec<Update>, kinds: &mut Kinds, what: &str) {
    let old = engine.tables().clone();
    let delta = engine.apply(batch.iter().cloned());
    let checked = check(&old, &delta, engine.tables(), BOUND);
    let violation = checked.as_ref().err();
    assert_eq!(violation, None, "{what}:\n{}", told(&delta));
    let checked = checked.unwrap_or_default();
    kinds.add(&batch, state, (&old, &delta, engine.tables()), &checked);
}

/// Reaches one world by detours, then deletes all its objects.
fn roundabout(seed: u64, case: u64, kinds: &mut Kinds) {
    let world = ModelWorld::generate(seed, case, 20);
    let detour = ModelWorld::generate(seed ^ 1, case, 0);
    let mut dice = Dice::new(seed, case);
    let mut engine = Engine::new(EngineOptions::of_host(world.state.host_node.clone()));
    let mut now = engine.state();
    let ways = batches(&mut dice, &detour.state, &world.state);
    for (at, batch) in ways.into_iter().enumerate() {
        let before = now.clone();
        for update in &batch {
            now.apply(update.clone());
        }
        let what = format!("seed {seed} case {case} batch {at}");
        flush(&mut engine, &before, batch, kinds, &what);
    }
    assert_eq!(now, world.state, "seed {seed} case {case}");
    assert_eq!(
        engine.state(),
        now,
        "seed {seed} case {case}: engine returns the objects as given"
    );
    let straight = from_scratch(&world.state);
    assert_eq!(
        canonical(engine.tables()),
        canonical(straight.tables()),
        "seed {seed} case {case}"
    );
    let oracle = PreparedState::new(&world.state);
    for trial in &world.trials {
        let difference = difference(&engine, &oracle, &trial.flow);
        assert_eq!(difference, None, "seed {seed} case {case}");
    }
    let rest = world.state.objects();
    let rest = rest.map(|object| Update::Delete(object.key())).collect();
    let what = format!("seed {seed} case {case}: deleting everything");
    flush(&mut engine, &now, rest, kinds, &what);
    assert_eq!(
        *engine.tables(),
        Tables::default(),
        "seed {seed} case {case}: tables are empty"
    );
    assert_eq!(
        engine.counts(),
        EngineCounts::default(),
        "seed {seed} case {case}: nothing is left interned"
    );
}
