//! Tests of the output of `connections` and of the names in it.

use crate::build::*;
use palisade_analysis::{ConnectionFilter, connections, grouped_connections};
use palisade_model::Action::{Allow, Deny};
use palisade_model::*;
use serde_json::{Value, json};

/// Each connection as `SOURCE > DESTINATION [FAMILY]: SET`.
#[track_caller]
pub(crate) fn lists(state: &State, expected: &[&str]) {
    let shown: Vec<String> = connections(state).iter().map(shown).collect();
    assert_eq!(shown, expected);
}

/// The connections as they are printed as JSON.
fn reports(listed: &[palisade_analysis::Connection]) -> Vec<palisade_api::ConnectionReport> {
    listed.iter().map(|row| row.report(false)).collect()
}

pub(crate) fn shown(c: &palisade_analysis::Connection) -> String {
    let family = c.family.map_or(String::new(), |f| format!(" {f}"));
    format!("{} > {}{family}: {}", c.src, c.dst, c.connections)
}

fn owned(mut endpoint: Endpoint, kind: &str, name: &str) -> Endpoint {
    endpoint.metadata.owner = Some(Owner {
        kind: kind.into(),
        name: name.into(),
    });
    endpoint
}

fn template(kind: &str, name: &str, own: &str) -> Endpoint {
    let mut endpoint = pod(name, "", own);
    endpoint.kind = EndpointKind::Template {
        host_network: false,
    };
    endpoint.id = id(kind, name);
    endpoint
}

/// Denies all egress, so that only traffic from the outside to pod `b` is listed.
fn closed_egress() -> Policy {
    egress(policy("n/zz", "", vec![]))
}

#[test]
fn without_policy_everything_is_allowed_and_listed_once() {
    let state = state(vec![
        Object::Endpoint(pod("n/a", "", "")),
        Object::Endpoint(pod("n/b", "", "")),
    ]);
    lists(
        &state,
        &[
            "n/a (Pod) > n/b (Pod): all",
            "n/a (Pod) > outside 0.0.0.0/0: all",
            "n/a (Pod) > outside ::/0: all",
            "n/b (Pod) > n/a (Pod): all",
            "n/b (Pod) > outside 0.0.0.0/0: all",
            "n/b (Pod) > outside ::/0: all",
            "outside 0.0.0.0/0 > n/a (Pod): all",
            "outside 0.0.0.0/0 > n/b (Pod): all",
            "outside ::/0 > n/a (Pod): all",
            "outside ::/0 > n/b (Pod): all",
        ],
    );
}

#[test]
fn the_outside_is_exactly_what_no_workload_holds() {
    let net = Peer::net(net("10.0.0.0/30"), vec![net("10.0.0.3/32")]);
    let b = Object::Endpoint(pod("n/b", "10.0.0.1", "app=b"));
    let p = policy("n/p", "", vec![from(Allow, net)]);
    let open = state(vec![b, Object::Policy(p), Object::Policy(closed_egress())]);
    lists(
        &open,
        &[
            "outside 10.0.0.0/32 > n/b (Pod): all",
            "outside 10.0.0.2/32 > n/b (Pod): all",
        ],
    );
}

#[test]
fn json_shapes() {
    let udp_53 = TrafficMatch {
        protocol: Some(Protocol::UDP),
        destination: PortMatch::one_of([PortSpec::Range(PortRange::single(53))]),
        source: PortMatch::one_of([PortSpec::Range(PortRange {
            first: 1024,
            last: 65535,
        })]),
        ..TrafficMatch::any()
    };
    let echo = TrafficMatch {
        icmp: Some(IcmpMatch {
            kind: 8,
            code: Some(0),
        }),
        protocol: Some(Protocol::ICMP),
        ..TrafficMatch::any()
    };
    let v6_sctp = TrafficMatch {
        family: Some(Family::V6),
        ..TrafficMatch::protocol(Protocol::SCTP)
    };
    let mut rule = from(Allow, Peer::from_selector(sel("app=a")));
    rule.traffic = vec![
        tcp(80),
        tcp(81),
        udp_53,
        echo,
        v6_sctp,
        TrafficMatch::protocol(Protocol(47)),
    ];
    let mut rules = two(vec![
        policy("n/p", "app=b", vec![rule]),
        policy("n/q", "app=a", vec![]),
    ]);
    for endpoint in rules.endpoints.values_mut() {
        endpoint.addresses.clear();
    }
    let listed = serde_json::to_value(reports(&connections(&rules))).unwrap_or(Value::Null);
    let listed = listed.as_array().cloned().unwrap_or_default();
    let pod = |name: &str| json!({"namespace": "n", "name": name, "kind": "Pod"});
    let common = |tail: Value| {
        let mut entries = vec![
            json!({"protocol": "TCP", "ports": [[80, 81]]}),
            json!({"protocol": "UDP", "ports": [[53, 53]], "sourcePorts": [[1024, 65535]]}),
        ];
        entries.extend(tail.as_array().cloned().unwrap_or_default());
        entries.push(json!({"protocol": "ICMP", "types": [[8, 8]], "codes": [[0, 0]]}));
        entries.push(json!({"protocol": 47}));
        json!(entries)
    };
    let between: Vec<&Value> = listed.iter().filter(|c| c["dst"] == pod("b")).collect();
    assert_eq!(
        between,
        [
            &json!({"src": pod("a"), "dst": pod("b"), "family": "IPv4", "connections": common(json!([]))}),
            &json!({"src": pod("a"), "dst": pod("b"), "family": "IPv6", "connections": common(json!([
                {"protocol": "SCTP", "ports": [[0, 65535]]}
            ]))}),
        ]
    );
    let out = json!({"src": pod("a"), "dst": {"cidr": "0.0.0.0/0"}, "connections": "All"});
    assert!(listed.contains(&out));
}

/// `Other` is every protocol that is not listed, so the named ones are listed even if empty.
#[test]
fn other_protocols() {
    let set = |rules: Vec<Rule>| {
        let p = policy("n/p", "app=b", rules);
        let b = Object::Endpoint(pod("n/b", "", "app=b"));
        let state = state(vec![b, Object::Policy(p), Object::Policy(closed_egress())]);
        let first = connections(&state).into_iter().next();
        serde_json::to_value(first.map(|c| c.report(false).connections)).unwrap_or(Value::Null)
    };
    let all = |name: &str| json!({"protocol": name, "ports": [[0, 65535]]});
    let no_tcp = on(Deny, TrafficMatch::protocol(Protocol::TCP));
    assert_eq!(
        set(vec![no_tcp, rule(Allow)]),
        json!([
            {"protocol": "TCP", "ports": []},
            all("UDP"),
            all("SCTP"),
            {"protocol": "ICMP", "types": [[0, 255]]},
            {"protocol": "ICMPv6", "types": [[0, 255]]},
            {"protocol": "Other"},
        ])
    );
    let but_gre = set(vec![
        on(Deny, TrafficMatch::protocol(Protocol(47))),
        rule(Allow),
    ]);
    let numbers: Vec<u64> = but_gre
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|e| e["protocol"].as_u64())
        .collect();
    assert_eq!(numbers.len(), 250);
    assert!(!numbers.contains(&47) && !numbers.contains(&6));
}

#[test]
fn pods_of_one_owner_are_one_workload_unless_they_differ() {
    let build = |policies: Vec<Policy>| {
        let mut objects = vec![
            Object::Endpoint(owned(
                pod("n/w-1", "10.0.0.1", "app=w,pod=1"),
                "ReplicaSet",
                "w",
            )),
            Object::Endpoint(owned(
                pod("n/w-2", "10.0.0.2", "app=w,pod=2"),
                "ReplicaSet",
                "w",
            )),
            Object::Endpoint(owned(pod("n/m", "10.0.0.3", "app=m"), "Node", "node-1")),
        ];
        objects.extend(policies.into_iter().map(Object::Policy));
        state(objects)
    };
    let no_outside = |mut state: State| {
        let inside = Peer::from_selector(sel(""));
        let only_pods = |d: fn(Policy) -> Policy, name: &str| {
            d(policy(name, "", vec![from(Allow, inside.clone())]))
        };
        state.apply(Update::Upsert(Object::Policy(in_tier(
            "kube-admin",
            policy("n/0", "pod=9", vec![]),
        ))));
        for p in [only_pods(|p| p, "n/in"), only_pods(egress, "n/out")] {
            state.apply(Update::Upsert(Object::Policy(p)));
        }
        state
    };
    let merged = [
        "n/m (Pod) > n/w (ReplicaSet): all",
        "n/w (ReplicaSet) > n/m (Pod): all",
    ];
    lists(&no_outside(build(vec![])), &merged);
    // A policy that distinguishes pods without effect does not split their workload.
    let idle = in_tier("kube-admin", policy("n/idle", "pod=1", vec![]));
    lists(&no_outside(build(vec![idle])), &merged);
    let refuse = in_tier(
        "kube-admin",
        policy("n/r", "pod=1", vec![on(Deny, tcp(22))]),
    );
    let without_22 = "TCP 0-21,23-65535; UDP; SCTP; ICMP; ICMPv6; every other protocol";
    lists(
        &no_outside(build(vec![refuse])),
        &[
            "n/m (Pod) > n/w-1 (Pod): ".to_owned() + without_22,
            "n/m (Pod) > n/w-2 (Pod): all".to_owned(),
            "n/w-1 (Pod) > n/m (Pod): all".to_owned(),
            "n/w-1 (Pod) > n/w-2 (Pod): all".to_owned(),
            "n/w-2 (Pod) > n/m (Pod): all".to_owned(),
            "n/w-2 (Pod) > n/w-1 (Pod): ".to_owned() + without_22,
        ]
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>(),
    );
}

#[test]
fn templates_are_listed_unless_their_pods_or_their_maker_are() {
    let names = |objects: Vec<Endpoint>| {
        let state = state(objects.into_iter().map(Object::Endpoint).collect());
        let mut names: Vec<String> = connections(&state)
            .iter()
            .map(|c| c.src.to_string())
            .collect();
        names.retain(|name| !name.starts_with("outside"));
        names.dedup();
        names
    };
    let deployment = || template("Deployment", "n/web", "app=web");
    let set = || {
        owned(
            template("ReplicaSet", "n/web-7d9f", "app=web"),
            "Deployment",
            "web",
        )
    };
    let hashed = "app=web,pod-template-hash=7d9f";
    let web_pod = || owned(pod("n/web-7d9f-x", "", hashed), "ReplicaSet", "web-7d9f");
    let foreign = || owned(pod("n/other-x", "", "app=web"), "ReplicaSet", "web-other");
    let job_pod = || owned(pod("n/tick-12-x", "", ""), "Job", "tick-12");
    let cases: Vec<(Vec<Endpoint>, &[&str])> = vec![
        (vec![deployment()], &["n/web (Deployment)"]),
        (vec![deployment(), set()], &["n/web (Deployment)"]),
        (
            vec![deployment(), set(), web_pod()],
            &["n/web-7d9f (ReplicaSet)"],
        ),
        (vec![set(), web_pod()], &["n/web-7d9f (ReplicaSet)"]),
        (vec![web_pod()], &["n/web-7d9f (ReplicaSet)"]),
        (vec![deployment(), web_pod()], &["n/web-7d9f (ReplicaSet)"]),
        (
            vec![deployment(), foreign()],
            &["n/web (Deployment)", "n/web-other (ReplicaSet)"],
        ),
        (
            vec![template("CronJob", "n/tick", ""), job_pod()],
            &["n/tick-12 (Job)"],
        ),
        // Argo Rollouts and OpenShift name what they create in the same way.
        (
            vec![
                template("Rollout", "n/web", ""),
                owned(
                    pod("n/web-7d9f-x", "", "rollouts-pod-template-hash=7d9f"),
                    "ReplicaSet",
                    "web-7d9f",
                ),
            ],
            &["n/web-7d9f (ReplicaSet)"],
        ),
        (
            vec![
                template("DeploymentConfig", "n/web", ""),
                owned(pod("n/web-3-x", "", ""), "ReplicationController", "web-3"),
            ],
            &["n/web-3 (ReplicationController)"],
        ),
    ];
    for (objects, expected) in cases {
        assert_eq!(names(objects), expected);
    }
}

/// Where a policy treats two addresses of one pod differently, each is listed separately.
#[test]
fn addresses_of_one_pod_that_differ_are_listed_apart() {
    let by_net = policy(
        "n/p",
        "app=a",
        vec![from(Allow, Peer::net(net("10.0.0.0/24"), vec![]))],
    );
    let state = state(vec![
        Object::Endpoint(pod("n/a", "192.0.2.1", "app=a")),
        Object::Endpoint(pod("n/b", "10.0.0.1 10.9.0.1", "app=b")),
        Object::Policy(by_net),
        Object::Policy(egress(policy(
            "n/e",
            "app=b",
            vec![from(Allow, Peer::from_selector(sel("app=a")))],
        ))),
        Object::Policy(policy("n/i", "app=b", vec![])),
        Object::Policy(egress(policy("n/o", "app=a", vec![]))),
    ]);
    let listed: Vec<String> = connections(&state).iter().map(shown).collect();
    let inside: Vec<&String> = listed
        .iter()
        .filter(|line| !line.contains("outside"))
        .collect();
    assert_eq!(inside, ["n/b (Pod at 10.0.0.1) > n/a (Pod): all"]);
}

#[test]
fn host_endpoints_are_outside_and_judge_at_their_interface_only() {
    let mut host = pod("node-eth0", "192.0.2.7", "");
    host.kind = EndpointKind::HostInterface;
    host.profiles = vec![];
    let b = pod("n/b", "10.0.0.1", "app=b");
    let ingress = policy("n/i", "app=b", vec![]);
    let egress = egress(policy(
        "n/e",
        "app=b",
        vec![from(Allow, Peer::net(net("192.0.2.6/31"), vec![]))],
    ));
    let objects = vec![
        Object::Endpoint(host),
        Object::Endpoint(b),
        Object::Policy(ingress),
        Object::Policy(egress),
    ];
    lists(&state(objects), &["n/b (Pod) > outside 192.0.2.6/31: all"]);
}

/// In grouped output the outside is one row, and workload addresses inside it make no holes.
#[test]
fn summaries_are_short() {
    let state = two(vec![policy(
        "n/p",
        "app=b",
        vec![from(Allow, Peer::net(net("10.0.0.0/24"), vec![]))],
    )]);
    let rows = rows(&state);
    assert_eq!(
        rows,
        [
            "n/a (Pod) > n/b (Pod) IPv4: all",
            "n/b (Pod) > n/a (Pod): all",
            "n/a (Pod) > outside: all",
            "n/b (Pod) > outside: all",
            "outside > n/a (Pod): all",
            "outside 10.0.0.0/24 > n/b (Pod): all",
        ]
    );
    assert!(connections(&state).len() > 100);
}

/// The grouped rows of a state.
fn rows(state: &State) -> Vec<String> {
    let rows = grouped_connections(state, &ConnectionFilter::default()).unwrap_or_default();
    rows.iter().map(shown).collect()
}

#[test]
fn summaries_name_exceptions() {
    let nets = |all: &str, except: &str| Peer::net(net(all), vec![net(except)]);
    let mut rule = from(Allow, nets("0.0.0.0/0", "10.244.0.0/16"));
    rule.peers.push(nets("fd00::/8", "fd12::/32"));
    let b = Object::Endpoint(pod("n/b", "", "app=b"));
    let p = Object::Policy(policy("n/p", "app=b", vec![rule]));
    let state = state(vec![b, p, Object::Policy(closed_egress())]);
    assert_eq!(
        rows(&state),
        ["outside 0.0.0.0/0 except 10.244.0.0/16, fd00::/8 except fd12::/32 > n/b (Pod): all"]
    );
}
