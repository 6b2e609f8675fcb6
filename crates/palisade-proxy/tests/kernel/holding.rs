//! Answers that wait for the agent, and an agent that comes late.

use crate::agent::TestAgent;
use crate::client::{ask, ask_over_tcp, connect, query, receive};
use crate::need_root;
use crate::server::address;
use crate::testbed::{ALLOWED, Testbed, servers};
use std::time::{Duration, Instant};

#[test]
fn an_answer_is_held_until_the_agent_confirms() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::with_config("held", |config| config.hold = Duration::from_secs(5));
    let mut agent = TestAgent::start(&testbed.agent_socket(), false);
    for server in servers() {
        let socket = testbed.open_udp(0, server);
        socket.send(&query(7, ALLOWED)).unwrap();
        let offer = agent.read();
        let client = socket.local_addr().unwrap().ip();
        assert_eq!((offer.client, offer.server), (client, server));
        assert_eq!(offer.name.as_str(), ALLOWED);
        let addresses: Vec<_> = offer
            .addresses
            .iter()
            .map(|offered| offered.address)
            .collect();
        assert_eq!(addresses, [address()]);
        assert!((299..=300).contains(&offer.addresses[0].ttl_seconds));
        // Held, while another query of the same socket is refused at once.
        let other = ask(&socket, 8, "other.example");
        assert_eq!(other.map(|answer| answer.id), Some(8));
        agent.confirm(offer.id);
        assert_eq!(receive(&socket).map(|answer| answer.id), Some(7));
        // Known from now on: not held, and offered once in a while; also over TCP.
        let start = Instant::now();
        assert_eq!(ask(&socket, 9, ALLOWED).map(|answer| answer.id), Some(9));
        let mut stream = connect(&testbed, 0, server);
        assert_eq!(ask_over_tcp(&mut stream, &[(10, ALLOWED)])[0].id, 10);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        let refreshed = agent.read();
        assert_eq!(refreshed.name.as_str(), ALLOWED);
        agent.confirm(refreshed.id);
        assert!(agent.has_none(), "one of both says enough");
    }
    testbed.wait_for("all confirmed", |counts| counts.offers.confirmed == 4);
    assert_eq!(testbed.counts().answers.held_too_long, 0);
}

#[test]
fn an_answer_is_released_when_the_hold_is_over() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::with_config("late", |config| config.hold = Duration::from_millis(800));
    let agent = TestAgent::start(&testbed.agent_socket(), false);
    for server in servers() {
        let socket = testbed.open_udp(0, server);
        let start = Instant::now();
        assert_eq!(ask(&socket, 7, ALLOWED).map(|answer| answer.id), Some(7));
        assert!(
            start.elapsed() >= testbed.config.hold,
            "{:?}",
            start.elapsed()
        );
        agent.read();
        // Two of one connection are held at the same time.
        let start = Instant::now();
        let mut stream = connect(&testbed, 0, server);
        let names = [(1, "a.wild.example"), (2, "b.wild.example")];
        assert_eq!(ask_over_tcp(&mut stream, &names).len(), 2);
        let elapsed = start.elapsed();
        assert!(
            (testbed.config.hold..testbed.config.hold * 2).contains(&elapsed),
            "{elapsed:?}"
        );
    }
    assert_eq!(testbed.counts().answers.held_too_long, 6);
}

#[test]
fn without_an_agent_answers_are_released_at_once_and_offered_later() {
    if !need_root() {
        return;
    }
    let testbed = Testbed::with_config("absent", |config| {
        config.hold = Duration::from_secs(5);
        config.limits.teaching.reconnect = Duration::from_millis(100);
    });
    let [server, _] = servers();
    let socket = testbed.open_udp(0, server);
    let start = Instant::now();
    for (id, name) in [
        (1, "a.wild.example"),
        (2, "b.wild.example"),
        (3, "a.wild.example"),
    ] {
        assert_eq!(ask(&socket, id, name).map(|answer| answer.id), Some(id));
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    let names =
        |agent: &TestAgent| [agent.read(), agent.read()].map(|offer| offer.name.to_string());
    let expected = ["a.wild.example", "b.wild.example"];
    {
        // It goes without having confirmed.
        let agent = TestAgent::start(&testbed.agent_socket(), false);
        assert_eq!(names(&agent), expected);
        assert!(agent.has_none(), "one offer for each name");
    }
    let agent = TestAgent::start(&testbed.agent_socket(), true);
    assert_eq!(names(&agent), expected, "offered again");
    testbed.wait_for("all confirmed", |counts| counts.offers.confirmed == 2);
    // An answer that is held when the agent goes is released.
    let agent = {
        drop(agent);
        TestAgent::start(&testbed.agent_socket(), false)
    };
    socket.send(&query(4, ALLOWED)).unwrap();
    agent.read();
    drop(agent);
    assert_eq!(receive(&socket).map(|answer| answer.id), Some(4));
    assert!(start.elapsed() < Duration::from_secs(4));
    let counts = testbed.counts();
    assert_eq!(
        (counts.answers.held_too_long, counts.offers.dropped),
        (0, 0)
    );
}
