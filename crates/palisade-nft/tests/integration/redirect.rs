//! The chains that send DNS queries to the proxy, and bring it what servers answer: their text, and their repair.

use crate::meaning::everything;
use palisade_model::{Direction, DomainPattern, Protocol};
use palisade_nft::{
    ChainType, Config, Op, RedirectConfig, Ruleset, Transaction, adopt, print_ruleset,
};
use palisade_tables::{
    Cell, ClassId, Delta, DeltaStep, DnsRules, Phase, Point, PolicySet, PolicySetId, PortMap,
    Program, TableChange, Tables, Verdict,
};
use palisade_verification::{apply, lint};
use std::sync::Arc;

fn config() -> Config {
    Config {
        redirect: Some(RedirectConfig::default()),
        ..Config::default()
    }
}

/// A workload that may ask for one name.
fn tables() -> Tables {
    let deny = Cell {
        verdict: Verdict::Deny,
        causes: Vec::new(),
        log: None,
        audit: None,
        redirect: None,
    };
    let ask = Cell {
        redirect: Some(Arc::new(DnsRules {
            names: [DomainPattern::glob("a.example").unwrap()].into(),
            default: Verdict::Deny,
        })),
        ..deny.clone()
    };
    let always = |cell: &Cell| PortMap::constant(cell.clone());
    let ports = [
        (52, always(&deny)),
        (53, always(&ask)),
        (u16::MAX, always(&deny)),
    ];
    let ports = PortMap::from_segments(ports).unwrap();
    let program = Program::new([(Protocol::UDP, ports)], deny);
    let mut tables = Tables::default();
    tables.programs.insert(ClassId(1), Arc::new(program));
    let default = ClassId(1);
    tables.sets.insert(PolicySetId(1), PolicySet { default });
    tables.interfaces.insert("pal0".into());
    let address = "10.0.0.1".parse().unwrap();
    let point = Point::of_workload("pal0".into(), address, Direction::Egress);
    tables.points.insert(point, PolicySetId(1));
    tables
}

fn run(kernel: &mut Option<Ruleset>, transaction: &Transaction) {
    for step in &transaction.steps {
        apply(kernel, &transaction.table, &step.ops).unwrap();
    }
}

fn installed() -> Ruleset {
    let mut kernel = None;
    let (_, transaction) = adopt(&config(), None, &tables(), 9);
    run(&mut kernel, &transaction);
    kernel.unwrap()
}

#[test]
fn the_chains_are_sound_and_read_as_they_are_meant() {
    let mut ruleset = installed();
    assert_eq!(lint(&ruleset), []);
    ruleset.sets.clear();
    ruleset
        .chains
        .retain(|name, _| name.starts_with("p_redirect"));
    let text = print_ruleset(&ruleset);
    let wanted = include_str!("redirect.txt");
    assert_eq!(text, wanted, "{text}");
}

/// Other programs of the host use the same bits of the mark.
#[test]
fn the_bits_of_the_mark_mean_nothing_where_nothing_is_redirected() {
    let config = config();
    let (mut planner, transaction) = adopt(&config, None, &Tables::default(), 9);
    let mut kernel = None;
    run(&mut kernel, &transaction);
    let rules = |kernel: &Option<Ruleset>| {
        let chains = &kernel.as_ref().unwrap().chains;
        ["p_redirect_input", "p_redirect_output"].map(|name| chains[name].rules.len())
    };
    assert_eq!(rules(&kernel), [0, 0]);
    let tables = tables();
    let point = tables.points.keys().next().unwrap().clone();
    let unselected = Delta {
        revision: 2,
        steps: vec![DeltaStep {
            phase: Phase::Delete,
            changes: vec![
                TableChange::Point(point, None),
                TableChange::Set(PolicySetId(1), None),
                TableChange::Program(ClassId(1), None),
            ],
        }],
    };
    for (delta, wanted) in [(everything(&tables), [1, 4]), (unselected, [0, 0])] {
        let transaction = planner.plan(&delta);
        run(&mut kernel, &transaction);
        assert_eq!(rules(&kernel), wanted);
        assert_eq!(kernel, Some(planner.ruleset()));
    }
}

#[test]
fn what_somebody_changed_in_them_is_put_back_and_nothing_else() {
    let whole = installed();
    for name in [
        "p_redirect",
        "p_redirect_zone",
        "p_redirect_host",
        "p_redirect_judge",
        "p_redirect_output",
    ] {
        let mut changed = whole.clone();
        let chain = changed.chains.get_mut(name).unwrap();
        assert!(chain.rules.pop().is_some());
        let mut kernel = Some(changed);
        let (planner, transaction) = adopt(&config(), kernel.as_ref(), &tables(), 77);
        let ops = || transaction.steps.iter().flat_map(|step| &step.ops);
        assert!(!ops().any(|op| matches!(op, Op::DeleteTable)), "{name}");
        run(&mut kernel, &transaction);
        assert_eq!(kernel, Some(planner.ruleset()), "{name}");
    }
    // What a chain hangs on cannot be changed, only made anew.
    let mut changed = whole.clone();
    let chain = changed.chains.get_mut("p_redirect_host").unwrap();
    chain.base_chain.as_mut().unwrap().chain_type = ChainType::Filter;
    let mut kernel = Some(changed);
    let (planner, transaction) = adopt(&config(), kernel.as_ref(), &tables(), 77);
    run(&mut kernel, &transaction);
    assert_eq!(kernel, Some(planner.ruleset()));
    let whole = kernel;
    let (_, transaction) = adopt(&config(), whole.as_ref(), &tables(), 78);
    assert!(transaction.is_empty());
}
