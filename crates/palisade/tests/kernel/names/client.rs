//! A resolver of our own: queries over UDP and TCP, from a namespace of the lab.

use super::PATIENCE;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use palisade_testkit::lab::{Lab, NodeId};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A response code and addresses; `None` without an answer.
pub(crate) type Answered = Option<(ResponseCode, Vec<IpAddr>)>;

/// Asks by a socket, and waits for the answer.
pub(crate) fn exchange(socket: &UdpSocket, name: &str, kind: RecordType) -> Answered {
    static ID: AtomicUsize = AtomicUsize::new(1);
    let id = ID.fetch_add(1, Ordering::Relaxed) as u16;
    socket.send(&query(id, name, kind)).ok()?;
    let mut buffer = [0; 4096];
    loop {
        let length = socket.recv(&mut buffer).ok()?;
        let message = Message::from_vec(&buffer[..length]).unwrap();
        if message.metadata.id == id {
            return Some((message.metadata.response_code, addresses(&message)));
        }
    }
}

/// The message of a query.
pub(crate) fn query(id: u16, name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let name = Name::from_ascii(format!("{name}.")).unwrap();
    message.add_query(Query::query(name, kind));
    message.to_vec().unwrap()
}

/// The addresses in an answer.
pub(crate) fn addresses(message: &Message) -> Vec<IpAddr> {
    let records = message.answers.iter();
    records
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(address.0.into()),
            RData::AAAA(address) => Some(address.0.into()),
            _ => None,
        })
        .collect()
}

/// A socket towards a server.
pub(crate) fn open(lab: &Lab, from: NodeId, server: IpAddr) -> UdpSocket {
    let socket = lab.run_in(from, || bind_any(server)).unwrap();
    socket.connect((server, 53)).unwrap();
    let patience = Some(Duration::from_secs(2));
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// A socket at any address of the family of another.
pub(crate) fn bind_any(like: IpAddr) -> UdpSocket {
    let any: IpAddr = if like.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    UdpSocket::bind((any, 0)).unwrap()
}

/// Asks a server, and waits as resolvers do.
pub(crate) fn lookup(
    lab: &Lab,
    from: NodeId,
    server: IpAddr,
    name: &str,
    kind: RecordType,
) -> Answered {
    exchange(&open(lab, from, server), name, kind)
}

/// Opens a connection to a server; `None` if none opens soon.
pub(crate) fn connect_stream(lab: &Lab, from: NodeId, server: IpAddr) -> Option<TcpStream> {
    let connect = || TcpStream::connect_timeout(&(server, 53).into(), Duration::from_millis(700));
    let stream = lab.run_in(from, connect).unwrap().ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(stream)
}

/// Asks over TCP.
pub(crate) fn lookup_over_tcp(
    lab: &Lab,
    from: NodeId,
    server: IpAddr,
    name: &str,
    kind: RecordType,
) -> Answered {
    let mut stream = connect_stream(lab, from, server)?;
    stream.write_all(&framed(&query(7, name, kind))).ok()?;
    let answer = Message::from_vec(&read_message(&mut stream)?).unwrap();
    Some((answer.metadata.response_code, addresses(&answer)))
}

/// A message as it is on a connection.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    [&length[..], message].concat()
}

/// The next message of a connection; `None` at its end.
pub(crate) fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}
