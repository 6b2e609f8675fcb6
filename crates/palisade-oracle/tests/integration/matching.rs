//! Rule matching: peers, local addresses, protocols, ports, ICMP messages.

use crate::build::*;
use Action::{Allow, Deny};
use palisade_model::*;

/// A state in which pod `b` allows only what `rule` matches, with a node, a network set and a namespace.
fn guarded(rule: Rule) -> State {
    let mut state = two(vec![policy("n/p", "app=b", vec![rule])]);
    let mut web = pod("m/web", "10.1.0.1 10.2.0.1", "app=web,tier=front");
    web.service_account = Some("robot".into());
    let mut namespace = Namespace::from_name("m".into());
    namespace.labels.insert("env".into(), "prod".into());
    for object in [
        Object::Endpoint(web),
        Object::Endpoint(pod("m/unknown", "", "app=web")),
        Object::Namespace(namespace),
        Object::ServiceAccount(ServiceAccount {
            namespace: "m".into(),
            name: "robot".into(),
            labels: labels("role=bot"),
        }),
        Object::NetworkSet(NetworkSet {
            id: id("NetworkSet", "m/set"),
            kind: NetworkSetKind::NetworkSet,
            labels: labels("app=set,tier=front"),
            nets: vec![net("10.1.0.0/16"), net("198.51.100.0/24")],
        }),
        Object::Node(Node {
            name: "node".into(),
            labels: labels("app=node"),
            addresses: vec![ip("192.0.2.7")],
            internal_addresses: Vec::new(),
            pod_networks: Vec::new(),
            audit: false,
        }),
    ] {
        state.apply(Update::Upsert(object));
    }
    state
}

/// Asserts which of these sources may reach pod `b`.
#[track_caller]
fn peer(peer: Peer, allowed: &[&str], denied: &[&str]) {
    let state = guarded(from(Allow, peer));
    for (sources, expected) in [(allowed, "++"), (denied, "+-")] {
        for source in sources {
            let to = if source.contains(':') {
                "fd00::2"
            } else {
                "10.0.0.2"
            };
            says(&state, &[(&format!("{source}>{to} TCP:80"), expected)]);
        }
    }
}

#[test]
fn selectors_match_any_one_thing_that_holds_the_address() {
    let by = |text: &str| Peer::from_selector(sel(text));
    peer(
        by("app=web"),
        &["10.1.0.1", "10.2.0.1", "m/unknown"],
        &["10.0.0.1", "192.0.2.1"],
    );
    peer(
        by("app=set"),
        &["10.1.0.1", "10.1.9.9", "198.51.100.1"],
        &["10.2.0.1", "m/unknown"],
    );
    peer(by("app=node"), &["192.0.2.7"], &["192.0.2.8"]);
    peer(
        by("ns:env=prod"),
        &["10.2.0.1", "198.51.100.1"],
        &["10.0.0.1", "192.0.2.7"],
    );
    peer(
        by("ns:kubernetes.io/metadata.name=n"),
        &["10.0.0.1"],
        &["10.1.0.1"],
    );
    peer(
        by("sa:role=bot"),
        &["10.1.0.1"],
        &["m/unknown", "198.51.100.1"],
    );
    peer(
        by("is:kind=workload"),
        &["10.0.0.1", "m/unknown"],
        &["198.51.100.1", "192.0.2.7"],
    );
    // One holder must match the whole selector.
    let both = Selector::and([sel("app=set"), sel("is:kind=workload")]);
    peer(
        Peer::from_selector(both),
        &[],
        &["10.1.0.1", "198.51.100.1"],
    );
    peer(
        by(""),
        &["10.1.0.1", "198.51.100.1", "192.0.2.7"],
        &["192.0.2.1"],
    );
    let negated = Selector::negate(sel("app=web"));
    peer(
        Peer::from_selector(negated),
        &["10.0.0.1", "10.1.0.1"],
        &["10.2.0.1", "192.0.2.1"],
    );
}

#[test]
fn excluded_selectors_match_outsiders_too() {
    let not = |text: &str| Peer {
        not_selector: Some(sel(text)),
        ..Peer::any()
    };
    peer(
        not("app=web"),
        &["10.0.0.1", "192.0.2.1"],
        &["10.1.0.1", "m/unknown"],
    );
    peer(
        not("app=set"),
        &["10.2.0.1", "192.0.2.1"],
        &["10.1.0.1", "198.51.100.1"],
    );
}

#[test]
fn networks_match_whoever_is_there_but_not_unknown_addresses() {
    let all = Peer::net(Prefix::ALL_V4, vec![net("10.1.0.0/16")]);
    peer(
        all,
        &["10.2.0.1", "192.0.2.7", "192.0.2.1"],
        &["10.1.0.1", "m/unknown", "fd00::1"],
    );
    let without = Peer {
        not_nets: vec![net("10.1.0.0/16")],
        ..Peer::any()
    };
    peer(
        without,
        &["10.2.0.1", "m/unknown", "fd00::1"],
        &["10.1.0.1"],
    );
    let none = Peer {
        nets: Some(vec![]),
        ..Peer::any()
    };
    peer(none, &[], &["10.1.0.1", "192.0.2.1"]);
    let combined = Peer {
        selector: Some(sel("app=web")),
        ..Peer::net(net("10.2.0.0/16"), vec![])
    };
    peer(combined, &["10.2.0.1"], &["10.1.0.1", "10.2.0.2"]);
}

#[test]
fn one_peer_is_enough_and_none_match_nothing() {
    let mut either = from(Allow, Peer::net(Prefix::ALL_V4, vec![net("10.1.0.0/16")]));
    says(
        &guarded(either.clone()),
        &[("10.1.0.1>10.0.0.2 TCP:80", "+-")],
    );
    either.peers.push(Peer::net(net("10.1.0.0/24"), vec![]));
    says(
        &guarded(either.clone()),
        &[("10.1.0.1>10.0.0.2 TCP:80", "++")],
    );
    either.peers.clear();
    says(&guarded(either), &[("192.0.2.1>10.0.0.2 TCP:80", "+-")]);
    let mut silent = on(Allow, TrafficMatch::any());
    silent.traffic.clear();
    says(&guarded(silent), &[("192.0.2.1>10.0.0.2 TCP:80", "+-")]);
}

#[test]
fn own_address_tests_look_at_the_address_in_use() {
    let mut only_v4 = rule(Allow);
    only_v4.local = Some(Peer::net(net("10.0.0.2/32"), vec![]));
    says(
        &guarded(only_v4),
        &[
            ("10.0.0.1>10.0.0.2 TCP:80", "++"),
            ("fd00::1>fd00::2 TCP:80", "+-"),
            ("10.0.0.1>n/b TCP:80", "+-"),
        ],
    );
    let mut own_label = egress(policy("m/e", "app=web", vec![rule(Allow)]));
    if let Some(rules) = &mut own_label.egress {
        rules.rules[0].local = Some(Peer::from_selector(sel("app=set")));
    }
    let mut state = guarded(rule(Allow));
    state.apply(Update::Upsert(Object::Policy(own_label)));
    says(
        &state,
        &[
            ("10.1.0.1>10.0.0.2 TCP:80", "++"),
            ("10.2.0.1>10.0.0.2 TCP:80", "-+"),
        ],
    );
}

#[track_caller]
fn traffic(term: TrafficMatch, allowed: &[&str], denied: &[&str]) {
    let state = guarded(on(Allow, term));
    for (flows, expected) in [(allowed, "++"), (denied, "+-")] {
        for flow in flows {
            says(&state, &[(&format!("10.1.0.1>10.0.0.2 {flow}"), expected)]);
        }
    }
}

fn range(first: u16, last: u16) -> PortSpec {
    PortSpec::Range(PortRange { first, last })
}

#[test]
fn protocols() {
    traffic(
        TrafficMatch::protocol(Protocol::TCP),
        &["TCP:0", "TCP:65535"],
        &["UDP:80", "ICMP:8/0", "50"],
    );
    traffic(
        TrafficMatch::protocol(Protocol(50)),
        &["50"],
        &["TCP:80", "51"],
    );
    let not = TrafficMatch {
        not_protocols: vec![Protocol::TCP],
        ..TrafficMatch::any()
    };
    traffic(not, &["UDP:80", "SCTP:80", "ICMP:8/0", "50"], &["TCP:80"]);
    let without_ports = TrafficMatch {
        not_protocols: Protocol::WITH_PORTS.to_vec(),
        ..TrafficMatch::any()
    };
    traffic(
        without_ports,
        &["ICMP:8/0", "50"],
        &["TCP:80", "UDP:80", "SCTP:80"],
    );
}

#[test]
fn ports() {
    let dst = |ports| TrafficMatch {
        destination: ports,
        ..TrafficMatch::any()
    };
    traffic(tcp(80), &["TCP:80"], &["TCP:81", "UDP:80"]);
    let some = PortMatch::one_of([range(80, 90), range(443, 443)]);
    traffic(
        dst(some),
        &["TCP:80", "UDP:90", "SCTP:443"],
        &["TCP:91", "TCP:79", "ICMP:8/0", "50"],
    );
    traffic(dst(PortMatch::one_of([])), &[], &["TCP:80", "50"]);
    let all = PortMatch::one_of([PortSpec::Range(PortRange::ALL)]);
    traffic(dst(all), &["TCP:0", "TCP:65535"], &["ICMP:8/0", "50"]);
    let not = PortMatch {
        any_of: None,
        not: vec![range(80, 90)],
    };
    traffic(
        dst(not.clone()),
        &["TCP:91", "UDP:79"],
        &["TCP:80", "UDP:90", "ICMP:8/0", "50"],
    );
    let both = PortMatch {
        any_of: Some(vec![range(1, 100)]),
        not: vec![range(80, 90)],
    };
    traffic(dst(both), &["TCP:1", "TCP:91"], &["TCP:80", "TCP:101"]);
    let source = TrafficMatch {
        source: PortMatch::one_of([range(53, 53)]),
        ..TrafficMatch::any()
    };
    traffic(
        source,
        &["TCP:80<53", "UDP:1<53"],
        &["TCP:53<80", "ICMP:8/0"],
    );
}

#[test]
fn named_ports_are_those_of_the_end_and_the_protocol() {
    let build = |term: TrafficMatch| {
        let mut state = guarded(on(Allow, term));
        for (name, number) in [("n/b", 80), ("m/web", 8080)] {
            if let Some(endpoint) = state.endpoints.get_mut(&id("Pod", name)) {
                endpoint.ports = vec![
                    port("http", Protocol::TCP, number),
                    port("http", Protocol::UDP, number + 1),
                    port("http", Protocol::TCP, 9),
                ];
            }
        }
        state
    };
    let named = |name: &str| PortMatch::one_of([PortSpec::Named(name.into())]);
    let to = TrafficMatch {
        destination: named("http"),
        ..TrafficMatch::any()
    };
    let cases = [
        ("TCP:80", "++"),
        ("TCP:8080", "+-"),
        ("TCP:9", "+-"),
        ("UDP:81", "++"),
        ("UDP:80", "+-"),
        ("SCTP:80", "+-"),
        ("50", "+-"),
    ];
    for (flow, expected) in cases {
        says(
            &build(to.clone()),
            &[(&format!("10.1.0.1>10.0.0.2 {flow}"), expected)],
        );
    }
    let from_named = TrafficMatch {
        source: named("http"),
        ..TrafficMatch::any()
    };
    let cases = [
        ("10.1.0.1>10.0.0.2 TCP:1<8080", "++"),
        ("10.1.0.1>10.0.0.2 TCP:1<80", "+-"),
        ("10.0.0.1>10.0.0.2 TCP:1<8080", "+-"),
        ("192.0.2.1>10.0.0.2 TCP:1<8080", "+-"),
    ];
    says(&build(from_named), &cases);
    let gone = TrafficMatch {
        destination: named("gone"),
        ..TrafficMatch::any()
    };
    says(&build(gone), &[("10.1.0.1>10.0.0.2 TCP:80", "+-")]);
    let not = |name: &str| TrafficMatch {
        destination: PortMatch {
            any_of: None,
            not: vec![PortSpec::Named(name.into())],
        },
        ..TrafficMatch::any()
    };
    says(
        &build(not("http")),
        &[
            ("10.1.0.1>10.0.0.2 TCP:80", "+-"),
            ("10.1.0.1>10.0.0.2 TCP:81", "++"),
        ],
    );
    says(
        &build(not("gone")),
        &[
            ("10.1.0.1>10.0.0.2 TCP:80", "++"),
            ("10.1.0.1>10.0.0.2 50", "+-"),
        ],
    );
}

#[test]
fn icmp() {
    let message = |kind, code| Some(IcmpMatch { kind, code });
    let is = |icmp| TrafficMatch {
        icmp,
        ..TrafficMatch::any()
    };
    traffic(
        is(message(8, None)),
        &["ICMP:8/0", "ICMP:8/7", "ICMPv6:8/0"],
        &["ICMP:0/0", "TCP:8", "50"],
    );
    traffic(
        is(message(3, Some(4))),
        &["ICMP:3/4"],
        &["ICMP:3/3", "ICMP:4/4"],
    );
    let not = TrafficMatch {
        not_icmp: message(3, Some(4)),
        ..TrafficMatch::any()
    };
    traffic(not, &["ICMP:3/3", "TCP:80", "50"], &["ICMP:3/4"]);
    let v6_only = TrafficMatch {
        protocol: Some(Protocol::ICMPV6),
        ..is(message(128, None))
    };
    says(
        &guarded(on(Allow, v6_only)),
        &[
            ("fd00::1>fd00::2 ICMPv6:128/0", "++"),
            ("fd00::1>fd00::2 ICMPv6:129/0", "+-"),
        ],
    );
}

#[test]
fn families() {
    let v6 = TrafficMatch {
        family: Some(Family::V6),
        ..TrafficMatch::any()
    };
    let cases = [
        ("fd00::1>fd00::2 TCP:80", "++"),
        ("10.0.0.1>10.0.0.2 TCP:80", "+-"),
        ("n/a>n/b TCP:80", "+-"),
    ];
    says(&guarded(on(Allow, v6)), &cases);
}

#[test]
fn deny_rules_read_the_same_criteria() {
    let deny = from(Deny, Peer::from_selector(sel("app=web")));
    let mut state = two(vec![policy("n/p", "app=b", vec![deny, rule(Allow)])]);
    state.apply(Update::Upsert(Object::Endpoint(pod(
        "m/web", "10.1.0.1", "app=web",
    ))));
    says(
        &state,
        &[
            ("10.1.0.1>10.0.0.2 TCP:80", "+-"),
            ("10.0.0.1>10.0.0.2 TCP:80", "++"),
        ],
    );
}
