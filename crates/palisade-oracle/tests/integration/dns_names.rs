//! Rules that decide DNS queries by name: a query that they do not allow goes on, and what reads no queries is not
//! matched.

use crate::build::*;
use Action::{Allow, Deny, Log, Pass};
use palisade_model::*;
use palisade_oracle::{OracleOptions, PreparedState, RuleOutcome, TraceStep, judge};

const DNS: &str = "10.0.0.1>10.0.0.2 UDP:53";

/// The names of the egress of `a`, and whether other queries are allowed; `None` where none are read.
fn redirect(policies: &[Policy], question: &str) -> (Option<Vec<String>>, bool) {
    let state = two(policies.to_vec());
    let prepared = PreparedState::new(&state);
    let (question, options) = (ask(question), OracleOptions::default());
    let found = prepared.redirect(&question, Direction::Egress, &options);
    let judged = judge(&state, &question, &options).egress;
    assert_eq!(judged.redirect, found);
    (
        found.map(|names| names.iter().map(ToString::to_string).collect()),
        prepared.allows(&question, Direction::Egress, &options),
    )
}

fn of_a(name: &str, rules: Vec<Rule>) -> Policy {
    egress(policy(name, "app=a", rules))
}

#[test]
fn queries_for_other_names_go_on() {
    let first = |policy: Policy| in_tier(tier_name::KUBE_ADMIN, policy);
    let two_policies = |last| {
        vec![
            of_a("n/1", vec![names(&["a"])]),
            of_a("n/2", vec![last, names(&["c"])]),
        ]
    };
    let some = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect());
    let cases = [
        (
            "none has names",
            vec![of_a("n/1", vec![rule(Allow)])],
            None,
            true,
        ),
        (
            "one, then the default",
            vec![of_a("n/1", vec![names(&["a", "*.b"])])],
            some(&["*.b", "a"]),
            false,
        ),
        (
            "without names it allows no query",
            vec![of_a("n/1", vec![names(&[])])],
            some(&[]),
            false,
        ),
        (
            "all of a tier",
            two_policies(names(&["b"])),
            some(&["a", "b", "c"]),
            false,
        ),
        (
            "every name by the next",
            two_policies(rule(Allow)),
            some(&["a"]),
            true,
        ),
        (
            "a deny ends them",
            two_policies(rule(Deny)),
            some(&["a"]),
            false,
        ),
        (
            "a log does not",
            two_policies(rule(Log)),
            some(&["a", "c"]),
            false,
        ),
        (
            "a pass leads to the end of the tier",
            two_policies(rule(Pass)),
            some(&["a"]),
            true,
        ),
        (
            "a later tier as well",
            vec![
                open(first(of_a("n/1", vec![names(&["a"])]))),
                of_a("n/2", vec![names(&["b"])]),
            ],
            some(&["a", "b"]),
            false,
        ),
        (
            "a deny before",
            vec![of_a("n/1", vec![rule(Deny), names(&["a"])])],
            None,
            false,
        ),
        (
            "without default deny all may be asked",
            vec![open(of_a("n/1", vec![names(&["a"])]))],
            some(&["a"]),
            true,
        ),
    ];
    for (what, policies, names, others) in cases {
        assert_eq!(redirect(&policies, DNS), (names, others), "{what}");
    }
}

#[test]
fn what_cannot_be_read_is_not_matched() {
    let policies = [of_a("n/1", vec![names(&["a"])])];
    let is_redirect = |question: &str| redirect(&policies, question).0.is_some();
    assert!(is_redirect("10.0.0.1>10.0.0.2 TCP:53"));
    assert!(is_redirect("fd00::1>fd00::2 UDP:5353"));
    assert!(!is_redirect("10.0.0.1>10.0.0.2 SCTP:53"));
    assert!(!is_redirect("10.0.0.1>10.0.0.2 ICMP:8/0"));
    // VXLAN.
    assert!(!is_redirect("10.0.0.1>10.0.0.2 UDP:4789"));
    // To itself.
    assert!(!is_redirect("10.0.0.1>10.0.0.1 UDP:53"));
    let ingress = two(vec![policy("n/1", "app=b", vec![names(&["a"])])]);
    let judged = judge(&ingress, &ask(DNS), &OracleOptions::default()).ingress;
    assert!(judged.redirect.is_none() && !judged.verdict.is_allow());
    let missed = judged.steps.iter().any(|step| {
        matches!(step, TraceStep::Rule { outcome: RuleOutcome::Missed(miss), .. } if miss.unreadable_queries)
    });
    assert!(missed, "{:?}", judged.steps);
}

#[test]
fn in_audit_any_name_counts_as_allowed() {
    let mut audited = of_a("n/1", vec![names(&["a"])]);
    audited.mode = PolicyMode::Audit;
    let judged = judge(&two(vec![audited]), &ask(DNS), &OracleOptions::default()).egress;
    assert!(judged.redirect.is_none() && judged.verdict.is_allow());
    let audit = judged.audit.unwrap();
    assert!(audit.redirect.is_some() && audit.verdict.is_allow());
}
