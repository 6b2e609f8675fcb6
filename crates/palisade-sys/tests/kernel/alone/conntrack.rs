//! How long it takes to enter many connections.

use std::time::{Duration, Instant};

use palisade_sys::conntrack::{ConnectionsCreated, KernelConntrack, NewConnection};
use palisade_sys::netns::run_in;

use crate::conntrack::{connection, start_tracking};
use crate::need_root;
use crate::support::TestNetNs;

/// As many as the flows of a large node.
const CONNECTIONS: u32 = 100_000;
/// Far above what it takes, also on a machine with much other work.
const LIMIT: Duration = Duration::from_millis(1);

#[test]
fn a_hundred_thousand_connections_are_entered_in_seconds() {
    if !need_root() {
        return;
    }
    let space = TestNetNs::new("ctmany");
    start_tracking(&space);
    let room = run_in(&space.netns, || {
        std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max")
    });
    let room: u32 = room.unwrap().unwrap().trim().parse().unwrap();
    let count = CONNECTIONS.min(room / 2);
    let connections: Vec<NewConnection> = (0..count)
        .map(|number| {
            let ends = [
                ["10.9.0.1", "10.9.0.2"],
                ["10.9.0.3", "10.9.0.2"],
                ["fd09::1", "fd09::2"],
                ["fd09::3", "fd09::2"],
            ];
            let protocol = if number / 4 % 2 == 0 { 6 } else { 17 };
            let ends = ends[number as usize % 4];
            connection(ends, protocol, [(number / 4) as u16, 80])
        })
        .collect();
    let mut conntrack = KernelConntrack::open(&space.netns).unwrap();
    let mut measure = |expected: ConnectionsCreated| {
        let began = Instant::now();
        let outcome = conntrack.create(&connections).unwrap();
        assert_eq!(outcome, expected);
        began.elapsed() / count
    };
    let all = count as usize;
    let created = measure(ConnectionsCreated {
        created: all,
        ..ConnectionsCreated::default()
    });
    let existing = measure(ConnectionsCreated {
        existing: all,
        ..ConnectionsCreated::default()
    });
    println!(
        "account: {count} connections entered, {created:?} each; {existing:?} each where they exist"
    );
    assert!(created < LIMIT && existing < LIMIT);
}
