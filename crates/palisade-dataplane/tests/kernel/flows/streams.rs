//! Real connections that existed before the dataplane, in both directions and with a server that sends
//! first, while tables are created, changed and deleted.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use palisade_model::Direction::{Egress, Ingress};
use palisade_testkit::lab::{LongFlow, TcpEcho, TcpSource, TcpTail};

use super::need_root;
use super::place::{A, Allowed, B, Enforced, Place};

const PACE: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(10);

fn wait(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn older_connections_go_on_exactly_if_they_are_allowed() {
    if !need_root() {
        return;
    }
    for tracked in [false, true] {
        let place = Place::new("streams");
        if tracked {
            place.nft(
                place.lab.host(),
                "add table inet theirs { chain c { type filter hook forward priority 0; ct state new accept; }; }",
            );
        }
        let (lab, nodes) = (&place.lab, place.nodes);
        let _echo = [A, B].map(|end| TcpEcho::start(lab, nodes[end], 80).unwrap());
        let _closed = TcpEcho::start(lab, nodes[B], 22).unwrap();
        let _source = TcpSource::start(lab, nodes[B], 25, PACE).unwrap();
        let to = |end, family, port| -> SocketAddr { Place::at(end, family, port) };
        let flow =
            |from: usize, to: SocketAddr| LongFlow::start(lab, nodes[from], to, PACE).unwrap();
        let (mut kept, mut cut, mut tails) = (Vec::new(), Vec::new(), Vec::new());
        for family in [0, 1] {
            kept.push(flow(A, to(B, family, 80)));
            kept.push(flow(B, to(A, family, 80)));
            cut.push(flow(A, to(B, family, 22)));
            tails.push(TcpTail::start(lab, nodes[A], to(B, family, 25)).unwrap());
        }
        wait("flowing", || {
            let flows = kept.iter().chain(&cut);
            flows.into_iter().all(|flow| flow.counts().received > 5)
                && tails.iter().all(|tail| tail.received() > 100)
        });
        let closed = [(A, Ingress), (B, Ingress), (A, Egress), (B, Egress)];
        let base: [Allowed; 3] = [
            (A, B, 6, Some(80)),
            (B, A, 6, Some(80)),
            (A, B, 6, Some(25)),
        ];
        let mut enforced = Enforced::on(&place);
        enforced.set(&closed, &base);
        for round in 0..6 {
            let mut more = base.to_vec();
            if round % 2 == 0 {
                more.push((A, B, 6, Some(23)));
            }
            enforced.set(&closed, &more);
            let seen = |flow: &LongFlow| flow.counts().received;
            let before: Vec<u64> = kept.iter().map(seen).collect();
            let read: Vec<u64> = tails.iter().map(TcpTail::received).collect();
            wait(
                &format!("tracked {tracked}, round {round}: all go on"),
                || {
                    let all = kept.iter().zip(&before).all(|(flow, n)| seen(flow) > n + 5);
                    all && tails
                        .iter()
                        .zip(&read)
                        .all(|(tail, n)| tail.received() > n + 100)
                },
            );
            if round == 3 {
                drop(enforced);
                enforced = Enforced::on(&place);
            }
        }
        for flow in &kept {
            let counts = flow.counts();
            assert!(!counts.ended, "{counts:?}");
            // One packet of a stream may be lost if two rulesets were loaded between its judgements.
            assert!(
                counts.longest_silence < Duration::from_secs(1),
                "{counts:?}"
            );
        }
        for flow in &cut {
            let counts = flow.counts();
            assert!(counts.silent_for > Duration::from_millis(100), "{counts:?}");
        }
        enforced.set(&closed, &[]);
        std::thread::sleep(Duration::from_millis(100));
        for flow in &kept {
            let silent = flow.counts().silent_for;
            assert!(silent > Duration::from_millis(50), "{silent:?}");
        }
        let read: Vec<u64> = tails.iter().map(TcpTail::received).collect();
        std::thread::sleep(Duration::from_millis(50));
        let later: Vec<u64> = tails.iter().map(TcpTail::received).collect();
        assert_eq!(read, later, "the server's stream stops");
    }
}
