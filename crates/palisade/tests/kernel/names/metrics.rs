//! What the DNS proxy counts, in the agent's metrics: over its restarts, its handovers, and those of the agent.

use super::{NamedShop, PATIENCE, ProxyProcess, dnsmasq, open, query, servers};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use palisade_testkit::need_root;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The figures about DNS, by series.
fn figures(named: &NamedShop) -> BTreeMap<String, f64> {
    let text = named.shop.agent.metrics();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("palisade_dns_"));
    let figure = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.strip_prefix("palisade_dns_").unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(figure).collect()
}

const ALLOWED: &str = r#"queries_total{protocol="udp",verdict="allowed"}"#;
const REFUSED: &str = r#"queries_total{protocol="udp",verdict="refused"}"#;
const MALFORMED: &str = r#"queries_total{protocol="udp",verdict="malformed"}"#;
const ALLOWED_BY_TCP: &str = r#"queries_total{protocol="tcp",verdict="allowed"}"#;
const RELEASED: &str = r#"proxy_answers_total{result="released"}"#;
const ADDED: &str = "proxy_latency_seconds_count";

/// Waits until figures have these values; none may exceed them meanwhile.
fn wait_for(named: &NamedShop, expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let began = Instant::now();
    loop {
        let figures = figures(named);
        if expected
            .iter()
            .all(|(name, value)| figures[*name] == *value)
        {
            return figures;
        }
        for (name, value) in expected {
            assert!(figures[*name] <= *value, "{name}: {figures:#?}");
        }
        assert!(began.elapsed() < PATIENCE, "{expected:?}: {figures:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Looks up a name, which is allowed and answered.
fn look_up(named: &NamedShop, number: usize) {
    let name = format!("n{number}.example.com");
    let answer = named.lookup(&name, servers()[0], RecordType::A);
    assert_eq!(answer.map(|(code, _)| code), Some(ResponseCode::NoError));
}

/// The same over TCP.
fn look_up_over_tcp(named: &NamedShop, number: usize) {
    let connect = || TcpStream::connect((servers()[0], 53)).unwrap();
    let (lab, web) = (&named.shop.lab, named.shop.pods[0]);
    let mut stream = lab.run_in(web, connect).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let message = query(7, &format!("n{number}.example.com"), RecordType::A);
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &message].concat()).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn queries_and_the_latency_of_the_proxy_are_metrics() {
    if !need_root() {
        return;
    }
    let mut named = NamedShop::open("names-count", &dnsmasq());
    for number in 0..3 {
        look_up(&named, number);
    }
    look_up_over_tcp(&named, 3);
    for _ in 0..2 {
        let answer = named.lookup("other.test", servers()[0], RecordType::A);
        assert_eq!(answer.map(|(code, _)| code), Some(ResponseCode::Refused));
    }
    let socket = open(&named.shop.lab, named.shop.pods[0], servers()[0]);
    socket.send(b"no query").unwrap();
    let expected = [
        (ALLOWED, 3.0),
        (ALLOWED_BY_TCP, 1.0),
        (REFUSED, 2.0),
        (MALFORMED, 1.0),
        (RELEASED, 4.0),
        (ADDED, 4.0),
        (r#"proxy_latency_seconds_bucket{le="+Inf"}"#, 4.0),
    ];
    let figures = wait_for(&named, &expected);
    assert!(figures["proxy_latency_seconds_sum"] > 0.0, "{figures:#?}");
    assert_eq!(figures[r#"answers_total{result="learnt"}"#], 4.0);
    // The proxy is killed: what it reported stays, and the next one is added.
    named.proxy = None;
    named.shop.agent.wait("the loss of the proxy", |status| {
        status["names"]["proxies"] == 0
    });
    named.proxy = Some(ProxyProcess::start(&named.shop.agent, &named.shop.lab));
    named.wait_for_proxy();
    for number in 0..2 {
        look_up(&named, number);
    }
    wait_for(&named, &[(ALLOWED, 5.0), (REFUSED, 2.0), (RELEASED, 6.0)]);
    // It hands over: its last query is reported although it ends at once.
    look_up(&named, 2);
    let successor = ProxyProcess::start(&named.shop.agent, &named.shop.lab);
    let mut predecessor = named.proxy.replace(successor).unwrap();
    assert!(predecessor.0.wait().unwrap().success());
    look_up(&named, 4);
    wait_for(
        &named,
        &[
            (ALLOWED, 7.0),
            (REFUSED, 2.0),
            (RELEASED, 8.0),
            (ADDED, 8.0),
        ],
    );
    // A new agent knows what the proxy that runs has counted.
    named.shop.agent.terminate();
    look_up(&named, 4);
    named.shop.agent.start(&named.shop.lab);
    named.wait_for_proxy();
    wait_for(
        &named,
        &[
            (ALLOWED, 2.0),
            (REFUSED, 0.0),
            (RELEASED, 2.0),
            (ADDED, 2.0),
        ],
    );
}
