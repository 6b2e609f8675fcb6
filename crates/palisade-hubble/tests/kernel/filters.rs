//! Every filter of `hubble observe`: what it selects, compared with a plain filter over what is to be shown.

use crate::lines::{API, DB, End, LINES, Shown, WEB, WORLD, lines};
use crate::node::{ServingNode, now, output, programs, run};
use palisade_flows::recent::RecentLines;
use std::path::Path;
use std::time::Duration;

/// A line of the command, and what it selects.
type Case = (&'static str, fn(&Shown) -> bool);

fn in_namespace(end: &End, wanted: &str) -> bool {
    end.pod.is_some_and(|(namespace, _)| namespace == wanted)
}

fn is_pod(end: &End, wanted: &str, prefix: &str) -> bool {
    end.pod
        .is_some_and(|(namespace, name)| namespace == wanted && name.starts_with(prefix))
}

fn is_workload(end: &End, wanted: &str) -> bool {
    end.workload.is_some_and(|(_, name)| name == wanted)
}

const BY_END: &[Case] = &[
    ("--from-pod shop/web", |f| is_pod(&f.source, "shop", "web")),
    ("--to-pod api-1", |f| {
        is_pod(&f.destination, "default", "api-1")
    }),
    ("--pod shop/db-0", |f| {
        is_pod(&f.source, "shop", "db-0") || is_pod(&f.destination, "shop", "db-0")
    }),
    ("--from-namespace shop", |f| in_namespace(&f.source, "shop")),
    ("--to-namespace shop", |f| {
        in_namespace(&f.destination, "shop")
    }),
    ("--namespace six", |f| {
        in_namespace(&f.source, "six") || in_namespace(&f.destination, "six")
    }),
    ("--from-all-namespaces", |f| f.source.pod.is_some()),
    ("--from-ip 10.0.0.1", |f| f.source.address == "10.0.0.1"),
    ("--from-ip 10.0.0.0/16", |f| {
        f.source.address.starts_with("10.0.")
    }),
    ("--to-ip 2001:db8::/32", |f| {
        f.destination.address.starts_with("2001:db8:")
    }),
    ("--ip 1.2.3.4", |f| {
        f.source == WORLD || f.destination == WORLD
    }),
    ("--snat-ip 192.168.0.1", |f| f.xlated == "192.168.0.1"),
    ("--to-fqdn *.example.com", |f| f.destination == WORLD),
    ("--fqdn www.example.com", |f| {
        f.source == WORLD || f.destination == WORLD
    }),
    ("--from-label app=web", |f| f.source.app == "web"),
    ("--to-label k8s:app=db", |f| f.destination.app == "db"),
    ("--label reserved:world", |f| {
        let is_world = |end: &End| end.pod.is_none() && end.node.is_none();
        is_world(&f.source) || is_world(&f.destination)
    }),
    ("--from-label app=web --from-label app=api", |f| {
        matches!(f.source.app, "web" | "api")
    }),
    ("--to-label cidr:1.2.0.0/16", |f| f.destination == WORLD),
    ("--from-identity host", |f| f.source.node == Some("n1")),
    ("--from-identity remote-node", |f| {
        f.source.node == Some("n2")
    }),
    ("--to-identity 2", |f| {
        f.destination.pod.is_none() && f.destination.node.is_none()
    }),
    ("--from-workload web", |f| is_workload(&f.source, "web")),
    ("--to-workload StatefulSet/db", |f| {
        is_workload(&f.destination, "db")
    }),
    ("--workload api", |f| {
        is_workload(&f.source, "api") || is_workload(&f.destination, "api")
    }),
    ("--to-service shop/postgres", |f| f.service == "postgres"),
    ("--service shop/", |f| f.service == "postgres"),
    ("--to-cluster default", |f| f.destination.pod.is_some()),
    ("--cluster other", |_| false),
];

const BY_PACKET: &[Case] = &[
    ("", |_| true),
    ("--verdict DROPPED", |f| f.verdict == "DROPPED"),
    ("--verdict FORWARDED --verdict AUDIT", |f| {
        f.verdict != "DROPPED"
    }),
    ("--drop-reason-desc POLICY_DENY", |f| {
        f.drop_reason == "POLICY_DENY"
    }),
    (
        "--drop-reason-desc INVALID_SOURCE_IP --from-pod shop/web-1",
        |f| f.drop_reason == "INVALID_SOURCE_IP" && f.source == WEB,
    ),
    ("--type drop", |f| f.event == 1),
    ("--type policy-verdict", |f| f.event == 5),
    ("--type trace:to-endpoint", |f| {
        f.event == 4 && f.direction == "INGRESS"
    }),
    ("--type trace:to-stack", |f| {
        f.event == 4 && f.direction == "EGRESS"
    }),
    ("--type l7", |_| false),
    ("--protocol tcp", |f| f.protocol == "TCP"),
    ("--protocol icmp", |f| f.protocol.starts_with("ICMP")),
    ("--protocol ICMPv6", |f| f.protocol == "ICMPv6"),
    ("--protocol udp --protocol sctp", |f| {
        matches!(f.protocol, "UDP" | "SCTP")
    }),
    ("--port 443", |f| f.port == 443 || f.source_port == 443),
    ("--to-port 5432 --to-port 53", |f| {
        matches!(f.port, 5432 | 53)
    }),
    ("--from-port 20000", |f| f.source_port == 20_000),
    ("--tcp-flags SYN", |f| f.flags == "SYN"),
    ("--tcp-flags FIN,ACK", |f| f.flags == "ACK,FIN"),
    ("--traffic-direction egress", |f| f.direction == "EGRESS"),
    ("--ipv6", |f| f.source.address.contains(':')),
    ("--ip-version v4", |f| !f.source.address.contains(':')),
    ("--interface pal2", |f| f.interface == "pal2"),
    ("--node-name n1", |_| true),
    ("--node-name default/n*", |_| true),
    ("--node-name other/", |_| false),
    ("--node-label zone=east", |_| true),
    ("--node-label zone=west", |_| false),
    ("--http-status 5+", |_| false),
    ("--http-method get", |_| false),
    ("--http-path /x.*", |_| false),
    ("--http-url example", |_| false),
    ("--http-header a:b", |_| false),
    ("--trace-id abc", |_| false),
    ("--not --verdict DROPPED", |f| f.verdict != "DROPPED"),
    ("--from-pod shop/web --not --to-pod shop/db", |f| {
        f.source == WEB && f.destination != DB
    }),
    (
        "--to-pod default/api --protocol icmp --verdict DROPPED",
        |f| f.destination == API && f.verdict == "DROPPED" && f.protocol == "ICMPv4",
    ),
];

/// A node with the lines; the time of the first one, after which there is one every second.
pub(crate) fn node_with_lines(name: &str) -> (ServingNode, Vec<Shown>, Duration) {
    let node = ServingNode::start(name, 1000, None);
    let first = Duration::from_secs(now().as_secs() - LINES as u64 - 100);
    let (lines, shown) = lines();
    push_lines(&node.lines, lines, first);
    (node, shown, first)
}

pub(crate) fn push_lines(
    recent: &RecentLines,
    lines: Vec<palisade_api::MonitorLine>,
    first: Duration,
) {
    for (number, line) in lines.into_iter().enumerate() {
        recent.push(first + Duration::from_secs(number as u64), line);
    }
}

/// The flows that a command prints: line, type, direction.
pub(crate) type Key = (usize, i32, String);

pub(crate) fn key(shown: &Shown) -> Key {
    (shown.line, shown.event, shown.direction.to_owned())
}

/// The flows of an output of `-o jsonpb`.
pub(crate) fn keys(printed: &str, first: Duration) -> Vec<Key> {
    let flow = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let flow = value.get("flow")?.clone();
        let time: jiff::Timestamp = flow["time"].as_str()?.parse().unwrap();
        let number = time.as_second() as u64 - first.as_secs();
        let direction = flow["traffic_direction"].as_str().unwrap_or_default();
        let kind = flow["event_type"]["type"].as_i64().unwrap();
        Some((number as usize, kind as i32, direction.to_owned()))
    };
    printed.lines().filter_map(flow).collect()
}

pub(crate) fn observe(
    hubble: &Path,
    server: &str,
    first: Duration,
    arguments: &[&str],
) -> Vec<Key> {
    let arguments = [&["observe", "-o", "jsonpb"], arguments].concat();
    keys(&run(hubble, server, &arguments), first)
}

#[test]
fn each_filter_selects_what_it_says() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, shown, first) = node_with_lines("n1");
    for (line, selects) in BY_END.iter().chain(BY_PACKET) {
        let mut arguments: Vec<&str> = line.split_whitespace().collect();
        arguments.push("--all");
        let expected: Vec<Key> = shown.iter().filter(|f| selects(f)).map(key).collect();
        assert_eq!(
            observe(&hubble, &node.server(), first, &arguments),
            expected,
            "{line}"
        );
    }
    println!(
        "account: {} filters of Hubble's command",
        BY_END.len() + BY_PACKET.len()
    );
}

#[test]
fn a_filter_that_cannot_be_used_is_refused() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, _, _) = node_with_lines("n1");
    for (line, reason) in [
        (
            "--cel-expression true",
            "expressions of clients are not run",
        ),
        ("--http-path (", "invalid http path filter"),
        ("--from-ip 10.0.0.300", "invalid IP address"),
        ("--from-label ==", "invalid source label filter"),
        ("--from-fqdn a|b", "invalid rune in pattern"),
        ("--node-name a/b/c", "too many slashes"),
        ("--protocol ftp", "unknown protocol"),
        ("--to-port 99999", "invalid port"),
    ] {
        let mut arguments = vec!["observe"];
        arguments.extend(line.split_whitespace());
        let output = output(&hubble, &node.server(), &arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{line}");
        assert!(errors.contains(reason), "{line}: {errors}");
    }
}
