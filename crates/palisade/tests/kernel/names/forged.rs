//! Answers that the server did not give: with another identifier, from elsewhere, and in floods.

use super::fake_server::{FakeDnsServer, ReceivedQuery, answer_with};
use super::hostile::{FAKE, hostile_shop, rule};
use super::{KINDS, NamedShop, addresses_of, lookup, open, query};
use hickory_proto::op::{Message, ResponseCode};
use palisade_testkit::lab::{RawSender, craft};
use palisade_testkit::need_root;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The victim's address, which no answer of the server has.
const FORGED: usize = 150;
/// Names that the server is silent about, one for each family.
const SILENT: [&str; 2] = ["silent4.example.com", "silent6.example.com"];

/// A query that waits for its answer, and who may forge one.
struct ForgedAnswers<'a> {
    named: &'a NamedShop,
    family: usize,
    query: ReceivedQuery,
    /// From the outside, and from another workload of the host.
    attackers: [RawSender; 2],
}

impl ForgedAnswers<'_> {
    /// An answer with an identifier, which leads to the victim.
    fn answer(&self, id: u16) -> Vec<u8> {
        let query = Message::from_vec(&self.query.bytes).unwrap();
        let victim = addresses_of(FORGED)[self.family];
        let mut answer = answer_with(&query, &[victim]);
        answer[..2].copy_from_slice(&id.to_be_bytes());
        answer
    }

    fn id(&self) -> u16 {
        u16::from_be_bytes([self.query.bytes[0], self.query.bytes[1]])
    }

    fn send(&self, attacker: usize, source: SocketAddr, message: &[u8]) {
        let to = self.query.client;
        let packet = craft::udp(source, to, 1, message);
        // A queue may be full, and policy may deny it.
        let _ = self.attackers[attacker].send(&packet, to);
    }

    /// Every identifier but the right one.
    fn flood(&self, attacker: usize) {
        let mut answer = self.answer(0);
        for id in (0..=u16::MAX).filter(|id| *id != self.id()) {
            answer[..2].copy_from_slice(&id.to_be_bytes());
            self.send(attacker, self.query.server, &answer);
        }
    }

    /// With the right identifier, but not from where the server answers, or of another question.
    fn misplaced(&self) {
        let (server, answer) = (self.query.server, self.answer(self.id()));
        let own: SocketAddr = self.own_address();
        let elsewhere = SocketAddr::new(self.named.servers[self.family], server.port());
        for _ in 0..3 {
            // A workload has no other workload's address, nor a server's.
            self.send(1, server, &answer);
            self.send(1, own, &answer);
            self.send(0, elsewhere, &answer);
            self.send(0, SocketAddr::new(server.ip(), 54), &answer);
            let other = Message::from_vec(&query(self.id(), "n7.example.com", KINDS[self.family]));
            let victim = addresses_of(FORGED)[self.family];
            let other = answer_with(&other.unwrap(), &[victim]);
            self.send(0, server, &other);
        }
    }

    fn own_address(&self) -> SocketAddr {
        let own = crate::agent::shop::ADDRESSES[2][self.family];
        SocketAddr::new(own.parse().unwrap(), 53)
    }
}

/// Sends a query that is not answered, and waits until the server has it.
fn ask_in_vain(
    named: &NamedShop,
    server: &FakeDnsServer,
    family: usize,
) -> (UdpSocket, ReceivedQuery) {
    let socket = open(&named.shop.lab, named.shop.pods[0], FAKE[family]);
    socket
        .send(&query(9, SILENT[family], KINDS[family]))
        .unwrap();
    let began = Instant::now();
    loop {
        if let Some(query) = server.take_queries().pop() {
            return (socket, query);
        }
        assert!(began.elapsed() < super::PATIENCE, "the server has no query");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a client gets within a moment.
fn received(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = [0; 4_096];
    let moment = Some(Duration::from_millis(300));
    socket.set_read_timeout(moment).unwrap();
    let length = socket.recv(&mut buffer).ok()?;
    Some(buffer[..length].to_vec())
}

/// Whether another workload's names are answered; a query that the flood displaced is sent again.
fn others_are_served(named: &NamedShop, names: std::ops::Range<usize>) {
    let api = named.shop.pods[1];
    for number in names {
        let family = number % 2;
        let name = format!("n{number}.example.com");
        let server = named.servers[family];
        let mut answers =
            (0..4).filter_map(|_| lookup(&named.shop.lab, api, server, &name, KINDS[family]));
        let expected = vec![addresses_of(number)[family]];
        assert_eq!(
            answers.next(),
            Some((ResponseCode::NoError, expected)),
            "{name}"
        );
    }
}

#[test]
fn a_forged_answer_opens_nothing() {
    if !need_root() {
        return;
    }
    let named = hostile_shop("names-forged", "web, api", &[]);
    let lab = &named.shop.lab;
    let server = FakeDnsServer::start(lab, lab.outside(), FAKE, rule);
    let nodes = [lab.outside(), named.shop.pods[2]];
    for family in [0, 1] {
        let (socket, query) = ask_in_vain(&named, &server, family);
        let forged = ForgedAnswers {
            named: &named,
            family,
            query,
            attackers: nodes.map(|node| RawSender::open(lab, node).unwrap()),
        };
        std::thread::scope(|scope| {
            for attacker in [0, 1] {
                let forged = &forged;
                scope.spawn(move || forged.flood(attacker));
            }
            others_are_served(&named, 10 * family..10 * family + 10);
        });
        forged.misplaced();
        assert_eq!(received(&socket), None, "the client has an answer");
        let victim = addresses_of(FORGED)[family];
        assert!(named.held(SILENT[family]).is_empty());
        assert!(named.is_denied(victim));
        // What the server itself could have sent is an answer, once.
        let (server, answer) = (forged.query.server, forged.answer(forged.id()));
        forged.send(0, server, &answer);
        forged.send(0, server, &forged.answer(forged.id()));
        assert_eq!(received(&socket), Some(answer));
        assert_eq!(received(&socket), None, "twice");
        assert_eq!(named.held(SILENT[family]), [victim]);
        assert!(named.connects(victim));
        let status = named.shop.agent.status();
        assert_eq!(status["names"]["proxies"], 1, "{status:#}");
    }
}

#[test]
fn an_answer_that_reaches_the_client_past_the_proxy_opens_nothing() {
    if !need_root() {
        return;
    }
    let named = hostile_shop("names-past", "web", &[]);
    let lab = &named.shop.lab;
    let server = FakeDnsServer::start(lab, lab.outside(), FAKE, rule);
    for family in [0, 1] {
        let (socket, query) = ask_in_vain(&named, &server, family);
        let forged = ForgedAnswers {
            named: &named,
            family,
            query: ReceivedQuery {
                client: socket.local_addr().unwrap(),
                ..query
            },
            attackers: [lab.outside(), named.shop.pods[2]]
                .map(|node| RawSender::open(lab, node).unwrap()),
        };
        // A client believes whom it will: policy does not.
        forged.send(0, forged.query.server, &forged.answer(9));
        println!(
            "past the proxy: {:?}",
            received(&socket).map(|bytes| bytes.len())
        );
        assert!(named.held(SILENT[family]).is_empty());
        assert!(named.is_denied(addresses_of(FORGED)[family]));
    }
}
