//! An executor stopped after each transaction of a flush, in turn: whoever comes next, from whatever it
//! finds, brings the kernel to what is wanted, and on its way no packet gets a verdict that is neither
//! the old nor the new. In the model of the kernel.

use super::nft::frame;
use super::tables;
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::Dice;
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_model::Str;
use palisade_nft::{Config, Planner, Ruleset, Transaction, adopt};
use palisade_oracle::PreparedState;
use palisade_tables::{Phase, TableChange, Tables};
use palisade_verification::{ConntrackInfo, HookPacket, RulesetSimulator, apply};
use std::collections::{BTreeMap, BTreeSet};

const SEED: u64 = 0x0073_746f_7073;

/// Applies a transaction; the content after each step.
fn run(kernel: &mut Option<Ruleset>, transaction: &Transaction) -> Vec<Ruleset> {
    let mut states = Vec::new();
    for step in &transaction.steps {
        apply(kernel, &transaction.table, &step.ops).unwrap();
        states.push(kernel.clone().unwrap());
    }
    states
}

fn accepts(ruleset: &Ruleset, frame: &HookPacket) -> bool {
    RulesetSimulator::new(ruleset).run(frame).unwrap().accepted
}

/// Every packet gets the old or the new verdict in each state, and between two.
fn check_states(way: &[Ruleset], frames: &[(HookPacket, [bool; 2])], what: &str) -> usize {
    let mut judged = 0;
    for pair in way.windows(2) {
        for (frame, ends) in frames {
            assert!(
                ends.contains(&accepts(&pair[1], frame)),
                "{what}: {frame:?}"
            );
            for switch in [2, 5, 8, 11, 14, 18, 23, 30] {
                let between = RulesetSimulator::with_switch(&pair[0], &pair[1], switch);
                let accepted = between.run(frame).unwrap().accepted;
                let when = format!("{what}, after {switch} lookups");
                assert!(ends.contains(&accepted), "{when}: {frame:?}");
                judged += 1;
            }
        }
    }
    judged
}

/// New flows of a world's trials, each way, with what they get before and after; not of interfaces
/// that come or go.
fn frames(
    world: &ModelWorld,
    old: (&Tables, &Ruleset),
    new: (&Tables, &Ruleset),
) -> Vec<(HookPacket, [bool; 2])> {
    let prepared = PreparedState::new(&world.state);
    let mut out = Vec::new();
    for trial in &world.trials {
        let packet = tables::packet(&prepared, &trial.flow);
        let steady = |name: &Option<Str>| {
            let ours =
                |tables: &Tables| name.as_ref().is_some_and(|n| tables.interfaces.contains(n));
            ours(old.0) == ours(new.0)
        };
        if steady(&packet.input_interface) && steady(&packet.output_interface) {
            let frame = frame(&packet, ConntrackInfo::NEW);
            let ends = [accepts(old.1, &frame), accepts(new.1, &frame)];
            out.push((frame, ends));
        }
    }
    out
}

/// What a flush is about: its phases, and more that is worth stopping in.
fn transaction_features(
    batch: usize,
    transaction: &Transaction,
    changes: &[&TableChange],
) -> BTreeSet<&'static str> {
    let phase = |step: &palisade_nft::TxStep| match step.phase {
        Phase::Split => "stopped after splitting",
        Phase::Tighten => "stopped after tightening",
        Phase::Shift => "stopped after shifting",
        Phase::Revoke => "stopped after revoking",
        Phase::Loosen => "stopped after loosening",
        Phase::Merge => "stopped after merging",
        Phase::Delete => "stopped after deleting",
    };
    let mut found: BTreeSet<_> = transaction.steps.iter().map(phase).collect();
    let net = |change: &&TableChange| matches!(change, TableChange::Address(prefix, _) if !prefix.is_host());
    if changes.iter().any(net) {
        found.insert("networks");
    }
    let mut points: BTreeMap<&Str, BTreeSet<_>> = BTreeMap::new();
    for change in changes {
        if let TableChange::Point(point, _) = change
            && let Some((interface, address)) = point.workload()
        {
            points.entry(interface).or_default().insert(address);
        }
    }
    if points.values().any(|addresses| addresses.len() > 1) {
        found.insert("an endpoint of several addresses");
    }
    if batch > 1 {
        found.insert("coalesced");
    }
    found
}

#[test]
fn stopped_after_each_step_the_next_one_ends_right() {
    let (mut stops, mut judged, mut damaged) = (0, 0, 0);
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    let config = Config::default();
    for (seed, case) in palisade_generators::seeded_cases(SEED, 24) {
        let world = ModelWorld::generate(seed, case, 12);
        let detour = ModelWorld::generate(seed ^ 1, case, 0);
        let mut dice = Dice::new(seed, case);
        let mut engine = Engine::new(EngineOptions::of_host(world.state.host_node.clone()));
        let (mut planner, first) = adopt(&config, None, engine.tables(), 9);
        let mut kernel = None;
        run(&mut kernel, &first);
        let mut objects = engine.state();
        for batch in batches(&mut dice, &detour.state, &world.state) {
            let size = batch.len();
            for update in &batch {
                objects.apply(update.clone());
            }
            let old = engine.tables().clone();
            let delta = engine.apply(batch);
            let new = engine.tables();
            let before = kernel.clone().unwrap();
            let live = planner.generation();
            let transaction = planner.plan(&delta);
            let states = run(&mut kernel, &transaction);
            let after = kernel.clone().unwrap();
            let changes: Vec<&TableChange> = delta.steps.iter().flat_map(|s| &s.changes).collect();
            for kind in transaction_features(size, &transaction, &changes) {
                *tally.entry(kind).or_default() += 1;
            }
            let frames = frames(&world, (&old, &before), (new, &after));
            let mut way = vec![before];
            way.extend(states.iter().cloned());
            judged += check_states(&way, &frames, &format!("seed {seed} case {case}"));
            for (stop, found) in states.iter().enumerate() {
                let what = format!("seed {seed} case {case}, stopped after step {stop}");
                let end = |found: &Ruleset| -> (Planner, Vec<Ruleset>) {
                    let mut kernel = Some(found.clone());
                    let (planner, rest) = adopt(&config, Some(found), new, 77);
                    let mut way = vec![found.clone()];
                    way.extend(run(&mut kernel, &rest));
                    assert_eq!(kernel, Some(planner.ruleset()), "{what}");
                    let (_, again) = adopt(&config, kernel.as_ref(), new, 77);
                    assert!(again.is_empty(), "{what}: not at rest");
                    (planner, way)
                };
                let (next, way) = end(found);
                judged += check_states(&way, &frames, &what);
                let revokes = transaction.steps.iter().any(|s| s.phase == Phase::Revoke);
                let raised = next.generation() != live;
                // Until the first step that tightens there is nothing to revoke yet, and then the
                // next one sees by itself that there is.
                assert!(!revokes || raised, "{what}: a revocation was lost");
                stops += 1;
                // Somebody takes something away just then.
                let mut less = found.clone();
                let sets: Vec<Str> = less.sets.keys().cloned().collect();
                let set = less.sets.get_mut(dice.pick(&sets)).unwrap();
                let keys: Vec<_> = set.elements.keys().cloned().collect();
                if !keys.is_empty() {
                    set.elements.remove(dice.pick(&keys));
                    end(&less);
                    damaged += 1;
                }
            }
        }
        assert_eq!(objects, world.state, "seed {seed} case {case}");
    }
    println!(
        "account: in the model {stops} stops of the executor, {damaged} of them with damage; {judged} verdicts between two states; flushes: {tally:?}"
    );
    assert!(stops > 300 && judged > 20_000, "{stops} {judged}");
    assert!(
        tally.len() == 10 && tally.values().all(|n| *n > 5),
        "{tally:?}"
    );
}
