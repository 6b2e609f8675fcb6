//! The lab against the real kernel: everything reaches everything without rules, a rule that drops
//! is seen to drop, real connections work, and nothing is left behind.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use palisade_testkit::lab::{
    HOST_ADDRESSES, Lab, LongFlow, NodeId, OUTSIDE_ADDRESSES, PodSpec, ProbeError, ProbeFlow,
    ProbeL4, TcpEcho, UdpEcho, connect, find_own_leaks, probe, udp_exchange,
};
use palisade_testkit::need_root;

const A: [&str; 3] = ["10.1.0.1", "fd01::1", "10.1.0.11"];
const B: [&str; 2] = ["10.1.0.2", "fd01::2"];
/// How long what must arrive may take: the first SYN is lost where a link is not active yet, and sent again a second
/// later.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long what must not arrive is awaited.
const SILENCE: Duration = Duration::from_millis(300);

fn two_pods(name: &str) -> (Lab, NodeId, NodeId) {
    let mut lab = Lab::new(name).unwrap();
    let a = lab.add_pod(PodSpec::new("a", "cali0a", &A)).unwrap();
    let b = lab.add_pod(PodSpec::new("b", "cali0b", &B)).unwrap();
    (lab, a, b)
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nft(lab: &Lab, script: &str) {
    let namespace = lab.namespace_name(lab.host());
    let output = Command::new("ip")
        .args(["netns", "exec", namespace, "nft", script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
}

/// Every protocol to an address.
fn every_protocol(from: NodeId, to: IpAddr, receiver: NodeId) -> Vec<ProbeFlow> {
    let icmp =
        |icmp_type, code| ProbeFlow::new(from, to, ProbeL4::Icmp { icmp_type, code }, receiver);
    let other = |protocol| ProbeFlow::new(from, to, ProbeL4::Other { protocol }, receiver);
    vec![
        ProbeFlow::tcp(from, to, 80, receiver),
        ProbeFlow::tcp(from, to, 80, receiver).with_source_port(4_321),
        ProbeFlow::udp(from, to, 53, receiver),
        ProbeFlow::sctp(from, to, 9_899, receiver),
        ProbeFlow::echo(from, to, receiver),
        icmp(if to.is_ipv4() { 13 } else { 144 }, 0),
        icmp(if to.is_ipv4() { 3 } else { 1 }, 1),
        other(47),
        other(99),
        other(253),
    ]
}

#[test]
fn without_rules_every_protocol_reaches_everyone_in_both_families() {
    if !need_root() {
        return;
    }
    let (lab, a, b) = two_pods("all");
    let mut flows = Vec::new();
    for (from, receiver, addresses) in [
        (a, b, lab.addresses(b)),
        (b, a, lab.addresses(a)),
        (a, a, lab.addresses(a)),
        (a, lab.outside(), &OUTSIDE_ADDRESSES),
        (lab.outside(), b, lab.addresses(b)),
        (lab.host(), a, lab.addresses(a)),
        (lab.outside(), lab.host(), &HOST_ADDRESSES),
        (b, lab.host(), &HOST_ADDRESSES),
    ] {
        for &to in addresses {
            flows.extend(every_protocol(from, to, receiver));
        }
    }
    let arrived = probe(&lab, &flows).unwrap();
    let lost: Vec<_> = flows
        .iter()
        .zip(&arrived)
        .filter(|(_, arrived)| !**arrived)
        .collect();
    assert!(lost.is_empty(), "{} lost: {lost:#?}", lost.len());
}

#[test]
fn a_rule_that_drops_is_seen_and_nothing_else_is_lost() {
    if !need_root() {
        return;
    }
    let (lab, a, b) = two_pods("drop");
    let mut flows = every_protocol(a, address(B[0]), b);
    flows.extend(every_protocol(a, address(B[1]), b));
    flows.extend(every_protocol(lab.outside(), address(A[0]), a));
    flows.push(ProbeFlow::tcp(a, HOST_ADDRESSES[0], 80, lab.host()));
    flows.push(ProbeFlow::udp(a, HOST_ADDRESSES[0], 80, lab.host()));
    flows.push(ProbeFlow::tcp(lab.host(), address(B[0]), 80, b));
    flows.push(ProbeFlow::udp(lab.host(), address(B[0]), 80, b));
    assert!(probe(&lab, &flows).unwrap().iter().all(|arrived| *arrived));

    nft(
        &lab,
        "table inet t {
             chain f { type filter hook forward priority 0; oifname cali0b meta l4proto { tcp, sctp, 99 } drop; }
             chain i { type filter hook input priority 0; tcp dport 80 drop; }
             chain o { type filter hook output priority 0; tcp dport 80 drop; }
         }",
    );
    let expected = |flow: &ProbeFlow| match flow.l4 {
        ProbeL4::Tcp { .. } | ProbeL4::Sctp { .. } | ProbeL4::Other { protocol: 99 } => {
            flow.receiver == a
        }
        _ => true,
    };
    let expected: Vec<_> = flows.iter().map(expected).collect();
    for _ in 0..20 {
        assert_eq!(probe(&lab, &flows).unwrap(), expected);
    }
    nft(&lab, "delete table inet t");
    assert!(probe(&lab, &flows).unwrap().iter().all(|arrived| *arrived));
}

#[test]
fn probes_are_fast_and_exact_in_number() {
    if !need_root() {
        return;
    }
    let (lab, a, b) = two_pods("fast");
    nft(
        &lab,
        "table inet t { chain f { type filter hook forward priority 0; udp dport 1-1000 drop; }\n}",
    );
    let flows: Vec<_> = (0..4_000)
        .map(|n| ProbeFlow::udp(a, address(B[n % 2]), 1 + (n % 2_000) as u16, b))
        .collect();
    let began = Instant::now();
    let arrived = probe(&lab, &flows).unwrap();
    let took = began.elapsed();
    let expected: Vec<_> = (0..4_000).map(|n| n % 2_000 >= 1_000).collect();
    assert_eq!(arrived, expected);
    let rate = flows.len() as f64 / took.as_secs_f64();
    println!("{rate:.0} probes a second");
    assert!(rate > 500.0, "{rate:.0} probes a second");
}

#[test]
fn sources_can_be_chosen_and_a_wrong_receiver_is_an_error() {
    if !need_root() {
        return;
    }
    let (mut lab, a, b) = two_pods("source");
    nft(
        &lab,
        "table inet t { chain f { type filter hook forward priority 0; ip saddr { 10.1.0.11, 10.9.9.9 } drop; }\n}",
    );
    let flow = |source| ProbeFlow::udp(a, address(B[0]), 53, b).with_source(address(source));
    let flows = [flow("10.1.0.1"), flow("10.1.0.11"), flow("10.9.9.9")];
    assert_eq!(probe(&lab, &flows).unwrap(), [true, false, false]);

    let wrong = ProbeFlow::udp(a, address(B[0]), 53, lab.outside());
    let both = [ProbeFlow::udp(a, address(B[0]), 53, b), wrong];
    let error = probe(&lab, &both).unwrap_err();
    assert!(matches!(error, ProbeError::Misrouted { .. }), "{error}");

    lab.add_address(b, address("10.1.0.22")).unwrap();
    let moved = [ProbeFlow::udp(a, address("10.1.0.22"), 53, b)];
    assert_eq!(probe(&lab, &moved).unwrap(), [true]);
    lab.remove_address(b, address("10.1.0.22")).unwrap();
    assert_eq!(lab.node_at(address("10.1.0.22")), None);
    assert_eq!(lab.node_at(address("10.1.0.2")), Some(b));
    lab.remove(b).unwrap();
    assert_eq!(lab.node_at(address("10.1.0.2")), None);
}

#[test]
fn forgotten_flows_begin_anew() {
    if !need_root() {
        return;
    }
    let (lab, a, b) = two_pods("forget");
    nft(
        &lab,
        "table inet t { chain f { type filter hook forward priority 0; ct state new udp dport 53 counter; }\n}",
    );
    let flow = [ProbeFlow::udp(a, address(B[0]), 53, b).with_source_port(777)];
    probe(&lab, &flow).unwrap();
    lab.flush_conntrack().unwrap();
    let table = lab
        .run_in(lab.host(), || {
            Command::new("nft")
                .args(["list", "table", "inet", "t"])
                .output()
        })
        .unwrap()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&table.stdout).contains("packets 1 "),
        "{table:?}"
    );
    probe(&lab, &flow).unwrap();
    let table = lab
        .run_in(lab.host(), || {
            Command::new("nft")
                .args(["list", "table", "inet", "t"])
                .output()
        })
        .unwrap()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&table.stdout).contains("packets 2 "),
        "{table:?}"
    );
}

#[test]
fn real_connections_work_and_are_cut_by_a_rule() {
    if !need_root() {
        return;
    }
    let (lab, a, b) = two_pods("real");
    let _tcp = TcpEcho::start(&lab, b, 80).unwrap();
    let _udp = UdpEcho::start(&lab, b, 53).unwrap();
    for to in B.map(address) {
        connect(&lab, a, SocketAddr::new(to, 80), PATIENCE).unwrap();
        connect(&lab, lab.outside(), SocketAddr::new(to, 80), PATIENCE).unwrap();
        udp_exchange(&lab, a, SocketAddr::new(to, 53), PATIENCE).unwrap();
        let refused = connect(&lab, a, SocketAddr::new(to, 81), PATIENCE).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    let to = SocketAddr::new(address(B[0]), 80);
    let kept = LongFlow::start(&lab, lab.outside(), to, Duration::from_millis(5)).unwrap();
    let cut = LongFlow::start(&lab, a, to, Duration::from_millis(5)).unwrap();
    wait_until("both flows run", || {
        cut.counts().received > 10 && kept.counts().received > 10
    });
    nft(
        &lab,
        "table inet t { chain f { type filter hook forward priority 0; ip saddr 10.1.0.1 drop; }\n}",
    );
    let timed_out = connect(&lab, a, to, SILENCE).unwrap_err();
    assert_eq!(timed_out.kind(), std::io::ErrorKind::TimedOut);
    let silent = udp_exchange(&lab, a, SocketAddr::new(to.ip(), 53), SILENCE).unwrap_err();
    assert_eq!(silent.kind(), std::io::ErrorKind::TimedOut);
    let before = kept.counts().received;
    wait_until("the flow that no rule names goes on", || {
        kept.counts().received > before + 10
    });
    let (cut, kept) = (cut.counts(), kept.counts());
    assert!(
        cut.silent_for > SILENCE && cut.sent > cut.received,
        "{cut:?}"
    );
    assert!(!kept.ended, "{kept:?}");
}

/// Waits for a condition, as long as a busy machine may need.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_dropped_lab_leaves_nothing_even_after_a_panic() {
    if !need_root() {
        return;
    }
    let mut prefix = String::new();
    let held = |prefix: &str| {
        let ours = format!("{:?}", find_own_leaks().unwrap());
        ours.contains(prefix)
    };
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (lab, a, b) = two_pods("panic");
        prefix = format!("{}-", lab.prefix());
        probe(&lab, &[ProbeFlow::echo(a, address(B[0]), b)]).unwrap();
        assert!(held(&prefix));
        panic!("as a failing test does");
    }));
    assert!(panicked.is_err());
    assert!(!held(&prefix));
}
