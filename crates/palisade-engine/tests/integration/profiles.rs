//! Deleting a profile that endpoints still name also drops its references to their own end: the
//! points are grouped as after a fresh start.

use crate::from_scratch;
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::line;
use palisade_model::{
    Direction, Endpoint, Family, Object, ObjectKey, Peer, PortMatch, PortSpec, Profile, Protocol,
    Rule, State, TrafficMatch, Update,
};
use palisade_verification::canonical;

/// An endpoint with an address of each family and two profiles.
fn endpoint(name: &str, number: u16, port: u16) -> Update {
    Update::Upsert(Object::Endpoint(Endpoint {
        profiles: vec!["goes".into(), "stays".into()],
        ..line::endpoint(&format!(
            "shop/{name} 10.0.0.{number} 10.0.1.{number} fd00::{number} dev pal{number} port web={port}/TCP"
        ))
    }))
}

fn profile(name: &str, direction: Direction, local: Option<Peer>, traffic: TrafficMatch) -> Update {
    let rules = vec![Rule {
        local,
        traffic: vec![traffic],
        ..line::rule("allow")
    }];
    let (ingress, egress) = match direction {
        Direction::Ingress => (rules, Vec::new()),
        Direction::Egress => (Vec::new(), rules),
    };
    Update::Upsert(Object::Profile(Profile {
        name: name.into(),
        ingress,
        egress,
        labels_to_apply: Default::default(),
    }))
}

#[test]
fn a_profile_that_goes_tells_points_apart_no_more() {
    let of_family = TrafficMatch {
        family: Some(Family::V4),
        ..TrafficMatch::any()
    };
    let web = PortMatch::one_of([PortSpec::Named("web".into())]);
    let to_named = TrafficMatch::to_port(Protocol::TCP, web);
    let first_net = || Some(Peer::net("10.0.0.0/24".parse().unwrap(), Vec::new()));
    let asked = [
        ("the family", Direction::Ingress, None, of_family.clone()),
        ("the family, at egress", Direction::Egress, None, of_family),
        ("a named port", Direction::Ingress, None, to_named),
        (
            "the address",
            Direction::Ingress,
            first_net(),
            TrafficMatch::any(),
        ),
    ];
    for (what, direction, local, traffic) in asked {
        let mut state = State::default();
        let mut engine = Engine::new(EngineOptions::default());
        let first = [
            endpoint("a", 1, 80),
            endpoint("b", 2, 8080),
            profile("stays", Direction::Ingress, None, TrafficMatch::any()),
            profile("goes", direction, local, traffic),
        ];
        let gone = Update::Delete(ObjectKey::Profile("goes".into()));
        let mut sets = Vec::new();
        for batch in [first.to_vec(), vec![gone]] {
            for update in &batch {
                state.apply(update.clone());
            }
            engine.apply(batch);
            let fresh = from_scratch(&state);
            let (now, wanted) = (engine.tables(), fresh.tables());
            assert_eq!(canonical(now), canonical(wanted), "{what}");
            sets.push(now.sets.len());
        }
        assert!(
            sets[0] > sets[1] && sets[1] == 2,
            "{what}: {sets:?} policy sets"
        );
    }
}
