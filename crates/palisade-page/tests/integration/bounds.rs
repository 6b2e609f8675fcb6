//! What a hostile client cannot do: hold connections, streams or memory.

use crate::fixtures::{FakeAgent, many_flows};
use crate::served::{ServedPage, read_until, write_request};
use palisade_page::PageLimits;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn follow(page: &ServedPage) -> TcpStream {
    let mut stream = page.connect();
    write_request(&mut stream, "/v1/monitor?flows=true&last=200", "");
    stream
}

#[test]
fn a_thousand_followers_leave_room_for_others() {
    let agent = FakeAgent::new();
    let limits = PageLimits {
        connections: 1_100,
        ..PageLimits::default()
    };
    let page = ServedPage::start(&agent, None, limits);
    let mut followers: Vec<TcpStream> = (0..1_000).map(|_| follow(&page)).collect();
    let heads: Vec<String> = followers
        .iter_mut()
        .map(|stream| read_until(stream, "\r\n\r\n"))
        .collect();
    let served = heads
        .iter()
        .filter(|head| head.starts_with("HTTP/1.1 200"))
        .count();
    let refused = heads
        .iter()
        .filter(|head| head.starts_with("HTTP/1.1 503"))
        .count();
    assert_eq!((served, refused), (limits.streams, 1_000 - limits.streams));
    assert_eq!(agent.followers(), limits.streams);
    assert!(page.ask("/v1/status").starts_with("HTTP/1.1 200"));
    let refused = page.ask("/v1/monitor");
    assert!(
        refused.contains("\"code\":\"Unavailable\"") && refused.contains("retry-after: 1"),
        "{refused}"
    );
    drop(followers);
    wait_until("the streams end with their clients", || {
        agent.followers() == 0
    });
    read_until(&mut follow(&page), "\"type\":\"Packet\"");
}

#[test]
fn connections_beyond_the_bound_are_answered_and_closed() {
    let limits = PageLimits {
        connections: 4,
        ..PageLimits::default()
    };
    let page = ServedPage::start(&FakeAgent::new(), None, limits);
    // A connection that is served, and three that send nothing.
    let mut used = page.connect();
    write_request(&mut used, "/v1/status", "");
    read_until(&mut used, "worker-1");
    let idle: Vec<TcpStream> = (0..3).map(|_| page.connect()).collect();
    for _ in 0..200 {
        drop(page.connect());
    }
    wait_until("the bound is reached", || {
        page.ask("/v1/status").starts_with("HTTP/1.1 503")
    });
    let refused = page.ask("/v1/status");
    assert!(
        refused.contains("too many connections") && refused.contains("connection: close"),
        "{refused}"
    );
    assert!(refused.contains("content-security-policy"));
    write_request(&mut used, "/v1/status", "");
    read_until(&mut used, "worker-1");
    drop(idle);
    wait_until("there is room again", || {
        page.ask("/v1/status").starts_with("HTTP/1.1 200")
    });
}

#[test]
fn slow_heads_and_bodies_are_given_up() {
    let limits = PageLimits {
        arrival: Duration::from_millis(200),
        ..PageLimits::default()
    };
    let page = ServedPage::start(&FakeAgent::new(), None, limits);
    let mut head = page.connect();
    head.write_all(b"GET / HTTP/1.1\r\nhost: local").unwrap();
    let mut rest = Vec::new();
    let ended = head.read_to_end(&mut rest);
    assert!(ended.is_ok(), "the connection is closed: {ended:?}");
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    let mut body = page.connect();
    body.write_all(
        b"POST /v1/preview HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\
          content-type: application/json\r\ncontent-length: 10\r\n\r\n{",
    )
    .unwrap();
    let answer = read_until(&mut body, "}");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    let mut large = page.connect();
    let head = format!(
        "GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "x".repeat(20_000)
    );
    large.write_all(head.as_bytes()).unwrap();
    let answer = read_until(&mut large, "\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[test]
fn a_large_preview_is_refused() {
    let agent = FakeAgent::new();
    let page = ServedPage::start(&agent, None, PageLimits::default());
    let head = "POST /v1/preview HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\
                content-type: application/json\r\n";
    let mut declared = page.connect();
    let length = (1 << 20) + 1;
    write!(declared, "{head}content-length: {length}\r\n\r\n").unwrap();
    assert!(read_until(&mut declared, "}").starts_with("HTTP/1.1 413"));
    let mut chunked = page.connect();
    write!(chunked, "{head}transfer-encoding: chunked\r\n\r\n").unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "x".repeat(1 << 16));
    for _ in 0..17 {
        if chunked.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    assert!(read_until(&mut chunked, "}").starts_with("HTTP/1.1 413"));
    assert_eq!(agent.requests(), [""; 0], "nothing of it reached the agent");
    let mut fits = page.connect();
    write!(fits, "{head}content-length: 2\r\n\r\n{{}}").unwrap();
    assert!(read_until(&mut fits, "alreadyDenied").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_slow_reader_is_closed() {
    let agent = FakeAgent::new();
    let limits = PageLimits {
        unread: Duration::from_millis(300),
        ..PageLimits::default()
    };
    let page = ServedPage::start(&agent, None, limits);
    let mut reader = follow(&page);
    read_until(&mut reader, "\"type\":\"Packet\"");
    let slow = follow(&page);
    wait_until("both follow", || agent.followers() == 2);
    let line = json!({"type": "Lost", "text": "x".repeat(1 << 20)});
    // More than the buffers of both sockets take.
    let reading = std::thread::spawn(move || {
        let mut total = 0;
        let mut buffer = vec![0; 1 << 16];
        while total < 20 << 20 {
            total += reader.read(&mut buffer).unwrap();
        }
        reader
    });
    for _ in 0..21 {
        agent.send(&line);
    }
    let reader = reading.join().unwrap();
    wait_until("the slow reader's stream ends", || agent.followers() == 1);
    drop((reader, slow));
}

#[test]
fn computations_are_bounded() {
    let agent = FakeAgent::new().with_flows(&many_flows(1_000));
    let limits = PageLimits {
        computations: 0,
        ..PageLimits::default()
    };
    let page = ServedPage::start(&agent, None, limits);
    assert!(page.ask("/map.json").starts_with("HTTP/1.1 503"));
    let limits = PageLimits {
        map_body: 1_000,
        ..PageLimits::default()
    };
    let page = ServedPage::start(&agent, None, limits);
    assert!(page.ask("/map.json").starts_with("HTTP/1.1 502"));
    let page = ServedPage::start(&agent, None, PageLimits::default());
    let answer = page.ask("/map.json");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"hidden\":{\"nodes\":600"));
}
