//! Policies that observe DNS: what is redirected, and that an edit of the flag alone reaches the tables.

use palisade_engine::{Engine, EngineOptions, policy_cost};
use palisade_generators::line;
use palisade_model::{
    DomainPattern, Endpoint, L4, Object, Policy, PolicyMode, Protocol, Rule, Update,
};
use palisade_tables::{Cell, DirectionVerdict, Packet, Verdict};

fn pod() -> Update {
    Update::Upsert(Object::Endpoint(Endpoint {
        interface: Some("pal0".into()),
        ..line::endpoint("shop/web 10.0.0.1 app=web")
    }))
}

/// An egress policy of the pod.
fn policy(rules: Vec<Rule>, observes_dns: bool) -> Policy {
    let mut policy = line::policy("shop/web app=web", rules);
    policy.egress = policy.ingress.take();
    policy.observes_dns = observes_dns;
    policy
}

fn cell(engine: &Engine, protocol: Protocol, destination: u16) -> Cell {
    let l4 = L4::Ports {
        source: 40_000,
        destination,
    };
    let packet = Packet {
        input_interface: Some("pal0".into()),
        output_interface: Some("eth0".into()),
        source: "10.0.0.1".parse().unwrap(),
        destination: "192.0.2.1".parse().unwrap(),
        protocol,
        l4,
        pre_dnat: None,
    };
    let judged = engine
        .tables()
        .judge_direction(&packet, palisade_model::Direction::Egress);
    let seen = match judged {
        DirectionVerdict::Evaluated(seen) => Some(seen.cell.clone()),
        _ => None,
    };
    seen.unwrap()
}

/// Of each protocol with ports, the destination ports that are redirected, with the names; every verdict is the same.
fn redirected(engine: &Engine, policy: Policy) -> Vec<(Protocol, u16, usize)> {
    let silent = Policy {
        observes_dns: false,
        ..policy.clone()
    };
    let upsert = |policy| Update::Upsert(Object::Policy(policy));
    let mut without = Engine::new(EngineOptions::default());
    without.apply([pod(), upsert(silent)]);
    let mut found = Vec::new();
    for protocol in [Protocol::TCP, Protocol::UDP, Protocol::SCTP] {
        for port in [0, 1, 52, 53, 54, 4789, 65535] {
            let (seen, plain) = (cell(engine, protocol, port), cell(&without, protocol, port));
            assert_eq!(
                (seen.verdict, &seen.log),
                (plain.verdict, &plain.log),
                "{protocol}/{port}"
            );
            if let Some(rules) = seen.redirect {
                assert_eq!(rules.default, seen.verdict);
                found.push((protocol, port, rules.names.len()));
            }
        }
    }
    found
}

#[test]
fn the_port_is_cut_out_of_what_is_allowed() {
    let by_name = || Rule {
        dns_names: Some([DomainPattern::glob("a.example").unwrap()].into()),
        ..line::rule("allow on UDP/53")
    };
    let (tcp, udp) = (Protocol::TCP, Protocol::UDP);
    let cases = [
        (
            vec![line::rule("allow")],
            vec![(tcp, 53, 0), (udp, 53, 0)],
            "for any protocol",
        ),
        (
            vec![line::rule("allow on UDP/1-60000")],
            vec![(udp, 53, 0)],
            "within a range",
        ),
        (
            vec![line::rule("deny on UDP/53"), line::rule("allow")],
            vec![(tcp, 53, 0)],
            "not where it is denied",
        ),
        (vec![], vec![], "nothing is allowed"),
        (
            vec![by_name(), line::rule("allow")],
            vec![(tcp, 53, 0), (udp, 53, 1)],
            "rules by name redirect already",
        ),
    ];
    for (rules, expected, what) in cases {
        for mode in [PolicyMode::Enforce, PolicyMode::Audit] {
            let policy = Policy {
                mode,
                ..policy(rules.clone(), true)
            };
            let mut engine = Engine::new(EngineOptions::default());
            engine.apply([pod(), Update::Upsert(Object::Policy(policy.clone()))]);
            let found = redirected(&engine, policy);
            match mode {
                PolicyMode::Enforce => assert_eq!(found, expected, "{what}"),
                // Nothing of it is enforced, so all is allowed and observed.
                PolicyMode::Audit => assert_eq!(found, [(tcp, 53, 0), (udp, 53, 0)], "{what}"),
            }
        }
    }
}

#[test]
fn an_edit_of_the_flag_alone_is_an_edit() {
    let mut engine = Engine::new(EngineOptions::default());
    let given = |observes_dns| policy(vec![line::rule("allow to 192.0.2.0/24")], observes_dns);
    let upsert = |observes_dns| Update::Upsert(Object::Policy(given(observes_dns)));
    engine.apply([pod(), upsert(false)]);
    assert!(cell(&engine, Protocol::UDP, 53).redirect.is_none());
    engine.apply([upsert(true)]);
    let seen = cell(&engine, Protocol::UDP, 53);
    assert!(seen.redirect.is_some() && seen.verdict == Verdict::Allow);
    assert_eq!(
        engine.state().policies.values().collect::<Vec<_>>(),
        [&given(true)]
    );
    engine.apply([upsert(false)]);
    assert!(cell(&engine, Protocol::UDP, 53).redirect.is_none());
    let cost = |observes_dns| policy_cost(&given(observes_dns)).elements;
    assert!(cost(true) > cost(false));
}
