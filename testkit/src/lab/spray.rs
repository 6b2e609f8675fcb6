//! Packets of which each is a flow of its own, for as long as a test, and each accounted for: a
//! sender in one node, and in another a witness of what came in.
//!
//! Every packet carries a number, so what is missing is known by it, and so is when it was sent. What
//! the witness itself or a CPU's receive queue had no room for is told apart from what was lost.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt, sockopt};
use socket2::Socket;

use super::craft;
use super::probe::{open_capture, open_raw};
use super::{Lab, LabError, NodeId};

const MAGIC: [u8; 4] = *b"pals";
const OUTGOING: u8 = 4; // PACKET_OUTGOING
const IPPROTO_RAW: i32 = 255;
/// Source ports are used again after so many packets.
const PORTS: u64 = 60_000;
/// How long a witness waits for packets on their way.
const LINGER: Duration = Duration::from_millis(250);

#[allow(clippy::disallowed_methods, reason = "a witness of real time")]
fn now() -> Instant {
    Instant::now()
}

/// What is in the packets of a spray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SprayKind {
    /// A datagram.
    Udp,
    /// The first packet of a TCP connection.
    TcpSyn,
    /// The first packet of an SCTP association, made by hand: there are no SCTP sockets everywhere.
    SctpInit,
    /// An ICMP or ICMPv6 echo request, each with an identifier of its own.
    Echo,
}

/// What became of the packets of a spray so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SprayCounts {
    /// Packets sent.
    pub sent: u64,
    /// Of these, the ones that came in at the witness.
    pub arrived: u64,
}

/// Notes what comes in at one node, of every spray that it is the witness of.
///
/// One for all sprays to a node: each witness sees every packet there, and has to wake for it.
#[derive(Clone, Debug)]
pub struct SprayReceiver {
    node: NodeId,
    watching: Arc<CaptureThread>,
}

/// The thread that watches, until nobody needs it.
#[derive(Debug)]
struct CaptureThread {
    notes: Arc<CaptureLog>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct CaptureLog {
    stop: AtomicBool,
    overflowed: AtomicU64,
    seen: Mutex<BTreeMap<u32, SprayArrivals>>,
}

/// What came in of one spray: a bit for each number, and when the last one came.
#[derive(Debug, Default)]
struct SprayArrivals {
    words: Vec<u64>,
    last: Option<Instant>,
}

impl SprayReceiver {
    /// Watches a node from now on.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket not be made.
    pub fn open(lab: &Lab, node: NodeId) -> Result<Self, LabError> {
        let socket = lab.run_in(node, open_witness)?;
        let socket = socket.map_err(failed(lab, node))?;
        let notes = Arc::new(CaptureLog::default());
        let its = Arc::clone(&notes);
        let thread = Some(std::thread::spawn(move || capture(&socket, &its)));
        let watching = Arc::new(CaptureThread { notes, thread });
        Ok(Self { node, watching })
    }

    /// Packets that it had no room for, of whatever sender.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.watching.notes.overflowed.load(Ordering::Acquire)
    }

    fn with_spray<T>(&self, id: u32, look: impl FnOnce(&SprayArrivals) -> T) -> T {
        let seen = &self.watching.notes.seen;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        look(seen.entry(id).or_default())
    }
}

impl Drop for CaptureThread {
    fn drop(&mut self) {
        self.notes.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to tell
        }
    }
}

/// A sender, until dropped.
#[derive(Debug)]
pub struct Spray {
    id: u32,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    witness: SprayReceiver,
    thread: Option<JoinHandle<()>>,
}

fn failed(lab: &Lab, node: NodeId) -> impl FnOnce(io::Error) -> LabError + use<> {
    let namespace = lab.namespace_name(node).to_owned();
    move |source| LabError::Namespace {
        doing: "spraying in",
        namespace,
        source,
    }
}

impl Spray {
    /// Sends from `from` to `to` at `receiver`, a packet every `pace`, each of a flow of its own, with a
    /// witness of its own.
    ///
    /// # Errors
    /// If a namespace cannot be entered or a socket not be made.
    pub fn start(
        lab: &Lab,
        from: (NodeId, std::net::IpAddr),
        (receiver, to): (NodeId, SocketAddr),
        kind: SprayKind,
        pace: Duration,
    ) -> Result<Self, LabError> {
        let witness = SprayReceiver::open(lab, receiver)?;
        Self::start_with(&witness, lab, from, to, kind, pace)
    }

    /// The same to the node of a witness, which may have others.
    ///
    /// # Errors
    /// If a namespace cannot be entered or a socket not be made.
    pub fn start_with(
        witness: &SprayReceiver,
        lab: &Lab,
        (from, source): (NodeId, std::net::IpAddr),
        to: SocketAddr,
        kind: SprayKind,
        pace: Duration,
    ) -> Result<Self, LabError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) as u32;
        let sender = lab.run_in(from, || open_raw(to.is_ipv4(), IPPROTO_RAW))?;
        let sender = sender.map_err(failed(lab, from))?;
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let (stopped, count) = (stop.clone(), sent.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                let number = count.load(Ordering::Relaxed);
                let port = 2_000 + (number % PORTS) as u16;
                let packet = packet(kind, SocketAddr::new(source, port), to, id, number);
                let address = SocketAddr::new(to.ip(), 0).into();
                if sender.send_to(&packet, &address).is_ok() {
                    count.store(number + 1, Ordering::Release);
                }
                #[allow(clippy::disallowed_methods, reason = "the spray's own pace")]
                std::thread::sleep(pace);
            }
        });
        Ok(Self {
            id,
            stop,
            sent,
            witness: witness.clone(),
            thread: Some(thread),
        })
    }

    /// The counts so far; what was sent last may still be on its way.
    #[must_use]
    pub fn counts(&self) -> SprayCounts {
        let ones = |seen: &SprayArrivals| {
            let ones = seen.words.iter().map(|word| u64::from(word.count_ones()));
            ones.sum()
        };
        SprayCounts {
            arrived: self.witness.with_spray(self.id, ones),
            sent: self.sent.load(Ordering::Acquire),
        }
    }

    /// How many packets were sent so far: numbers from there on are sent later.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// How many of the packets with these numbers came in.
    #[must_use]
    pub fn count_arrivals(&self, numbers: std::ops::Range<u64>) -> u64 {
        self.arrivals(numbers).iter().filter(|came| **came).count() as u64
    }

    /// Which of the packets with these numbers came in, in their order.
    #[must_use]
    pub fn arrivals(&self, numbers: std::ops::Range<u64>) -> Vec<bool> {
        self.witness.with_spray(self.id, |seen| {
            let came = |number: u64| {
                let word = seen.words.get((number / 64) as usize);
                word.copied().unwrap_or(0) >> (number % 64) & 1 == 1
            };
            numbers.map(came).collect()
        })
    }

    /// Stops sending, and waits for nothing.
    pub fn halt(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Stops sending, and waits until nothing has come in for a while: what was on its way counts.
    pub fn stop(&mut self) {
        self.halt();
        let Some(thread) = self.thread.take() else {
            return;
        };
        let _ = thread.join(); // it has nothing to tell
        let stopped = now();
        while {
            let last = self.witness.with_spray(self.id, |seen| seen.last);
            last.unwrap_or(stopped).max(stopped).elapsed() < LINGER
        } {
            #[allow(clippy::disallowed_methods, reason = "for what is on its way")]
            std::thread::sleep(LINGER / 10);
        }
    }

    /// Packets that the witness had no room for, of whatever sender.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.witness.overflowed()
    }

    /// The node where its packets are looked for.
    #[must_use]
    pub fn receiver(&self) -> NodeId {
        self.witness.node
    }

    /// The number that tells this spray's packets from others'.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Spray {
    fn drop(&mut self) {
        self.halt();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has nothing to tell
        }
    }
}

fn open_witness() -> io::Result<Socket> {
    let witness = open_capture()?;
    setsockopt(&witness, sockopt::RxqOvfl, &1)?;
    witness.set_nonblocking(false)?;
    witness.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(witness)
}

fn capture(witness: &Socket, notes: &CaptureLog) {
    let mut buffer = [0; 2048];
    while !notes.stop.load(Ordering::Acquire) {
        let mut control = cmsg_space!(u32);
        let mut into = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::empty();
        let received =
            recvmsg::<LinkAddr>(witness.as_raw_fd(), &mut into, Some(&mut control), flags);
        let Ok(message) = received else {
            continue;
        };
        let outward = message
            .address
            .is_some_and(|from| from.pkttype() == OUTGOING);
        for told in message.cmsgs().into_iter().flatten() {
            if let ControlMessageOwned::RxqOvfl(count) = told {
                notes.overflowed.store(count.into(), Ordering::Release);
            }
        }
        let length = message.bytes;
        if let Some((id, number)) = parse_number(&buffer[..length]).filter(|_| !outward) {
            let mut seen = notes.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = seen.entry(id).or_default();
            seen.last = Some(now());
            let at = (number / 64) as usize;
            if seen.words.len() <= at {
                seen.words.resize(at + 1, 0);
            }
            seen.words[at] |= 1 << (number % 64);
        }
    }
}

fn packet(kind: SprayKind, source: SocketAddr, to: SocketAddr, id: u32, number: u64) -> Vec<u8> {
    let mut data = [0; 16];
    data[..4].copy_from_slice(&MAGIC);
    data[4..8].copy_from_slice(&id.to_be_bytes());
    data[8..].copy_from_slice(&number.to_be_bytes());
    match kind {
        SprayKind::Udp => craft::udp(source, to, number as u16, &data),
        SprayKind::TcpSyn => craft::tcp(source, to, 2, (number as u32, 0), &data),
        SprayKind::SctpInit => {
            // Chunk INIT and its length, tag, window, streams, first number; a parameter to be skipped.
            let mut chunk = vec![1, 0, 0, 40];
            chunk.extend_from_slice(&(number as u32).max(1).to_be_bytes());
            chunk.extend_from_slice(&[0, 1, 0, 0, 0, 1, 0, 1]);
            chunk.extend_from_slice(&(number as u32).to_be_bytes());
            chunk.extend_from_slice(&[0xc0, 0x01, 0, 20]);
            chunk.extend_from_slice(&data);
            craft::sctp(source, to, 0, &chunk)
        }
        SprayKind::Echo => {
            let request = if to.is_ipv4() { 8 } else { 128 };
            let [high, low] = source.port().to_be_bytes();
            craft::icmp(source.ip(), to.ip(), (request, 0), [high, low, 0, 1], &data)
        }
    }
}

/// The spray and the number of a packet, if it is one of a spray.
fn parse_number(packet: &[u8]) -> Option<(u32, u64)> {
    let (protocol, header) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, 20),
        _ => (*packet.get(6)?, 40),
    };
    let tail = packet.last_chunk::<16>()?;
    let [id, high, low] = [4, 8, 12].map(|at| [tail[at], tail[at + 1], tail[at + 2], tail[at + 3]]);
    let [high, low] = [high, low].map(|word| u64::from(u32::from_be_bytes(word)));
    // Neither an answer nor what an ICMP error quotes.
    let sent = match protocol {
        6 | 17 | 132 => true,
        1 => packet.get(header) == Some(&8),
        58 => packet.get(header) == Some(&128),
        _ => false,
    };
    (sent && tail[..4] == MAGIC).then(|| (u32::from_be_bytes(id), high << 32 | low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_again_and_its_answer_is_not() {
        let ends: [[SocketAddr; 2]; 2] = [
            [
                "10.0.0.1:2000".parse().unwrap(),
                "10.0.0.2:7".parse().unwrap(),
            ],
            [
                "[fd00::1]:2000".parse().unwrap(),
                "[fd00::2]:7".parse().unwrap(),
            ],
        ];
        use SprayKind::{Echo, SctpInit, TcpSyn, Udp};
        for [source, to] in ends {
            for kind in [Udp, TcpSyn, SctpInit, Echo] {
                let packet = packet(kind, source, to, 5, 1 << 33);
                assert_eq!(parse_number(&packet), Some((5, 1 << 33)), "{kind:?}");
            }
            let mut answer = packet(Echo, source, to, 5, 6);
            let header = if to.is_ipv4() { 20 } else { 40 };
            answer[header] = if to.is_ipv4() { 0 } else { 129 };
            assert_eq!(parse_number(&answer), None);
        }
    }
}
