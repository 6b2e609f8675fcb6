//! Packets of which each is a flow of its own, for as long as a test, and each accounted for: a
//! sender in one node, and in another a witness of what came in.
//!
//! Every packet carries a number, so what is missing is known by it, and so is when it was sent. What
//! the witness itself or a CPU's receive queue had no room for is told apart from what was lost.

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
}

/// What became of the packets of a spray so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SprayCounts {
    /// Packets sent.
    pub sent: u64,
    /// Of these, the ones that came in at the witness.
    pub arrived: u64,
}

/// A sender, until dropped.
#[derive(Debug)]
pub struct Spray {
    id: u32,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    seen: Arc<Mutex<Vec<u64>>>,
    overflowed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Spray {
    /// Sends from `from` to `to` at `receiver`, a packet every `pace`, each from another port.
    ///
    /// # Errors
    /// If a namespace cannot be entered or a socket not be made.
    pub fn start(
        lab: &Lab,
        (from, source): (NodeId, std::net::IpAddr),
        (receiver, to): (NodeId, SocketAddr),
        kind: SprayKind,
        pace: Duration,
    ) -> Result<Self, LabError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) as u32;
        let failed = |node: NodeId| {
            let namespace = lab.namespace_name(node).to_owned();
            move |source| LabError::Namespace {
                doing: "spraying in",
                namespace,
                source,
            }
        };
        let witness = lab.inside(receiver, open_witness)?;
        let witness = witness.map_err(failed(receiver))?;
        let sender = lab.inside(from, || open_raw(to.is_ipv4(), IPPROTO_RAW))?;
        let sender = sender.map_err(failed(from))?;
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let overflowed = Arc::new(AtomicU64::new(0));
        let (stopped, numbers, missed) = (stop.clone(), seen.clone(), overflowed.clone());
        let watch = std::thread::spawn(move || watch(&witness, &stopped, id, &numbers, &missed));
        let (stopped, count) = (stop.clone(), sent.clone());
        let send = std::thread::spawn(move || {
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
            seen,
            overflowed,
            threads: vec![send, watch],
        })
    }

    /// The counts so far; what was sent last may still be on its way.
    #[must_use]
    pub fn counts(&self) -> SprayCounts {
        let seen = self.lock();
        let arrived = seen.iter().map(|word| u64::from(word.count_ones())).sum();
        SprayCounts {
            arrived,
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
    pub fn arrived_of(&self, numbers: std::ops::Range<u64>) -> u64 {
        let seen = self.lock();
        let is_in = |number: &u64| {
            let word = seen.get((number / 64) as usize).copied().unwrap_or(0);
            word >> (number % 64) & 1 == 1
        };
        numbers.filter(is_in).count() as u64
    }

    /// Stops sending; what is on its way still counts.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // it has nothing to tell
        }
    }

    /// Packets that the witness had no room for, of whatever sender.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number that tells this spray's packets from others'.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Spray {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open_witness() -> io::Result<Socket> {
    let witness = open_capture()?;
    setsockopt(&witness, sockopt::RxqOvfl, &1)?;
    witness.set_nonblocking(false)?;
    witness.set_read_timeout(Some(Duration::from_millis(50)))?;
    Ok(witness)
}

fn watch(
    witness: &Socket,
    stop: &AtomicBool,
    id: u32,
    seen: &Mutex<Vec<u64>>,
    overflowed: &AtomicU64,
) {
    let mut buffer = [0; 2048];
    let mut last = now();
    // After the end, until none of ours has come for a while.
    while !stop.load(Ordering::Acquire) || last.elapsed() < LINGER {
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
                overflowed.store(count.into(), Ordering::Release);
            }
        }
        let length = message.bytes;
        if let Some(number) = number_of(&buffer[..length], id).filter(|_| !outward) {
            last = now();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (number / 64) as usize;
            if seen.len() <= at {
                seen.resize(at + 1, 0);
            }
            seen[at] |= 1 << (number % 64);
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
    }
}

fn number_of(packet: &[u8], id: u32) -> Option<u64> {
    // Not what an ICMP error quotes.
    let protocol = match packet.first()? >> 4 {
        4 => *packet.get(9)?,
        _ => *packet.get(6)?,
    };
    let tail = packet.last_chunk::<16>()?;
    let ours = tail[..4] == MAGIC && tail[4..8] == id.to_be_bytes();
    let number = u64::from_be_bytes(tail[8..].try_into().ok()?);
    (ours && [6, 17].contains(&protocol)).then_some(number)
}
