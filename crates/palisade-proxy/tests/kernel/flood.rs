//! Many queries at once, and what they cost others.

use crate::client::{ask, query, receive};
use crate::need_root;
use crate::testbed::{ALLOWED, Testbed, servers};
use std::time::{Duration, Instant};

#[test]
fn a_thousand_queries_cost_no_other_client() {
    if !need_root() {
        return;
    }
    palisade_sys::descriptors::raise_limit().unwrap();
    let testbed = Testbed::with_config("flood", |config| {
        config.limits.upstream.sockets_of_client = 100;
        config.limits.pending.queries_of_client = 200;
    });
    for server in servers() {
        // A thousand sockets, since each has its own socket towards the server; none is answered.
        let sockets: Vec<_> = (0..1_000).map(|_| testbed.open_udp(0, server)).collect();
        for socket in &sockets {
            socket.send(&query(1, "silent.wild.example")).unwrap();
        }
        let start = Instant::now();
        let other = testbed.open_udp(2, server);
        for id in 0..20 {
            let answer = ask(&other, id, ALLOWED);
            assert_eq!(answer.map(|answer| answer.id), Some(id));
        }
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        // The newest queries of the client that floods are served, too.
        let last = sockets.last().unwrap();
        assert_eq!(ask(last, 2, ALLOWED).map(|answer| answer.id), Some(2));
    }
    testbed.wait_for("the queries are forgotten", |counts| {
        counts.queries.forgotten > 0
    });
    let counts = testbed.counts();
    assert_eq!(counts.queries.allowed, 2 * 1_021);
    assert_eq!(counts.answers.released, 2 * 21);
    assert_eq!(counts.upstream.evicted, 2 * 900);
    assert!(counts.upstream.open <= 202, "{counts:?}");
}

#[test]
fn a_thousand_queries_of_one_socket_are_answered() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::with_config("burst", |config| {
        config.limits.pending.queries_of_client = 1_000;
    });
    let [server, _] = servers();
    let socket = testbed.open_udp(0, server);
    let other = testbed.open_udp(2, server);
    let mut ids = std::collections::BTreeSet::new();
    for id in 0..1_000 {
        socket.send(&query(id, ALLOWED)).unwrap();
        if id == 500 {
            assert_eq!(ask(&other, 1, ALLOWED).map(|answer| answer.id), Some(1));
        }
    }
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    while ids.len() < 1_000
        && let Some(answer) = receive(&socket)
    {
        assert!(ids.insert(answer.id), "{} twice", answer.id);
    }
    let counts = testbed.counts();
    assert_eq!(ids.len(), 1_000, "{counts:#?}");
    assert_eq!((counts.upstream.opened, counts.answers.foreign), (2, 0));
}
