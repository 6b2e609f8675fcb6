//! Queries of a client, and what it reads of their answers.

use crate::testbed::{CLIENTS, Testbed};
use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// A query for the addresses of a name.
pub(crate) fn query(id: u16, name: &str) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    let name = Name::from_ascii(format!("{name}.")).unwrap();
    message.add_query(hickory_proto::op::Query::query(name, RecordType::A));
    message.to_vec().unwrap()
}

/// An answer: its number, its code and its addresses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) id: u16,
    pub(crate) code: ResponseCode,
    pub(crate) addresses: Vec<IpAddr>,
}

pub(crate) fn parse_answer(bytes: &[u8]) -> Answer {
    let message = Message::from_vec(bytes).unwrap();
    let addresses = message
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(address.0.into()),
            _ => None,
        });
    Answer {
        id: message.metadata.id,
        code: message.metadata.response_code,
        addresses: addresses.collect(),
    }
}

/// The next answer over UDP, if one comes in time.
pub(crate) fn receive(socket: &UdpSocket) -> Option<Answer> {
    let mut buffer = [0; 65_535];
    let length = socket.recv(&mut buffer).ok()?;
    Some(parse_answer(&buffer[..length]))
}

/// Asks over UDP.
pub(crate) fn ask(socket: &UdpSocket, id: u16, name: &str) -> Option<Answer> {
    socket.send(&query(id, name)).unwrap();
    receive(socket)
}

/// A connection of a client to a destination.
pub(crate) fn connect(testbed: &Testbed, client: usize, destination: SocketAddr) -> TcpStream {
    let family = usize::from(destination.is_ipv6());
    let address: IpAddr = CLIENTS[client][family].parse().unwrap();
    let open = || {
        let socket = Socket::new(Domain::for_address(destination), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(address, 0).into()).unwrap();
        let timeout = Duration::from_secs(2);
        socket
            .connect_timeout(&destination.into(), timeout)
            .unwrap();
        socket.set_read_timeout(Some(timeout)).unwrap();
        TcpStream::from(socket)
    };
    testbed.lab.run_in(testbed.clients[client], open).unwrap()
}

/// A message as TCP has it.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap();
    [&length.to_be_bytes(), message].concat()
}

/// The next message on a connection; `None` at its end.
pub(crate) fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    Some(message)
}

/// Sends queries at once, and reads as many answers.
pub(crate) fn ask_over_tcp(stream: &mut TcpStream, queries: &[(u16, &str)]) -> Vec<Answer> {
    let messages: Vec<_> = queries
        .iter()
        .map(|(id, name)| framed(&query(*id, name)))
        .collect();
    stream.write_all(&messages.concat()).unwrap();
    let answers = queries
        .iter()
        .map(|_| parse_answer(&read_message(stream).unwrap()));
    answers.collect()
}
