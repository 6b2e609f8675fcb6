//! A DNS server that answers what a test wants, or nothing.

use super::client::{framed, read_message};
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::RecordType;
use palisade_testkit::lab::{Lab, NodeId};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

/// The longest answer over UDP.
const LONGEST_DATAGRAM: usize = 1_232;

/// The length of a message's header, where its number of answers is, and the flag of a truncated one in its third byte.
const HEADER: u8 = 12;
const ANSWER_COUNT: usize = 6;
const TRUNCATED: u8 = 2;

/// The addresses of a name; `None`: no answer.
type AddressRule = fn(&str, RecordType) -> Option<Vec<IpAddr>>;

/// A query over UDP, as the server got it.
#[derive(Clone)]
pub(crate) struct ReceivedQuery {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// The server. Its threads end with the test program.
pub(crate) struct FakeDnsServer {
    queries: Arc<Mutex<Vec<ReceivedQuery>>>,
}

impl FakeDnsServer {
    /// Serves addresses of a node, over UDP and TCP.
    pub(crate) fn start(lab: &Lab, node: NodeId, own: [IpAddr; 2], rule: AddressRule) -> Self {
        let queries = Arc::<Mutex<Vec<ReceivedQuery>>>::default();
        for address in own {
            let at = SocketAddr::new(address, 53);
            let bind = || {
                let udp = UdpSocket::bind(at).unwrap();
                palisade_sys::transparent::force_receive_buffer(&udp, 4 << 20).unwrap();
                (udp, TcpListener::bind(at).unwrap())
            };
            let (udp, tcp) = lab.run_in(node, bind).unwrap();
            let seen = Arc::clone(&queries);
            std::thread::spawn(move || serve_datagrams(&udp, rule, &seen));
            std::thread::spawn(move || {
                for stream in tcp.incoming().flatten() {
                    std::thread::spawn(move || serve_stream(stream, rule));
                }
            });
        }
        FakeDnsServer { queries }
    }

    /// The queries over UDP since the last call.
    pub(crate) fn take_queries(&self) -> Vec<ReceivedQuery> {
        std::mem::take(&mut self.queries.lock().unwrap())
    }
}

fn serve_datagrams(socket: &UdpSocket, rule: AddressRule, queries: &Mutex<Vec<ReceivedQuery>>) {
    let mut buffer = [0; 4_096];
    while let Ok((length, client)) = socket.recv_from(&mut buffer) {
        let bytes = buffer[..length].to_vec();
        let answer = answer(&bytes, rule);
        queries.lock().unwrap().push(ReceivedQuery {
            client,
            server: socket.local_addr().unwrap(),
            bytes,
        });
        let Some(mut answer) = answer else { continue };
        if answer.len() > LONGEST_DATAGRAM {
            answer.truncate(length);
            answer[2] |= TRUNCATED;
            answer[ANSWER_COUNT..ANSWER_COUNT + 2].fill(0);
        }
        // The client may be gone.
        let _ = socket.send_to(&answer, client);
    }
}

fn serve_stream(mut stream: TcpStream, rule: AddressRule) {
    while let Some(message) = read_message(&mut stream) {
        let Some(answer) = answer(&message, rule) else {
            continue;
        };
        let answer = framed(&answer);
        if std::io::Write::write_all(&mut stream, &answer).is_err() {
            return;
        }
    }
}

fn answer(message: &[u8], rule: AddressRule) -> Option<Vec<u8>> {
    let query = Message::from_vec(message).ok()?;
    let question = query.queries.first()?;
    let name = question.name().to_string().to_lowercase();
    let addresses = rule(name.trim_end_matches('.'), question.query_type())?;
    Some(answer_with(&query, &addresses))
}

/// The answer of a query with these addresses, each behind a pointer to the question, so that thousands fit.
pub(crate) fn answer_with(query: &Message, addresses: &[IpAddr]) -> Vec<u8> {
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    answer.add_queries(query.queries.clone());
    let mut bytes = answer.to_vec().unwrap();
    bytes[ANSWER_COUNT..ANSWER_COUNT + 2].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    for address in addresses {
        let (kind, octets) = match address {
            IpAddr::V4(address) => (RecordType::A, address.octets().to_vec()),
            IpAddr::V6(address) => (RecordType::AAAA, address.octets().to_vec()),
        };
        bytes.extend([0xc0, HEADER]);
        bytes.extend(u16::from(kind).to_be_bytes());
        bytes.extend([0, 1, 0, 0, 1, 44, 0, octets.len() as u8]);
        bytes.extend(octets);
    }
    bytes
}
