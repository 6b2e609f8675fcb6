//! What an endpoint sends to itself through a Service: which policies judge it, and what it gets where none decides.

use crate::build::*;
use Action::{Allow, Deny, Pass};
use palisade_model::*;
use palisade_oracle::{
    DecisionReason, OracleOptions, PolicyApplicability, TraceStep, judge, verdict,
};

const ITSELF: &str = "10.0.0.2>10.0.0.2 TCP:80";
const OTHER: &str = "10.0.0.1>10.0.0.2 TCP:80";

/// A policy of a tier that judges what an endpoint sends to itself.
fn of_tier(name: &str, tier: &str, rules: Vec<Rule>) -> Policy {
    let mut policy = policy(name, "app=b", rules);
    policy.tier = tier.into();
    policy.scope = TrafficScope::Hairpin;
    for rules in [&mut policy.ingress, &mut policy.egress]
        .into_iter()
        .flatten()
    {
        rules.default_deny = false;
    }
    policy
}

fn admin(rules: Vec<Rule>) -> Policy {
    of_tier("n/admin", tier_name::KUBE_ADMIN, rules)
}

fn baseline(rules: Vec<Rule>) -> Policy {
    of_tier("n/baseline", tier_name::KUBE_BASELINE, rules)
}

/// A policy that isolates the endpoint, of a kind that does not judge what it sends to itself.
fn isolating() -> Policy {
    policy("n/isolating", "app=b", vec![])
}

#[test]
fn only_policies_with_the_scope_judge_it() {
    for (policies, itself, other) in [
        (vec![isolating()], "++", "+-"),
        (vec![admin(vec![rule(Deny)])], "+-", "+-"),
        (vec![egress(admin(vec![rule(Deny)]))], "-+", "++"),
        (vec![baseline(vec![rule(Deny)])], "+-", "+-"),
        (vec![admin(vec![rule(Deny)]), isolating()], "+-", "+-"),
        (vec![admin(vec![rule(Allow)]), isolating()], "++", "++"),
        // It is as if the isolating policy did not select the endpoint: the next tier is asked.
        (vec![isolating(), baseline(vec![rule(Deny)])], "+-", "+-"),
        (vec![admin(vec![rule(Pass)]), isolating()], "++", "+-"),
        (
            vec![admin(vec![rule(Pass)]), baseline(vec![rule(Deny)])],
            "+-",
            "+-",
        ),
        (
            vec![admin(vec![rule(Allow)]), baseline(vec![rule(Deny)])],
            "++",
            "++",
        ),
        (vec![admin(vec![])], "++", "++"),
        (
            vec![admin(vec![from(Deny, Peer::from_selector(sel("app=a")))])],
            "++",
            "+-",
        ),
        (
            vec![admin(vec![from(Deny, Peer::from_selector(sel("app=b")))])],
            "+-",
            "++",
        ),
    ] {
        let state = two(policies.clone());
        says(&state, &[(ITSELF, itself), (OTHER, other)]);
        // No other endpoint decapsulates it: only rules decide.
        let tunnel = ITSELF.replace("TCP:80", "47");
        says(&state, &[(&tunnel, itself)]);
        let open = OracleOptions {
            hairpin: HairpinAction::Allow,
            ..OracleOptions::default()
        };
        assert_eq!(
            verdict(&state, &ask(ITSELF), &open),
            (true, true),
            "{policies:?}"
        );
    }
}

#[test]
fn no_profile_decides_it() {
    let mut lonely = pod("n/b", "10.0.0.2", "app=b");
    lonely.profiles = vec!["gone".into()];
    let mut state = two(vec![admin(vec![rule(Pass)])]);
    state.apply(Update::Upsert(Object::Endpoint(lonely)));
    says(&state, &[(ITSELF, "++"), (OTHER, "+-")]);
}

#[test]
fn the_trace_says_which_policies_do_not_judge_it() {
    let state = two(vec![admin(vec![rule(Pass)]), isolating()]);
    let answer = judge(&state, &ask(ITSELF), &OracleOptions::default());
    assert_eq!(answer.egress.decided_by, DecisionReason::Hairpin);
    assert_eq!(answer.ingress.decided_by, DecisionReason::HairpinEnd);
    let fits: Vec<(String, PolicyApplicability)> = answer
        .ingress
        .steps
        .into_iter()
        .filter_map(|step| match step {
            TraceStep::Policy {
                policy,
                applicability,
                ..
            } => Some((policy.object.name.to_string(), applicability)),
            _ => None,
        })
        .collect();
    assert_eq!(
        fits,
        [
            ("admin".to_owned(), PolicyApplicability::Applies),
            ("isolating".to_owned(), PolicyApplicability::NoHairpin),
        ]
    );
}

#[test]
fn what_is_in_audit_denies_nothing_of_it() {
    let mut denying = admin(vec![rule(Deny)]);
    denying.mode = PolicyMode::Audit;
    let answer = judge(&two(vec![denying]), &ask(ITSELF), &OracleOptions::default());
    assert_eq!(answer.ingress.decided_by, DecisionReason::HairpinEnd);
    let audit = answer.ingress.audit.unwrap();
    assert!(!audit.verdict.is_allow());
    // Nothing in audit judges it: there is nothing to report.
    let mut isolating = isolating();
    isolating.mode = PolicyMode::Audit;
    let answer = judge(
        &two(vec![isolating]),
        &ask(ITSELF),
        &OracleOptions::default(),
    );
    assert_eq!(answer.ingress.audit, None);
}
