//! Adoption and repair change any state to the desired one, through states in which every packet gets the
//! old or the new verdict.

use crate::support::expected::{changes_direction, changes_hands, expected};
use crate::support::{self, frame, renumbered, tables};
use palisade_generators::case_seeds;
use palisade_model::{Direction, L4, PolicyStage, Prefix, Protocol, Str};
use palisade_nft::{
    Config, ElementKey, MapValue, Op, Planner, RedirectConfig, Ruleset, Transaction, adopt,
    ct_state,
};
use palisade_tables::{
    Cell, ClassId, IdentityId, Phase, Point, PointInterface, PolicySet, PolicySetId, Program,
    Tables, Verdict,
};
use palisade_verification::{ConntrackInfo, RulesetSimulator, apply, lint, lint_transaction};
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::sync::Arc;

fn config(rng: &mut SmallRng) -> Config {
    Config {
        judgement: support::judgement(rng),
        packet_mark: support::packet_mark(rng),
        deny_action: support::deny_action(rng),
        min_shared_elements: support::share_from(rng),
        // With numbers for all: a class that got none is written again at each start.
        redirect: support::redirect(rng).map(|_| RedirectConfig::default()),
        ..Config::default()
    }
}

fn run(kernel: &mut Option<Ruleset>, transaction: &Transaction) -> Vec<Ruleset> {
    let mut states = Vec::new();
    let decl = |set: &str| {
        kernel
            .as_ref()
            .and_then(|k| k.sets.get(set))
            .map(|s| s.decl.clone())
    };
    assert_eq!(lint_transaction(transaction, decl), []);
    for step in &transaction.steps {
        apply(kernel, &transaction.table, &step.ops).unwrap();
        let state = kernel.clone().unwrap();
        assert_eq!(lint(&state), [], "after {:?}", step.phase);

        states.push(state);
    }
    states
}

fn installed(config: &Config, tables: &Tables) -> Ruleset {
    let mut kernel = None;
    let (planner, transaction) = adopt(config, None, tables, 9);
    run(&mut kernel, &transaction);
    assert_same(kernel.as_ref(), &planner.ruleset(), 0);
    kernel.unwrap()
}

/// Fails with the differing elements and chains.
fn assert_same(kernel: Option<&Ruleset>, planned: &Ruleset, seed: u64) {
    let kernel = kernel.unwrap();
    if kernel == planned {
        return;
    }
    let objects = |ruleset: &Ruleset| {
        let sets = ruleset.sets.iter();
        let elements = sets.flat_map(|(name, set)| {
            let elements = set.elements.iter();
            elements.map(move |(key, element)| format!("{name} {key:?} {element:?}"))
        });
        let chains = ruleset.chains.iter();
        let chains = chains.map(|(name, chain)| format!("{name} {chain:?}"));
        elements.chain(chains).collect::<BTreeSet<String>>()
    };
    let (kernel, planned) = (objects(kernel), objects(planned));
    let missing: Vec<_> = planned.difference(&kernel).collect();
    let extra: Vec<_> = kernel.difference(&planned).collect();
    panic!("seed {seed}: missing in the kernel {missing:#?}, more than planned {extra:#?}");
}

/// Checks that every packet gets the old or the new verdict in each state, and during each step.
fn check_way(
    rng: &mut SmallRng,
    config: &Config,
    (old, new): (&Tables, &Tables),
    states: &[Ruleset],
) -> (usize, usize) {
    let (mut judged, mut stamped) = (0, 0);
    for _ in 0..40 {
        let from = if rng.random_bool(0.5) { old } else { new };
        let mut frame = frame(rng, from, config.mark(9));
        frame.conntrack.mark &= !config.ct_mark_mask;
        // Regardless of its flow: a packet spoofed under the new tables may be denied.
        let spoofed = new.is_spoofed(frame.iif.as_ref(), frame.source);
        let denies = changes_direction(config, old, new, &frame) || changes_hands(old, new, &frame);
        let old = expected(old, config, 9, &frame).0;
        let new = expected(new, config, 9, &frame).0;
        for pair in states.windows(2) {
            let whole = RulesetSimulator::new(&pair[1]).run(&frame).unwrap();
            let passes = [old, new].contains(&whole.accepted) || denies && !whole.accepted;
            assert!(passes, "{old} {new} {frame:?}");
            for switch in [3, 10, 20, 30, rng.random_range(1..80)] {
                let between = RulesetSimulator::with_switch(&pair[0], &pair[1], switch);
                let outcome = between.run(&frame).unwrap();
                assert!(
                    [old, new].contains(&outcome.accepted) || denies && !outcome.accepted,
                    "{old} {new} between, after {switch}: {frame:?}"
                );
                // A flow with the raised generation was judged after the tables were tightened.
                let raised = ![0, 9].contains(&config.generation(outcome.mark));
                assert!(
                    !raised || !outcome.accepted || new || spoofed,
                    "after {switch}: {frame:?}"
                );
                stamped += usize::from(raised);
            }
            judged += 1;
        }
    }
    (judged, stamped)
}

#[test]
fn unchanged_input_writes_nothing() {
    let mut shared = 0;
    for seed in case_seeds(0, 150) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config(&mut rng);
        let tables = tables(&mut rng, &config);
        let kernel = installed(&config, &tables);
        let again = renumbered(&mut rng, &tables);
        let (planner, transaction) = adopt(&config, Some(&kernel), &again, 77);
        assert_eq!(transaction.steps, [], "seed {seed}");
        assert_eq!(planner.ruleset(), kernel, "seed {seed}");
        assert_eq!(planner.generation(), 9);
        shared += support::bases(&kernel);
    }
    assert!(shared > 50, "{shared}");
}

#[test]
fn any_state_of_ours_leads_to_the_wanted_one() {
    let (mut judged, mut stamped, mut stopped, mut shared) = (0, 0, 0, 0);
    // Seed 1044: a mid-stream flow that was allowed in one direction and is now allowed in the other.
    let named = [1044];
    for seed in case_seeds(0, 60).into_iter().chain(named) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut config = config(&mut rng);
        if named.contains(&seed) {
            config.min_shared_elements = palisade_tables::SHARE_MIN_ELEMENTS;
        }
        let old = tables(&mut rng, &config);
        let new = if rng.random_bool(0.5) {
            tables(&mut rng, &config)
        } else {
            let mut new = renumbered(&mut rng, &old);
            support::mutate(&mut rng, &config, &mut new);
            new
        };
        let start = installed(&config, &old);
        let mut kernel = Some(start.clone());
        let (planner, transaction) = adopt(&config, kernel.as_ref(), &new, 77);
        let mut states = vec![start];
        states.extend(run(&mut kernel, &transaction));
        shared += states
            .iter()
            .filter(|state| support::bases(state) > 0)
            .count();
        assert_same(kernel.as_ref(), &planner.ruleset(), seed);
        let (packets, marked) = check_way(&mut rng, &config, (&old, &new), &states);
        judged += packets;
        stamped += marked;
        let (_, again) = adopt(&config, kernel.as_ref(), &new, 77);
        assert_eq!(again.steps, [], "seed {seed}");

        // The process stops after any step; the next agent continues from there.
        for state in &states[1..] {
            let mut kernel = Some(state.clone());
            let (planner, rest) = adopt(&config, kernel.as_ref(), &new, 77);
            let mut way = vec![state.clone()];
            way.extend(run(&mut kernel, &rest));
            assert_same(kernel.as_ref(), &planner.ruleset(), seed);
            let raised = planner.generation() != 9
                || transaction.steps.iter().all(|s| s.phase != Phase::Revoke);
            assert!(raised, "seed {seed}: a revocation was lost");
            judged += check_way(&mut rng, &config, (&old, &new), &way).0;
            stopped += 1;
        }
    }
    assert!(
        judged > 5_000 && stopped > 150 && stamped > 500 && shared > 50,
        "{judged} {stopped} {stamped} {shared}"
    );
}

/// An unknown address inside an unknown range that gets an identity: the address must not get that identity
/// with the range.
#[test]
fn an_exception_is_there_before_its_range_moves() {
    let config = Config::default();
    let deny = Cell {
        verdict: Verdict::Deny,
        causes: Vec::new(),
        log: None,
        audit: None,
        redirect: None,
    };
    let allow = Cell {
        verdict: Verdict::Allow,
        ..deny.clone()
    };
    let mut old = Tables::default();
    for (class, cell) in [(1, deny), (2, allow)] {
        old.programs
            .insert(ClassId(class), Arc::new(Program::new([], cell)));
    }
    for (set, default) in [(1, 1), (2, 2)] {
        let default = ClassId(default);
        old.sets.insert(PolicySetId(set), PolicySet { default });
    }
    let somebody = IdentityId(1);
    old.classes.insert((PolicySetId(1), somebody), ClassId(2));
    let mut new = old.clone();
    let range: Prefix = "10.0.1.14/31".parse().unwrap();
    let exception: Prefix = "10.0.1.14/32".parse().unwrap();
    new.addresses.insert(range, somebody);
    new.addresses.insert(exception, IdentityId::UNKNOWN);
    for (interface, address, sets) in [("pal0", "10.0.0.7", [1, 2]), ("pal1", "10.0.1.14", [2, 2])]
    {
        new.interfaces.insert(interface.into());
        for (direction, set) in [Direction::Egress, Direction::Ingress]
            .into_iter()
            .zip(sets)
        {
            let point = Point::of_workload(interface.into(), address.parse().unwrap(), direction);
            new.points.insert(point, PolicySetId(set));
        }
    }
    let mut rng = SmallRng::seed_from_u64(1);
    let start = installed(&config, &old);
    let mut kernel = Some(start.clone());
    let (_, transaction) = adopt(&config, kernel.as_ref(), &new, 77);
    let mut states = vec![start];
    states.extend(run(&mut kernel, &transaction));
    let mut frame = frame(&mut rng, &new, 0);
    (frame.iif, frame.oif) = (Some("pal0".into()), Some("pal1".into()));
    frame.source = "10.0.0.7".parse().unwrap();
    frame.destination = exception.address();
    (frame.protocol, frame.l4) = (Protocol(47), L4::None);
    frame.conntrack = ConntrackInfo {
        state: ct_state::NEW,
        reply: false,
        mark: 0,
    };
    for state in &states {
        assert!(!RulesetSimulator::new(state).run(&frame).unwrap().accepted);
    }
}

/// Without the entry for every other interface of the host nothing there is judged, whatever points there are: it is
/// put back, and flows are judged again.
#[test]
fn the_entry_for_every_other_interface_is_put_back() {
    let config = Config::default();
    let mut tables = Tables::default();
    let deny = Cell {
        verdict: Verdict::Deny,
        causes: Vec::new(),
        log: None,
        audit: None,
        redirect: None,
    };
    let program = Arc::new(Program::new([], deny));
    tables.programs.insert(ClassId(1), program);
    let default = ClassId(1);
    tables.sets.insert(PolicySetId(1), PolicySet { default });
    let point = Point {
        interface: PointInterface::AnyHost,
        stage: PolicyStage::Normal,
        direction: Direction::Ingress,
        local: "0.0.0.0/0".parse().unwrap(),
    };
    tables.points.insert(point, PolicySetId(1));
    let mut kernel = installed(&config, &tables);
    let interfaces = kernel.sets.get_mut("p_place_n").unwrap();
    assert!(interfaces.elements.remove(&ElementKey::CatchAll).is_some());
    let mut kernel = Some(kernel);
    let (planner, transaction) = adopt(&config, kernel.as_ref(), &tables, 77);
    run(&mut kernel, &transaction);
    assert_eq!(kernel, Some(planner.ruleset()));
    assert!(planner.generation() != 9, "flows are judged again");
}

/// A table of another layout version is identified by its comment: it is replaced in one step, whatever its
/// content, so there is no moment without rules, and flows are judged again.
#[test]
fn a_table_of_another_layout_is_replaced_at_once() {
    for seed in case_seeds(0, 20) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config(&mut rng);
        let tables = tables(&mut rng, &config);
        let mut former = installed(&config, &tables);
        former.comment = Some("palisade layout 5".into());
        // The old table's elements may or may not be valid in the present layout.
        if rng.random_bool(0.5) {
            damage(&mut rng, &mut former);
        }
        let known = former.chains["p_generation"].rules.len() == 1;
        let (planner, transaction) = adopt(&config, Some(&former), &tables, 77);
        // Base chains are deleted first, or their rules would run without their elements.
        let ops = &transaction.steps[0].ops;
        let until = ops.iter().position(|op| *op == Op::DeleteTable).unwrap();
        let gone = |op: &Op| match op {
            Op::DeleteChain { chain } => Some(chain.clone()),
            _ => None,
        };
        let gone: BTreeSet<Str> = ops[..until].iter().filter_map(gone).collect();
        let called = former
            .chains
            .iter()
            .filter(|(_, of)| of.base_chain.is_some());
        let called: BTreeSet<Str> = called.map(|(name, _)| name.clone()).collect();
        assert_eq!(gone, called, "seed {seed}");
        let mut kernel = Some(former);
        assert_eq!(run(&mut kernel, &transaction).len(), 1, "seed {seed}");
        assert_eq!(kernel, Some(planner.ruleset()), "seed {seed}");
        let generation = if known { config.next_generation(9) } else { 77 };
        assert_eq!(planner.generation(), generation, "seed {seed}");
    }
}

/// Changes the ruleset at random, as another program might.
fn damage(rng: &mut SmallRng, ruleset: &mut Ruleset) {
    let name = ruleset.sets.keys().choose(rng).unwrap().clone();
    let chain = ruleset.chains.keys().choose(rng).unwrap().clone();
    let set = ruleset.sets.get_mut(&name).unwrap();
    let key = set.elements.keys().choose(rng).cloned();
    match (rng.random_range(0..8), key) {
        (0..3, Some(key)) => drop(set.elements.remove(&key)),
        (3, Some(key)) => {
            if let Some(MapValue::Value(value)) = &mut set.elements.get_mut(&key).unwrap().data {
                value[0] ^= 1 << rng.random_range(0..4);
            }
        }
        (4, Some(ElementKey::Exact(mut key))) => {
            let element = set.elements[&ElementKey::Exact(key.clone())].clone();
            key[0] ^= 0x20;
            set.elements.insert(ElementKey::Exact(key), element);
        }
        (5, _) => {
            let rules = &mut ruleset.chains.get_mut(&chain).unwrap().rules;
            if !rules.is_empty() {
                rules.remove(rng.random_range(0..rules.len()));
            }
        }
        (6, _) => drop(ruleset.chains.insert("foreign".into(), Default::default())),
        _ => ruleset.flags = 1,
    }
}

/// Copies of a table, each without one of its objects.
fn each_thing_gone(whole: &Ruleset) -> Vec<(String, Ruleset)> {
    let mut out = Vec::new();
    for (name, set) in &whole.sets {
        for key in set.elements.keys() {
            let mut less = whole.clone();
            less.sets.get_mut(name).unwrap().elements.remove(key);
            out.push((format!("an element of {name}"), less));
        }
        let mut less = whole.clone();
        less.sets.remove(name);
        out.push((format!("the set {name}"), less));
    }
    for (name, chain) in &whole.chains {
        for rule in 0..chain.rules.len() {
            let mut less = whole.clone();
            less.chains.get_mut(name).unwrap().rules.remove(rule);
            out.push((format!("rule {rule} of {name}"), less));
        }
        let mut less = whole.clone();
        less.chains.remove(name);
        out.push((format!("the chain {name}"), less));
    }
    out
}

#[test]
fn whatever_goes_is_put_back_in_place_and_flows_are_judged_again() {
    let mut things = 0;
    for seed in case_seeds(0, 3) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config(&mut rng);
        let tables = tables(&mut rng, &config);
        let whole = installed(&config, &tables);
        let (planner, _) = adopt(&config, Some(&whole), &tables, 9);
        for (what, less) in each_thing_gone(&whole) {
            let mut planner = planner.clone();
            let transaction = planner.repair(&less).unwrap();
            let phases: Vec<Phase> = transaction.steps.iter().map(|s| s.phase).collect();
            assert_eq!(phases, [Phase::Tighten, Phase::Revoke], "{seed}: {what}");
            let mended = &transaction.steps[0].ops;
            let few =
                mended.len() <= 2 + whole.chains.values().map(|c| c.rules.len()).max().unwrap();
            let set_of_many = what.starts_with("the set");
            assert!(few || set_of_many, "{seed}: {what}: {} ops", mended.len());
            let mut kernel = Some(less);
            run(&mut kernel, &transaction);
            assert_eq!(kernel.as_ref(), Some(&planner.ruleset()), "{seed}: {what}");
            let next = config.next_generation(9);
            assert_eq!(planner.generation(), next, "{seed}: {what}");
            things += 1;
        }
        let mut same = planner.clone();
        assert!(same.repair(&whole).unwrap().is_empty());
        assert_eq!(same.ruleset(), whole);
    }
    println!("{things} things put back");
    assert!(things > 500, "{things}");
}

#[test]
fn damage_is_mended_in_place_where_a_planner_knows_what_was_there() {
    let mut mended = 0;
    for seed in case_seeds(0, 300) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config(&mut rng);
        let tables = tables(&mut rng, &config);
        let mut ruleset = installed(&config, &tables);
        let (mut planner, _) = adopt(&config, Some(&ruleset), &tables, 9);
        for _ in 0..rng.random_range(1..4) {
            damage(&mut rng, &mut ruleset);
        }
        let dormant = ruleset.flags != 0;
        let Some(transaction) = planner.repair(&ruleset) else {
            assert!(dormant, "seed {seed}");
            assert_eq!(planner.ruleset(), installed(&config, &tables));
            continue;
        };
        let mut kernel = Some(ruleset);
        run(&mut kernel, &transaction);
        assert_eq!(kernel, Some(planner.ruleset()), "seed {seed}");
        mended += 1;
    }
    assert!(mended > 100, "{mended}");
}

#[test]
fn damage_is_repaired() {
    let (mut gentle, mut rebuilt) = (0, 0);
    for seed in case_seeds(0, 300) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let config = config(&mut rng);
        let tables = tables(&mut rng, &config);
        let mut ruleset = installed(&config, &tables);
        for _ in 0..rng.random_range(1..4) {
            damage(&mut rng, &mut ruleset);
        }
        let mut kernel = Some(ruleset);
        let (planner, transaction) = adopt(&config, kernel.as_ref(), &tables, 77);
        match transaction.steps.first().map(|step| step.ops.len()) {
            Some(ops) if ops > 150 => rebuilt += 1,
            Some(_) => gentle += 1,
            None => {}
        }
        run(&mut kernel, &transaction);
        assert_eq!(kernel, Some(planner.ruleset()), "seed {seed}");
        let plain = Planner::ruleset(&adopt(&config, None, &tables, 9).0);
        // Which classes share a base, and with it source-port chains, depends on what was held (seed 77011); a chain
        // that nothing refers to is a finding of `run`.
        let chains = |ruleset: Ruleset| {
            let names = ruleset.chains.into_keys();
            let fixed = names.filter(|name| !name.starts_with("p_res_"));
            fixed.collect::<BTreeSet<_>>()
        };
        let (fresh, repaired) = (chains(plain), chains(planner.ruleset()));
        assert_eq!(fresh, repaired, "seed {seed}");
    }
    assert!(gentle > 20 && rebuilt > 20, "{gentle} {rebuilt}");
}
