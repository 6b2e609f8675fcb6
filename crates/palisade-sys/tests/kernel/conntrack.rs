//! Conntrack entries of real packets.

use crate::need_root;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, SystemTime};

use palisade_sys::conntrack::{
    ConnectionsCreated, Conntrack, ConntrackEntry, ConntrackEvent, ConntrackFilter, ConntrackTuple,
    KernelConntrack, KernelConntrackEvents, NewConnection, TupleProto, tracks_sctp,
};
use palisade_sys::netns::run_in;

use crate::support::{TestNetNs, joined};

/// The kernel starts connection tracking in a namespace with the first rule that needs it.
pub(crate) fn start_tracking(space: &TestNetNs) {
    run_in(&space.netns, || {
        let rules = "add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                     add rule inet t c ct state new counter";
        let status = Command::new("nft").arg(rules).status().unwrap();
        assert!(status.success());
    })
    .unwrap();
}

fn flow(conntrack: &mut KernelConntrack, port: u16) -> Option<ConntrackEntry> {
    let flows = conntrack.entries(&ConntrackFilter::default()).unwrap();
    flows
        .into_iter()
        .find(|flow| flow.original.proto == TupleProto::Ports(40_001, port))
}

#[test]
fn flows_are_listed_and_marked_until_they_end() {
    if !need_root() {
        return;
    }
    let (a, b) = joined("ct");
    start_tracking(&b);
    let receiver = run_in(&b.netns, || UdpSocket::bind("10.9.0.2:5001").unwrap()).unwrap();
    let other = run_in(&b.netns, || UdpSocket::bind("10.9.0.2:5002").unwrap()).unwrap();
    let sender = run_in(&a.netns, || UdpSocket::bind("10.9.0.1:40001").unwrap()).unwrap();
    let mut buffer = [0; 8];
    for (socket, port) in [(&receiver, 5001), (&other, 5002)] {
        sender.send_to(b"x", ("10.9.0.2", port)).unwrap();
        let (_, from) = socket.recv_from(&mut buffer).unwrap();
        socket.send_to(b"y", from).unwrap();
        sender.recv_from(&mut buffer).unwrap();
    }
    let mut conntrack = KernelConntrack::open(&b.netns).unwrap();
    assert_eq!(conntrack.count().unwrap(), 2);
    let first = flow(&mut conntrack, 5001).unwrap();
    assert_eq!(
        first.original.to_string(),
        "protocol 17 10.9.0.1 port 40001 to 10.9.0.2 port 5001"
    );
    assert_eq!(first.reply.proto, TupleProto::Ports(5001, 40_001));
    const IPS_SEEN_REPLY: u32 = 2;
    assert_ne!(first.status & IPS_SEEN_REPLY, 0);
    assert_eq!((first.mark, first.zone), (0, 0));

    assert!(conntrack.set_mark(&first, 0x1234_5678, u32::MAX).unwrap());
    assert!(
        conntrack
            .set_mark(&first, 0xabcd_ffff, 0xffff_0000)
            .unwrap()
    );
    assert_eq!(flow(&mut conntrack, 5001).unwrap().mark, 0xabcd_5678);
    assert_eq!(flow(&mut conntrack, 5002).unwrap().mark, 0);
    let marked = ConntrackFilter {
        mark: Some((0xabcd_0000, 0xffff_0000)),
    };
    let found = conntrack.entries(&marked).unwrap();
    assert_eq!(found.iter().map(|f| f.id).collect::<Vec<_>>(), [first.id]);

    b.named.flush_conntrack().unwrap();
    assert!(!conntrack.set_mark(&first, 1, 1).unwrap());
    assert_eq!(flow(&mut conntrack, 5001), None);
    eprintln!("SCTP is tracked here: {}", tracks_sctp(&b.netns).unwrap());
}

/// Longer than any notification takes.
const PATIENCE: Duration = Duration::from_secs(5);

/// What begins and ends is told with its counts and times, if the kernel keeps them; what happens in between is not.
#[test]
fn connections_are_told_when_they_begin_and_end() {
    if !need_root() {
        return;
    }
    let (a, b) = joined("cte");
    start_tracking(&b);
    let receiver = run_in(&b.netns, || UdpSocket::bind("10.9.0.2:5001").unwrap()).unwrap();
    let sender = run_in(&a.netns, || UdpSocket::bind("10.9.0.1:40001").unwrap()).unwrap();
    let mut events = KernelConntrackEvents::open(&b.netns).unwrap();
    for is_counted in [false, true] {
        run_in(&b.netns, || {
            for name in ["acct", "timestamp"] {
                let file = format!("/proc/sys/net/netfilter/nf_conntrack_{name}");
                std::fs::write(file, if is_counted { "1" } else { "0" }).unwrap();
            }
        })
        .unwrap();
        let before = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let mut buffer = [0; 8];
        for _ in 0..3 {
            sender.send_to(b"x", "10.9.0.2:5001").unwrap();
            let (_, from) = receiver.recv_from(&mut buffer).unwrap();
            receiver.send_to(b"yy", from).unwrap();
            sender.recv_from(&mut buffer).unwrap();
        }
        let Some(ConntrackEvent::Began(began)) = events.next_event(Some(PATIENCE)).unwrap() else {
            panic!("no begin")
        };
        assert_eq!(
            began.entry.original.to_string(),
            "protocol 17 10.9.0.1 port 40001 to 10.9.0.2 port 5001"
        );
        assert_eq!(began.ended, None);
        let quiet = events.next_event(Some(Duration::from_millis(50))).unwrap();
        assert_eq!(quiet, None, "only the begin and the end are told");
        b.named.flush_conntrack().unwrap();
        let Some(ConntrackEvent::Ended(ended)) = events.next_event(Some(PATIENCE)).unwrap() else {
            panic!("no end")
        };
        assert_eq!(ended.entry.id, began.entry.id);
        assert_eq!(ended.entry.original, began.entry.original);
        let traffic = ended
            .traffic
            .map(|counts| counts.map(|count| (count.packets, count.bytes)));
        assert_eq!(traffic, is_counted.then_some([(3, 3 * 29), (3, 3 * 30)]));
        let after = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let times = ended.began.zip(ended.ended);
        assert_eq!(times.is_some(), is_counted, "{ended:?}");
        if let Some((first, last)) = times {
            assert!(
                before <= first && first <= last && last <= after,
                "{ended:?}"
            );
        }
    }
}

/// A connection from the first of two addresses to the second.
pub(crate) fn connection(ends: [&str; 2], protocol: u8, ports: [u16; 2]) -> NewConnection {
    let [source, destination] = ends.map(|end| end.parse().unwrap());
    NewConnection {
        original: ConntrackTuple {
            source,
            destination,
            protocol,
            proto: TupleProto::Ports(ports[0], ports[1]),
        },
        mark: 0xffff_0000,
        timeout: 100,
        is_answered: true,
    }
}

#[test]
fn connections_are_entered_as_they_are_and_replace_none() {
    if !need_root() {
        return;
    }
    let space = TestNetNs::new("ctn");
    start_tracking(&space);
    let mut conntrack = KernelConntrack::open(&space.netns).unwrap();
    let families = [["10.9.0.1", "10.9.0.2"], ["fd09::1", "fd09::2"]];
    let mut connections = Vec::new();
    for ends in families {
        for (protocol, is_answered) in [(6, true), (6, false), (17, true), (17, false)] {
            let port = 80 + u16::from(is_answered);
            connections.push(NewConnection {
                is_answered,
                ..connection(ends, protocol, [40_001, port])
            });
        }
    }
    let outcome = conntrack.create(&connections).unwrap();
    let all = ConnectionsCreated {
        created: 8,
        ..ConnectionsCreated::default()
    };
    assert_eq!(outcome, all);
    let mut entries = conntrack.entries(&ConntrackFilter::default()).unwrap();
    entries.sort_by_key(|entry| entry.original);
    connections.sort_by_key(|connection| connection.original);
    for (entry, connection) in entries.iter().zip(&connections) {
        assert_eq!(entry.original, connection.original);
        assert_eq!(entry.reply, connection.original.mirrored());
        assert_eq!((entry.mark, entry.zone), (0xffff_0000, 0));
        // IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED.
        let status = if connection.is_answered { 0xe } else { 0x8 };
        assert_eq!(entry.status & 0xe, status, "{entry:?}");
        assert!(
            entry.timeout.is_some_and(|left| (95..=100).contains(&left)),
            "{entry:?}"
        );
    }
    assert_eq!(entries.len(), 8);

    // Those that exist stay, those that the kernel refuses are counted, and the others are entered.
    for connection in &mut connections {
        connection.mark = 1;
    }
    let [mixed, more] = [["10.9.0.1", "fd09::2"], families[1]];
    connections.insert(3, connection(mixed, 6, [1, 2]));
    connections.push(connection(more, 6, [40_002, 80]));
    let outcome = conntrack.create(&connections).unwrap();
    assert_eq!(
        (outcome.created, outcome.existing, outcome.refused),
        (1, 8, 1)
    );
    assert!(outcome.first_refusal.is_some());
    let after = conntrack.entries(&ConntrackFilter::default()).unwrap();
    assert_eq!(after.len(), 9);
    assert!(after.iter().all(|entry| entry.mark == 0xffff_0000));
    assert_eq!(
        conntrack.create(&[]).unwrap(),
        ConnectionsCreated::default()
    );
}
