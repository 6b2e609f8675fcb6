//! The continuous traffic, and the account of its packets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use palisade_testkit::lab::{
    HOST_ADDRESSES, LongFlow, NodeId, OUTSIDE_ADDRESSES, Spray, SprayKind, SprayReceiver, TcpEcho,
    TcpSource, TcpTail, kernel_drops,
};

use super::gaps::Gap;
use super::line::{ARRIVED, Amiss, Line};
use super::world::{API, DB, MOB, SPRAY, SSH, WEB, World, address};

/// Interval between two packets of a spray.
pub(crate) const PACE: Duration = Duration::from_millis(16);
/// Interval between two messages of a long connection.
const STEADY: Duration = Duration::from_millis(10);
/// After this time a lost segment has been retransmitted: a fifth of a second at the earliest.
const SENT_AGAIN: Duration = Duration::from_millis(400);

/// All traffic.
pub(crate) struct Traffic {
    lines: Vec<Line>,
    witnesses: Vec<SprayReceiver>,
    long: Vec<(String, LongFlow)>,
    tails: Vec<(String, TcpTail)>,
    _servers: Vec<TcpEcho>,
    _sources: Vec<TcpSource>,
    dropped_before: u64,
    /// Segments lost in each gap.
    lost_in_gaps: Vec<(Gap, u64)>,
    /// The open gap, and the segments lost before it.
    open: Option<(Gap, u64)>,
    /// Lost packets reported so far.
    lost: u64,
}

/// Packets lost or passed in gaps of one kind: the maximum of one pair in one gap, and the total.
#[derive(Clone, Copy, Debug, Default)]
struct InGaps {
    gaps: u64,
    most: Amiss,
    all: Amiss,
    segments: u64,
    most_segments: u64,
}

fn dropped() -> u64 {
    let hex = |text: &String| u64::from_str_radix(text, 16).unwrap();
    kernel_drops().iter().map(hex).sum()
}

impl Traffic {
    pub(crate) fn start(world: &World) -> Self {
        for node in world.pods.into_iter().chain([world.lab.outside()]) {
            // Packets of sprays are not answered.
            quiet(world, node);
        }
        let dropped_before = dropped();
        let lab = &world.lab;
        let witness = |node| SprayReceiver::open(lab, node).unwrap();
        let receivers = [
            world.pods[API],
            world.pods[MOB],
            world.pods[WEB],
            lab.outside(),
        ];
        let witnesses = receivers.map(witness).to_vec();
        let lines = pairs().into_iter().map(|(name, fate, from, to, kind)| {
            let [(sender, source), (receiver, to)] = [from, to].map(|end| match end {
                At::Pod(pod, family) => (world.pods[pod], address(pod, family)),
                At::Outside(at) => (lab.outside(), OUTSIDE_ADDRESSES[at]),
            });
            let to = SocketAddr::new(to, SPRAY);
            let watched = receivers.iter().position(|node| *node == receiver).unwrap();
            let witness = &witnesses[watched];
            let spray = Spray::start_with(witness, lab, (sender, source), to, kind, PACE).unwrap();
            Line::new(name, fate != Fate::Denied, fate == Fate::Turning, spray)
        });
        let lines = lines.collect();
        let echo = |pod: usize, port| TcpEcho::start(lab, world.pods[pod], port).unwrap();
        let ssh = TcpEcho::start(lab, lab.host(), SSH).unwrap();
        let servers = vec![echo(API, 8080), echo(DB, 5432), ssh];
        let sources = vec![TcpSource::start(lab, world.pods[DB], 2525, STEADY).unwrap()];
        let (mut long, mut tails) = (Vec::new(), Vec::new());
        for family in [0, 1] {
            for (from, to, port) in [(WEB, API, 8080), (API, DB, 5432)] {
                let at = SocketAddr::new(address(to, family), port);
                let name = format!("{} to {at}", super::world::NAMES[from]);
                let flow = LongFlow::start(lab, world.pods[from], at, STEADY).unwrap();
                long.push((name, flow));
            }
            let at = SocketAddr::new(HOST_ADDRESSES[family], SSH);
            let session = LongFlow::start(lab, lab.outside(), at, STEADY).unwrap();
            long.push((
                format!("the session from outside to the host at {at}"),
                session,
            ));
            let at = SocketAddr::new(address(DB, family), 2525);
            let tail = TcpTail::start(lab, world.pods[WEB], at).unwrap();
            tails.push((format!("{at} speaks to web"), tail));
        }
        Traffic {
            lines,
            witnesses,
            long,
            tails,
            _servers: servers,
            _sources: sources,
            dropped_before,
            lost_in_gaps: Vec::new(),
            open: None,
            lost: 0,
        }
    }

    /// Opens a gap until [`Traffic::gap_ends`]: an edit of their own policy applies to the pairs whose
    /// verdict it changes, any other kind to all.
    pub(crate) fn gap_begins(&mut self, world: &World, gap: Gap) {
        self.open = Some((gap, segments_lost(world)));
        for line in &mut self.lines {
            if gap != Gap::OwnPolicy || line.turning {
                line.gap_begins(gap);
            }
        }
    }

    pub(crate) fn gap_ends(&mut self, world: &World) {
        let Some((gap, before)) = self.open.take() else {
            return;
        };
        for line in &mut self.lines {
            line.gap_ends();
        }
        if gap.bound().segments > 0 {
            std::thread::sleep(SENT_AGAIN);
        }
        let lost = segments_lost(world).saturating_sub(before);
        self.lost_in_gaps.push((gap, lost));
    }

    /// Fails if a packet was lost or has passed outside of gaps, or a connection has ended.
    pub(crate) fn amiss(&mut self) -> Result<(), String> {
        let mut lost = Vec::new();
        for line in &mut self.lines {
            let news = line.news();
            if news.passed > 0 {
                return Err(format!("{} of {} passed", news.passed, line.name));
            }
            if news.lost > 0 {
                self.lost += news.lost;
                lost.push(format!("{} of {}", news.lost, line.name));
            }
        }
        let room = self.no_room();
        if self.lost > room {
            return Err(format!("lost: {}; {room} had no room", lost.join(", ")));
        }
        let long = self
            .long
            .iter()
            .map(|(name, flow)| (name, flow.counts().ended));
        let tails = self
            .tails
            .iter()
            .map(|(name, tail)| (name, tail.is_closed()));
        match long.chain(tails).find(|(_, ended)| *ended) {
            Some((name, _)) => Err(format!("{name} ended")),
            None => Ok(()),
        }
    }

    /// Marks all wrong results until now as reported.
    pub(crate) fn forget(&mut self) {
        let until: Vec<u64> = self
            .lines
            .iter()
            .map(|line| line.spray.sent() + ARRIVED)
            .collect();
        let is_over = |lines: &[Line]| {
            lines
                .iter()
                .zip(&until)
                .all(|(line, at)| line.spray.sent() > *at)
        };
        while !is_over(&self.lines) {
            std::thread::sleep(PACE);
        }
        for line in &mut self.lines {
            line.news();
        }
        self.lost = 0;
    }

    /// The same, as an assertion.
    pub(crate) fn check(&mut self, world: &World, what: &str) {
        if let Err(amiss) = self.amiss() {
            panic!("{what}: {amiss}\n{}", world.agent.log());
        }
    }

    /// Packets dropped because the kernel's receive queues or the receivers were full.
    fn no_room(&self) -> u64 {
        let witnesses = self.witnesses.iter().map(SprayReceiver::overflowed);
        dropped() - self.dropped_before + witnesses.sum::<u64>()
    }

    /// The account on one line.
    pub(crate) fn line(&self) -> String {
        let sum = |allowed: bool| {
            let of = self
                .lines
                .iter()
                .filter(|line| !line.turning && line.allowed() == allowed);
            let counts = of.map(|line| line.spray.counts());
            counts.fold((0, 0), |(s, a), c| (s + c.sent, a + c.arrived))
        };
        let ((allowed, arrived), (denied, passed)) = (sum(true), sum(false));
        format!(
            "allowed {allowed} sent {arrived} arrived, denied {denied} sent {passed} passed (gaps included)"
        )
    }

    /// Stops all traffic and prints the whole account.
    pub(crate) fn finish(&mut self, world: &World) {
        let before: Vec<u64> = self.long.iter().map(|(_, f)| f.counts().received).collect();
        let read: Vec<u64> = self.tails.iter().map(|(_, tail)| tail.received()).collect();
        std::thread::sleep(Duration::from_millis(500));
        for line in &self.lines {
            line.spray.halt();
        }
        for line in &mut self.lines {
            line.spray.stop();
        }
        let room = self.no_room();
        println!(
            "flows of one packet             {:>9} {:>9} {:>6} {:>7}",
            "sent", "arrived", "lost", "passed"
        );
        let (mut denied, mut outside) = (0, Amiss::default());
        for line in &self.lines {
            let counts = line.spray.counts();
            let amiss = line.outside(0..counts.sent);
            let fate = match (line.turning, line.allowed()) {
                (true, _) => '~',
                (false, true) => '+',
                (false, false) => '-',
            };
            println!(
                "  {fate} {:<30} {:>9} {:>9} {:>6} {:>7}",
                line.name, counts.sent, counts.arrived, amiss.lost, amiss.passed
            );
            outside += amiss;
            if fate == '-' {
                denied += counts.sent;
            }
        }
        println!("  no room for {room} in the kernel's queues and at the witnesses");
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
                !tail.is_closed() && tail.received() > before,
                "{name} stands still"
            );
        }
        for pod in STACKS {
            let [again, twice] = sent_again(world, pod);
            println!(
                "  segments sent again by {}: {again}, of which the first had arrived: {twice}",
                super::world::NAMES[pod]
            );
        }
        let beyond = self.gaps(room);
        let in_gaps: u64 = self.lost_in_gaps.iter().map(|(_, lost)| lost).sum();
        let segments = segments_lost(world);
        println!(
            "account: load: outside of gaps {} lost ({room} had no room), {} passed; \
             segments of connections lost: {segments}, of them {in_gaps} in gaps",
            outside.lost, outside.passed
        );
        assert!(
            outside.lost <= room && outside.passed == 0,
            "{outside:?}, {room} had no room"
        );
        assert!(
            segments <= in_gaps + room,
            "{segments} segments lost, {in_gaps} of them in gaps, {room} had no room"
        );
        assert!(beyond.is_empty(), "gaps beyond their bounds: {beyond:?}");
        assert!(denied > 10_000, "{denied}");
    }

    /// Prints the results in gaps; returns those that exceed their bounds.
    fn gaps(&self, room: u64) -> Vec<String> {
        let mut kinds: BTreeMap<Gap, InGaps> = BTreeMap::new();
        for (gap, segments) in &self.lost_in_gaps {
            let kind = kinds.entry(*gap).or_default();
            kind.gaps += 1;
            kind.segments += segments;
            kind.most_segments = kind.most_segments.max(*segments);
        }
        for (gap, amiss) in self.lines.iter().flat_map(Line::in_gaps) {
            let kind = kinds.entry(gap).or_default();
            kind.all += amiss;
            kind.most.lost = kind.most.lost.max(amiss.lost);
            kind.most.passed = kind.most.passed.max(amiss.passed);
        }
        let mut beyond = Vec::new();
        for gap in Gap::ALL {
            let Some(told) = kinds.get(&gap) else {
                continue;
            };
            let bound = gap.bound();
            println!(
                "account: load: gap {gap:?}, {} times: of a pair at most {} passed (bound {}) and {} lost \
                 ({}), {} segments at once ({}); {} passed, {} lost in all: {}",
                told.gaps,
                told.most.passed,
                bound.passed,
                told.most.lost,
                bound.lost,
                told.most_segments,
                bound.segments,
                told.all.passed,
                told.all.lost,
                bound.why
            );
            if told.most.passed > bound.passed
                || told.most.lost > bound.lost + room
                || told.most_segments > bound.segments + room
            {
                beyond.push(format!("{gap:?}: {told:?}"));
            }
        }
        beyond
    }
}

/// Expected verdict of a pair's packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Allowed,
    Denied,
    /// Allowed at first, then as the edits say.
    Turning,
}

/// One end of a pair: an address of a workload by family, or one of the outside.
#[derive(Clone, Copy)]
enum At {
    Pod(usize, usize),
    Outside(usize),
}

/// All pairs: ends, expected verdict, the policy that decides, family and protocol.
fn pairs() -> Vec<(&'static str, Fate, At, At, SprayKind)> {
    use At::{Outside, Pod};
    use Fate::{Allowed, Denied, Turning};
    use SprayKind::{Echo, SctpInit, TcpSyn, Udp};
    let api = |family| Pod(API, family);
    let mob = |family| Pod(MOB, family);
    vec![
        ("web to api, UDP", Allowed, Pod(WEB, 0), api(0), Udp),
        ("web to api, UDP v6", Allowed, Pod(WEB, 1), api(1), Udp),
        ("web to api, SYN", Allowed, Pod(WEB, 0), api(0), TcpSyn),
        ("web to api, SCTP", Allowed, Pod(WEB, 0), api(0), SctpInit),
        (
            "web to api, SCTP v6",
            Allowed,
            Pod(WEB, 1),
            api(1),
            SctpInit,
        ),
        ("CIDR to api, UDP", Allowed, Outside(0), api(0), Udp),
        ("CIDR to api, SYN v6", Allowed, Outside(4), api(1), TcpSyn),
        ("remote pod to api, UDP", Allowed, Outside(2), api(0), Udp),
        ("db to api, UDP", Denied, Pod(DB, 0), api(0), Udp),
        ("db to api, SYN v6", Denied, Pod(DB, 1), api(1), TcpSyn),
        ("db to api, SCTP v6", Denied, Pod(DB, 1), api(1), SctpInit),
        ("db to api, echo", Denied, Pod(DB, 0), api(0), Echo),
        ("mob to api, UDP v6", Denied, mob(1), api(1), Udp),
        ("mob to api, SYN", Denied, mob(0), api(0), TcpSyn),
        ("mob to api, SCTP", Denied, mob(0), api(0), SctpInit),
        ("exception to api, UDP", Denied, Outside(1), api(0), Udp),
        ("exception to api, UDP v6", Denied, Outside(5), api(1), Udp),
        ("stranger to api, SYN", Denied, Outside(3), api(0), TcpSyn),
        ("db to mob, echo", Allowed, Pod(DB, 0), mob(0), Echo),
        ("db to mob, echo v6", Allowed, Pod(DB, 1), mob(1), Echo),
        ("api to mob, echo v6", Denied, Pod(API, 1), mob(1), Echo),
        ("api to mob, SCTP", Denied, Pod(API, 0), mob(0), SctpInit),
        (
            "egress mob to web, SYN",
            Allowed,
            mob(0),
            Pod(WEB, 0),
            TcpSyn,
        ),
        ("egress mob to CIDR, UDP", Allowed, mob(0), Outside(0), Udp),
        (
            "egress mob to CIDR, SCTP v6",
            Allowed,
            mob(1),
            Outside(4),
            SctpInit,
        ),
        (
            "egress mob to CIDR, echo",
            Allowed,
            mob(0),
            Outside(0),
            Echo,
        ),
        (
            "egress mob to exception, UDP",
            Denied,
            mob(0),
            Outside(1),
            Udp,
        ),
        (
            "egress mob to exc., echo v6",
            Denied,
            mob(1),
            Outside(5),
            Echo,
        ),
        (
            "egress mob to stranger, SYN",
            Denied,
            mob(0),
            Outside(3),
            TcpSyn,
        ),
        (
            "egress mob to remote, SCTP v6",
            Denied,
            mob(1),
            Outside(6),
            SctpInit,
        ),
        ("web to mob, UDP", Turning, Pod(WEB, 0), mob(0), Udp),
        ("web to mob, SYN v6", Turning, Pod(WEB, 1), mob(1), TcpSyn),
    ]
}

fn quiet(world: &World, node: NodeId) {
    let script = format!(
        "add table inet quiet {{ chain c {{ type filter hook input priority -200; \
         meta l4proto {{ tcp, udp, sctp }} th dport {SPRAY} drop; \
         icmp type echo-request drop; icmpv6 type echo-request drop; }}; }}"
    );
    let name = world.lab.namespace_name(node);
    let done = Command::new("ip")
        .args(["netns", "exec", name, "nft", &script])
        .status()
        .unwrap();
    assert!(done.success(), "{script}");
}

/// Segments that a workload's stack retransmitted, and those of them that the peer reports as received twice:
/// a stack that was not scheduled for a while retransmits segments that were not lost.
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
    let texts = world.lab.run_in(world.pods[pod], read).unwrap();
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

/// Retransmitted segments that had not arrived before.
fn segments_lost(world: &World) -> u64 {
    let lost = |pod| {
        let [again, twice] = sent_again(world, pod);
        again.saturating_sub(twice)
    };
    STACKS.into_iter().map(lost).sum()
}
