//! Single exchanges over UDP and TCP: who sees what, and what is refused.

use crate::client::{Answer, ask, ask_over_tcp, connect, receive};
use crate::need_root;
use crate::server::{TestServer, address};
use crate::testbed::{ALLOWED, Testbed, servers, services};
use hickory_proto::op::ResponseCode;
use std::net::SocketAddr;
use std::time::Duration;

fn success(id: u16) -> Answer {
    Answer {
        id,
        code: ResponseCode::NoError,
        addresses: vec![address()],
    }
}

fn refusal(id: u16) -> Answer {
    Answer {
        id,
        code: ResponseCode::Refused,
        addresses: vec![],
    }
}

#[test]
fn an_allowed_name_is_answered_and_the_server_sees_the_client() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("allowed");
    for server in servers() {
        let socket = testbed.open_udp(0, server);
        assert_eq!(ask(&socket, 7, ALLOWED), Some(success(7)), "{server}");
        // The second on the same socket, and one that takes several packets.
        assert_eq!(ask(&socket, 8, "a.wild.example"), Some(success(8)));
        let large = ask(&socket, 9, "large.wild.example");
        assert_eq!(large, Some(success(9)), "{server}");
        let client = socket.local_addr().unwrap().ip();
        let seen = [ALLOWED, "a.wild.example", "large.wild.example"];
        let seen = seen.map(|name| (client, "udp", name.to_owned()));
        assert_eq!(testbed.server.take_seen(), seen);
    }
    let counts = testbed.counts();
    assert_eq!((counts.queries.allowed, counts.answers.released), (6, 6));
    assert_eq!((counts.upstream.opened, counts.upstream.open), (2, 2));
    testbed.wait_for("idle sockets are closed", |counts| {
        counts.upstream.open == 0
    });
}

#[test]
fn a_refused_name_reaches_no_server() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("refused");
    for server in servers() {
        let socket = testbed.open_udp(0, server);
        assert_eq!(ask(&socket, 7, "other.example"), Some(refusal(7)));
        // The rule set of the second client is not known.
        let socket = testbed.open_udp(1, server);
        assert_eq!(ask(&socket, 8, ALLOWED), Some(refusal(8)));
        let mut stream = connect(&testbed, 1, server);
        assert_eq!(ask_over_tcp(&mut stream, &[(9, ALLOWED)]), [refusal(9)]);
        // What is no query is not answered.
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        socket.send(b"no query").unwrap();
        assert_eq!(receive(&socket), None);
    }
    assert_eq!(testbed.server.take_seen(), []);
    let counts = testbed.counts().queries;
    let numbers = (counts.refused, counts.unknown_rule_set, counts.malformed);
    assert_eq!((numbers, counts.allowed), ((2, 4, 2), 0));
}

#[test]
fn a_service_is_translated_and_answers_from_its_own_address() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("service");
    for (service, server) in services().into_iter().zip(servers()) {
        // Connected, so only the service's own address and port can answer; beside it the server itself.
        for destination in [service, server] {
            let socket = testbed.open_udp(0, destination);
            assert_eq!(ask(&socket, 7, ALLOWED), Some(success(7)), "{destination}");
            assert_eq!(ask(&socket, 8, "other.example"), Some(refusal(8)));
            let client = socket.local_addr().unwrap().ip();
            let seen = (client, "udp", ALLOWED.to_owned());
            assert_eq!(testbed.server.take_seen(), [seen]);
            let mut stream = connect(&testbed, 0, destination);
            let answers = ask_over_tcp(&mut stream, &[(9, ALLOWED), (10, ALLOWED)]);
            assert_eq!(answers, [success(9), success(10)]);
            let seen = (client, "tcp", ALLOWED.to_owned());
            assert_eq!(testbed.server.take_seen(), [seen.clone(), seen]);
        }
    }
    let counts = testbed.counts();
    assert_eq!(counts.answers.unsent, 0);
    assert_eq!(counts.upstream.failed, 0);
}

#[test]
fn only_the_server_that_was_asked_answers_and_only_once() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("foreign");
    for server in servers() {
        let socket = testbed.open_udp(0, server);
        socket
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        assert_eq!(ask(&socket, 7, "spoofed.wild.example"), None);
        assert_eq!(ask(&socket, 8, "twice.wild.example"), Some(success(8)));
        assert_eq!(receive(&socket), None, "the second answer");
        // What cannot be read is passed on, and teaches nothing.
        socket
            .send(&crate::client::query(9, "broken.wild.example"))
            .unwrap();
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..2], [0, 9]);
        assert!(hickory_proto::op::Message::from_vec(&buffer[..length]).is_err());
    }
    testbed.wait_for("foreign answers", |counts| counts.answers.foreign == 4);
    let counts = testbed.counts().answers;
    assert_eq!((counts.released, counts.unreadable), (4, 2));
}

#[test]
fn a_server_of_the_host_answers_too() {
    if !need_root() {
        return;
    }
    let mut testbed = Testbed::new("local");
    let own = ["192.0.2.1", "2001:db8:ff::1"];
    let others = ["192.0.2.9", "2001:db8:ff::9"];
    let host = testbed.lab.host();
    for address in others {
        testbed
            .lab
            .add_address(host, address.parse().unwrap())
            .unwrap();
    }
    let server = TestServer::start(&testbed.lab, host, own, others);
    for address in own {
        let destination = SocketAddr::new(address.parse().unwrap(), 53);
        let socket = testbed.open_udp(0, destination);
        for id in [7, 8] {
            assert_eq!(ask(&socket, id, ALLOWED), Some(success(id)), "{address}");
        }
        assert_eq!(ask(&socket, 9, "other.example"), Some(refusal(9)));
        let mut stream = connect(&testbed, 0, destination);
        let answers = ask_over_tcp(&mut stream, &[(1, ALLOWED), (2, ALLOWED)]);
        assert_eq!(answers, [success(1), success(2)], "{address}");
        // It sees the client's address.
        let client = socket.local_addr().unwrap().ip();
        let seen = server.take_seen();
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert!(seen.iter().all(|(peer, ..)| *peer == client), "{seen:?}");
    }
    let counts = testbed.counts();
    assert_eq!((counts.answers.released, counts.answers.foreign), (8, 0));
}

#[test]
fn a_successor_serves_with_the_same_sockets() {
    if !need_root() {
        return;
    }
    let mut testbed = Testbed::new("successor");
    for server in servers() {
        let socket = testbed.open_udp(0, server);
        for id in 1..=3 {
            // The same client port each time.
            assert_eq!(ask(&socket, id, ALLOWED), Some(success(id)), "{server}");
            testbed.replace_proxy();
        }
        // Sent to sockets that somebody has, whoever it is.
        let mut stream = connect(&testbed, 0, server);
        assert_eq!(ask_over_tcp(&mut stream, &[(4, ALLOWED)]), [success(4)]);
        assert_eq!(testbed.counts().answers.released, 1);
    }
}
