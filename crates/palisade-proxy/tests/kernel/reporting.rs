//! What the proxy counts, as the agent is told.

use crate::agent::TestAgent;
use crate::client::{ask, ask_over_tcp, connect};
use crate::need_root;
use crate::testbed::{ALLOWED, Testbed, servers};
use palisade_proxy::{ProxyCounts, ProxyReport};
use std::time::Duration;

/// The next report of which something holds.
fn report_of(agent: &TestAgent, is_wanted: impl Fn(&ProxyCounts) -> bool) -> ProxyReport {
    loop {
        let report = agent.read_report();
        if is_wanted(&report.counts) {
            return report;
        }
    }
}

#[test]
fn the_agent_is_told_what_changes_and_the_last_of_it_at_the_end() {
    if !need_root() {
        return;
    }
    let mut testbed =
        Testbed::with_config("told", |config| config.hold = Duration::from_millis(300));
    let agent = TestAgent::start(&testbed.agent_socket(), false);
    let [server, _] = servers();
    let socket = testbed.open_udp(0, server);
    // Held until the hold is over.
    assert!(ask(&socket, 1, ALLOWED).is_some());
    assert!(ask(&socket, 2, "other.example").is_some());
    {
        let mut stream = connect(&testbed, 0, server);
        assert_eq!(ask_over_tcp(&mut stream, &[(3, ALLOWED)]).len(), 1);
    }
    testbed.wait_for("the end of the connection", |counts| counts.tcp.open == 0);
    let first = report_of(&agent, |counts| {
        counts.tcp.accepted == 1 && counts.tcp.open == 0
    });
    let queries = first.counts.queries;
    assert_eq!((queries.allowed, queries.refused), (2, 1));
    let over_tcp = first.counts.tcp.queries;
    assert_eq!((over_tcp.allowed, over_tcp.refused), (1, 0));
    let buckets: Vec<_> = first.counts.latency.cumulative().map(|(_, n)| n).collect();
    assert_eq!(buckets[11..], [0, 2], "longer than a quarter of a second");
    assert!(first.counts.latency.sum() >= 2 * testbed.config.hold);
    // Once its socket is idle and closed, nothing changes.
    let last = report_of(&agent, |counts| counts.upstream.open == 0);
    assert_eq!(last.counts, testbed.counts());
    assert!(agent.is_silent());
    assert!(ask(&socket, 4, "other.example").is_some());
    let counts = testbed.counts();
    testbed.end_proxy();
    let last = agent.read_last_report();
    assert_eq!((last.proxy, last.counts), (first.proxy, counts));
    assert_eq!(last.counts.queries.refused, 2);
}
