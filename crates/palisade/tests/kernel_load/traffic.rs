//! What runs all the time, and the account of it.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use palisade_testkit::lab::{
    LongFlow, NodeId, OUTSIDE_ADDRESSES, Spray, SprayKind, TcpEcho, TcpSource, TcpTail,
    kernel_drops,
};

use crate::world::{API, DB, MOB, SPRAY, WEB, World, address};

/// Each spray sends a packet so often.
const PACE: Duration = Duration::from_millis(4);
/// Each long connection sends so often.
const STEADY: Duration = Duration::from_millis(5);
/// After this, what was lost on a connection has been sent again: a fifth of a second at the earliest.
const SENT_AGAIN: Duration = Duration::from_millis(400);

/// One-packet flows of one pair.
struct Line {
    name: String,
    allowed: bool,
    spray: Spray,
    /// The numbers sent while the rules were gone.
    gaps: Vec<Range<u64>>,
    gap_from: Option<u64>,
    checked: u64,
}

/// All of it.
pub(crate) struct Traffic {
    lines: Vec<Line>,
    long: Vec<(String, LongFlow)>,
    tails: Vec<(String, TcpTail)>,
    _servers: Vec<TcpEcho>,
    _sources: Vec<TcpSource>,
    dropped_before: u64,
    /// Segments lost while the rules were gone.
    lost_in_gaps: u64,
    /// Those lost up to the gap that is open.
    lost_before_gap: Option<u64>,
}

fn dropped() -> u64 {
    let hex = |text: &String| u64::from_str_radix(text, 16).unwrap();
    kernel_drops().iter().map(hex).sum()
}

impl Traffic {
    pub(crate) fn start(world: &World) -> Self {
        for node in world.pods {
            // Nobody answers what is sprayed.
            quiet(world, node);
        }
        let dropped_before = dropped();
        let lab = &world.lab;
        let outside = |at: usize| (lab.outside(), OUTSIDE_ADDRESSES[at]);
        let pod = |pod: usize, family: usize| (world.pods[pod], address(pod, family));
        use SprayKind::{TcpSyn, Udp};
        let pairs: Vec<(&str, bool, (NodeId, IpAddr), SprayKind)> = vec![
            ("web to api, UDP", true, pod(WEB, 0), Udp),
            ("web to api, UDP v6", true, pod(WEB, 1), Udp),
            ("web to api, SYN", true, pod(WEB, 0), TcpSyn),
            ("CIDR to api, UDP", true, outside(0), Udp),
            ("CIDR to api, SYN v6", true, outside(4), TcpSyn),
            ("remote pod to api, UDP", true, outside(2), Udp),
            ("db to api, UDP", false, pod(DB, 0), Udp),
            ("db to api, SYN v6", false, pod(DB, 1), TcpSyn),
            ("mob to api, UDP v6", false, pod(MOB, 1), Udp),
            ("mob to api, SYN", false, pod(MOB, 0), TcpSyn),
            ("exception to api, UDP", false, outside(1), Udp),
            ("exception to api, UDP v6", false, outside(5), Udp),
            ("remote stranger to api, SYN", false, outside(3), TcpSyn),
        ];
        let lines = pairs.into_iter().map(|(name, allowed, from, kind)| {
            let family = usize::from(from.1.is_ipv6());
            let to = SocketAddr::new(address(API, family), SPRAY);
            let spray = Spray::start(lab, from, (world.pods[API], to), kind, PACE).unwrap();
            Line {
                name: name.to_owned(),
                allowed,
                spray,
                gaps: Vec::new(),
                gap_from: None,
                checked: 0,
            }
        });
        let lines = lines.collect();
        let echo = |pod: usize, port| TcpEcho::start(lab, world.pods[pod], port).unwrap();
        let servers = vec![echo(API, 8080), echo(DB, 5432)];
        let sources = vec![TcpSource::start(lab, world.pods[DB], 2525, STEADY).unwrap()];
        let (mut long, mut tails) = (Vec::new(), Vec::new());
        for family in [0, 1] {
            for (from, to, port) in [(WEB, API, 8080), (API, DB, 5432)] {
                let at = SocketAddr::new(address(to, family), port);
                let name = format!("{} to {at}", crate::world::NAMES[from]);
                let flow = LongFlow::start(lab, world.pods[from], at, STEADY).unwrap();
                long.push((name, flow));
            }
            let at = SocketAddr::new(address(DB, family), 2525);
            let tail = TcpTail::start(lab, world.pods[WEB], at).unwrap();
            tails.push((format!("{at} speaks to web"), tail));
        }
        Traffic {
            lines,
            long,
            tails,
            _servers: servers,
            _sources: sources,
            dropped_before,
            lost_in_gaps: 0,
            lost_before_gap: None,
        }
    }

    /// From here on until [`Traffic::gap_ends`], the rules may be gone.
    pub(crate) fn gap_begins(&mut self, world: &World) {
        self.lost_before_gap = Some(segments_lost(world));
        for line in &mut self.lines {
            // What is on its way already may be judged only when the rules are gone.
            line.gap_from = Some(line.spray.sent().saturating_sub(2));
        }
    }

    pub(crate) fn gap_ends(&mut self, world: &World) {
        if let Some(before) = self.lost_before_gap.take() {
            std::thread::sleep(SENT_AGAIN);
            self.lost_in_gaps += segments_lost(world).saturating_sub(before);
        }
        for line in &mut self.lines {
            if let Some(from) = line.gap_from.take() {
                line.gaps.push(from..line.spray.sent() + 2);
            }
        }
    }

    /// Nothing denied has come in outside of gaps, and no connection has ended.
    pub(crate) fn check(&mut self, world: &World, what: &str) {
        for line in &mut self.lines {
            if !line.allowed {
                let (leaked, _) = line.leaked();
                assert_eq!(
                    leaked,
                    0,
                    "{what}: {} passed\n{}",
                    line.name,
                    world.agent.log()
                );
            } else {
                // What was sent a second ago and more has come in, but for what had no room.
                let until = line.spray.sent().saturating_sub(250);
                if until > line.checked {
                    let lost = line.lost(line.checked..until).0;
                    let room = dropped() - self.dropped_before + line.spray.overflowed();
                    assert!(
                        lost <= room,
                        "{what}: {lost} of {} lost, {room} had no room\n{}",
                        line.name,
                        world.agent.log()
                    );
                    line.checked = until;
                }
            }
        }
        for (name, flow) in &self.long {
            assert!(!flow.counts().ended, "{what}: {name} ended");
        }
        for (name, tail) in &self.tails {
            assert!(!tail.ended(), "{what}: {name} ended");
        }
    }

    /// The account in a line.
    pub(crate) fn line(&self) -> String {
        let sum = |allowed: bool| {
            let of = self.lines.iter().filter(|line| line.allowed == allowed);
            let counts = of.map(|line| line.spray.counts());
            counts.fold((0, 0), |(s, a), c| (s + c.sent, a + c.arrived))
        };
        let ((allowed, arrived), (denied, passed)) = (sum(true), sum(false));
        format!(
            "allowed {allowed} sent {arrived} arrived, denied {denied} sent {passed} passed (gaps included)"
        )
    }

    /// Stops everything and prints the whole account.
    pub(crate) fn finish(&mut self, world: &World) {
        let before: Vec<u64> = self.long.iter().map(|(_, f)| f.counts().received).collect();
        let read: Vec<u64> = self.tails.iter().map(|(_, tail)| tail.received()).collect();
        std::thread::sleep(Duration::from_millis(500));
        for line in &mut self.lines {
            line.spray.stop();
        }
        let dropped = dropped() - self.dropped_before;
        println!(
            "flows of one packet             {:>9} {:>9} {:>6} {:>7} {:>7} {:>9}",
            "sent", "arrived", "lost", "leaked", "in gaps", "overflow"
        );
        let (mut denied, mut failures) = (0, Vec::new());
        for line in &self.lines {
            let counts = line.spray.counts();
            let (leaked, in_gaps) = line.leaked();
            let (lost, lost_in_gaps) = line.lost(0..counts.sent);
            let (lost, leaked, in_gaps) = match line.allowed {
                true => (lost, 0, lost_in_gaps),
                false => (0, leaked, in_gaps),
            };
            let overflow = line.spray.overflowed();
            println!(
                "  {} {:<27} {:>9} {:>9} {lost:>6} {leaked:>7} {in_gaps:>7} {overflow:>9}",
                if line.allowed { "+" } else { "-" },
                line.name,
                counts.sent,
                counts.arrived
            );
            if lost > dropped + overflow || leaked > 0 {
                failures.push(line.name.clone());
            }
            if !line.allowed {
                denied += counts.sent;
            }
        }
        println!("  the kernel's receive queues had no room for {dropped}");
        println!("  denied packets sent: {denied}");
        println!("connections                              received  longest silence");
        for ((name, flow), before) in self.long.iter().zip(before) {
            let counts = flow.counts();
            println!(
                "  {name:<36} {:>10}  {:?}",
                counts.received, counts.longest_silence
            );
            assert!(
                !counts.ended && counts.received > before,
                "{name} stands still"
            );
        }
        for ((name, tail), before) in self.tails.iter().zip(read) {
            println!("  {name:<36} {:>10}", tail.received());
            assert!(
                !tail.ended() && tail.received() > before,
                "{name} stands still"
            );
        }
        for pod in STACKS {
            let [again, twice] = sent_again(world, pod);
            println!(
                "  segments sent again by {}: {again}, of which the first had arrived: {twice}",
                crate::world::NAMES[pod]
            );
        }
        let (lost, in_gaps) = (segments_lost(world), self.lost_in_gaps);
        println!(
            "account: load: segments of connections lost: {lost}, of them {in_gaps} while the rules were gone"
        );
        assert!(
            lost <= in_gaps + dropped,
            "{lost} segments lost, {in_gaps} of them while the rules were gone, {dropped} had no room"
        );
        assert!(failures.is_empty(), "{failures:?}");
        assert!(denied > 10_000, "{denied}");
    }
}

impl Line {
    /// What did not come in of these numbers, outside of gaps and in them: a packet that was not
    /// tracked since nothing tracked yet, and judged since something judges, fits no connection.
    fn lost(&self, numbers: Range<u64>) -> (u64, u64) {
        let missing = |range: Range<u64>| {
            let (start, end) = (range.start.max(numbers.start), range.end.min(numbers.end));
            let count = end.saturating_sub(start);
            count - self.spray.arrived_of(start..start + count)
        };
        let in_gaps: u64 = self.gaps.iter().map(|gap| missing(gap.clone())).sum();
        (missing(numbers.clone()).saturating_sub(in_gaps), in_gaps)
    }

    /// What came in, outside of gaps and in them.
    fn leaked(&self) -> (u64, u64) {
        let all = self.spray.counts().arrived;
        let open = self.gap_from.map(|from| from..u64::MAX / 2);
        let in_open = open.map_or(0, |open| {
            self.spray.arrived_of(open.start..self.spray.sent() + 2)
        });
        let in_gaps: u64 = self
            .gaps
            .iter()
            .map(|gap| self.spray.arrived_of(gap.clone()))
            .sum();
        (all.saturating_sub(in_gaps + in_open), in_gaps + in_open)
    }
}

fn quiet(world: &World, node: NodeId) {
    let script = format!(
        "add table inet quiet {{ chain c {{ type filter hook input priority -200; \
         udp dport {SPRAY} drop; tcp dport {SPRAY} drop; }}; }}"
    );
    let name = world.lab.namespace_name(node);
    let done = Command::new("ip")
        .args(["netns", "exec", name, "nft", &script])
        .status()
        .unwrap();
    assert!(done.success(), "{script}");
}

/// Segments that a workload's stack sent more than once, and those of them that the other side says
/// came twice: a stack that was not scheduled for a while sends again what was never lost.
fn sent_again(world: &World, pod: usize) -> [u64; 2] {
    let counters = [
        ("snmp", "Tcp:", "RetransSegs"),
        ("netstat", "TcpExt:", "TCPDSACKRecv"),
        ("netstat", "TcpExt:", "TCPDSACKOfoRecv"),
    ];
    let read = || {
        counters.map(|(file, ..)| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap()
        })
    };
    let texts = world.lab.inside(world.pods[pod], read).unwrap();
    let [again, twice, out_of_order] = [0, 1, 2].map(|at| {
        let (_, head, counter) = counters[at];
        let mut lines = texts[at].lines().filter(|line| line.starts_with(head));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == counter).unwrap();
        let value: u64 = values.split(' ').nth(at).unwrap().parse().unwrap();
        value
    });
    [again, twice + out_of_order]
}

/// The workloads with connections.
const STACKS: [usize; 3] = [WEB, API, DB];

/// Segments that were sent again and had not arrived before.
fn segments_lost(world: &World) -> u64 {
    let lost = |pod| {
        let [again, twice] = sent_again(world, pod);
        again.saturating_sub(twice)
    };
    STACKS.into_iter().map(lost).sum()
}
