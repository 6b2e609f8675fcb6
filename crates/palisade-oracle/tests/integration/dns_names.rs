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

fn observing(policy: Policy) -> Policy {
    Policy {
        observes_dns: true,
        ..policy
    }
}

/// What is redirected with no names, and allowed.
fn is_observed(policies: &[Policy], question: &str) -> bool {
    match redirect(policies, question) {
        (Some(names), allowed) => {
            assert!(names.is_empty() && allowed, "{names:?}, {allowed}");
            true
        }
        (None, _) => false,
    }
}

#[test]
fn what_is_allowed_to_the_port_of_dns_is_observed() {
    let open_of_a = |rules| observing(open(of_a("n/1", rules)));
    for policy in [
        open_of_a(vec![]),
        open_of_a(vec![rule(Deny)]),
        observing(of_a("n/1", vec![rule(Allow)])),
        observing(of_a("n/1", vec![])),
    ] {
        let allowed = redirect(std::slice::from_ref(&policy), DNS).1;
        assert_eq!(is_observed(&[policy], DNS), allowed);
    }
    let all = [open_of_a(vec![])];
    assert!(is_observed(&all, "10.0.0.1>10.0.0.2 TCP:53"));
    assert!(is_observed(&all, "fd00::1>2001:db8::1 UDP:53"));
    for unread in [
        "10.0.0.1>10.0.0.2 UDP:52",
        "10.0.0.1>10.0.0.2 TCP:54",
        "10.0.0.1>10.0.0.2 UDP:5353<53",
        "10.0.0.1>10.0.0.2 SCTP:53",
        "10.0.0.1>10.0.0.2 ICMP:0/53",
        // To itself.
        "10.0.0.1>10.0.0.1 UDP:53",
        // From another.
        "10.0.0.2>10.0.0.1 UDP:53",
    ] {
        assert!(!is_observed(&all, unread), "{unread}");
    }
}

#[test]
fn an_observer_governs_egress_in_any_mode() {
    let other = open(of_a("n/2", vec![rule(Allow)]));
    assert!(!is_observed(std::slice::from_ref(&other), DNS));
    let ingress = observing(policy("n/1", "app=a", vec![rule(Allow)]));
    assert!(!is_observed(&[ingress, other.clone()], DNS));
    let elsewhere = observing(egress(policy("n/1", "app=b", vec![rule(Allow)])));
    assert!(!is_observed(&[elsewhere, other.clone()], DNS));
    // Rules of the policy do not have to decide the flow.
    let later = in_tier(
        tier_name::KUBE_BASELINE,
        observing(of_a("n/1", vec![rule(Deny)])),
    );
    assert!(is_observed(&[later, other.clone()], DNS));
    let mut audited = observing(of_a("n/1", vec![]));
    audited.mode = PolicyMode::Audit;
    assert!(is_observed(&[audited.clone(), other], DNS));
    let state = two(vec![audited]);
    let judged = judge(&state, &ask(DNS), &OracleOptions::default()).egress;
    assert!(judged.redirect.is_some() && judged.verdict.is_allow());
    let audit = judged.audit.unwrap();
    assert!(audit.redirect.is_none() && !audit.verdict.is_allow());
}

#[test]
fn rules_by_name_redirect_already() {
    let policies = [observing(of_a("n/1", vec![names(&["a"]), rule(Allow)]))];
    assert_eq!(redirect(&policies, DNS), (Some(vec!["a".into()]), true));
    let policies = [observing(of_a("n/1", vec![names(&["a"])]))];
    assert!(!redirect(&policies, DNS).1);
}
