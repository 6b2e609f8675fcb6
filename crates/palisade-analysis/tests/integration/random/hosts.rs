//! What the listing says of hosts is compared with the oracle, address by address.

use super::generate::{Dice, put_in_audit};
use palisade_analysis::{
    ForwardedConnection, HostConnection, StateView, forwarded_connections, forwarded_diff,
    host_connections, host_diff,
};
use palisade_generators::case_seeds;
use palisade_model::{
    Direction, Endpoint, EndpointKind, FailsafePort, FailsafePorts, Family, FlowOrigin, L4,
    PolicyView, Prefix, Protocol, State, TrafficScope,
};
use palisade_oracle::{FlowEnd, HostPath, OracleOptions, PreparedState, Question};
use std::net::IpAddr;

/// As sources have them: a host endpoint with an interface has a node, and a network set instead of addresses.
fn without_strays(state: &mut State) {
    for endpoint in state.endpoints.values_mut() {
        if endpoint.node.is_none() && endpoint.interface.is_some() {
            endpoint.kind = EndpointKind::POD;
        }
    }
}

/// Makes host endpoints of some endpoints: one of `eth0`, and one of every other interface.
fn with_hosts(state: &mut State, dice: &mut Dice) {
    let interfaces = ["eth0", Endpoint::ANY_INTERFACE];
    for (endpoint, interface) in state.endpoints.values_mut().zip(interfaces) {
        endpoint.kind = EndpointKind::HostInterface;
        endpoint.node = Some("node".into());
        endpoint.interface = Some(interface.into());
        endpoint.addresses.clear();
    }
    without_strays(state);
    for policy in state.policies.values_mut() {
        // Some judge what is forwarded too, or belong to an early stage.
        policy.scope = match dice.below(6) {
            0 => TrafficScope::Forwarded,
            1 => TrafficScope::Untracked,
            2 => TrafficScope::PreDnat,
            _ => policy.scope,
        };
    }
}

fn failsafe(dice: &mut Dice) -> FailsafePorts {
    let mut port = |net| FailsafePort {
        protocol: Protocol::TCP,
        port: 80 + u16::try_from(dice.below(2)).unwrap(),
        net,
    };
    FailsafePorts {
        inbound: vec![port(None)],
        outbound: vec![port(Some("10.0.0.0/29".parse::<Prefix>().unwrap()))],
    }
}

fn listed(list: &[HostConnection], q: &Question, interface: &str, direction: Direction) -> bool {
    let peer = match direction {
        Direction::Ingress => &q.source,
        Direction::Egress => &q.destination,
    };
    let FlowEnd::Address(peer) = peer else {
        return false;
    };
    list.iter().any(|row| {
        *row.interface == *interface
            && row.direction == direction
            && row.peers.contains(*peer)
            && row.connections.contains(q.protocol, q.l4)
    })
}

/// Random questions about the host: every interface and direction, with some address and traffic.
fn questions(state: &State, dice: &mut Dice) -> Vec<(Question, &'static str, Direction)> {
    let own = state.nodes.values().next().unwrap().addresses[0];
    let mut found = Vec::new();
    for _ in 0..40 {
        let peer: IpAddr = dice.address();
        let (protocol, l4): (Protocol, L4) = dice.traffic();
        if Family::of(peer) != Family::of(own) {
            continue;
        }
        for interface in ["eth0", Endpoint::ANY_INTERFACE] {
            for direction in Direction::BOTH {
                let [own, peer] = [own, peer].map(FlowEnd::Address);
                let at = Some(interface.into());
                let (source, destination, input, output, origin) = match direction {
                    Direction::Ingress => (peer, own, at, None, FlowOrigin::Network),
                    Direction::Egress => (own, peer, None, at, FlowOrigin::HostStack),
                };
                let question = Question {
                    family: Family::of(state.nodes.values().next().unwrap().addresses[0]),
                    source,
                    destination,
                    protocol,
                    l4,
                    origin,
                    path: HostPath {
                        input,
                        output,
                        ..HostPath::default()
                    },
                };
                found.push((question, interface, direction));
            }
        }
    }
    found
}

#[test]
fn connections_of_hosts_are_what_the_oracle_says() {
    let (mut asked, mut passed) = (0, 0);
    for seed in case_seeds(40_000, 300) {
        let mut dice = Dice::new(seed);
        let mut state = dice.state();
        with_hosts(&mut state, &mut dice);
        put_in_audit(&mut state, seed);
        let failsafe = failsafe(&mut dice);
        let view = PolicyView::BOTH[usize::from(seed.is_multiple_of(3))];
        let list = host_connections(
            StateView {
                state: &state,
                view,
            },
            &failsafe,
        );
        let prepared = PreparedState::new(&state).with_failsafe(failsafe);
        let options = OracleOptions {
            view,
            ..OracleOptions::default()
        };
        for (question, interface, direction) in questions(&state, &mut dice) {
            let expected = prepared.host_allows(&question, direction, &options);
            assert_eq!(
                listed(&list, &question, interface, direction),
                expected,
                "seed {seed}: {question:?}\n{list:#?}\n{state:#?}"
            );
            asked += 1;
            passed += usize::from(expected);
        }
    }
    assert!(asked > 5_000, "{asked}");
    assert!(
        passed * 10 > asked && passed * 10 < asked * 9,
        "{passed} of {asked}"
    );
}

/// A change of a state with hosts, and the failsafe ports of both.
fn drawn_change(seed: u64) -> (Dice, [State; 2], FailsafePorts) {
    let mut dice = Dice::new(seed);
    let mut old = dice.state();
    with_hosts(&mut old, &mut dice);
    let mut new = dice.edited(&old);
    without_strays(&mut new);
    if seed.is_multiple_of(4) {
        // A first host endpoint closes what was open.
        old.endpoints.retain(|_, endpoint| !endpoint.is_host());
    }
    put_in_audit(&mut new, seed);
    let failsafe = failsafe(&mut dice);
    (dice, [old, new], failsafe)
}

/// Whether a state has a host endpoint of just this interface.
fn has_host(state: &State, interface: &str) -> bool {
    let mut hosts = state.endpoints.values().filter(|e| e.is_host());
    hosts.any(|e| e.interface.as_deref() == Some(interface))
}

#[test]
fn diff_of_hosts_is_where_the_oracle_changes() {
    let (mut asked, mut changed) = (0, 0);
    for seed in case_seeds(50_000, 300) {
        let (mut dice, [old, new], failsafe) = drawn_change(seed);
        let diff = host_diff(&old, &new, &failsafe);
        let [before, after] =
            [&old, &new].map(|of| PreparedState::new(of).with_failsafe(failsafe.clone()));
        let options = OracleOptions::default();
        for (question, interface, direction) in questions(&old, &mut dice) {
            if !has_host(&old, interface) && !has_host(&new, interface) {
                continue;
            }
            let [before, after] =
                [&before, &after].map(|of| of.host_allows(&question, direction, &options));
            assert_eq!(
                [&diff.opened, &diff.closed]
                    .map(|list| listed(list, &question, interface, direction)),
                [after && !before, before && !after],
                "seed {seed}: {question:?}\n{diff:#?}\n{old:#?}\n{new:#?}"
            );
            asked += 1;
            changed += usize::from(before != after);
        }
    }
    assert!(
        asked > 5_000 && changed * 20 > asked,
        "{changed} of {asked}"
    );
}

/// Random questions about what the host forwards between two addresses, at every interface and side.
fn forwarded_questions(dice: &mut Dice) -> Vec<(Question, &'static str, Direction)> {
    let mut found = Vec::new();
    for _ in 0..40 {
        let [source, destination]: [IpAddr; 2] = [dice.address(), dice.address()];
        let (protocol, l4): (Protocol, L4) = dice.traffic();
        if Family::of(source) != Family::of(destination) {
            continue;
        }
        for interface in ["eth0", Endpoint::ANY_INTERFACE] {
            for direction in Direction::BOTH {
                let at = Some(interface.into());
                let (input, output) = match direction {
                    Direction::Ingress => (at, None),
                    Direction::Egress => (None, at),
                };
                let question = Question {
                    source: FlowEnd::Address(source),
                    destination: FlowEnd::Address(destination),
                    family: Family::of(source),
                    protocol,
                    l4,
                    origin: FlowOrigin::Network,
                    path: HostPath {
                        input,
                        output,
                        is_forwarded: true,
                        ..HostPath::default()
                    },
                };
                found.push((question, interface, direction));
            }
        }
    }
    found
}

fn is_forwarded(
    list: &[ForwardedConnection],
    q: &Question,
    interface: &str,
    direction: Direction,
) -> bool {
    let (FlowEnd::Address(source), FlowEnd::Address(destination)) = (&q.source, &q.destination)
    else {
        return false;
    };
    list.iter().any(|row| {
        *row.interface == *interface
            && row.direction == direction
            && row.sources.contains(*source)
            && row.destinations.contains(*destination)
            && row.connections.contains(q.protocol, q.l4)
    })
}

#[test]
fn forwarded_connections_are_what_the_oracle_says() {
    let (mut asked, mut passed, mut unlisted) = (0, 0, 0);
    for seed in case_seeds(60_000, 150) {
        let mut dice = Dice::new(seed);
        let mut state = dice.state();
        with_hosts(&mut state, &mut dice);
        put_in_audit(&mut state, seed);
        let failsafe = failsafe(&mut dice);
        let view = PolicyView::BOTH[usize::from(seed.is_multiple_of(3))];
        let state_view = StateView {
            state: &state,
            view,
        };
        let list = forwarded_connections(state_view, &failsafe);
        let prepared = PreparedState::new(&state).with_failsafe(failsafe);
        let options = OracleOptions {
            view,
            ..OracleOptions::default()
        };
        for (question, interface, direction) in forwarded_questions(&mut dice) {
            let expected = prepared.host_allows(&question, direction, &options);
            let mut rows = list.iter();
            if !rows.any(|row| *row.interface == *interface && row.direction == direction) {
                // Nothing is judged there, or nothing passes.
                unlisted += 1;
                continue;
            }
            assert_eq!(
                is_forwarded(&list, &question, interface, direction),
                expected,
                "seed {seed}: {question:?}\n{list:#?}\n{state:#?}"
            );
            asked += 1;
            passed += usize::from(expected);
        }
    }
    assert!(
        asked > 2_000 && unlisted > 2_000,
        "{asked} asked, {unlisted} not listed"
    );
    assert!(
        passed * 10 > asked && passed * 20 < asked * 19,
        "{passed} of {asked}"
    );
}

/// Compares the diff of one case with the oracle: how many questions were asked, and how many changed.
fn check_forwarded_diff(seed: u64) -> (usize, usize) {
    let (mut asked, mut changed) = (0, 0);
    let (mut dice, [old, new], failsafe) = drawn_change(seed);
    let diff = forwarded_diff(&old, &new, &failsafe);
    let [before, after] =
        [&old, &new].map(|of| PreparedState::new(of).with_failsafe(failsafe.clone()));
    let options = OracleOptions::default();
    for (question, interface, direction) in forwarded_questions(&mut dice) {
        // Listed with those of every other interface.
        if !has_host(&old, interface) && !has_host(&new, interface) {
            continue;
        }
        let [before, after] =
            [&before, &after].map(|of| of.host_allows(&question, direction, &options));
        assert_eq!(
            [&diff.opened, &diff.closed]
                .map(|list| is_forwarded(list, &question, interface, direction)),
            [after && !before, before && !after],
            "seed {seed}: {question:?}\n{diff:#?}\n{old:#?}\n{new:#?}"
        );
        asked += 1;
        changed += usize::from(before != after);
    }
    (asked, changed)
}

/// Without host endpoints before, and after with one of every other interface alone.
#[test]
fn an_interface_without_a_host_endpoint_has_no_rows_of_its_own() {
    check_forwarded_diff(1_795_895_192);
}

#[test]
fn diff_of_forwarded_connections_is_where_the_oracle_changes() {
    let (mut asked, mut changed) = (0, 0);
    for seed in case_seeds(70_000, 150) {
        let (questions, changes) = check_forwarded_diff(seed);
        asked += questions;
        changed += changes;
    }
    // About one of fifty changes; the number of one run varies by a tenth.
    assert!(
        asked > 5_000 && changed * 100 > asked,
        "{changed} of {asked}"
    );
}
