//! ICMP errors pass with the flow that they are about, from whatever router, and not without it.

use palisade_model::Direction::{Egress, Ingress};
use palisade_testkit::lab::craft::{icmp, udp};

use super::need_root;
use palisade_testkit::test_driver::has_fast_path;

use super::place::{A, B, Enforced, OUT, Place, tag};

/// An ICMP error from `from` to the sender of `about`; it quotes the packet as its receiver saw it.
fn error(from: usize, to: usize, family: usize, too_big: bool, about: &[u8]) -> Vec<u8> {
    let kind = match (family, too_big) {
        (0, true) => (3, 4),
        (0, false) => (3, 3),
        (_, true) => (2, 0),
        (_, false) => (1, 4),
    };
    let rest = match (family, too_big) {
        (0, true) => [0, 0, 5, 0],
        (1, true) => [0, 0, 5, 0],
        _ => [0; 4],
    };
    let mut quoted = about.to_vec();
    quoted.extend(tag());
    let (from, to) = (Place::address(from, family), Place::address(to, family));
    icmp(from, to, kind, rest, &quoted)
}

#[test]
fn errors_pass_about_a_flow_that_is_allowed_now_and_about_no_other() {
    if !need_root() {
        return;
    }
    let place = Place::quiet("errors");
    let mut enforced = Enforced::on(&place);
    let closed = [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];
    let allowed = [(A, B, 17, Some(53)), (A, OUT, 17, Some(53))];
    enforced.set(&closed, &allowed);
    let ask = |to: usize, family: usize, port: u16| {
        udp(
            Place::at(A, family, 1000),
            Place::at(to, family, port),
            1,
            &tag(),
        )
    };
    for family in [0, 1] {
        for to in [B, OUT] {
            let sent = ask(to, family, 53);
            assert!(place.arrives(A, to, sent.clone()));
            for too_big in [false, true] {
                let about = error(to, A, family, too_big, &sent);
                assert!(place.arrives(to, A, about), "{family} {to} {too_big}");
                // About a flow that does not exist, or that is denied.
                for port in [99, 54] {
                    let about = error(to, A, family, too_big, &ask(to, family, port));
                    assert!(!place.arrives(to, A, about), "{family} {to} {port}");
                }
            }
        }
        // From a router on the path that is not an end of the flow.
        let sent = ask(B, family, 53);
        assert!(place.arrives(A, B, sent.clone()));
        let about = error(OUT, A, family, true, &sent);
        // There is none between two workloads of a host; connection tracking knows nothing of what the fast path delivers.
        let arrives = place.arrives(OUT, A, about);
        assert_eq!(arrives, !has_fast_path(), "{family}: from a router");
    }
    // Another flow is revoked: errors about an allowed flow pass once one of its packets has passed.
    enforced.set(&closed, &[(A, B, 17, Some(53))]);
    for family in [0, 1] {
        let sent = ask(OUT, family, 53);
        assert!(!place.arrives(A, OUT, sent.clone()));
        let about = error(OUT, A, family, false, &sent);
        assert!(!place.arrives(OUT, A, about), "{family}: revoked");
        let sent = ask(B, family, 53);
        assert!(place.arrives(A, B, sent.clone()));
        let about = error(B, A, family, false, &sent);
        assert!(place.arrives(B, A, about), "{family}: allowed");
    }
}
