//! The answers of the oracle: the deciding reason and the complete trace.

use crate::build::*;
use Action::{Allow, Log, Pass};
use palisade_model::*;
use palisade_oracle::{
    DecisionReason, FlowVerdict, HolderMismatch, HolderName, OracleOptions, PeerFailure, PeerMiss,
    PolicyApplicability, PortFailure, RuleMiss, RuleOutcome, RuleOwner, TierOutcome, TraceStep,
    TrafficFailure, TrafficMiss, judge,
};

fn policy_id(name: &str) -> PolicyId {
    PolicyId {
        object: id("NetworkPolicy", name),
        part: 0,
    }
}

fn origin(index: u32) -> RuleOrigin {
    RuleOrigin {
        index,
        name: None,
        fingerprint: 0,
        line: None,
    }
}

fn rule_step(name: &str, index: u32, action: Action, outcome: RuleOutcome) -> TraceStep {
    TraceStep::Rule {
        owner: RuleOwner::Policy(policy_id(name)),
        origin: origin(index),
        action,
        outcome,
    }
}

fn policy_step(name: &str, fit: PolicyApplicability) -> TraceStep {
    TraceStep::Policy {
        policy: policy_id(name),
        order: Order::At(1000.0),
        line: None,
        applicability: fit,
    }
}

fn tier_step(name: &str, default: TierDefault, counts: bool) -> TraceStep {
    TraceStep::Tier {
        tier: name.into(),
        order: Order::At(if name == "default" { 1e6 } else { 1e3 }),
        default,
        missing: false,
        counts,
    }
}

#[test]
fn a_default_deny_is_told_whole() {
    let http = PortMatch::one_of([
        PortSpec::Named("http".into()),
        PortSpec::Range(PortRange::single(443)),
    ]);
    let picky = Rule {
        peers: vec![
            Peer::from_selector(Selector::and([sel("app=x"), sel("tier=y")])),
            Peer::net(net("10.0.0.0/8"), vec![net("10.0.0.0/24")]),
        ],
        traffic: vec![TrafficMatch::to_port(Protocol::UDP, http.clone())],
        ..rule(Allow)
    };
    let state = two(vec![
        in_tier("kube-admin", policy("n/admin", "app=x", vec![])),
        policy("n/1", "app=b", vec![rule(Log), picky]),
        policy("n/2", "app=a", vec![]),
        egress(policy("n/3", "app=b", vec![])),
        open(policy("n/4", "app=b", vec![])),
    ]);
    let answer = judge(
        &state,
        &ask("10.0.0.1>10.0.0.2 TCP:80"),
        &OracleOptions::default(),
    );
    assert_eq!(answer.verdict, FlowVerdict::Deny);
    assert_eq!(answer.ingress.subject, Some(id("Pod", "n/b")));
    assert_eq!(
        answer.ingress.decided_by,
        DecisionReason::TierDefault {
            tier: "default".into(),
            isolating: vec![policy_id("n/1")],
        }
    );
    let miss = RuleMiss {
        local: None,
        peers: Some(vec![
            PeerMiss {
                index: 0,
                failures: vec![PeerFailure::Selector {
                    selector: Selector::and([sel("app=x"), sel("tier=y")]),
                    holders: vec![HolderMismatch {
                        holder: HolderName::Endpoint(id("Pod", "n/a")),
                        unmet_requirements: vec![sel("app=x"), sel("tier=y")],
                    }],
                }],
            },
            PeerMiss {
                index: 1,
                failures: vec![PeerFailure::NotNets {
                    net: net("10.0.0.0/24"),
                }],
            },
        ]),
        traffic: Some(vec![TrafficMiss {
            index: 0,
            failures: vec![
                TrafficFailure::Protocol(Protocol::UDP),
                TrafficFailure::Destination(PortFailure::NotListed {
                    port: 80,
                    specs: http.any_of.clone().unwrap_or_default(),
                    unresolved: vec![PortSpec::Named("http".into())],
                }),
            ],
        }]),
        unreadable_queries: false,
    };
    assert_eq!(
        answer.ingress.steps,
        vec![
            tier_step("kube-admin", TierDefault::Pass, false),
            policy_step(
                "n/admin",
                PolicyApplicability::NotSelected {
                    unmet_requirements: vec![sel("app=x")]
                }
            ),
            tier_step("default", TierDefault::Deny, true),
            policy_step("n/1", PolicyApplicability::Applies),
            rule_step("n/1", 0, Log, RuleOutcome::Matched),
            rule_step("n/1", 1, Allow, RuleOutcome::Missed(miss)),
            policy_step(
                "n/2",
                PolicyApplicability::NotSelected {
                    unmet_requirements: vec![sel("app=a")]
                }
            ),
            policy_step("n/3", PolicyApplicability::OtherDirection),
            policy_step("n/4", PolicyApplicability::Applies),
            TraceStep::TierEnd {
                tier: "default".into(),
                outcome: TierOutcome::Denied {
                    isolating: vec![policy_id("n/1")],
                },
            },
        ]
    );
    assert_eq!(answer.egress.decided_by, DecisionReason::AllowAllProfile);
    assert_eq!(answer.egress.verdict, FlowVerdict::Allow);
}

#[test]
fn pass_and_the_rule_that_decides_end_the_tale() {
    let state = two(vec![
        in_tier("kube-admin", policy("n/p", "", vec![rule(Pass)])),
        in_tier(
            "kube-admin",
            at(2000.0, policy("n/q", "", vec![rule(Action::Deny)])),
        ),
        policy("n/r", "", vec![rule(Allow)]),
        policy("n/s", "", vec![rule(Allow)]),
    ]);
    let answer = judge(
        &state,
        &ask("192.0.2.1>10.0.0.2 ICMP:8/0"),
        &OracleOptions::default(),
    );
    assert_eq!(answer.verdict, FlowVerdict::Allow);
    assert_eq!(answer.egress.decided_by, DecisionReason::NotAnEndpoint);
    assert_eq!(answer.egress.steps, vec![]);
    assert_eq!(
        answer.ingress.steps,
        vec![
            tier_step("kube-admin", TierDefault::Pass, true),
            policy_step("n/p", PolicyApplicability::Applies),
            rule_step("n/p", 0, Pass, RuleOutcome::Matched),
            tier_step("default", TierDefault::Deny, true),
            policy_step("n/r", PolicyApplicability::Applies),
            rule_step("n/r", 0, Allow, RuleOutcome::Matched),
        ]
    );
    // If several rules would match, the first by namespace, name and rule is the cause.
    assert_eq!(
        answer.ingress.decided_by,
        DecisionReason::Rule {
            owner: RuleOwner::Policy(policy_id("n/r")),
            direction: Direction::Ingress,
            origin: origin(0),
            action: Allow,
        }
    );
}

#[test]
fn profiles_are_told() {
    let mut b = pod("n/b", "10.0.0.2", "");
    b.profiles = vec!["made".into(), "gone".into()];
    let made = Profile {
        name: "made".into(),
        ingress: vec![on(Allow, tcp(80))],
        egress: vec![],
        labels_to_apply: Default::default(),
    };
    let state = state(vec![Object::Endpoint(b), Object::Profile(made)]);
    let ask_about =
        |question: &str| judge(&state, &ask(question), &OracleOptions::default()).ingress;
    let missing = ask_about("192.0.2.1>10.0.0.2 47");
    assert_eq!(
        missing.decided_by,
        DecisionReason::MissingProfile {
            profile: "gone".into()
        }
    );
    let failures = vec![
        TrafficFailure::Protocol(Protocol::TCP),
        TrafficFailure::Destination(PortFailure::NoPorts),
    ];
    let miss = RuleMiss {
        local: None,
        peers: None,
        traffic: Some(vec![TrafficMiss { index: 0, failures }]),
        unreadable_queries: false,
    };
    let profile = |name: &str, exists| TraceStep::Profile {
        profile: name.into(),
        exists,
    };
    assert_eq!(
        missing.steps,
        vec![
            profile("made", true),
            TraceStep::Rule {
                owner: RuleOwner::Profile("made".into()),
                origin: origin(0),
                action: Allow,
                outcome: RuleOutcome::Missed(miss),
            },
            profile("gone", false),
        ]
    );
    let rule = DecisionReason::Rule {
        owner: RuleOwner::Profile("made".into()),
        direction: Direction::Ingress,
        origin: origin(0),
        action: Allow,
    };
    assert_eq!(ask_about("192.0.2.1>10.0.0.2 TCP:80").decided_by, rule);
}

#[test]
fn unknown_addresses_and_missing_tiers_are_told() {
    let nets = vec![net("10.0.0.0/8")];
    let by_net = Rule {
        peers: vec![Peer {
            nets: Some(nets.clone()),
            ..Peer::any()
        }],
        ..rule(Allow)
    };
    let state = two(vec![in_tier("gone", policy("n/p", "", vec![by_net]))]);
    let steps = judge(&state, &ask("n/a>n/b TCP:80"), &OracleOptions::default())
        .ingress
        .steps;
    let tier = TraceStep::Tier {
        tier: "gone".into(),
        order: Order::Last,
        default: TierDefault::Deny,
        missing: true,
        counts: true,
    };
    assert_eq!(steps[0], tier);
    let failures = vec![PeerFailure::Nets {
        nets,
        address: None,
    }];
    let miss = RuleMiss {
        local: None,
        peers: Some(vec![PeerMiss { index: 0, failures }]),
        traffic: None,
        unreadable_queries: false,
    };
    assert_eq!(
        steps[2],
        rule_step("n/p", 0, Allow, RuleOutcome::Missed(miss))
    );
}
