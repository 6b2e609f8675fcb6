//! A server of names: it answers each query with one address, and keeps who asked for what.

use crate::client::framed;
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::rdata::{A, TXT};
use hickory_proto::rr::{RData, Record};
use palisade_sys::transparent::force_receive_buffer;
use palisade_testkit::lab::{Lab, NodeId};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

/// The address that each name has.
pub(crate) const ADDRESS: [u8; 4] = [198, 51, 100, 7];

/// A query as the server saw it: from which address, over what, for which name.
pub(crate) type SeenQuery = (IpAddr, &'static str, String);

/// The server. Its threads end with the test program.
pub(crate) struct TestServer {
    seen: Arc<Mutex<Vec<SeenQuery>>>,
}

impl TestServer {
    /// Starts it in a namespace, at an address of each family, beside a stranger.
    pub(crate) fn start(lab: &Lab, node: NodeId, own: [&str; 2], others: [&str; 2]) -> Self {
        let seen = Arc::<Mutex<Vec<SeenQuery>>>::default();
        for family in [0, 1] {
            let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 53);
            let bind = || {
                let udp = UdpSocket::bind(address(own[family])).unwrap();
                force_receive_buffer(&udp, 4 << 20).unwrap();
                let stranger = UdpSocket::bind(address(others[family])).unwrap();
                let tcp = TcpListener::bind(address(own[family])).unwrap();
                (udp, stranger, tcp)
            };
            let (udp, stranger, tcp) = lab.run_in(node, bind).unwrap();
            let own = Arc::clone(&seen);
            std::thread::spawn(move || serve_udp(&udp, &stranger, &own));
            let own = Arc::clone(&seen);
            std::thread::spawn(move || {
                for stream in tcp.incoming() {
                    let own = Arc::clone(&own);
                    std::thread::spawn(move || serve_tcp(stream.unwrap(), &own));
                }
            });
        }
        TestServer { seen }
    }

    /// What it saw since the last call.
    pub(crate) fn take_seen(&self) -> Vec<SeenQuery> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn serve_udp(socket: &UdpSocket, stranger: &UdpSocket, seen: &Mutex<Vec<SeenQuery>>) {
    let mut buffer = [0; 4_096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).unwrap();
        let (name, answer) = answer(&buffer[..length]);
        seen.lock().unwrap().push((peer.ip(), "udp", name.clone()));
        if name.starts_with("silent") {
            continue;
        }
        if name.starts_with("spoofed") {
            // From another address; and from the right one, but to another question.
            stranger.send_to(&answer, peer).unwrap();
            let mut other = answer.clone();
            other[0] ^= 0xff;
            socket.send_to(&other, peer).unwrap();
            continue;
        }
        // It may be too long for UDP.
        let _ = socket.send_to(&answer, peer);
        if name.starts_with("twice") {
            let _ = socket.send_to(&answer, peer);
        }
    }
}

fn serve_tcp(mut stream: TcpStream, seen: &Mutex<Vec<SeenQuery>>) {
    let peer = stream.peer_addr().unwrap().ip();
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut message).unwrap();
        let (name, answer) = answer(&message);
        seen.lock().unwrap().push((peer, "tcp", name));
        if stream.write_all(&framed(&answer)).is_err() {
            return;
        }
    }
}

/// The name that is asked for, and the answer: broken, with all the text that fits, or with the address.
fn answer(message: &[u8]) -> (String, Vec<u8>) {
    let query = Message::from_vec(message).unwrap();
    let name = query.queries[0].name().clone();
    let text = name.to_string().trim_end_matches('.').to_owned();
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    answer.add_queries(query.queries.clone());
    let data = RData::A(A::new(ADDRESS[0], ADDRESS[1], ADDRESS[2], ADDRESS[3]));
    answer.add_answer(Record::from_rdata(name.clone(), 300, data));
    let strings = if text.starts_with("huge") {
        254
    } else if text.starts_with("large") {
        15
    } else {
        0
    };
    for number in 0..strings {
        let string = format!("{number:0>250}");
        let data = RData::TXT(TXT::new(vec![string]));
        answer.add_answer(Record::from_rdata(name.clone(), 300, data));
    }
    let mut bytes = answer.to_vec().unwrap();
    if text.starts_with("broken") {
        // One more record is announced than there is.
        bytes[7] += 1;
    }
    (text, bytes)
}

/// The address that each name has.
pub(crate) fn address() -> IpAddr {
    ADDRESS.into()
}
