//! TCP flows that existed before they were tracked or judged.

use palisade_model::Direction::{Egress, Ingress};
use palisade_testkit::lab::craft::tcp;

use super::need_root;
use super::place::{A, B, Enforced, Place, tag};

const SYN: u8 = 2;
const ACK: u8 = 16;
const PSH_ACK: u8 = 24;

fn data(from: usize, to: usize, family: usize, ports: [u16; 2]) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    tcp(from, to, PSH_ACK, (1000, 2000), &tag())
}

fn flags(from: usize, to: usize, family: usize, ports: [u16; 2], flags: u8) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    tcp(from, to, flags, (1000, 0), &tag())
}

/// A packet of a connection whose sequence numbers start at 1000 on both sides.
fn numbered(from: usize, to: usize, family: usize, ports: [u16; 2], flags: u8) -> Vec<u8> {
    let [source, destination] = ports;
    let (from, to) = (
        Place::at(from, family, source),
        Place::at(to, family, destination),
    );
    let numbers = match flags {
        SYN => (1000, 0),
        flags if flags & SYN != 0 => (1000, 1001),
        _ => (1001, 1001),
    };
    tcp(from, to, flags, numbers, &tag())
}

#[test]
fn whichever_side_is_heard_first_the_flow_goes_on_if_it_is_allowed_and_only_then() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("midway");
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];
    enforced.set(&closed, &[(A, B, 6, Some(80))]);
    for family in [0, 1] {
        // The server's data first; the client is silent, or answers.
        let (server, client) = ([80, 40_001], [40_001, 80]);
        assert!(place.arrives(B, A, data(B, A, family, server)), "{family}");
        assert!(place.arrives(B, A, data(B, A, family, server)), "{family}");
        assert!(place.arrives(A, B, data(A, B, family, client)), "{family}");
        // The client's data first.
        let (server, client) = ([80, 40_002], [40_002, 80]);
        assert!(place.arrives(A, B, data(A, B, family, client)), "{family}");
        assert!(place.arrives(B, A, data(B, A, family, server)), "{family}");
        // Neither direction of these flows is allowed.
        for ports in [[40_001, 81], [81, 40_001]] {
            let arrives = place.arrives(B, A, data(B, A, family, ports));
            assert!(!arrives, "{family} {ports:?}");
        }
        assert!(!place.arrives(A, B, data(A, B, family, [40_003, 22])));
        assert!(!place.arrives(B, A, data(B, A, family, [40_003, 80])));
    }

    // A flow in progress is judged again with every revocation: another flow is revoked, and this one stays.
    let before = enforced.set(&closed, &[(A, B, 6, Some(80)), (A, B, 6, Some(90))]);
    let raised = enforced.set(&closed, &[(A, B, 6, Some(80))]);
    assert_ne!(raised.generation, before.generation);
    for family in [0, 1] {
        for [from, port] in [[B, 40_001], [B, 40_002]] {
            assert!(place.arrives(from, A, data(from, A, family, [80, port as u16])));
        }
        assert!(place.arrives(A, B, data(A, B, family, [40_001, 80])));
    }
    // Now it is revoked itself.
    enforced.set(&closed, &[]);
    for family in [0, 1] {
        for port in [40_001, 40_002] {
            assert!(!place.arrives(B, A, data(B, A, family, [80, port])));
            assert!(!place.arrives(A, B, data(A, B, family, [port, 80])));
        }
    }
}

#[test]
fn a_flow_heard_of_midway_opens_no_connection_the_other_way() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("reopen");
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress)];
    // b may connect to a's port 5000; a may not connect to b at all.
    enforced.set(&closed, &[(B, A, 6, Some(5000))]);
    for family in [0, 1] {
        let ports = [5000, 22];
        assert!(
            place.arrives(A, B, flags(A, B, family, ports, ACK)),
            "as if it answered b"
        );
        for _ in 0..3 {
            assert!(
                !place.arrives(A, B, flags(A, B, family, ports, SYN)),
                "{family}: a SYN follows"
            );
        }
        assert!(
            place.arrives(A, B, flags(A, B, family, ports, ACK)),
            "{family}: the flow goes on"
        );
        assert!(
            !place.arrives(A, B, flags(A, B, family, [5001, 22], SYN | 0xc0)),
            "{family}: with congestion flags"
        );
    }
    // If allowed, the SYN passes, and the flow is an ordinary one from then on.
    enforced.set(&closed, &[(B, A, 6, Some(5000)), (A, B, 6, Some(22))]);
    for family in [0, 1] {
        assert!(place.arrives(A, B, flags(A, B, family, [5000, 22], SYN)));
    }
    enforced.set(&closed, &[(B, A, 6, Some(5000))]);
    for family in [0, 1] {
        assert!(
            !place.arrives(A, B, flags(A, B, family, [5000, 22], ACK)),
            "{family}: opened by a, which is no longer allowed"
        );
    }
}

#[test]
fn a_flow_that_was_tracked_before_there_was_a_table_keeps_its_direction() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("tracked");
    let host = place.lab.host();
    place.nft(
        host,
        "add table inet theirs { chain c { type filter hook forward priority 0; ct state new counter accept; }; }",
    );
    for family in [0, 1] {
        for ports in [[40_001, 80], [40_002, 22]] {
            let [client, server] = ports;
            assert!(place.arrives(A, B, numbered(A, B, family, ports, SYN)));
            let answer = numbered(B, A, family, [server, client], SYN | ACK);
            assert!(place.arrives(B, A, answer));
            assert!(place.arrives(A, B, numbered(A, B, family, ports, PSH_ACK)));
        }
    }
    // b could have opened the second flow, too; but it did not, and a is not allowed to.
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress)];
    enforced.set(&closed, &[(A, B, 6, Some(80)), (B, A, 6, Some(40_002))]);
    for family in [0, 1] {
        assert!(place.arrives(B, A, numbered(B, A, family, [80, 40_001], PSH_ACK)));
        assert!(place.arrives(A, B, numbered(A, B, family, [40_001, 80], PSH_ACK)));
        assert!(!place.arrives(B, A, numbered(B, A, family, [22, 40_002], PSH_ACK)));
        assert!(!place.arrives(A, B, numbered(A, B, family, [40_002, 22], PSH_ACK)));
    }
}
