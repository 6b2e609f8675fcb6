//! Alignment finds the kernel's content under any numbers: if the same tables are desired under other
//! numbers, nothing is written. Many objects here are equal: classes of equal programs, policy sets without
//! points, identities without addresses.

use crate::support::renumbered;
use palisade_model::{Direction, Prefix, Protocol};
use palisade_nft::{Config, Ruleset, adopt};
use palisade_tables::{
    Cell, ClassId, IdentityId, Point, PolicySet, PolicySetId, PortMap, Program, RuleId, Tables,
    Verdict, VerdictCause,
};
use palisade_verification::apply;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// Rules come in pairs with equal causes: so programs can be equal without being identical.
const RULES: u32 = 6;

/// A program of the given kind, in one of its equal variants.
fn program(rng: &mut SmallRng, kind: u32) -> Program {
    let rule = RuleId(kind % RULES + RULES * rng.random_range(0..2));
    let cell = |verdict| Cell {
        verdict,
        causes: vec![rule],
        log: (kind == 2).then_some(Direction::Ingress),
        audit: None,
        redirect: None,
    };
    let map = PortMap::from_segments([
        (79, PortMap::constant(cell(Verdict::Deny))),
        (80, PortMap::constant(cell(Verdict::Allow))),
        (u16::MAX, PortMap::constant(cell(Verdict::Deny))),
    ]);
    Program::new([(Protocol::TCP, map.unwrap())], cell(Verdict::Deny))
}

/// Empty tables with rules, and one class of each of these kinds.
fn with_classes(rng: &mut SmallRng, kinds: &[u32]) -> Tables {
    let mut tables = Tables::default();
    for rule in 0..2 * RULES {
        let cause = VerdictCause::MissingProfile {
            profile: format!("p{}", rule % RULES).into(),
            direction: Direction::Egress,
        };
        tables.rules.insert(RuleId(rule), Arc::new(cause));
    }
    for (class, kind) in (0..).zip(kinds) {
        let program = Arc::new(program(rng, *kind));
        tables.programs.insert(ClassId(class), program);
    }
    tables.interfaces.insert("pal0".into());
    tables
}

fn point(tables: &mut Tables, number: u8, set: u32) {
    let point = Point::of_workload("pal0".into(), [10, 0, 0, number].into(), Direction::Ingress);
    tables.points.insert(point, PolicySetId(set));
}

fn address(tables: &mut Tables, number: u8, id: u32) {
    let prefix = Prefix::host([10, 0, 1, number].into());
    tables.addresses.insert(prefix, IdentityId(id));
}

fn set(tables: &mut Tables, set: u32, default: u32) {
    let default = ClassId(default);
    tables.sets.insert(PolicySetId(set), PolicySet { default });
}

fn row(tables: &mut Tables, set: u32, id: u32, class: u32) {
    let row = (PolicySetId(set), IdentityId(id));
    tables.classes.insert(row, ClassId(class));
}

/// Tables in which few objects differ in their content.
fn alike(rng: &mut SmallRng) -> Tables {
    let kinds = rng.random_range(1..4);
    let classes = rng.random_range(1..9);
    let of: Vec<u32> = (0..classes).map(|_| rng.random_range(0..kinds)).collect();
    let mut tables = with_classes(rng, &of);
    let sets = rng.random_range(1..8);
    let with_points = rng.random_range(0..=sets);
    let identities = rng.random_range(1..8);
    let with_addresses = rng.random_range(0..=identities);
    for number in 0..sets {
        set(&mut tables, number, rng.random_range(0..classes));
        for id in 1..=identities {
            if rng.random_bool(0.4) {
                row(&mut tables, number, id, rng.random_range(0..classes));
            }
        }
        if rng.random_bool(0.1) {
            row(&mut tables, number, 0, rng.random_range(0..classes));
        }
    }
    for number in 0..8 {
        if with_points > 0 {
            point(&mut tables, number, rng.random_range(0..with_points));
        }
        if with_addresses > 0 {
            address(&mut tables, number, rng.random_range(1..=with_addresses));
        }
    }
    tables
}

/// Tables with the same program in every class.
fn told_apart_by_nothing(rng: &mut SmallRng, classes: u32) -> Tables {
    with_classes(rng, &vec![0; classes as usize])
}

fn installed(config: &Config, tables: &Tables) -> Ruleset {
    let (_, transaction) = adopt(config, None, tables, 9);
    let mut kernel = None;
    for step in &transaction.steps {
        apply(&mut kernel, &transaction.table, &step.ops).unwrap();
    }
    kernel.unwrap()
}

/// Installs the tables, starts again with other numbers, and checks that nothing is written.
fn nothing_is_written(rng: &mut SmallRng, tables: &Tables, what: &str) {
    let config = Config::default();
    let kernel = installed(&config, tables);
    let again = renumbered(rng, tables);
    let (planner, transaction) = adopt(&config, Some(&kernel), &again, 77);
    assert_eq!(transaction.steps, [], "{what}");
    assert_eq!(planner.ruleset(), kernel, "{what}");
}

fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[test]
fn the_same_under_other_numbers_writes_nothing() {
    let fresh = fresh_seed();
    println!("fresh seed: {fresh}");
    let fixed = (0..2_000).map(|case| (1, case));
    for (seed, case) in fixed.chain((0..2_000).map(|case| (fresh, case))) {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_add(case));
        let tables = alike(&mut rng);
        nothing_is_written(&mut rng, &tables, &format!("case {case} of seed {seed}"));
    }
}

#[test]
fn classes_of_one_program_in_the_sets_of_different_points() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut tables = told_apart_by_nothing(&mut rng, 6);
        for number in 0..3 {
            set(&mut tables, number, number);
            point(&mut tables, number as u8, number);
            address(&mut tables, number as u8, number + 1);
            row(&mut tables, number, number + 1, number + 3);
        }
        nothing_is_written(&mut rng, &tables, &format!("seed {seed}"));
    }
}

/// Colours cannot distinguish two rings of three from one of six, nor the elements of a ring.
#[test]
fn rings_that_only_a_search_pairs() {
    for seed in 0..20 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut tables = told_apart_by_nothing(&mut rng, 1);
        for number in 0..12 {
            set(&mut tables, number, 0);
            let next = match number {
                0..6 => (number + 1) % 6,
                6..9 => 6 + (number + 1 - 6) % 3,
                _ => 9 + (number + 1 - 9) % 3,
            };
            row(&mut tables, number, number + 1, 0);
            row(&mut tables, number, next + 1, 0);
        }
        nothing_is_written(&mut rng, &tables, &format!("seed {seed}"));
    }
}

/// The order in which candidates are tried has no effect: rings of each size from 3 to 10, with 52 sets and
/// 52 identities.
#[test]
fn many_rings_are_paired_with_their_likes() {
    for seed in 0..5 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut tables = told_apart_by_nothing(&mut rng, 1);
        let mut first = 0;
        for length in 3..=10 {
            for offset in 0..length {
                let number = first + offset;
                set(&mut tables, number, 0);
                row(&mut tables, number, number + 1, 0);
                row(&mut tables, number, first + (offset + 1) % length + 1, 0);
            }
            first += length;
        }
        nothing_is_written(&mut rng, &tables, &format!("seed {seed}"));
    }
}

/// Indistinguishable objects are paired without a search, however many there are.
#[test]
fn many_that_nothing_tells_apart() {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut tables = told_apart_by_nothing(&mut rng, 90);
    set(&mut tables, 0, 0);
    point(&mut tables, 0, 0);
    for number in 1..90 {
        set(&mut tables, number, number);
        row(&mut tables, 0, number, number);
    }
    nothing_is_written(&mut rng, &tables, "sets, classes and identities");
}
