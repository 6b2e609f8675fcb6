//! The load that only ever begins flows: UDP, a source port never seen for each packet.

use super::loads::{Load, TrafficSide, pin};
use super::place::DatapathLab;
use crate::stopwatch::now;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use palisade_model::Family;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The source ports of one burst.
const PORTS: std::ops::Range<u16> = 1_025..31_025;
/// The length of the UDP packet.
const LENGTH: u16 = 26;
/// What may be lost on the way without the figure being about something else.
const LOST: f64 = 0.05;

struct NewTuples {
    socket: Socket,
    /// The sum of what the checksum covers but the source port; `None` where there need not be one.
    sum: Option<u32>,
    to: SocketAddr,
    receiver: UdpSocket,
}

/// Every packet is a flow of its own.
pub(super) fn new_tuples(place: &DatapathLab, family: Family) -> Result<Box<dyn Load>, String> {
    Ok(Box::new(open(place, place.server(family))?))
}

/// The same to a port that no rule allows: each packet is dropped where the host enforces. A packet is through, or
/// dropped, when it is sent, since both are on the sender's CPU.
pub(super) fn denied_tuples(place: &DatapathLab, family: Family) -> Result<Box<dyn Load>, String> {
    let mut to = place.server(family);
    to.set_port(to.port() ^ 0x4000);
    Ok(Box::new(DeniedTuples(open(place, to)?)))
}

struct DeniedTuples(NewTuples);

impl Load for DeniedTuples {
    fn burst(&mut self, place: &DatapathLab) -> Result<f64, String> {
        place.forget_flows()?;
        let took = self.0.send()?;
        let mut buffer = [0; 64];
        let mut arrived = 0;
        while self.0.receiver.recv(&mut buffer).is_ok() {
            arrived += 1;
        }
        if place.enforces() && arrived > 0 {
            return Err(format!("{arrived} denied packets arrived"));
        }
        Ok(f64::from(PORTS.end - PORTS.start) / took.as_secs_f64())
    }
}

fn open(place: &DatapathLab, to: SocketAddr) -> Result<NewTuples, String> {
    let receive = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(to)?;
        setsockopt(&socket, RcvBufForce, &(64 << 20))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let receiver = place.run_in(TrafficSide::Other, receive)?;
    let receiver = receiver.map_err(|error| format!("receiving: {error}"))?;
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(to), Type::RAW, Some(Protocol::UDP))?;
        let mut towards = to;
        towards.set_port(0);
        socket.connect(&SockAddr::from(towards))?;
        Ok(socket)
    };
    let socket = place.run_in(TrafficSide::Load, open)?;
    let socket = socket.map_err(|error| format!("opening a raw socket: {error}"))?;
    let from = socket.local_addr().map(|from| from.as_socket());
    let from = from.map_err(|error| format!("opening a raw socket: {error}"))?;
    let sum = from.and_then(|from| sum(from, to));
    Ok(NewTuples {
        socket,
        sum,
        to,
        receiver,
    })
}

impl Load for NewTuples {
    fn burst(&mut self, place: &DatapathLab) -> Result<f64, String> {
        place.forget_flows()?;
        let sent = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                pin(TrafficSide::Other)?;
                Ok::<f64, String>(count(&self.receiver, &sent))
            });
            let took = self.send();
            sent.store(true, Ordering::Release);
            let arrived = receiving.join().map_err(|_| "the receiver panicked")?;
            let (arrived, took) = (arrived?, took?);
            let sent = f64::from(PORTS.end - PORTS.start);
            if arrived < sent * (1.0 - LOST) {
                Err(format!("of {sent} packets {arrived} arrived"))
            } else {
                Ok(arrived / took.as_secs_f64())
            }
        })
    }
}

impl NewTuples {
    /// Sends one packet from each port; says how long it took.
    fn send(&self) -> Result<Duration, String> {
        // Ports, length, checksum if there must be one, 18 bytes: the least that Ethernet carries.
        let mut packet = [0; LENGTH as usize];
        packet[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        packet[4..6].copy_from_slice(&LENGTH.to_be_bytes());
        let began = now();
        for port in PORTS {
            packet[..2].copy_from_slice(&port.to_be_bytes());
            if let Some(sum) = self.sum {
                packet[6..8].copy_from_slice(&checksum(sum + u32::from(port)).to_be_bytes());
            }
            let sent = self.socket.send(&packet);
            sent.map_err(|error| format!("sending: {error}"))?;
        }
        Ok(began.elapsed())
    }
}

/// The sum of what a checksum covers but the source port and the bytes that are 0: only IPv6 needs one.
fn sum(from: SocketAddr, to: SocketAddr) -> Option<u32> {
    let (SocketAddr::V6(from), SocketAddr::V6(end)) = (from, to) else {
        return None;
    };
    let addresses = from.ip().segments().into_iter().chain(end.ip().segments());
    let header = [LENGTH, 17, to.port(), LENGTH];
    Some(addresses.chain(header).map(u32::from).sum())
}

/// The checksum of what sums up to this.
fn checksum(sum: u32) -> u16 {
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    match !(folded as u16) {
        // 0 would say that there is none.
        0 => u16::MAX,
        some => some,
    }
}

/// How many packets arrive until all are sent and none is left. It never sleeps: the sender would
/// have to wake it, which costs more than the packet's whole way.
fn count(receiver: &UdpSocket, sent: &AtomicBool) -> f64 {
    let mut buffer = [0; 64];
    let mut arrived = 0.0;
    loop {
        let last = sent.load(Ordering::Acquire);
        while receiver.recv(&mut buffer).is_ok() {
            arrived += 1.0;
        }
        if last {
            return arrived;
        }
    }
}
