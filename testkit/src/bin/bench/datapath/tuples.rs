//! The load that only ever begins flows: UDP, a source port never seen for each packet.

use super::loads::{Load, Side, pin};
use super::place::Place;
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
/// What may be lost on the way without the figure being about something else.
const LOST: f64 = 0.05;

struct NewTuples {
    socket: Socket,
    to: SocketAddr,
    receiver: UdpSocket,
}

/// Every packet is a flow of its own.
pub(super) fn new_tuples(place: &Place, family: Family) -> Result<Box<dyn Load>, String> {
    let to = place.server(family);
    let receive = || -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(to)?;
        setsockopt(&socket, RcvBufForce, &(64 << 20))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let receiver = place.at(Side::Other, receive)?;
    let receiver = receiver.map_err(|error| format!("receiving: {error}"))?;
    let open = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(to), Type::RAW, Some(Protocol::UDP))?;
        let mut towards = to;
        towards.set_port(0);
        socket.connect(&SockAddr::from(towards))?;
        Ok(socket)
    };
    let socket = place.at(Side::Load, open)?;
    let socket = socket.map_err(|error| format!("opening a raw socket: {error}"))?;
    Ok(Box::new(NewTuples {
        socket,
        to,
        receiver,
    }))
}

impl Load for NewTuples {
    fn burst(&mut self, place: &Place) -> Result<f64, String> {
        place.forget_flows()?;
        let sent = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                pin(Side::Other)?;
                Ok::<f64, String>(count(&self.receiver, &sent))
            });
            let took = self.send();
            sent.store(true, Ordering::Release);
            let arrived = receiving.join().map_err(|_| "the receiver panicked")?;
            let (arrived, took) = (arrived?, took?);
            let sent = f64::from(PORTS.end - PORTS.start);
            match arrived < sent * (1.0 - LOST) {
                true => Err(format!("of {sent} packets {arrived} arrived")),
                false => Ok(arrived / took.as_secs_f64()),
            }
        })
    }
}

impl NewTuples {
    /// Sends one packet from each port; says how long it took.
    fn send(&self) -> Result<Duration, String> {
        // Ports, length, no checksum, 18 bytes: the least that Ethernet carries.
        let mut packet = [0; 26];
        packet[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        packet[5] = 26;
        let began = now();
        for port in PORTS {
            packet[..2].copy_from_slice(&port.to_be_bytes());
            let sent = self.socket.send(&packet);
            sent.map_err(|error| format!("sending: {error}"))?;
        }
        Ok(began.elapsed())
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
