//! Traffic between two pods in both families, and the account of it: flows of one packet of UDP and TCP, allowed and denied,
//! connections, questions with answers, and a flow that some policies allow.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use palisade_testkit::lab::{
    LongFlow, Spray, SprayKind, SprayReceiver, TcpEcho, UdpEcho, kernel_drops,
};

use crate::flows::place::{A, Allowed, B, Place};
use crate::flows::switching::ask;

/// The port of flows of one packet that are allowed, and of those that are not. No spray sends from these: a packet back
/// would be an answer.
pub(crate) const OPEN: u16 = 63_001;
pub(crate) const CLOSED_PORT: u16 = 63_002;
/// The port of flows in which only the receiver of the first datagram speaks.
const STREAM: u16 = 57;
/// The port of UDP that policies with odd numbers allow.
pub(crate) const TURNING: u16 = 55;
/// What has to be allowed.
pub(crate) const ALWAYS: [Allowed; 5] = [
    (A, B, 17, Some(53)),
    (A, B, 17, Some(STREAM)),
    (A, B, 6, Some(80)),
    (A, B, 17, Some(OPEN)),
    (A, B, 6, Some(OPEN)),
];
/// The time between two packets of a pair.
const PACE: Duration = Duration::from_millis(8);
/// The time between two messages of a connection.
const STEADY: Duration = Duration::from_millis(10);
/// Connections of each family.
const CONNECTIONS: usize = 4;
/// A packet sent so many packets ago has arrived, or never will.
const ARRIVED: u64 = 40;

/// Flows of one packet each, from one pod to the other.
struct Line {
    name: String,
    is_allowed: bool,
    spray: Spray,
}

/// All traffic, until dropped.
pub(crate) struct Traffic {
    lines: Vec<Line>,
    witnesses: [SprayReceiver; 2],
    connections: Vec<LongFlow>,
    questions: Vec<JoinHandle<u64>>,
    is_done: Arc<AtomicBool>,
    /// A flow of each family, sender and receiver, that policies allow or not.
    turning: Vec<[UdpSocket; 2]>,
    dropped_before: u64,
    _servers: (TcpEcho, UdpEcho),
}

fn dropped() -> u64 {
    let hex = |text: &String| u64::from_str_radix(text, 16).unwrap();
    kernel_drops().iter().map(hex).sum()
}

fn socket(place: &Place, end: usize, family: usize, port: u16) -> UdpSocket {
    let bound = place.lab.run_in(place.nodes[end], || {
        UdpSocket::bind(Place::at(end, family, port))
    });
    bound.unwrap().unwrap()
}

/// After a first datagram the other end sends, one datagram after the other, each of which must arrive: it is an answer,
/// and allowed as such alone. How many were sent.
fn speak(first: &UdpSocket, speaker: &UdpSocket, is_done: &AtomicBool) -> u64 {
    let patience = Some(Duration::from_secs(2));
    for socket in [first, speaker] {
        socket.set_read_timeout(patience).unwrap();
    }
    let mut buffer = [0; 8];
    first
        .send_to(b"first", speaker.local_addr().unwrap())
        .unwrap();
    speaker.recv(&mut buffer).unwrap();
    let (listener, mut number) = (first.local_addr().unwrap(), 0_u64);
    while !is_done.load(Ordering::Acquire) {
        speaker.send_to(&number.to_be_bytes(), listener).unwrap();
        let received = first.recv(&mut buffer);
        assert_eq!(
            received.ok(),
            Some(8),
            "{listener}: answer {number} is lost"
        );
        assert_eq!(u64::from_be_bytes(buffer), number);
        number += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    number
}

impl Traffic {
    pub(crate) fn start(place: &Place) -> Self {
        let (lab, nodes) = (&place.lab, place.nodes);
        for end in [A, B] {
            // Packets of sprays are not answered.
            let rule =
                format!("meta l4proto {{ tcp, udp }} th dport {{ {OPEN}, {CLOSED_PORT} }} drop");
            let chain = "type filter hook input priority -200";
            let table = format!("add table inet quiet {{ chain c {{ {chain}; {rule}; }}; }}");
            place.nft(nodes[end], &table);
        }
        let witnesses = [A, B].map(|end| SprayReceiver::open(lab, nodes[end]).unwrap());
        let mut lines = Vec::new();
        for family in [0, 1] {
            for kind in [SprayKind::Udp, SprayKind::TcpSyn] {
                for (from, to, port) in [(A, B, OPEN), (A, B, CLOSED_PORT), (B, A, OPEN)] {
                    let source = (nodes[from], Place::address(from, family));
                    let target = Place::at(to, family, port);
                    let spray =
                        Spray::start_with(&witnesses[to], lab, source, target, kind, PACE).unwrap();
                    lines.push(Line {
                        name: format!("{kind:?} to {target}"),
                        is_allowed: (from, port) == (A, OPEN),
                        spray,
                    });
                }
            }
        }
        let servers = (
            TcpEcho::start(lab, nodes[B], 80).unwrap(),
            UdpEcho::start(lab, nodes[B], 53).unwrap(),
        );
        let is_done = Arc::new(AtomicBool::new(false));
        let (mut connections, mut questions, mut turning) = (Vec::new(), Vec::new(), Vec::new());
        for family in [0, 1] {
            for _ in 0..CONNECTIONS {
                let to = Place::at(B, family, 80);
                connections.push(LongFlow::start(lab, nodes[A], to, STEADY).unwrap());
            }
            let ends = (socket(place, A, family, 0), socket(place, B, family, 0));
            let (server, done) = (Place::at(B, family, 53), Arc::clone(&is_done));
            questions.push(std::thread::spawn(move || {
                ask(&ends.0, server, &ends.1, &done)
            }));
            let ends = (
                socket(place, A, family, 0),
                socket(place, B, family, STREAM),
            );
            let done = Arc::clone(&is_done);
            questions.push(std::thread::spawn(move || speak(&ends.0, &ends.1, &done)));
            turning.push([
                socket(place, A, family, 0),
                socket(place, B, family, TURNING),
            ]);
        }
        Traffic {
            lines,
            witnesses,
            connections,
            questions,
            is_done,
            turning,
            dropped_before: dropped(),
            _servers: servers,
        }
    }

    /// Packets dropped because the kernel's receive queues or the receivers were full.
    fn no_room(&self) -> u64 {
        let witnesses = self.witnesses.iter().map(SprayReceiver::overflowed);
        dropped() - self.dropped_before + witnesses.sum::<u64>()
    }

    /// Fails if a packet was lost or let through, or a connection has ended.
    pub(crate) fn check(&self, context: &str) {
        let mut all_lost = 0;
        for line in &self.lines {
            let sent = line.spray.sent();
            let arrived = |until| line.spray.count_arrivals(0..until);
            if line.is_allowed {
                let until = sent.saturating_sub(ARRIVED);
                let lost = until - arrived(until);
                all_lost += lost;
                let room = self.no_room();
                assert!(
                    all_lost <= room,
                    "{context}: {lost} of {} lost, no room for {room}",
                    line.name
                );
            } else {
                assert_eq!(arrived(sent), 0, "{context}: {} let through", line.name);
            }
        }
        let is_cut = self.connections.iter().any(|flow| flow.counts().ended);
        assert!(!is_cut, "{context}: a connection is cut");
        let has_ended = self.questions.iter().any(JoinHandle::is_finished);
        assert!(!has_ended, "{context}: a question or its answer is lost");
    }

    /// The flows that some policies allow are new ones from here on: those of before may be the stack's.
    pub(crate) fn renew_turning(&mut self, place: &Place) {
        for (family, [sender, _]) in self.turning.iter_mut().enumerate() {
            *sender = socket(place, A, family, 0);
        }
    }

    /// A flow that some policies allow goes on if this one does, and only then.
    pub(crate) fn check_turning(&self, policy: u64, context: &str) {
        let is_allowed = policy % 2 == 1;
        for [sender, receiver] in &self.turning {
            let patience = if is_allowed { 2_000 } else { 40 };
            for (from, to) in [(sender, receiver), (receiver, sender)] {
                let patience = Duration::from_millis(patience);
                to.set_read_timeout(Some(patience)).unwrap();
                let address = to.local_addr().unwrap();
                from.send_to(&policy.to_be_bytes(), address).unwrap();
                let mut buffer = [0; 8];
                let arrived = to.recv(&mut buffer).is_ok();
                assert_eq!(arrived, is_allowed, "{context}: to {address}, {policy}");
            }
        }
    }

    /// Ends it, and prints the account.
    pub(crate) fn finish(&mut self, what: &str) {
        let before: Vec<u64> = self.received();
        std::thread::sleep(Duration::from_millis(500));
        let stands = self
            .received()
            .iter()
            .zip(&before)
            .any(|(now, before)| now <= before);
        assert!(!stands, "a connection stands still");
        self.is_done.store(true, Ordering::Release);
        let asked = self
            .questions
            .drain(..)
            .map(|asking| asking.join().unwrap());
        let asked: u64 = asked.sum();
        for line in &self.lines {
            line.spray.halt();
        }
        let (mut sums, mut arrivals) = ([0; 2], [0; 2]);
        for line in &mut self.lines {
            line.spray.stop();
            let counts = line.spray.counts();
            sums[usize::from(line.is_allowed)] += counts.sent;
            arrivals[usize::from(line.is_allowed)] += counts.arrived;
        }
        let room = self.no_room();
        let silences = self
            .connections
            .iter()
            .map(|flow| flow.counts().longest_silence);
        println!(
            "account: {what}: {} allowed packets of as many flows, {} lost ({room} had no room); {} denied, {} let through; {asked} questions and datagrams of streams, none lost; {} connections, none cut, longest silence {:?}",
            sums[1],
            sums[1] - arrivals[1],
            sums[0],
            arrivals[0],
            self.connections.len(),
            silences.max().unwrap_or_default(),
        );
        assert!(sums[1] - arrivals[1] <= room);
        assert_eq!(arrivals[0], 0);
    }

    fn received(&self) -> Vec<u64> {
        let counts = self.connections.iter().map(LongFlow::counts);
        counts.map(|counts| counts.received).collect()
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
    }
}
