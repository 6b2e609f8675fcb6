//! Hand-written bad deltas, one for each kind of violation that the checker of intermediate states
//! detects and for each cause of a dangling reference. The checker must report exactly that violation,
//! and accept the corresponding good delta.

use palisade_model::{Direction, L4, Prefix, Protocol};
use palisade_tables::{
    Atomicity, Cell, ClassId, Delta, DeltaStep, IdentityId, Phase, Point, PolicySet, PolicySetId,
    Program, RuleId, TableChange, Tables, Verdict, VerdictCause,
};
use palisade_verification::{MisjudgedPacket, Violation, check, check_any_order};
use std::net::IpAddr;
use std::sync::Arc;

const DENIES: ClassId = ClassId(0);
const ALLOWS: ClassId = ClassId(1);
const SET: PolicySetId = PolicySetId(0);
const PEER: IdentityId = IdentityId(1);

fn peer() -> IpAddr {
    [10, 0, 1, 1].into()
}

fn point(direction: Direction) -> Point {
    Point::of_workload("pal0".into(), [10, 0, 0, 1].into(), direction)
}

fn program(verdict: Verdict, rule: u32) -> Arc<Program> {
    Arc::new(Program::constant(Cell {
        verdict,
        causes: vec![RuleId(rule)],
        log: None,
        audit: None,
        redirect: None,
    }))
}

/// One endpoint whose ingress is denied except from one peer.
fn tables() -> Tables {
    let cause = VerdictCause::NoProfileMatch {
        direction: Direction::Ingress,
    };
    Tables {
        interfaces: ["pal0".into()].into(),
        addresses: [(Prefix::host(peer()), PEER)].into(),
        points: [(point(Direction::Ingress), SET)].into(),
        sets: [(SET, PolicySet { default: DENIES })].into(),
        classes: [((SET, PEER), ALLOWS)].into(),
        programs: [
            (DENIES, program(Verdict::Deny, 0)),
            (ALLOWS, program(Verdict::Allow, 0)),
        ]
        .into(),
        rules: [(RuleId(0), Arc::new(cause))].into(),
        ..Tables::default()
    }
}

fn delta(steps: Vec<(Phase, Vec<TableChange>)>) -> Delta {
    let steps = steps.into_iter();
    Delta {
        revision: 1,
        steps: steps
            .map(|(phase, changes)| DeltaStep { phase, changes })
            .collect(),
    }
}

fn after(old: &Tables, delta: &Delta) -> Tables {
    let mut new = old.clone();
    delta.apply_to(&mut new);
    new
}

/// The violation that the checker reports for a delta with the right final tables.
fn told(old: &Tables, delta: &Delta) -> Option<Violation> {
    check(old, delta, &after(old, delta), usize::MAX).err()
}

/// Like `told`, for any order of phases.
fn told_between(old: &Tables, delta: &Delta) -> Option<Violation> {
    check_any_order(old, delta, &after(old, delta), Atomicity::Step, usize::MAX).err()
}

fn row(class: ClassId) -> TableChange {
    TableChange::Class(SET, PEER, Some(class))
}

/// The peer's packet with its old, new and interim verdict in a step. The first sample header has a
/// protocol that no program names.
fn wrong(
    step: usize,
    phase: Phase,
    old: Verdict,
    new: Verdict,
    between: Verdict,
) -> Box<MisjudgedPacket> {
    Box::new(MisjudgedPacket {
        step,
        phase,
        input: None,
        output: Some((point(Direction::Ingress), peer())),
        protocol: Protocol(0),
        l4: L4::None,
        old,
        new,
        interim: between,
    })
}

use Phase::{Delete, Loosen, Merge, Revoke, Shift, Split, Tighten};
use Verdict::{Allow, Deny};

#[test]
fn a_wrong_end() {
    let old = tables();
    let mut new = old.clone();
    new.apply(&row(DENIES));
    let nothing = Delta::default();
    assert_eq!(
        check(&old, &nothing, &new, 9),
        Err(Violation::WrongFinalTables)
    );
    assert!(check(&old, &nothing, &old, 9).is_ok());
}

#[test]
fn phases_out_of_order() {
    let old = tables();
    let unsorted = delta(vec![
        (Loosen, vec![row(ALLOWS)]),
        (Tighten, vec![row(DENIES)]),
    ]);
    let told_of = told(&old, &unsorted);
    assert_eq!(told_of, Some(Violation::PhaseOrder(vec![Loosen, Tighten])));
    let empty = delta(vec![(Merge, Vec::new())]);
    assert_eq!(told(&old, &empty), Some(Violation::PhaseOrder(vec![Merge])));
    let changing = delta(vec![(Revoke, vec![row(ALLOWS)])]);
    assert_eq!(
        told(&old, &changing),
        Some(Violation::PhaseOrder(vec![Revoke]))
    );
}

#[test]
fn each_cause_of_a_dangling_reference() {
    let at = point(Direction::Egress);
    let lonely = |class| TableChange::Set(PolicySetId(1), Some(PolicySet { default: class }));
    let cases: [(&str, TableChange, TableChange); 5] = [
        (
            "Point { interface: Workload(\"pal0\"), stage: Normal, direction: Egress, local: 10.0.0.1/32 } has s9, which is not there",
            TableChange::Point(at.clone(), Some(PolicySetId(9))),
            TableChange::Point(at, None),
        ),
        (
            "s1 or c9 is not there",
            lonely(ClassId(9)),
            TableChange::Set(PolicySetId(1), None),
        ),
        (
            "s0 or c9 is not there",
            TableChange::Class(SET, IdentityId(2), Some(ClassId(9))),
            TableChange::Class(SET, IdentityId(2), None),
        ),
        (
            "s9 or c1 is not there",
            TableChange::Class(PolicySetId(9), PEER, Some(ALLOWS)),
            TableChange::Class(PolicySetId(9), PEER, None),
        ),
        (
            "c2 names r9, which is not there",
            TableChange::Program(ClassId(2), Some(program(Deny, 9))),
            TableChange::Program(ClassId(2), None),
        ),
    ];
    let old = tables();
    let rule = |cause| TableChange::Rule(RuleId(5), cause);
    let cause = old.rules[&RuleId(0)].clone();
    for (what, made, unmade) in cases {
        // The first and last steps are correct: only the state after the second is wrong.
        let passing = delta(vec![
            (Split, vec![rule(Some(cause.clone()))]),
            (Merge, vec![made]),
            (Delete, vec![unmade, rule(None)]),
        ]);
        let what = what.to_owned();
        let violation = Violation::DanglingReference {
            step: 1,
            reference: what,
        };
        assert_eq!(told(&old, &passing), Some(violation));
    }
}

#[test]
fn neither_the_old_nor_the_new() {
    let old = tables();
    let other = IdentityId(2);
    let moved = TableChange::Address(Prefix::host(peer()), Some(other));
    let new_row = TableChange::Class(SET, other, Some(ALLOWS));
    let old_row = TableChange::Class(SET, PEER, None);
    // A packet that has looked up its old identity finds no class entry for it.
    let at_once = delta(vec![(
        Merge,
        vec![new_row.clone(), moved.clone(), old_row.clone()],
    )]);
    let violation = Violation::MixedVerdict(wrong(0, Merge, Allow, Allow, Deny));
    assert_eq!(told(&old, &at_once), Some(violation));
    let apart = delta(vec![
        (Split, vec![new_row]),
        (Merge, vec![moved]),
        (Delete, vec![old_row]),
    ]);
    assert_eq!(told(&old, &apart), None);
}

/// Steps without a grace period between them act as one step: a program that no class entry refers to
/// may be added without one, a program that is referred to may not.
#[test]
fn what_is_not_waited_for_is_judged_as_one() {
    let old = tables();
    let class = ClassId(2);
    let made = TableChange::Program(class, Some(program(Deny, 0)));
    let used = delta(vec![
        (Split, vec![made]),
        (Tighten, vec![row(class)]),
        (Revoke, Vec::new()),
    ]);
    assert!(!used.needs_grace_period_after(0, &old));
    assert_eq!(told(&old, &used), None);
}

/// Between deltas that only loosen addresses nothing is waited for: as one step they are correct. One that tightens is not
/// among them: a packet judged at both ends would pass that passes neither before nor after.
#[test]
fn only_what_loosens_addresses_is_not_waited_for() {
    const LOCAL: IdentityId = IdentityId(2);
    let egress = PolicySetId(1);
    let local: IpAddr = [10, 0, 0, 1].into();
    let mut tables = tables();
    let sender = Point::of_workload("pal1".into(), peer(), Direction::Egress);
    for change in [
        TableChange::Interface("pal1".into(), true),
        TableChange::Set(egress, Some(PolicySet { default: DENIES })),
        TableChange::Class(egress, LOCAL, Some(ALLOWS)),
        TableChange::Point(sender, Some(egress)),
    ] {
        tables.apply(&change);
    }
    let address = |address, id| TableChange::Address(Prefix::host(address), id);
    let opened_egress = delta(vec![(Loosen, vec![address(local, Some(LOCAL))])]);
    let opened_ingress = delta(vec![(Loosen, vec![address(peer(), Some(PEER))])]);
    let closed_ingress = delta(vec![(Tighten, vec![address(peer(), None)])]);
    let as_one = |phase, first: &Delta, second: &Delta| {
        let changes = [first, second].map(|delta| delta.steps[0].changes.clone());
        delta(vec![(phase, changes.concat())])
    };

    assert!(opened_egress.only_loosens_addresses() && opened_ingress.only_loosens_addresses());
    let closed = after(&tables, &closed_ingress);
    assert_eq!(
        told(&closed, &as_one(Loosen, &opened_ingress, &opened_egress)),
        None
    );

    assert!(!closed_ingress.only_loosens_addresses());
    let mut one = as_one(Shift, &closed_ingress, &opened_egress);
    one.steps.extend(delta(vec![(Revoke, Vec::new())]).steps);
    let mixed = told_between(&tables, &one);
    assert!(
        matches!(mixed, Some(Violation::MixedVerdict(_))),
        "{mixed:?}"
    );

    let with_row = delta(vec![(Loosen, vec![row(ALLOWS)])]);
    assert!(!with_row.only_loosens_addresses());
    let two_steps = delta(vec![
        (Loosen, vec![address(local, Some(LOCAL))]),
        (Delete, vec![row(ALLOWS)]),
    ]);
    assert!(!two_steps.only_loosens_addresses());
}

#[test]
fn what_a_phase_may_not_do() {
    let allowed = tables();
    let mut denied = tables();
    denied.apply(&row(DENIES));
    for phase in [Split, Loosen, Merge, Delete] {
        let broken = delta(vec![(phase, vec![row(DENIES)])]);
        let violation = Violation::PhaseViolation(wrong(0, phase, Allow, Deny, Deny));
        assert_eq!(told(&allowed, &broken), Some(violation), "{phase:?}");
    }
    for phase in [Split, Tighten, Merge, Delete] {
        let broken = delta(vec![(phase, vec![row(ALLOWS)])]);
        let violation = Violation::PhaseViolation(wrong(0, phase, Deny, Allow, Allow));
        assert_eq!(told(&denied, &broken), Some(violation), "{phase:?}");
    }
    let loosened = delta(vec![(Loosen, vec![row(ALLOWS)])]);
    assert_eq!(told(&denied, &loosened), None);
}

#[test]
fn revoked_without_judging_flows_again() {
    let old = tables();
    let tighten = || (Tighten, vec![row(DENIES)]);
    let revoke = || (Revoke, Vec::new());
    let violation = || {
        Some(Violation::MissingRevoke(wrong(
            0, Tighten, Allow, Deny, Deny,
        )))
    };
    let forgotten = delta(vec![tighten()]);
    assert_eq!(told(&old, &forgotten), violation());
    assert_eq!(told_between(&old, &forgotten), violation());
    assert_eq!(told(&old, &delta(vec![tighten(), revoke()])), None);
    // Too early: flows that are re-evaluated before the tables are tightened stay allowed.
    let early = delta(vec![revoke(), tighten()]);
    let first = wrong(0, Revoke, Allow, Deny, Deny);
    assert_eq!(
        told_between(&old, &early),
        Some(Violation::MissingRevoke(first))
    );
}

/// With any order of phases, a violation is detected by its effect on a packet.
#[test]
fn an_order_that_nobody_asks_for_is_seen_by_what_it_does() {
    let old = tables();
    let class = ClassId(2);
    let late = delta(vec![
        (Loosen, vec![TableChange::Class(SET, PEER, Some(class))]),
        (
            Split,
            vec![TableChange::Program(class, Some(program(Allow, 0)))],
        ),
    ]);
    assert_eq!(
        told(&old, &late),
        Some(Violation::PhaseOrder(vec![Loosen, Split]))
    );
    let what = "s0 or c2 is not there".to_owned();
    let violation = Violation::DanglingReference {
        step: 0,
        reference: what,
    };
    assert_eq!(told_between(&old, &late), Some(violation));
}

/// A step in the wrong order is correct where it is written at once, and detected entry by entry.
#[test]
fn an_order_within_a_step_matters_entry_by_entry() {
    let old = tables();
    let other = IdentityId(2);
    let moved = TableChange::Address(Prefix::host(peer()), Some(other));
    let new_row = TableChange::Class(SET, other, Some(ALLOWS));
    let old_row = TableChange::Class(SET, PEER, None);
    let by_entry = |delta: &Delta| {
        let new = after(&old, delta);
        check_any_order(&old, delta, &new, Atomicity::Entry, usize::MAX).err()
    };
    let wrong_order = delta(vec![
        (Merge, vec![moved.clone(), new_row.clone()]),
        (Delete, vec![old_row.clone()]),
    ]);
    let violation = Violation::PhaseViolation(wrong(0, Merge, Allow, Allow, Deny));
    assert_eq!(by_entry(&wrong_order), Some(violation));
    let right_order = delta(vec![(Merge, vec![new_row, moved]), (Delete, vec![old_row])]);
    assert_eq!(by_entry(&right_order), None);
    // A program is referred to before it is written.
    let class = ClassId(2);
    let early = delta(vec![(
        Split,
        vec![
            row(class),
            TableChange::Program(class, Some(program(Allow, 0))),
        ],
    )]);
    let violation = Violation::DanglingReference {
        step: 0,
        reference: "s0 or c2 is not there".to_owned(),
    };
    assert_eq!(told(&old, &early), None);
    assert_eq!(by_entry(&early), Some(violation));
}
