//! Cilium's own filters as the judge of ours: the command applies them itself to flows that it reads from a file. Random
//! filters, with every field that flows here can have, must select the same from the service and from the file.

use crate::filters::{Key, keys, node_with_lines};
use crate::lines::LINES;
use crate::node::{ServingNode, output, programs, run};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// How many pairs of lists are drawn.
const DRAWS: usize = 100;

/// The fields of filters, and the values that are drawn for each.
fn pools() -> Vec<(&'static str, Vec<Value>)> {
    let texts = |texts: &[&str]| texts.iter().map(|text| json!(text)).collect();
    let names = [
        "shop/web",
        "shop/",
        "/db",
        "api",
        "six/six-1",
        "web-1",
        "shop/web/x",
        "/",
    ];
    let addresses = [
        "10.0.0.1",
        "10.0.0.0/16",
        "fd00::/8",
        "2001:db8::5",
        "0.0.0.0/0",
        "10.0.0.1/31",
        "::/0",
    ];
    let labels = [
        "app",
        "app=web",
        "!app",
        "k8s:app in (web, db)",
        "any:app notin (web)",
        "reserved:world",
        "app!=db",
        "reserved:host,!k8s:app",
        "io.kubernetes.pod.namespace=shop",
        "cidr:1.2.0.0/16",
        "cidr:1.2.3.4/32",
        "world",
        "app in (web),app!=db",
        "app=",
        "k8s:world",
        "reserved:app",
        "k8s:io.cilium.k8s.policy.cluster=default,app in (api,six)",
        "cidr:0.0.0.0/0",
        "app>1",
        "other notin (a)",
        "",
    ];
    let domains = [
        "*.example.com",
        "www.example.com.",
        "WWW.*",
        "*",
        "example.com",
        "w*w.example.com",
    ];
    let workloads = [
        json!({"name": "web"}),
        json!({"kind": "Deployment"}),
        json!({"name": "db", "kind": "StatefulSet"}),
        json!({"name": "db", "kind": "Deployment"}),
        json!({}),
    ];
    let numbers = |numbers: &[u32]| numbers.iter().map(|number| json!(number)).collect();
    let event = |kind: i32, matches: bool, sub: i32| json!({"type": kind, "match_sub_type": matches, "sub_type": sub});
    vec![
        ("source_pod", texts(&names)),
        ("destination_pod", texts(&names)),
        ("source_ip", texts(&addresses)),
        ("destination_ip", texts(&addresses)),
        (
            "source_ip_xlated",
            texts(&["192.168.0.1", "192.168.0.0/24", "10.0.0.1"]),
        ),
        ("source_label", texts(&labels)),
        ("destination_label", texts(&labels)),
        (
            "node_labels",
            texts(&[
                "zone",
                "zone=east",
                "zone!=east",
                "k8s:zone",
                "any:zone in (west)",
            ]),
        ),
        ("source_fqdn", texts(&domains)),
        ("destination_fqdn", texts(&domains)),
        ("source_service", texts(&["shop/postgres", "/", "shop/"])),
        (
            "destination_service",
            texts(&["shop/postgres", "shop/p", "postgres", "shop/", "/postgres"]),
        ),
        ("source_workload", workloads.to_vec()),
        ("destination_workload", workloads.to_vec()),
        ("source_cluster_name", texts(&["default", "other"])),
        ("destination_cluster_name", texts(&["default", "other"])),
        ("source_identity", numbers(&[0, 1, 2, 6, 7_011_211])),
        ("destination_identity", numbers(&[0, 1, 2, 6, 7_011_211])),
        (
            "traffic_direction",
            texts(&["INGRESS", "EGRESS", "TRAFFIC_DIRECTION_UNKNOWN"]),
        ),
        (
            "verdict",
            texts(&["FORWARDED", "DROPPED", "AUDIT", "ERROR"]),
        ),
        (
            "drop_reason_desc",
            texts(&[
                "POLICY_DENY",
                "POLICY_DENIED",
                "INVALID_SOURCE_IP",
                "DROP_REASON_UNKNOWN",
            ]),
        ),
        (
            "event_type",
            vec![
                event(1, false, 0),
                event(5, true, 1),
                event(4, true, 0),
                event(0, true, 3),
                event(0, false, 0),
                event(129, false, 0),
            ],
        ),
        (
            "protocol",
            texts(&[
                "tcp", "UDP", "icmp", "icmpv4", "ICMPv6", "sctp", "http", "dns",
            ]),
        ),
        ("source_port", texts(&["20000", "20003", "0"])),
        ("destination_port", texts(&["443", "53", "0", "5432"])),
        ("reply", vec![json!(true), json!(false)]),
        (
            "tcp_flags",
            vec![
                json!({"SYN": true}),
                json!({"ACK": true}),
                json!({"FIN": true, "ACK": true}),
                json!({"SYN": true, "ACK": true}),
                json!({}),
            ],
        ),
        (
            "node_name",
            texts(&[
                "n1",
                "n*",
                "default/",
                "default/n1",
                "other/n1",
                "/n1",
                "def*/*",
            ]),
        ),
        ("ip_version", texts(&["IPv4", "IPv6", "IP_NOT_USED"])),
        (
            "interface",
            vec![
                json!({"name": "pal1"}),
                json!({"index": 3}),
                json!({}),
                json!({"name": "pal2", "index": 0}),
            ],
        ),
        ("trace_id", texts(&["a", ""])),
        ("http_method", texts(&["GET"])),
        ("dns_query", texts(&["a.*"])),
    ]
}

/// Numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn draw_filter(dice: &mut Dice, pools: &[(&'static str, Vec<Value>)]) -> String {
    let mut filter = Map::new();
    for _ in 0..1 + dice.below(3) {
        let (field, values) = &pools[dice.below(pools.len())];
        let drawn: Vec<Value> = (0..1 + dice.below(2))
            .map(|_| values[dice.below(values.len())].clone())
            .collect();
        filter.insert((*field).to_owned(), Value::Array(drawn));
    }
    Value::Object(filter).to_string()
}

struct Judge<'a> {
    hubble: &'a Path,
    node: &'a ServingNode,
    file: &'a str,
    first: Duration,
}

impl Judge<'_> {
    /// What the service and Cilium's filters select.
    fn both(&self, arguments: &[String]) -> [Vec<Key>; 2] {
        [["--all", ""], ["--input-file", self.file]].map(|source| {
            let mut line = vec!["observe", "-o", "jsonpb"];
            line.extend(source.into_iter().filter(|word| !word.is_empty()));
            line.extend(arguments.iter().map(String::as_str));
            keys(&run(self.hubble, &self.node.server(), &line), self.first)
        })
    }
}

#[test]
fn random_filters_select_what_ciliums_do() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, shown, first) = node_with_lines("n1");
    let file = tempfile::NamedTempFile::new().unwrap();
    let all = run(
        &hubble,
        &node.server(),
        &["observe", "--all", "-o", "jsonpb"],
    );
    std::fs::write(file.path(), all).unwrap();
    let judge = Judge {
        hubble: &hubble,
        node: &node,
        file: file.path().to_str().unwrap(),
        first,
    };
    let (mut dice, pools) = (Dice(1), pools());
    let (mut some, mut selected) = (0, 0);
    for draw in 0..DRAWS {
        let mut arguments = Vec::new();
        for _ in 0..1 + dice.below(2) {
            arguments.extend(["--allowlist".to_owned(), draw_filter(&mut dice, &pools)]);
        }
        if draw % 3 == 0 {
            arguments.extend(["--denylist".to_owned(), draw_filter(&mut dice, &pools)]);
        }
        let [ours, ciliums] = judge.both(&arguments);
        assert_eq!(ours, ciliums, "{arguments:?}");
        some += usize::from(!ours.is_empty() && ours.len() < shown.len());
        selected += ours.len();
    }
    // The draws would prove nothing if most selected nothing, or everything.
    assert!(some > DRAWS / 4, "{some}");
    println!(
        "account: {DRAWS} draws of filters over {} flows of {LINES} lines, {some} of which select some; {selected} selected",
        shown.len()
    );
    // Each value alone: those that one side refuses, the other refuses.
    let mut alone = 0;
    for (field, values) in &pools {
        for value in values {
            let filter = json!({ *field: [value] }).to_string();
            let [ours, ciliums] = judge.both(&["--allowlist".to_owned(), filter.clone()]);
            assert_eq!(ours, ciliums, "{filter}");
            alone += 1;
        }
    }
    println!("account: {alone} filters with one value");
}

#[test]
fn what_cilium_refuses_is_refused() {
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, _, _) = node_with_lines("n1");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let file = empty.path().to_str().unwrap();
    for filter in [
        json!({"source_pod": [""]}),
        json!({"source_ip": ["x"]}),
        json!({"source_ip": ["10.0.0.0/33"]}),
        json!({"source_ip": ["10.0.0"]}),
        json!({"source_label": ["a=b=c"]}),
        json!({"source_label": ["a in"]}),
        json!({"source_label": ["a,"]}),
        json!({"source_label": ["a-"]}),
        json!({"source_label": ["=a"]}),
        json!({"source_label": ["a=-"]}),
        json!({"source_label": ["a b"]}),
        json!({"source_fqdn": ["a..", "b"]}),
        json!({"source_fqdn": [""]}),
        json!({"node_name": ["a/b/c"]}),
        json!({"protocol": ["ip"]}),
        json!({"source_port": ["http"]}),
        json!({"destination_port": ["65536"]}),
        json!({"source_cluster_name": [""]}),
        json!({"http_status_code": ["6+"]}),
        json!({"http_path": ["("]}),
        json!({"http_url": ["x"], "event_type": [{"type": 1}]}),
        json!({"dns_query": ["*"]}),
    ] {
        let filter = filter.to_string();
        let from_file = ["observe", "--input-file", file, "--allowlist", &filter];
        let from_service = ["observe", "--all", "--allowlist", &filter];
        for line in [&from_file[..], &from_service] {
            let output = output(&hubble, &node.server(), line);
            assert!(!output.status.success(), "{line:?}");
        }
    }
}
