//! What a workload sees of an edit: it sends numbered packets all the time, and notes which arrive.
//!
//! Each tick sends two: one of a flow never seen before, and one of a flow that goes on for ever.

use crate::stopwatch::now;
use palisade_testkit::lab::{Lab, NodeId};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the sender sleeps between two ticks: it wakes some 60 µs late.
const PACE: Duration = Duration::from_micros(100);
/// Which kind of packet: its first payload byte.
const KINDS: usize = 2;

/// A flow never seen before, each time.
pub(crate) const NEW: usize = 0;
/// One flow that goes on.
pub(super) const STANDING: usize = 1;

/// When each packet was sent, and whether it arrived.
#[derive(Debug, Default)]
struct PacketLog {
    sent: Vec<Instant>,
    arrived: [Vec<bool>; KINDS],
}

/// Sends and receives until dropped.
#[derive(Debug)]
pub(crate) struct Prober {
    notes: Arc<Mutex<PacketLog>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn lock_log(notes: &Mutex<PacketLog>) -> std::sync::MutexGuard<'_, PacketLog> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prober {
    /// From one node of a lab to an address and port of another.
    pub(crate) fn start(
        lab: &Lab,
        from: NodeId,
        to: NodeId,
        at: SocketAddr,
    ) -> Result<Self, String> {
        let inside = |node, open: &(dyn Fn() -> io::Result<Socket> + Sync)| {
            let opened = lab.run_in(node, open).map_err(|error| error.to_string())?;
            opened.map_err(|error| format!("opening a prober's socket: {error}"))
        };
        let mut address = at;
        address.set_port(0);
        let raw = inside(from, &|| {
            let socket = Socket::new(Domain::for_address(at), Type::RAW, Some(Protocol::UDP))?;
            socket.connect(&SockAddr::from(address))?;
            Ok(socket)
        })?;
        let receiver = inside(to, &|| {
            let socket = UdpSocket::bind(at)?;
            socket.set_read_timeout(Some(Duration::from_millis(50)))?;
            Ok(socket.into())
        })?;
        let notes = Arc::new(Mutex::new(PacketLog::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (its, ends) = (Arc::clone(&notes), Arc::clone(&stop));
        let sending = std::thread::spawn(move || send(&raw, at.port(), &its, &ends));
        let (its, ends) = (Arc::clone(&notes), Arc::clone(&stop));
        let receiving = std::thread::spawn(move || receive(&receiver.into(), &its, &ends));
        Ok(Prober {
            notes,
            stop,
            threads: vec![sending, receiving],
        })
    }

    /// When the first packet of a kind was sent that arrived, of those sent from `from` on.
    pub(crate) fn first_arrival(&self, kind: usize, from: Instant) -> Option<Instant> {
        let notes = lock_log(&self.notes);
        let first = notes.sent.partition_point(|sent| *sent < from);
        let arrived = notes.arrived[kind].iter().skip(first);
        let at = arrived
            .take(notes.sent.len())
            .position(|arrived| *arrived)?;
        notes.sent.get(first + at).copied()
    }

    /// When the first packet was sent after the last one that arrived; none if none was sent since.
    pub(crate) fn first_send_after_last_arrival(&self, kind: usize) -> Option<Instant> {
        let notes = lock_log(&self.notes);
        let last = notes.arrived[kind].iter().rposition(|arrived| *arrived)?;
        notes.sent.get(last + 1).copied()
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                eprintln!("    a prober panicked");
            }
        }
    }
}

fn send(socket: &Socket, port: u16, notes: &Mutex<PacketLog>, stop: &AtomicBool) {
    let mut packet = [0; 18];
    packet[2..4].copy_from_slice(&port.to_be_bytes());
    packet[5] = 18;
    let mut source = 2_000_u16;
    let mut number = 0_u64;
    while !stop.load(Ordering::Acquire) {
        source = if source == u16::MAX {
            2_000
        } else {
            source + 1
        };
        packet[9..17].copy_from_slice(&number.to_be_bytes());
        lock_log(notes).sent.push(now());
        number += 1;
        for (kind, from) in [(0, source), (1, 1_999)] {
            packet[..2].copy_from_slice(&from.to_be_bytes());
            packet[8] = kind;
            // One that could not be sent has not arrived.
            let _ = socket.send(&packet);
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "a steady pace is what the prober is for"
        )]
        std::thread::sleep(PACE);
    }
}

fn receive(socket: &UdpSocket, notes: &Mutex<PacketLog>, stop: &AtomicBool) {
    let mut buffer = [0; 32];
    while !stop.load(Ordering::Acquire) {
        let Ok(10) = socket.recv(&mut buffer) else {
            continue;
        };
        let [kind, number @ ..] = &buffer[..9] else {
            continue;
        };
        let number = number.try_into().map_or(0, u64::from_be_bytes);
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let mut notes = lock_log(notes);
        let sent = notes.sent.len();
        if let Some(arrived) = notes.arrived.get_mut(usize::from(*kind))
            && number < sent
        {
            arrived.resize(sent.max(arrived.len()), false);
            arrived[number] = true;
        }
    }
}
