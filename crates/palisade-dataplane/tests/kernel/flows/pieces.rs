//! Fragments, and packets with extension headers.

use palisade_model::Direction::{Egress, Ingress};
use palisade_testkit::lab::craft::{fragments, udp, with_destination_options};

use super::need_root;
use super::place::{A, B, Enforced, Place, tag};

fn long(family: usize, port: u16, id: u16) -> Vec<u8> {
    let mut body = Vec::new();
    // Each fragment ends with its own tag: the first is cut after 8 + 56 + 16 bytes.
    body.extend([0; 56]);
    body.extend(tag());
    body.extend([0; 48]);
    body.extend(tag());
    let (from, to) = (Place::at(A, family, 1000), Place::at(B, family, port));
    udp(from, to, id, &body)
}

#[test]
fn pieces_are_judged_as_their_whole() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("pieces");
    let mut enforced = Enforced::on(&place);
    let closed = [(B, Ingress), (A, Egress)];
    enforced.set(&closed, &[(A, B, 17, Some(53))]);
    let mut id = 100;
    for family in [0, 1] {
        for (port, passes) in [(53, true), (54, false)] {
            for swapped in [false, true] {
                id += 1;
                let [first, second] = fragments(&long(family, port, id), 80, id);
                let mut pieces = vec![(A, B, first), (A, B, second)];
                if swapped {
                    pieces.reverse();
                }
                let arrived = place.arrive(pieces);
                assert_eq!(arrived, [passes; 2], "{family} {port} {swapped}");
            }
        }
        // A fragment whose first fragment was not seen.
        id += 1;
        let [first, second] = fragments(&long(family, 53, id), 80, id);
        assert!(!place.arrives(A, B, second), "{family}: alone");
        id += 1;
        let [_, other] = fragments(&long(family, 53, id), 80, id);
        let arrived = place.arrive(vec![(A, B, first), (A, B, other)]);
        assert!(!arrived[1], "{family}: after another's first");
    }
}

#[test]
fn extension_headers_hide_nothing() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("options");
    let mut enforced = Enforced::on(&place);
    let closed = [(B, Ingress), (A, Egress)];
    enforced.set(&closed, &[(A, B, 17, Some(53))]);
    for headers in [1, 2, 7, 8, 20, 64] {
        for (port, passes) in [(53, true), (54, false)] {
            let plain = udp(Place::at(A, 1, 1000), Place::at(B, 1, port), 1, &tag());
            let arrived = place.arrives(A, B, with_destination_options(&plain, headers));
            assert_eq!(arrived, passes, "{headers} headers, port {port}");
        }
    }
}
