//! What is in audit decides nothing, and what it would decide is told beside the verdict.

use crate::build::*;
use Action::{Allow, Deny, Pass};
use palisade_model::*;
use palisade_oracle::{
    DecisionReason, FlowVerdict, OracleOptions, PolicyApplicability, TraceStep, judge,
};

const AB: &str = "10.0.0.1>10.0.0.2 TCP:80";

fn audit(mut policy: Policy) -> Policy {
    policy.mode = PolicyMode::Audit;
    policy
}

/// The ingress verdict, and that without audit: `+` or `-` each, `.` where nothing in audit applies.
fn ingress(state: &State, options: &OracleOptions) -> String {
    let sign = |verdict: FlowVerdict| if verdict.is_allow() { '+' } else { '-' };
    let judged = judge(state, &ask(AB), options).ingress;
    let audited = judged.audit.map_or('.', |audit| sign(audit.verdict));
    [sign(judged.verdict), audited].iter().collect()
}

#[test]
fn policies_in_audit() {
    let deny = |name: &str| policy(name, "app=b", vec![rule(Deny)]);
    let allow = |name: &str| policy(name, "app=b", vec![rule(Allow)]);
    let pass = |name: &str| policy(name, "app=b", vec![rule(Pass)]);
    let first = |policy: Policy| in_tier(tier_name::KUBE_ADMIN, policy);
    let cases = [
        ("nothing is in audit", vec![deny("n/1")], "-."),
        ("one that would deny", vec![audit(deny("n/1"))], "+-"),
        (
            "its default deny too",
            vec![audit(policy("n/1", "app=b", vec![]))],
            "+-",
        ),
        (
            "one that would allow",
            vec![policy("n/1", "app=b", vec![]), audit(allow("n/2"))],
            "-+",
        ),
        (
            "it would be first",
            vec![audit(first(deny("n/2"))), allow("n/1")],
            "+-",
        ),
        (
            "it would be too late",
            vec![first(allow("n/2")), audit(deny("n/1"))],
            "++",
        ),
        (
            "its Pass counts as little",
            vec![audit(first(pass("n/0"))), first(deny("n/1"))],
            "-+",
        ),
        (
            "it isolates nobody beside one that does",
            vec![audit(allow("n/1")), deny("n/2")],
            "-+",
        ),
        (
            "not about this end",
            vec![audit(policy("n/1", "app=a", vec![]))],
            "+.",
        ),
        (
            "nor this direction",
            vec![audit(egress(policy("n/1", "app=b", vec![])))],
            "+.",
        ),
    ];
    for (what, policies, expected) in cases {
        let seen = ingress(&two(policies), &OracleOptions::default());
        assert_eq!(seen, expected, "{what}");
    }
}

#[test]
fn endpoints_in_audit() {
    let denied = two(vec![policy("n/1", "app=b", vec![])]);
    let mut by_pod = denied.clone();
    by_pod.apply(Update::Upsert(Object::Endpoint(Endpoint {
        audit: true,
        ..pod("n/b", "10.0.0.2 fd00::2", "app=b")
    })));
    let mut by_namespace = denied.clone();
    by_namespace.apply(Update::Upsert(Object::Namespace(Namespace {
        audit: true,
        ..Namespace::from_name("n".into())
    })));
    let everything = OracleOptions {
        audit: true,
        ..OracleOptions::default()
    };
    for (state, options) in [
        (&by_pod, OracleOptions::default()),
        (&by_namespace, OracleOptions::default()),
        (&denied, everything),
    ] {
        assert_eq!(ingress(state, &options), "+-");
        let judged = judge(state, &ask(AB), &options).ingress;
        assert_eq!(judged.decided_by, DecisionReason::EndpointInAudit);
        assert_eq!(judged.steps, []);
    }
    // What the configuration denies is no policy.
    let mut tunnel = ask(AB);
    tunnel.protocol = Protocol(47);
    tunnel.l4 = L4::None;
    let judged = judge(&denied, &tunnel, &everything).egress;
    assert!(!judged.verdict.is_allow() && !judged.audit.unwrap().verdict.is_allow());
}

#[test]
fn the_narrative_tells_both() {
    let state = two(vec![audit(policy("n/1", "app=b", vec![]))]);
    let judged = judge(&state, &ask(AB), &OracleOptions::default()).ingress;
    let fit = |steps: &[TraceStep]| {
        steps.iter().find_map(|step| match step {
            TraceStep::Policy { applicability, .. } => Some(applicability.clone()),
            _ => None,
        })
    };
    assert_eq!(fit(&judged.steps), Some(PolicyApplicability::InAudit));
    assert_eq!(judged.decided_by, DecisionReason::AllowAllProfile);
    let audit = judged.audit.unwrap();
    assert_eq!(fit(&audit.steps), Some(PolicyApplicability::Applies));
    assert!(matches!(
        audit.decided_by,
        DecisionReason::TierDefault { .. }
    ));
    assert_eq!(audit.audit, None);
}
