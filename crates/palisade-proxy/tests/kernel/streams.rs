//! Connections: pipelined queries, half of a connection closed, long answers, bounds.

use crate::client::{ask_over_tcp, connect, framed, parse_answer, query, read_message};
use crate::need_root;
use crate::server::address;
use crate::testbed::{ALLOWED, Testbed, servers};
use hickory_proto::op::ResponseCode;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

#[test]
fn pipelined_queries_are_judged_one_by_one() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("pipeline");
    for server in servers() {
        let mut stream = connect(&testbed, 0, server);
        let client = stream.local_addr().unwrap().ip();
        let queries = [(1, ALLOWED), (2, "other.example"), (3, "a.wild.example")];
        let mut answers = ask_over_tcp(&mut stream, &queries);
        answers.sort_by_key(|answer| answer.id);
        let codes: Vec<_> = answers.iter().map(|answer| answer.code).collect();
        use ResponseCode::{NoError, Refused};
        assert_eq!(codes, [NoError, Refused, NoError], "{server}");
        assert_eq!(answers[2].addresses, [address()]);
        let seen = [ALLOWED, "a.wild.example"].map(|name| (client, "tcp", name.to_owned()));
        assert_eq!(testbed.server.take_seen(), seen);
        // What is no query ends the connection.
        stream.write_all(&framed(b"no query")).unwrap();
        assert_eq!(read_message(&mut stream), None);
    }
    let counts = testbed.counts();
    assert_eq!((counts.tcp.accepted, counts.queries.malformed), (2, 2));
    testbed.wait_for("all closed", |counts| counts.tcp.open == 0);
}

#[test]
fn a_client_that_has_sent_all_gets_its_answers() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("half");
    for server in servers() {
        let mut stream = connect(&testbed, 0, server);
        let message = [
            framed(&query(1, "huge.wild.example")),
            framed(&query(2, ALLOWED)),
        ];
        // In pieces, as a slow network has them.
        for piece in message.concat().chunks(11) {
            stream.write_all(piece).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let huge = read_message(&mut stream).unwrap();
        assert!(huge.len() > 64_000, "{}", huge.len());
        assert_eq!(parse_answer(&huge).addresses, [address()]);
        assert_eq!(parse_answer(&read_message(&mut stream).unwrap()).id, 2);
        let start = Instant::now();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "then it is closed");
        assert!(start.elapsed() < Duration::from_secs(1));
    }
    testbed.wait_for("all closed", |counts| counts.tcp.open == 0);
}

#[test]
fn connections_are_bounded_and_idle_ones_closed() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::with_config("idle", |config| {
        config.limits.tcp.connections_of_client = 2;
        config.limits.tcp.idle = Duration::from_millis(300);
    });
    let [server, _] = servers();
    let mut first = connect(&testbed, 0, server);
    let mut second = connect(&testbed, 0, server);
    let mut third = connect(&testbed, 0, server);
    assert_eq!(third.read(&mut [0]).unwrap_or_default(), 0);
    let mut other = connect(&testbed, 2, server);
    assert_eq!(ask_over_tcp(&mut other, &[(1, ALLOWED)]).len(), 1);
    // Half a message is no progress.
    first.write_all(&[0]).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_or_default(), 0);
    assert_eq!(second.read(&mut [0]).unwrap_or_default(), 0);
    testbed.wait_for("idle ones are closed", |counts| counts.tcp.open == 0);
    let counts = testbed.counts().tcp;
    assert_eq!((counts.accepted, counts.refused), (3, 1));
    assert!(counts.idle >= 2, "{counts:?}");
    let mut again = connect(&testbed, 0, server);
    assert_eq!(ask_over_tcp(&mut again, &[(1, ALLOWED)]).len(), 1);
}

#[test]
fn a_connection_without_a_mark_is_closed() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::new("unmarked");
    let host = testbed.lab.host();
    testbed
        .lab
        .set_sysctl(host, "net/ipv4/tcp_fwmark_accept", "0")
        .unwrap();
    for server in servers() {
        let mut stream = connect(&testbed, 0, server);
        // It may be closed before the query comes.
        let _ = stream.write_all(&framed(&query(1, ALLOWED)));
        assert_eq!(read_message(&mut stream), None);
    }
    testbed.wait_for("both are closed", |counts| counts.tcp.unmarked == 2);
    assert_eq!(testbed.server.take_seen(), []);
}

#[test]
fn a_connection_has_any_number_of_queries_but_few_at_a_time() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::with_config("many", |config| {
        config.limits.tcp.pending = 4;
        config.limits.tcp.idle = Duration::from_millis(500);
    });
    for server in servers() {
        let mut stream = connect(&testbed, 0, server);
        let queries: Vec<_> = (0..100).map(|id| (id, ALLOWED)).collect();
        let answers = ask_over_tcp(&mut stream, &queries);
        let mut ids: Vec<_> = answers.iter().map(|answer| answer.id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..100), "{server}");
        testbed.server.take_seen();
        // Who reads nothing has the proxy read no further, and is closed.
        let mut deaf = connect(&testbed, 0, server);
        let messages: Vec<_> = (0..300)
            .map(|id| framed(&query(id, "huge.wild.example")))
            .collect();
        deaf.write_all(&messages.concat()).unwrap();
        testbed.wait_for("both are closed", |counts| counts.tcp.open == 0);
        let seen = testbed.server.take_seen().len();
        assert!(seen < 200, "{seen} of 300 queries were passed on");
    }
}
