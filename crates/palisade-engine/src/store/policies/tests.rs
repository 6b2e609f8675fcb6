//! Policies come back as given, share what they have in common, and leave nothing behind.

use super::*;
use alloc::vec;
use palisade_model::{
    Action, LabelKey, Namespace, Order, Peer, Precedence, Rule, RuleOrigin, TrafficMatch,
    TrafficScope, reserved,
};

fn named(namespace: &str, key: LabelKey) -> Selector {
    Selector::equals(key, namespace)
}

fn policy(namespace: &str, peer: Selector, line: u32) -> Policy {
    let at = |line| Some(SourceLine::new("a.yaml", line));
    let rule = Rule {
        origin: RuleOrigin {
            index: 0,
            name: None,
            fingerprint: 0,
            line: at(line + 7),
        },
        action: Action::Allow,
        peers: vec![Peer::from_selector(peer)],
        local: None,
        traffic: vec![TrafficMatch::any()],
        dns_names: None,
    };
    Policy {
        scope: TrafficScope::Endpoints,
        observes_dns: false,
        id: PolicyId {
            object: ObjectId {
                namespace: Some(namespace.into()),
                name: "isolate".into(),
                kind: ObjectKind::new("", "NetworkPolicy"),
            },
            part: 0,
        },
        tier: "default".into(),
        precedence: Precedence {
            order: Order::from_number(1000.0),
            rank: 1,
        },
        mode: PolicyMode::Enforce,
        subject: named(namespace, LabelKey::reserved(reserved::NAMESPACE)),
        ingress: Some(DirectionRules {
            default_deny: true,
            rules: vec![rule],
        }),
        egress: None,
        line: at(line),
    }
}

fn own(namespace: &str) -> Selector {
    named(namespace, LabelKey::namespace(Namespace::NAME_LABEL))
}

#[test]
fn policies_of_one_form_are_kept_once_and_come_back_as_given() {
    let mut policies = Policies::default();
    let names = &mut InternPool::default();
    let given: Vec<Policy> = (0..5_u32)
        .map(|n| {
            let namespace = alloc::format!("tenant-{n}");
            policy(&namespace, own(&namespace), 10 * n)
        })
        .collect();
    for policy in &given {
        assert!(policies.upsert(names, policy.clone()).is_some());
        assert_eq!(
            policies.upsert(names, policy.clone()),
            None,
            "the same policy again"
        );
    }
    assert_eq!((names.len(), policies.pool_sizes()), (7, [1; 4]));
    let back: Vec<Policy> = policies.named(names).all().into_values().collect();
    assert_eq!(back, given);
    for policy in &given {
        let number = policies.named(names).find(&policy.id).unwrap();
        assert_eq!(policies.remove(number), Some(PolicyEdit::ALL));
        assert_eq!(policies.named(names).find(&policy.id), None);
    }
    policies.release_deleted(names);
    assert_eq!((policies.len(), names.len()), (0, 0));
    assert_eq!(policies.pool_sizes(), [0; 4]);
}

#[test]
fn what_cannot_be_relative_is_kept_as_written() {
    let key = LabelKey::namespace(Namespace::NAME_LABEL);
    let peers = [
        Selector::StartsWith(key.clone(), "tenant-0".into()),
        Selector::is_in(key.clone(), ["tenant-0".into(), "b".into()]),
        Selector::equals(key.clone(), PLACEHOLDER),
        Selector::negate(own("tenant-0")),
        Selector::equals(LabelKey::own("app"), "tenant-0"),
    ];
    for peer in peers {
        let mut policies = Policies::default();
        let names = &mut InternPool::default();
        let mut given = policy("tenant-0", peer, 3);
        policies.upsert(names, given.clone());
        let number = policies.named(names).find(&given.id).unwrap();
        assert_eq!(policies.named(names).get(number), Some(given.clone()));
        given.line = None;
        let edit = policies.upsert(names, given.clone()).unwrap().1;
        assert!(!edit.subject && !edit.order && edit.rules);
        assert_eq!(policies.named(names).get(number), Some(given));
    }
}

#[test]
fn policies_in_audit_are_counted_as_they_change() {
    let mut policies = Policies::default();
    let names = &mut InternPool::default();
    let moded = |namespace: &str, mode| Policy {
        mode,
        ..policy(namespace, own(namespace), 1)
    };
    let mut counts = Vec::new();
    for (namespace, mode) in [
        ("a", PolicyMode::Audit),
        ("b", PolicyMode::Enforce),
        ("a", PolicyMode::Audit),
        ("b", PolicyMode::Audit),
        ("a", PolicyMode::Enforce),
    ] {
        policies.upsert(names, moded(namespace, mode));
        counts.push(policies.audit_count());
    }
    let number = policies.named(names).find(&policy("b", own("b"), 1).id);
    policies.remove(number.unwrap());
    counts.push(policies.audit_count());
    policies.release_deleted(names);
    policies.upsert(names, moded("b", PolicyMode::Audit));
    counts.push(policies.audit_count());
    assert_eq!(counts, [1, 1, 1, 2, 1, 0, 1]);
}

#[test]
fn a_policy_that_returns_before_the_flush_keeps_its_number() {
    let mut policies = Policies::default();
    let names = &mut InternPool::default();
    let given = policy("a", own("a"), 1);
    let (number, edit) = policies.upsert(names, given.clone()).unwrap();
    assert_eq!(edit, PolicyEdit::ALL);
    policies.remove(number);
    assert_eq!(policies.named(names).find(&given.id), None);
    assert_eq!(
        policies.upsert(names, given.clone()),
        Some((number, PolicyEdit::ALL))
    );
    policies.release_deleted(names);
    assert_eq!(policies.named(names).get(number), Some(given.clone()));
    policies.remove(number);
    policies.release_deleted(names);
    assert_eq!(policies.named(names).get(number), None);
}

/// A policy without a namespace whose subject names one.
fn cluster_wide(namespace: &str, order: f64) -> Policy {
    let mut given = policy(namespace, own(namespace), 10);
    given.id.object.namespace = None;
    given.id.object.name = alloc::format!("{namespace}-isolate").into();
    given.precedence.order = Order::from_number(order);
    given
}

#[test]
fn policies_without_a_namespace_are_relative_to_that_of_their_subject() {
    let mut policies = Policies::default();
    let names = &mut InternPool::default();
    let all = [("a", 1.0), ("b", 1.0), ("c", 2.0)];
    let given = all.map(|(namespace, order)| cluster_wide(namespace, order));
    for policy in &given {
        assert!(policies.upsert(names, policy.clone()).is_some());
        assert_eq!(policies.upsert(names, policy.clone()), None);
    }
    // One subject, one list of rules, and a body for each order.
    assert_eq!(policies.pool_sizes(), [1, 1, 1, 2]);
    let back = policies.named(names).all();
    assert_eq!(back.into_values().collect::<Vec<_>>(), given);
    // The same body for another namespace is another policy.
    let mut moved = cluster_wide("b", 1.0);
    moved.id = given[0].id.clone();
    let (number, edit) = policies.upsert(names, moved.clone()).unwrap();
    assert!(edit.subject && edit.rules && !edit.order);
    policies.release_deleted(names);
    assert_eq!(policies.named(names).get(number), Some(moved));
    assert_eq!(policies.pool_sizes(), [1, 1, 1, 2]);
    // A subject in no namespace, and back.
    let mut anywhere = given[0].clone();
    anywhere.subject = Selector::all();
    policies.upsert(names, anywhere.clone()).unwrap();
    policies.release_deleted(names);
    assert_eq!(policies.named(names).get(number), Some(anywhere));
    policies.upsert(names, given[0].clone()).unwrap();
    for policy in &given {
        let number = policies.named(names).find(&policy.id).unwrap();
        assert_eq!(policies.named(names).get(number).as_ref(), Some(policy));
        policies.remove(number);
    }
    policies.release_deleted(names);
    assert_eq!((policies.len(), names.len()), (0, 0));
    assert_eq!(policies.pool_sizes(), [0; 4]);
}
