//! The linter finds each kind of error, and the printed form of a small table is as expected.

use palisade_model::{DenyAction, Direction, Prefix, Protocol};
use palisade_nft::{
    CmpOp, Config, Element, ElementKey, Expr, LookupMode, MapValue, NftRule, NftVerdict, Planner,
    Reg, Ruleset, print_transaction, skeleton,
};
use palisade_tables::{
    Cell, ClassId, Delta, DeltaStep, IdentityId, JudgementOptions, Phase, Point, PolicySet,
    PolicySetId, PortMap, Program, RuleId, TableChange, Verdict as Judgement,
};
use palisade_verification::{LintProblem, lint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An error, and the finding that the linter must report.
type Case = (fn(&mut Ruleset), fn(&LintProblem) -> bool);

fn first(ruleset: &mut Ruleset) -> &mut NftRule {
    &mut ruleset.chains.get_mut("p_forward").unwrap().rules[0]
}

#[test]
fn every_mistake_is_found() {
    let good = skeleton(&Config::default(), 1);
    assert_eq!(lint(&good), []);
    let cases: Vec<Case> = vec![
        (
            |r| drop(r.chains.remove("p_odd")),
            |p| matches!(p, LintProblem::Missing(name) if &**name == "p_odd"),
        ),
        (
            |r| drop(r.sets.remove("p_live")),
            |p| matches!(p, LintProblem::Missing(name) if &**name == "p_live"),
        ),
        (
            |r| drop(r.chains.insert("p_new".into(), Default::default())),
            |p| *p == LintProblem::Unreferenced,
        ),
        (
            |r| drop(r.chains.insert("a name".into(), Default::default())),
            |p| *p == LintProblem::BadName,
        ),
        (
            |r| first(r).exprs.push(Expr::Verdict(NftVerdict::Drop)),
            |p| *p == LintProblem::ExprAfterVerdict,
        ),
        (
            |r| first(r).exprs = vec![Expr::Verdict(NftVerdict::Accept)],
            |p| *p == LintProblem::UnreachableRule,
        ),
        (
            |r| drop(first(r).exprs.remove(0)),
            |p| *p == LintProblem::RegisterNotLoaded(0),
        ),
        (
            |r| {
                let value = [0; 8].into();
                let dreg = Reg(15);
                first(r).exprs.insert(0, Expr::Immediate { dreg, value });
            },
            |p| *p == LintProblem::RegisterOverflow(15),
        ),
        (
            |r| {
                *first(r).exprs.last_mut().unwrap() =
                    Expr::Verdict(NftVerdict::Jump("p_flow".into()));
                let to = Expr::Verdict(NftVerdict::Jump("p_forward".into()));
                r.chains.get_mut("p_odd").unwrap().rules[0] = NftRule {
                    exprs: vec![to],
                    comment: None,
                };
            },
            |p| *p == LintProblem::Loop,
        ),
        (
            |r| {
                let key = ElementKey::Exact([1, 2].into());
                let set = r.sets.get_mut("p_live").unwrap();
                set.elements.insert(key, Element::default());
            },
            |p| matches!(p, LintProblem::BadElement(_)),
        ),
        (
            |r| {
                let element = Element {
                    data: Some(MapValue::Value([0; 4].into())),
                    ..Element::default()
                };
                let set = r.sets.get_mut("p_net4").unwrap();
                for (a, b) in [
                    ([10, 0, 0, 0], [10, 0, 0, 9]),
                    ([10, 0, 0, 9], [10, 0, 0, 20]),
                ] {
                    let key = ElementKey::Range(a.into(), b.into());
                    set.elements.insert(key, element.clone());
                }
            },
            |p| matches!(p, LintProblem::Overlap(_)),
        ),
        (
            |r| first(r).exprs.insert(0, Expr::Unknown("quota".into())),
            |p| matches!(p, LintProblem::Unknown(_)),
        ),
    ];
    for (index, (spoil, is_it)) in cases.into_iter().enumerate() {
        let mut bad = good.clone();
        spoil(&mut bad);
        let found = lint(&bad);
        let hit = found.iter().any(|finding| is_it(&finding.problem));
        assert!(hit, "mistake {index}: {found:?}");
    }
    let lookup = Expr::Lookup {
        set: "p_live".into(),
        sreg: Reg(3),
        mode: LookupMode::Member,
    };
    let mut bad = good;
    let cmp = Expr::Cmp {
        sreg: Reg(0),
        op: CmpOp::Eq,
        value: [0].into(),
    };
    first(&mut bad).exprs = vec![lookup, cmp];
    assert_eq!(lint(&bad).len(), 2);
}

#[test]
fn a_plan_reads_well() {
    let cell = |verdict, rule| Cell {
        verdict,
        causes: vec![RuleId(rule)],
        log: None,
        audit: None,
        redirect: None,
    };
    let always = |cell: Cell| PortMap::constant(cell);
    let (yes, no) = (cell(Judgement::Allow, 1), cell(Judgement::Deny, 2));
    let source = PortMap::from_segments([(1023, no.clone()), (u16::MAX, yes.clone())]).unwrap();
    let tcp = PortMap::from_segments([
        (79, always(no.clone())),
        (80, always(yes.clone())),
        (7999, always(no.clone())),
        (8999, source),
        (u16::MAX, always(no.clone())),
    ]);
    let protocols = BTreeMap::from([(Protocol::TCP, tcp.unwrap())]);
    let program = Arc::new(Program::new(protocols, no));
    let (class, set, peer) = (ClassId(7), PolicySetId(8), IdentityId(9));
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let point = Point::of_workload(
        "pal0".into(),
        "10.0.0.1".parse().unwrap(),
        Direction::Ingress,
    );
    let changes = vec![
        TableChange::Program(class, Some(program)),
        TableChange::Set(set, Some(PolicySet { default: class })),
        TableChange::Class(set, peer, Some(class)),
        TableChange::Address(prefix("10.0.0.2/32"), Some(peer)),
        TableChange::Address(prefix("192.168.0.0/16"), Some(peer)),
        TableChange::Interface("pal0".into(), true),
        TableChange::Point(point.clone(), Some(set)),
    ];
    let split = DeltaStep {
        phase: Phase::Split,
        changes,
    };
    let delete = DeltaStep {
        phase: Phase::Delete,
        changes: vec![
            TableChange::Class(set, peer, None),
            TableChange::Point(point.clone(), None),
            TableChange::Set(set, None),
            TableChange::Program(class, None),
        ],
    };
    let mut planner = Planner::new(Config::default(), 1);
    let delta = Delta {
        revision: 1,
        steps: vec![split, delete],
    };
    let decls = skeleton(&Config::default(), 1).sets;
    let text = print_transaction(&planner.plan(&delta), |set| {
        decls.get(set).map(|set| set.decl.clone())
    });
    // The fingerprint is a hash: its presence matters, not its value.
    let (before, after) = text.split_once("comment \"").unwrap();
    let text = format!("{before}comment \"{}{}", "0".repeat(16), &after[16..]);
    let golden = include_str!("plan.txt");
    assert_eq!(text, golden, "{text}");
}

/// The table that answers has no answer that prerouting or postrouting leads to, whatever else it has; each way there is
/// found: by a chain, and by the verdict of a map.
#[test]
fn an_answer_in_a_hook_that_cannot_is_found() {
    for judge_host_traffic in [false, true] {
        let config = Config {
            deny_action: DenyAction::Reject,
            judgement: JudgementOptions {
                judge_host_traffic,
                ..JudgementOptions::default()
            },
            ..Config::default()
        };
        let good = skeleton(&config, 1);
        assert_eq!(lint(&good), [], "{judge_host_traffic}");
        assert_eq!(good.chains.contains_key("p_flow_d"), judge_host_traffic);
        let is_found = |bad: &Ruleset, base: &str| {
            let found = lint(bad);
            found.iter().any(|finding| {
                matches!(&finding.problem, LintProblem::AnswerFrom(name) if **name == *base)
            })
        };
        let to_judgement = NftRule {
            exprs: vec![Expr::Verdict(NftVerdict::Goto("p_flow".into()))],
            comment: None,
        };
        let mut bad = good.clone();
        let raw = &mut bad.chains.get_mut("p_raw").unwrap().rules;
        raw.insert(0, to_judgement.clone());
        assert!(is_found(&bad, "p_raw"));
        if judge_host_traffic {
            let mut bad = good.clone();
            let translated = bad.chains.get_mut("p_translated").unwrap();
            *translated.rules.last_mut().unwrap() = to_judgement;
            assert!(is_found(&bad, "p_postrouting"));
            let mut bad = good.clone();
            let answering = bad.sets["p_verdict"].elements.clone();
            bad.sets.get_mut("p_verdict_d").unwrap().elements = answering;
            assert!(is_found(&bad, "p_postrouting"));
        }
    }
}
