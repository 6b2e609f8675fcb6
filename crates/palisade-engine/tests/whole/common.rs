//! Common changes take few steps and few table changes.

use palisade_engine::{Engine, EngineOptions};
use palisade_model::{
    Action, DirectionRules, Endpoint, LabelKey, Object, ObjectId, ObjectKey, Order, Peer, Policy,
    PolicyId, PortMatch, PortRange, PortSpec, Precedence, Profile, Protocol, Rule, RuleOrigin,
    Selector, SourceLine, TrafficMatch, Update,
};
use palisade_tables::{Delta, Phase};

fn id(name: &str, kind: &str) -> ObjectId {
    ObjectId {
        namespace: Some("shop".into()),
        name: name.into(),
        group: "".into(),
        kind: kind.into(),
    }
}

fn pod(name: &str, address: &str, app: &str, interface: Option<&str>) -> Update {
    Update::Upsert(Object::Endpoint(Endpoint {
        id: id(name, "Pod"),
        host: false,
        labels: [("app".into(), app.into()), ("own".into(), name.into())].into(),
        service_account: None,
        node: None,
        interface: interface.map(Into::into),
        addresses: vec![address.parse().unwrap()],
        ports: Vec::new(),
        profiles: vec![Profile::ALLOW_ALL.into()],
        created: 0,
        owner: None,
        template: false,
        completed: false,
        host_network: false,
    }))
}

/// `app=db` admits `app=client` at a port.
fn policy(client: &str, port: u16) -> Update {
    policy_at(client, port, None)
}

/// The same policy, with a source line for its rule.
fn policy_at(client: &str, port: u16, line: Option<u32>) -> Update {
    let line = line.map(|line| SourceLine {
        file: "db.yaml".into(),
        line,
    });
    let app = |value: &str| Selector::equals(LabelKey::own("app"), value);
    let spec = PortSpec::Range(PortRange::single(port));
    let rule = Rule {
        origin: RuleOrigin {
            index: 0,
            name: None,
            fingerprint: 0,
            line: line.clone(),
        },
        action: Action::Allow,
        peers: vec![Peer::from_selector(app(client))],
        own: None,
        traffic: vec![TrafficMatch::to_port(
            Protocol::TCP,
            PortMatch::one_of([spec]),
        )],
    };
    Update::Upsert(Object::Policy(Policy {
        id: PolicyId {
            object: id("db", "NetworkPolicy"),
            part: 0,
        },
        tier: "default".into(),
        precedence: Precedence {
            order: Order::At(1000.0),
            rank: 1,
        },
        subject: app("db"),
        ingress: Some(DirectionRules {
            default_deny: true,
            rules: vec![rule],
        }),
        egress: None,
        line,
    }))
}

/// The phases of a delta, with the number of changes in each.
fn shape(delta: &Delta) -> Vec<(Phase, usize)> {
    let steps = delta.steps.iter();
    steps.map(|step| (step.phase, step.changes.len())).collect()
}

#[test]
fn common_changes_are_small() {
    use Phase::{Loosen, Revoke, Tighten};
    let mut engine = Engine::new(EngineOptions::default());
    engine.apply([
        policy("api", 5432),
        pod("db-0", "10.0.0.1", "db", Some("pal0")),
        pod("api-0", "10.0.1.1", "api", None),
    ]);
    let gone = |name| Update::Delete(ObjectKey::Endpoint(id(name, "Pod")));
    let cases = [
        (
            "a peer with known labels is added",
            pod("api-1", "10.0.1.2", "api", None),
            vec![(Loosen, 1)],
        ),
        (
            "the same update again",
            pod("api-1", "10.0.1.2", "api", None),
            vec![],
        ),
        (
            "it is removed",
            gone("api-1"),
            vec![(Tighten, 1), (Revoke, 0)],
        ),
        (
            "an endpoint that no rule names is added",
            pod("web-0", "10.0.2.1", "web", None),
            vec![],
        ),
        (
            "it becomes a peer",
            pod("web-0", "10.0.2.1", "api", None),
            vec![(Loosen, 1)],
        ),
        (
            "it is no peer any more",
            pod("web-0", "10.0.2.1", "web", None),
            vec![(Tighten, 1), (Revoke, 0)],
        ),
    ];
    for (what, update, expected) in cases {
        assert_eq!(shape(&engine.apply([update])), expected, "{what}");
    }
    let edited = engine.apply([policy("api", 5433)]);
    let phases: Vec<Phase> = edited.steps.iter().map(|step| step.phase).collect();
    assert_eq!(
        phases,
        [Phase::Split, Tighten, Revoke, Loosen, Phase::Delete],
        "a rule moved to another port takes the intersection as interim step"
    );
    let addresses = engine.tables().addresses.len();
    assert_eq!(addresses, 1, "only the peer that the policy names");
}

#[test]
fn a_rule_that_only_moves_in_its_file_changes_nothing() {
    let mut engine = Engine::new(EngineOptions::default());
    engine.apply([
        policy_at("api", 5432, Some(7)),
        pod("db-0", "10.0.0.1", "db", Some("pal0")),
        pod("api-0", "10.0.1.1", "api", None),
    ]);
    let before = engine.tables().clone();
    let delta = engine.apply([policy_at("api", 5432, Some(8))]);
    assert!(delta.is_empty(), "{delta:?}");
    assert_eq!(*engine.tables(), before);
    assert_eq!((delta.revision, engine.revision()), (2, 2));
    let line = |policy: &Policy| policy.line.as_ref().map(|line| line.line);
    let lines: Vec<_> = engine.state().policies.values().map(line).collect();
    assert_eq!(lines, [Some(8)], "the state has the new line");
}
