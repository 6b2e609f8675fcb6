//! Common changes take few steps and few table changes.

use palisade_engine::{Engine, EngineOptions};
use palisade_generators::line;
use palisade_model::{Endpoint, Object, ObjectId, ObjectKey, Policy, SourceLine, Update};
use palisade_tables::{Delta, Phase};

fn id(name: &str, kind: &str) -> ObjectId {
    line::id(kind, &format!("shop/{name}"))
}

fn pod(name: &str, address: &str, app: &str, interface: Option<&str>) -> Update {
    let written = format!("shop/{name} {address} app={app} own={name}");
    Update::Upsert(Object::Endpoint(Endpoint {
        interface: interface.map(Into::into),
        ..line::endpoint(&written)
    }))
}

/// `app=db` admits `app=client` at a port.
fn policy(client: &str, port: u16) -> Update {
    policy_at(client, port, None)
}

/// The same policy, with a source line for its rule.
fn policy_at(client: &str, port: u16, line: Option<u32>) -> Update {
    let line = line.map(|line| SourceLine::new("db.yaml", line));
    let mut rule = line::rule(&format!("allow from app={client} on TCP/{port}"));
    rule.origin.line.clone_from(&line);
    let mut policy = line::policy("shop/db app=db", [rule]);
    policy.line = line;
    Update::Upsert(Object::Policy(policy))
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
