//! The common part of large programs is in the kernel once, counts once, and is deleted with the last class
//! that refers to it; a table with an invalid base is rebuilt.

use palisade_model::{Direction, Protocol};
use palisade_nft::{
    Config, CounterLocation, Element, ElementKey, MapValue, Planner, Ruleset, Transaction, adopt,
};
use palisade_tables::{
    Cell, ClassId, Delta, DeltaStep, IdentityId, Phase, PolicySet, PolicySetId, PortMap, Program,
    RuleId, TableChange, Tables, Verdict, VerdictCause,
};
use palisade_verification::apply;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A program with a list of ports by rule 1, and optionally one more port by a rule of its own.
fn program(list: u16, own: Option<u16>) -> Program {
    let cell = |verdict, rule| {
        PortMap::constant(Cell {
            verdict,
            causes: vec![RuleId(rule)],
            log: None,
            audit: None,
            redirect: None,
        })
    };
    let denied = cell(Verdict::Deny, 0);
    let mut ends = Vec::new();
    let mut port = |port: u16, rule| {
        ends.push((port - 1, denied.clone()));
        ends.push((port, cell(Verdict::Allow, rule)));
    };
    if let Some(own) = own {
        port(2 + 2 * own, 2 + u32::from(own));
    }
    (0..list).for_each(|n| port(9001 + 2 * n, 1));
    ends.push((u16::MAX, denied.clone()));
    let map = PortMap::from_segments(ends).unwrap();
    Program::new([(Protocol::TCP, map)], denied.default().clone())
}

/// A set that allows the list to everyone, and one port more to each of `peers`.
fn tables(list: u16, peers: u16) -> Tables {
    let mut tables = Tables::default();
    for rule in 0..2 + u32::from(peers) {
        let cause = VerdictCause::MissingProfile {
            profile: format!("p{rule}").into(),
            direction: Direction::Ingress,
        };
        tables.rules.insert(RuleId(rule), Arc::new(cause));
    }
    let mut class = |number: u32, own| {
        let program = Arc::new(program(list, own));
        tables.programs.insert(ClassId(number), program);
        ClassId(number)
    };
    let default = class(0, None);
    for peer in 0..peers {
        let number = u32::from(peer) + 1;
        let class = class(number, Some(peer));
        tables
            .classes
            .insert((PolicySetId(1), IdentityId(number)), class);
    }
    tables.sets.insert(PolicySetId(1), PolicySet { default });
    tables
}

/// The number of elements of programs.
fn elements(ruleset: &Ruleset) -> usize {
    let maps = ["p_port", "p_portr", "p_proto", "p_any", "p_base"];
    maps.iter()
        .map(|map| ruleset.sets[*map].elements.len() - 1)
        .sum()
}

fn run(kernel: &mut Option<Ruleset>, transaction: &Transaction) {
    for step in &transaction.steps {
        apply(kernel, &transaction.table, &step.ops).unwrap();
    }
}

/// Asserts that the kernel's content is the planned one, and prints only the differences.
fn same(kernel: &Option<Ruleset>, planner: &Planner) {
    let (kernel, wanted) = (kernel.as_ref().unwrap(), planner.ruleset());
    for (name, set) in &kernel.sets {
        let differ = |(key, element): &(&ElementKey, &Element)| {
            wanted.sets[name].elements.get(key) != Some(*element)
        };
        let differ: Vec<_> = set.elements.iter().filter(differ).collect();
        assert!(
            differ.is_empty(),
            "{name}: {} {:?}",
            differ.len(),
            differ.first()
        );
        assert_eq!(
            set.elements.len(),
            wanted.sets[name].elements.len(),
            "{name}"
        );
    }
    assert!(*kernel == wanted);
}

fn step(phase: Phase, changes: Vec<TableChange>) -> Delta {
    let steps = vec![DeltaStep { phase, changes }];
    Delta { revision: 1, steps }
}

fn unshared() -> Config {
    Config {
        min_shared_elements: usize::MAX,
        ..Config::default()
    }
}

#[test]
fn a_list_that_every_peer_has_is_written_once() {
    let tables = tables(8000, 10);
    let whole = adopt(&unshared(), None, &tables, 1).0.ruleset();
    assert_eq!(elements(&whole), 11 * (8000 + 2) + 10, "as it was before");
    let (planner, _) = adopt(&Config::default(), None, &tables, 1);
    let written = planner.ruleset();
    assert_eq!(elements(&written), 8002 + 11 + 10);

    // Adopted by an agent that would write all programs whole: existing bases stay as they are.
    let (again, nothing) = adopt(&unshared(), Some(&written), &tables, 2);
    assert!(nothing.is_empty());
    assert_eq!(again.ruleset(), written);
    let counter_locations = |planner: &Planner| -> Vec<(CounterLocation, Vec<RuleId>)> {
        let causes = planner.attributed_counters().into_iter();
        causes
            .map(|harvest| (harvest.location, harvest.rules))
            .collect()
    };
    assert_eq!(
        counter_locations(&again),
        counter_locations(&planner),
        "and counts for the same rules"
    );
    let of_list = counter_locations(&planner)
        .into_iter()
        .filter(|(_, of)| *of == [RuleId(1)]);
    assert_eq!(of_list.count(), 8000);
    let distinct: BTreeSet<CounterLocation> = counter_locations(&planner)
        .into_iter()
        .map(|(p, _)| p)
        .collect();
    assert_eq!(distinct.len(), counter_locations(&planner).len());
}

/// Peers are added and deleted one by one: the base exists as long as one of its classes does, and each of
/// its counters is read once before deletion, for existing rules.
#[test]
fn a_base_lives_as_long_as_a_class_has_it() {
    let tables = tables(200, 10);
    let (mut planner, made) = adopt(&Config::default(), None, &Tables::default(), 1);
    let mut kernel = None;
    run(&mut kernel, &made);
    for (class, program) in &tables.programs {
        let change = TableChange::Program(*class, Some(program.clone()));
        run(
            &mut kernel,
            &planner.plan(&step(Phase::Split, vec![change])),
        );
        same(&kernel, &planner);
    }
    // The first program is written whole; the base is created with the second.
    assert_eq!(elements(kernel.as_ref().unwrap()), 2 * 202 + 10 + 10);
    let mut harvested: Vec<CounterLocation> = Vec::new();
    for class in tables.programs.keys().rev() {
        let before = planner.attributed_counters();
        let plan = planner.plan(&step(
            Phase::Delete,
            vec![TableChange::Program(*class, None)],
        ));
        for harvest in plan.steps.iter().flat_map(|step| &step.retiring_counters) {
            assert!(before.contains(harvest));
            harvested.push(harvest.location.clone());
        }
        run(&mut kernel, &plan);
        same(&kernel, &planner);
        let bases = if class.0 > 1 { 202 + 202 } else { 202 };
        let left = if class.0 == 0 { 0 } else { bases };
        let beside = 2 * (class.0 as usize).saturating_sub(1);
        assert_eq!(elements(kernel.as_ref().unwrap()), left + beside);
    }
    let distinct: BTreeSet<&CounterLocation> = harvested.iter().collect();
    assert_eq!((harvested.len(), distinct.len()), (414, 414));
}

/// A class's program is replaced in the step that created it, and created twice in one step.
#[test]
fn a_class_that_is_written_twice_in_a_step_leaves_nothing() {
    // Nothing refers to the classes.
    let programs = Tables {
        programs: tables(200, 3).programs,
        ..Tables::default()
    };
    let (mut planner, made) = adopt(&Config::default(), None, &programs, 1);
    let mut kernel = None;
    run(&mut kernel, &made);
    let new = |own| Some(Arc::new(program(200, Some(own))));
    for changes in [
        vec![TableChange::Program(ClassId(2), new(7))],
        vec![
            TableChange::Program(ClassId(9), new(8)),
            TableChange::Program(ClassId(9), new(9)),
            TableChange::Program(ClassId(9), None),
        ],
        vec![
            TableChange::Program(ClassId(8), new(8)),
            TableChange::Program(ClassId(8), new(10)),
        ],
        (0..10)
            .map(|n| TableChange::Program(ClassId(n), None))
            .collect(),
    ] {
        run(&mut kernel, &planner.plan(&step(Phase::Merge, changes)));
        same(&kernel, &planner);
    }
    assert_eq!(elements(kernel.as_ref().unwrap()), 0);
}

fn number(number: u32) -> Option<MapValue> {
    Some(MapValue::Value(number.to_ne_bytes().into()))
}

/// Changes a table to content that this layout could not have written.
type Spoil<'a> = &'a dyn Fn(&mut Ruleset);

/// Content that this layout could not have written is replaced in one step.
#[test]
fn a_base_that_is_none_has_the_table_rebuilt() {
    let tables = tables(200, 10);
    let config = Config::default();
    let live = config.least_generation();
    let whole = adopt(&config, None, &tables, live).0.ruleset();
    let key = |class: u32| ElementKey::Exact([[0; 4], class.to_ne_bytes()].concat().into());
    let first = 1 << 31;
    let spoil: [(&str, Spoil<'_>); 6] = [
        ("a base that nothing refers to", &|table| {
            table
                .sets
                .get_mut("p_base")
                .unwrap()
                .elements
                .retain(|key, _| *key == ElementKey::CatchAll);
        }),
        ("a class with a base and a default", &|table| {
            let any = table.sets["p_any"].elements[&key(first)].clone();
            table
                .sets
                .get_mut("p_any")
                .unwrap()
                .elements
                .insert(key(1), any);
        }),
        ("a base that names a base", &|table| {
            let base = table.sets["p_base"].elements[&key(1)].clone();
            table
                .sets
                .get_mut("p_base")
                .unwrap()
                .elements
                .insert(key(first), base);
        }),
        ("a base that is not there", &|table| {
            let base = table.sets.get_mut("p_base").unwrap();
            base.elements.get_mut(&key(1)).unwrap().data = number(first + 1);
        }),
        ("a row that leads to a base", &|table| {
            let rows = &mut table.sets.get_mut("p_class").unwrap().elements;
            rows.values_mut().next().unwrap().data = number(first);
        }),
        ("a class that says what its base does", &|table| {
            let port = |class: u32| {
                let fields = [
                    [0; 4],
                    class.to_ne_bytes(),
                    [6, 0, 0, 0],
                    [0x23, 0x29, 0, 0],
                ];
                ElementKey::Exact(fields.concat().into())
            };
            let ports = &mut table.sets.get_mut("p_port").unwrap().elements;
            let element: Element = ports[&port(first)].clone();
            ports.insert(port(1), element);
        }),
    ];
    for (what, spoil) in spoil {
        let mut kernel = whole.clone();
        spoil(&mut kernel);
        assert_ne!(kernel, whole, "{what}");
        let (planner, transaction) = adopt(&Config::default(), Some(&kernel), &tables, 7);
        assert_eq!(transaction.steps.len(), 1, "{what}");
        let mut kernel = Some(kernel);
        run(&mut kernel, &transaction);
        assert_eq!(kernel, Some(planner.ruleset()), "{what}");
        assert_eq!(planner.generation(), live + 1, "{what}");
    }
}
