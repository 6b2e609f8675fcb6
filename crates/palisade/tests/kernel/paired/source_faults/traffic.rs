//! The traffic that runs all the time, and the account of each of its packets.
//!
//! Each packet is a flow of its own and has a number. While objects change, a pair must arrive if every state
//! in between allows it, and must not if none does; while nothing changes, the state itself decides.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use palisade_testkit::lab::{
    Lab, LongFlow, NodeId, Spray, SprayKind, SprayReceiver, TcpEcho, kernel_drops,
};
use serde_json::Value;

use super::objects::{
    CLIENT, LONG, MARK, MOB, PORT, REMOTE, SERVER, STRANGER, address, is_allowed,
};
use super::run_in;

/// Interval between two packets of a pair.
const PACE: Duration = Duration::from_millis(15);
/// The longest time without an echo on the long connection: retransmissions of a busy machine are shorter.
const LONGEST_SILENCE: Duration = Duration::from_secs(8);

/// The packets of one pair between two moments, and what must become of them.
struct Segment {
    step: u64,
    numbers: Range<u64>,
    is_allowed: Option<bool>,
}

/// One pair.
struct Line {
    name: &'static str,
    from: IpAddr,
    to: SocketAddr,
    protocol: u8,
    spray: Spray,
    /// The packets from here on belong to the next segment.
    begins: u64,
    segments: Vec<Segment>,
}

/// All pairs.
pub(crate) struct Traffic {
    lines: Vec<Line>,
    long: LongFlow,
    _server: TcpEcho,
    dropped_before: u64,
    pub(crate) account: Account,
}

/// Packets that were judged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) arrived: u64,
    pub(crate) dropped: u64,
    /// Packets for which both was right, since the verdict changed.
    pub(crate) open: u64,
    /// Allowed packets that did not arrive.
    pub(crate) lost: u64,
    /// Of these, what the kernel's queues or the witnesses had no room for.
    pub(crate) no_room: u64,
}

fn dropped() -> u64 {
    let hex = |text: &String| u64::from_str_radix(text, 16).unwrap();
    kernel_drops().iter().map(hex).sum()
}

/// The pairs: name, from, to, kind, port. The first two are always allowed, the next two never.
fn pairs() -> Vec<(&'static str, IpAddr, IpAddr, SprayKind, u16)> {
    use SprayKind::{TcpSyn, Udp};
    let remote = |at: usize| REMOTE[at].parse().unwrap();
    vec![
        (
            "client to server",
            address(CLIENT, 0),
            address(SERVER, 0),
            Udp,
            PORT,
        ),
        (
            "client to server, IPv6",
            address(CLIENT, 1),
            address(SERVER, 1),
            Udp,
            PORT,
        ),
        (
            "stranger to server",
            address(STRANGER, 0),
            address(SERVER, 0),
            Udp,
            PORT,
        ),
        (
            "stranger to server, IPv6",
            address(STRANGER, 1),
            address(SERVER, 1),
            TcpSyn,
            PORT,
        ),
        (
            "mob to server",
            address(MOB, 0),
            address(SERVER, 0),
            Udp,
            PORT,
        ),
        (
            "client to mob",
            address(CLIENT, 1),
            address(MOB, 1),
            Udp,
            PORT,
        ),
        (
            "stranger to mob",
            address(STRANGER, 0),
            address(MOB, 0),
            TcpSyn,
            PORT,
        ),
        ("mob to the outside", address(MOB, 0), remote(2), Udp, PORT),
        ("far to server", remote(0), address(SERVER, 0), Udp, PORT),
        ("late to mob", remote(1), address(MOB, 0), Udp, PORT),
        ("the mark", remote(3), address(CLIENT, 0), Udp, MARK),
    ]
}

/// The number of pairs whose verdict no object changes.
const CONSTANT: usize = 4;

impl Traffic {
    pub(crate) fn start(lab: &Lab, pods: [NodeId; 4]) -> Self {
        let node = |ip: IpAddr| {
            let pod = (0..4).find(|pod| [address(*pod, 0), address(*pod, 1)].contains(&ip));
            pod.map_or(lab.outside(), |pod| pods[pod])
        };
        let quiet = format!(
            "add table inet quiet {{ chain c {{ type filter hook input priority -200; \
             meta l4proto {{ tcp, udp }} th dport {{ {PORT}, {MARK} }} drop; }}; }}"
        );
        let nodes = pods.into_iter().chain([lab.outside()]);
        let witnesses: Vec<(NodeId, SprayReceiver)> = nodes
            .map(|node| {
                run_in(lab, node, &["nft", &quiet]);
                (node, SprayReceiver::open(lab, node).unwrap())
            })
            .collect();
        let server = TcpEcho::start(lab, pods[SERVER], LONG).unwrap();
        let to = SocketAddr::new(address(SERVER, 0), LONG);
        let long = LongFlow::start(lab, pods[CLIENT], to, PACE).unwrap();
        let lines = pairs().into_iter().map(|(name, from, to, kind, port)| {
            let receiver = node(to);
            let (_, witness) = witnesses
                .iter()
                .find(|(node, _)| *node == receiver)
                .unwrap();
            let to = SocketAddr::new(to, port);
            let spray = Spray::start_with(witness, lab, (node(from), from), to, kind, PACE);
            Line {
                name,
                from,
                to,
                protocol: if kind == SprayKind::Udp { 17 } else { 6 },
                spray: spray.unwrap(),
                begins: 0,
                segments: Vec::new(),
            }
        });
        Traffic {
            lines: lines.collect(),
            long,
            _server: server,
            dropped_before: dropped(),
            account: Account::default(),
        }
    }

    /// What was sent before now belongs to the state so far. What is on its way is judged with the next segment.
    pub(crate) fn ends_steady(&mut self, step: u64, state: &[Value]) {
        for (at, line) in self.lines.iter_mut().enumerate() {
            let verdict = line.verdict(state);
            if at < CONSTANT {
                assert_eq!(verdict, at < 2, "{}: the test's own promise", line.name);
            }
            line.end(step, line.spray.sent().saturating_sub(2), Some(verdict));
        }
    }

    /// What is sent from now on belongs to the new state; before, to any of these.
    pub(crate) fn ends_change(&mut self, step: u64, states: &[Vec<Value>]) {
        let mark = self.lines.len() - 1;
        for (at, line) in self.lines.iter_mut().enumerate() {
            let verdicts = states.iter().map(|state| line.verdict(state));
            let allowed = verdicts.filter(|is_allowed| *is_allowed).count();
            let fate = match allowed {
                _ if at == mark => None,
                0 => Some(false),
                all if all == states.len() => Some(true),
                _ => None,
            };
            line.end(step, line.spray.sent() + 1, fate);
        }
    }

    /// Whether the packets of the mark sent last met this fate.
    pub(crate) fn is_mark(&self, is_allowed: bool) -> bool {
        let spray = &self.lines[self.lines.len() - 1].spray;
        let sent = spray.sent().saturating_sub(1);
        let last = spray.arrivals(sent.saturating_sub(2)..sent);
        last.iter().all(|arrived| *arrived == is_allowed)
    }

    /// Waits until packets of each pair were sent.
    pub(crate) fn wait_for_packets(&self) {
        let until: Vec<u64> = self
            .lines
            .iter()
            .map(|line| line.spray.sent() + 5)
            .collect();
        let began = Instant::now();
        while self
            .lines
            .iter()
            .zip(&until)
            .any(|(line, until)| line.spray.sent() < *until)
        {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "a spray stands still"
            );
            std::thread::sleep(PACE);
        }
    }

    /// Judges what was sent up to this step.
    pub(crate) fn judge(&mut self, until: u64) -> Result<(), String> {
        let mut amiss = Vec::new();
        let overflowed: u64 = self.lines.iter().map(|line| line.spray.overflowed()).sum();
        self.account.no_room = dropped() - self.dropped_before + overflowed;
        for line in &mut self.lines {
            for segment in line
                .segments
                .extract_if(.., |segment| segment.step <= until)
            {
                let arrivals = line.spray.arrivals(segment.numbers.clone());
                let arrived = arrivals.iter().filter(|arrived| **arrived).count() as u64;
                let lost = arrivals.len() as u64 - arrived;
                let place = format!(
                    "{} in step {}, packets {:?}",
                    line.name, segment.step, segment.numbers
                );
                match segment.is_allowed {
                    None => self.account.open += arrived + lost,
                    Some(true) => {
                        self.account.arrived += arrived;
                        self.account.lost += lost;
                        if lost > 0 && self.account.lost > self.account.no_room {
                            amiss.push(format!("{place}: {lost} allowed packets lost"));
                        }
                    }
                    Some(false) => {
                        self.account.dropped += lost;
                        if arrived > 0 {
                            amiss.push(format!("{place}: {arrived} denied packets passed"));
                        }
                    }
                }
            }
        }
        let long = self.long.counts();
        if long.ended || long.longest_silence > LONGEST_SILENCE {
            amiss.push(format!("the long connection: {long:?}"));
        }
        if amiss.is_empty() {
            Ok(())
        } else {
            Err(amiss.join("\n"))
        }
    }

    /// Ends the pairs and judges everything.
    pub(crate) fn finish(&mut self, step: u64, state: &[Value]) -> Result<(), String> {
        for line in &self.lines {
            line.spray.halt();
        }
        for line in &mut self.lines {
            line.spray.stop();
            let verdict = line.verdict(state);
            line.end(step, line.spray.sent(), Some(verdict));
        }
        self.judge(step)
    }
}

impl Line {
    fn verdict(&self, state: &[Value]) -> bool {
        is_allowed(
            state,
            self.from,
            self.to.ip(),
            self.protocol,
            self.to.port(),
        )
    }

    fn end(&mut self, step: u64, at: u64, is_allowed: Option<bool>) {
        let end = at.max(self.begins);
        self.segments.push(Segment {
            step,
            numbers: self.begins..end,
            is_allowed,
        });
        self.begins = end;
    }
}
