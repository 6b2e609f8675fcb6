//! Edits of one policy among many with equal rules: the tables equal those of a fresh start, every
//! intermediate state is right, and only entries for peers of the changed rules are written.

use crate::from_scratch;
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::line;
use palisade_model::{
    Direction, L4, LabelKey, Namespace, Object, ObjectId, ObjectKey, Order, Peer, Policy, PolicyId,
    PolicyMode, Precedence, Protocol, Rule, Selector, State, Tier, TierDefault, Update, reserved,
    tier_name,
};
use palisade_tables::{Delta, DirectionVerdict, Packet, TableChange, Verdict};
use palisade_verification::{canonical, check};

/// Above the number of history pairs in any of these flushes.
const BOUND: usize = 1_000_000;

fn id(namespace: &str, name: &str, kind: &str) -> ObjectId {
    line::id(kind, &format!("{namespace}/{name}"))
}

fn pod(namespace: &str, name: &str, address: &str, app: &str, local: bool) -> Update {
    let mut endpoint = line::endpoint(&format!("{namespace}/{name} {address} app={app}"));
    endpoint.interface = local.then(|| format!("pal-{name}").into());
    Update::Upsert(Object::Endpoint(endpoint))
}

fn own(namespace: &str) -> Selector {
    Selector::equals(LabelKey::reserved(reserved::NAMESPACE), namespace)
}

fn app(name: &str) -> Selector {
    Selector::equals(LabelKey::own("app"), name)
}

/// A rule that admits a peer at a TCP port, or at all ports.
fn admits(peer: Peer, port: Option<u16>) -> Rule {
    let on = port.map(|port| format!(" on TCP/{port}"));
    Rule {
        peers: vec![peer],
        ..line::rule(&format!("allow{}", on.unwrap_or_default()))
    }
}

fn policy(namespace: &str, name: &str, rules: Vec<Rule>) -> Update {
    Update::Upsert(Object::Policy(Policy {
        subject: Selector::and([own(namespace), app("db")]),
        ..line::policy(&format!("{namespace}/{name}"), rules)
    }))
}

/// Two rules, equal in every namespace.
fn usual(namespace: &str) -> Vec<Rule> {
    vec![
        admits(
            Peer::from_selector(Selector::and([own(namespace), app("api")])),
            None,
        ),
        admits(Peer::from_selector(app("client")), Some(5432)),
    ]
}

fn net(text: &str) -> Peer {
    Peer::net(text.parse().unwrap(), Vec::new())
}

/// The number of changes to the class table.
fn classes(delta: &Delta) -> usize {
    let changes = delta.steps.iter().flat_map(|step| &step.changes);
    changes
        .filter(|change| matches!(change, TableChange::Class(..)))
        .count()
}

#[test]
fn an_edit_of_one_policy_of_many() {
    let mut state = State::default();
    let mut engine = Engine::new(EngineOptions::default());
    let mut first = Vec::new();
    for (n, namespace) in ["east", "west"].into_iter().enumerate() {
        let address = |last: usize| format!("10.0.{n}.{last}");
        first.extend([
            Update::Upsert(Object::Namespace(Namespace::from_name(namespace.into()))),
            pod(namespace, &format!("db-{n}"), &address(1), "db", true),
            pod(namespace, &format!("api-{n}"), &address(2), "api", false),
            pod(
                namespace,
                &format!("client-{n}"),
                &address(3),
                "client",
                false,
            ),
            pod(namespace, &format!("web-{n}"), &address(4), "web", false),
        ]);
        let names = (0..20).map(|number| format!("usual-{number}"));
        first.extend(names.map(|name| policy(namespace, &name, usual(namespace))));
    }
    let with = |more: Rule| {
        let mut rules = usual("west");
        rules.push(more);
        policy("west", "usual-7", rules)
    };
    let web = || admits(Peer::from_selector(app("web")), Some(443));
    let gone = |name: &str| {
        Update::Delete(ObjectKey::Policy(PolicyId {
            object: id("west", name, "NetworkPolicy"),
            part: 0,
        }))
    };
    let swapped = || usual("west").into_iter().rev().collect();
    let usually = || policy("west", "usual-7", usual("west"));
    // The edits, each with the most class entries that it may write.
    let edits = [
        ("everything added", first, usize::MAX),
        ("one rule more, for another peer", vec![with(web())], 2),
        (
            "its port changed",
            vec![with(admits(Peer::from_selector(app("web")), Some(80)))],
            2,
        ),
        ("back to the common rules", vec![usually()], 2),
        (
            "a network",
            vec![with(admits(net("192.0.2.0/24"), Some(443)))],
            2,
        ),
        (
            "a nested network",
            vec![with(admits(net("192.0.2.64/26"), None))],
            4,
        ),
        ("no network", vec![usually()], 2),
        (
            "a rule for any peer",
            vec![with(admits(Peer::any(), Some(53)))],
            usize::MAX,
        ),
        ("that rule removed", vec![usually()], usize::MAX),
        (
            "rules in reverse order",
            vec![policy("west", "usual-0", swapped())],
            4,
        ),
        ("no rules", vec![policy("west", "usual-0", Vec::new())], 4),
        (
            "a policy deleted and added again in one batch",
            vec![gone("usual-3"), policy("west", "usual-3", usual("west"))],
            0,
        ),
        (
            "several policies in one batch",
            vec![
                with(web()),
                policy("west", "usual-0", swapped()),
                gone("usual-5"),
            ],
            usize::MAX,
        ),
        (
            "all policies with these rules deleted",
            (0..20).map(|n| gone(&format!("usual-{n}"))).collect(),
            usize::MAX,
        ),
    ];
    for (what, updates, most) in edits {
        for update in &updates {
            state.apply(update.clone());
        }
        let old = engine.tables().clone();
        let delta = engine.apply(updates);
        assert_eq!(
            check(&old, &delta, engine.tables(), BOUND).map(|_| ()),
            Ok(()),
            "{what}"
        );
        assert_eq!(
            canonical(engine.tables()),
            canonical(from_scratch(&state).tables()),
            "{what}"
        );
        assert_eq!(engine.state(), state, "{what}");
        assert!(classes(&delta) <= most, "{what}: {delta:?}");
    }
    assert_eq!(
        engine.counts().policy_bodies,
        1,
        "the body of the other namespace's policies"
    );
}

/// A policy of the admin tier, without a namespace, for the databases of one.
fn cluster_wide(name: &str, namespace: &str, order: f64, mode: PolicyMode) -> Update {
    let mut policy = line::policy(&format!("default/{name}"), usual(namespace));
    policy.id.object.namespace = None;
    policy.tier = tier_name::KUBE_ADMIN.into();
    policy.precedence.order = Order::from_number(order);
    policy.mode = mode;
    policy.subject = Selector::and([own(namespace), app("db")]);
    Update::Upsert(Object::Policy(policy))
}

#[test]
fn policies_without_a_namespace_share_what_they_say_and_change_alone() {
    let mut state = State::default();
    let mut engine = Engine::new(EngineOptions::default());
    let mut first = Vec::new();
    for (n, namespace) in ["east", "west", "north"].into_iter().enumerate() {
        let address = |last: usize| format!("10.0.{n}.{last}");
        first.extend([
            Update::Upsert(Object::Namespace(Namespace::from_name(namespace.into()))),
            pod(namespace, &format!("db-{n}"), &address(1), "db", true),
            pod(namespace, &format!("api-{n}"), &address(2), "api", false),
            pod(namespace, &format!("web-{n}"), &address(3), "client", false),
            policy(namespace, "usual", usual(namespace)),
        ]);
    }
    let (enforce, audit) = (PolicyMode::Enforce, PolicyMode::Audit);
    first.push(cluster_wide("a", "east", 1.0, enforce));
    first.push(cluster_wide("b", "west", 2.0, enforce));
    let of = |name, namespace, order| cluster_wide(name, namespace, order, enforce);
    let edits = [
        ("everything added", first),
        (
            "one moved to another namespace",
            vec![of("a", "north", 1.0)],
        ),
        (
            "each in the other's namespace",
            vec![of("a", "west", 1.0), of("b", "north", 2.0)],
        ),
        (
            "moved and back in one batch",
            vec![of("a", "east", 1.0), of("a", "west", 1.0)],
        ),
        (
            "two in one namespace, in the other order",
            vec![of("b", "west", 0.5)],
        ),
        (
            "the order alone",
            vec![of("a", "west", 0.25), of("b", "west", 0.75)],
        ),
        (
            "the mode alone",
            vec![cluster_wide("a", "west", 0.25, audit)],
        ),
        (
            "a namespace that is not there",
            vec![of("b", "south", 0.75)],
        ),
        ("both gone from west", vec![of("a", "east", 0.25)]),
    ];
    for (what, updates) in edits {
        for update in &updates {
            state.apply(update.clone());
        }
        let old = engine.tables().clone();
        let delta = engine.apply(updates);
        let checked = check(&old, &delta, engine.tables(), BOUND).map(|_| ());
        assert_eq!(checked, Ok(()), "{what}");
        let fresh = from_scratch(&state);
        assert_eq!(
            canonical(engine.tables()),
            canonical(fresh.tables()),
            "{what}"
        );
        assert_eq!(engine.state(), state, "{what}");
        assert_eq!(engine.counts(), fresh.counts(), "{what}");
    }
}

/// The policies of an endpoint, and their order, stay the same: only their tiers are others.
#[test]
fn a_policy_that_moves_to_another_tier_is_judged_there() {
    let tier = |name: &str, order| {
        Update::Upsert(Object::Tier(Tier {
            name: name.into(),
            order: Order::from_number(order),
            default: TierDefault::Deny,
        }))
    };
    let policy = |name: &str, tier: &str, order, rules| {
        let policy = line::policy(&format!("east/{name}"), rules);
        Policy {
            tier: tier.into(),
            precedence: Precedence {
                order: Order::from_number(order),
                ..policy.precedence
            },
            subject: app("db"),
            ..policy
        }
    };
    let isolates = |tier: &str| Update::Upsert(Object::Policy(policy("a", tier, 1.0, Vec::new())));
    let allows = policy(
        "b",
        "second",
        2.0,
        vec![admits(Peer::from_selector(app("api")), None)],
    );
    let objects = [
        tier("first", 1.0),
        tier("second", 2.0),
        isolates("first"),
        Update::Upsert(Object::Policy(allows)),
        pod("east", "db", "10.0.0.1", "db", true),
        pod("east", "api", "10.0.0.2", "api", false),
    ];
    let mut state = State::default();
    let mut engine = Engine::new(EngineOptions::default());
    let packet = Packet {
        input_interface: Some("eth0".into()),
        output_interface: Some("pal-db".into()),
        source: [10, 0, 0, 2].into(),
        destination: [10, 0, 0, 1].into(),
        pre_dnat: None,
        protocol: Protocol::TCP,
        l4: L4::Ports {
            source: 40_000,
            destination: 80,
        },
    };
    let mut apply = |updates: &[Update]| {
        engine.apply(updates.iter().cloned());
        updates
            .iter()
            .cloned()
            .for_each(|update| state.apply(update));
        let expected = from_scratch(&state);
        assert_eq!(canonical(engine.tables()), canonical(expected.tables()));
        match engine.tables().judge_direction(&packet, Direction::Ingress) {
            DirectionVerdict::Evaluated(evaluation) => evaluation.cell.verdict,
            other => panic!("{other:?}"),
        }
    };
    // The first tier isolates before the second one allows; in one tier, the rule decides.
    assert_eq!(apply(&objects), Verdict::Deny);
    assert_eq!(apply(&[isolates("second")]), Verdict::Allow);
    assert_eq!(apply(&[isolates("first")]), Verdict::Deny);
}
