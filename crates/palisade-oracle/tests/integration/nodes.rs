//! Policies of nodes: whom they select, which host endpoint judges, and what is judged.

use crate::build::*;
use Action::{Allow, Deny};
use palisade_model::*;
use palisade_oracle::{HostPath, OracleOptions, PreparedState, Question};

const HOST: &str = "192.0.2.1";

fn node(labelled: &str) -> Object {
    Object::Node(Node {
        name: "node".into(),
        labels: labels(labelled),
        addresses: vec![ip(HOST)],
        internal_addresses: Vec::new(),
        pod_networks: Vec::new(),
        audit: false,
    })
}

/// The endpoint that an object describes, at an interface of the node.
fn host_endpoint(name: &str, interface: &str) -> Object {
    let mut endpoint = Endpoint::of_node("node".into(), false);
    endpoint.id = id("HostEndpoint", name);
    endpoint.kind = EndpointKind::HostInterface;
    endpoint.labels = labels("role=host");
    endpoint.interface = Some(interface.into());
    endpoint.profiles.clear();
    Object::Endpoint(endpoint)
}

/// A policy with these rules of ingress that selects nodes.
fn of_nodes(name: &str, test: Selector, rules: Vec<Rule>) -> Object {
    let mut policy = policy(name, "app=none", rules);
    policy.subject = Selector::and([Policy::node_subject(), test]);
    assert!(policy.selects_nodes());
    Object::Policy(policy)
}

/// The node, labelled `pool=infra`, with its endpoint, and these objects.
fn world(objects: Vec<Object>) -> State {
    let mut all = vec![
        node("pool=infra"),
        Object::Endpoint(Endpoint::of_node("node".into(), false)),
    ];
    all.extend(objects);
    state(all)
}

fn question(text: &str, path: (Option<&str>, Option<&str>, bool)) -> Question {
    let (input, output, is_forwarded) = path;
    Question {
        path: HostPath {
            input: input.map(Into::into),
            output: output.map(Into::into),
            is_forwarded,
            pre_dnat: None,
        },
        ..ask(text)
    }
}

/// Whether the host lets TCP in by an interface.
fn lets_in(state: &State, interface: &str, port: u16) -> bool {
    let text = format!("203.0.113.7>{HOST} TCP:{port}");
    let question = question(&text, (Some(interface), None, false));
    let prepared = PreparedState::new(state);
    prepared.host_allows(&question, Direction::Ingress, &OracleOptions::default())
}

#[test]
fn a_node_is_selected_by_the_labels_of_its_node() {
    let closed = |test| !lets_in(&world(vec![of_nodes("p", test, vec![])]), "eth0", 80);
    assert!(closed(Selector::all()));
    assert!(closed(Selector::equals(LabelKey::node("pool"), "infra")));
    assert!(!closed(Selector::equals(LabelKey::node("pool"), "work")));
    assert!(closed(Selector::negate(Selector::has(LabelKey::node(
        "zone"
    )))));
    assert!(
        !closed(Selector::has(LabelKey::own("pool"))),
        "of the endpoint itself"
    );
    let any = || of_nodes("p", Selector::all(), vec![]);
    // Failsafe ports are open, and loopback is never judged.
    assert!(lets_in(&world(vec![any()]), "eth0", 22));
    assert!(lets_in(&world(vec![any()]), "lo", 80));
    // Without the node there is nothing to select, not even another endpoint of it.
    let unknown = state(vec![
        Object::Endpoint(Endpoint::of_node("node".into(), false)),
        any(),
    ]);
    assert!(lets_in(&unknown, "eth0", 80));
    let mut open = world(vec![any()]);
    open.endpoints.clear();
    assert!(lets_in(&open, "eth0", 80), "no endpoint");
}

#[test]
fn no_other_selector_selects_a_node_and_no_policy_of_nodes_a_pod() {
    let kinds = |kinds: [&str; 2]| {
        let kinds = kinds.into_iter().map(Into::into);
        Selector::is_in(LabelKey::reserved(reserved::KIND), kinds)
    };
    let mut other = policy("q", "app=none", vec![rule(Deny)]);
    other.subject = kinds([reserved::KIND_WORKLOAD, reserved::KIND_HOST]);
    assert!(!other.selects_nodes());
    assert!(lets_in(
        &world(vec![Object::Policy(other.clone())]),
        "eth0",
        80
    ));
    let governed = vec![host_endpoint("h", "eth0"), Object::Policy(other)];
    assert!(!lets_in(&world(governed), "eth0", 80));
    let mut pods = two(vec![]);
    for object in world(vec![of_nodes("p", Selector::all(), vec![])]).objects() {
        pods.apply(Update::Upsert(object));
    }
    says(&pods, &[("203.0.113.7>10.0.0.1 TCP:80", "++")]);
}

#[test]
fn another_host_endpoint_governs_first_and_is_selected_as_well() {
    for interface in ["*", "eth0"] {
        // By name it would come last.
        let host = || host_endpoint("zzz", interface);
        assert!(!lets_in(&world(vec![host()]), "eth0", 80), "{interface}");
        let allow = || of_nodes("p", Selector::all(), vec![on(Allow, tcp(80))]);
        let both = world(vec![host(), allow()]);
        assert!(lets_in(&both, "eth0", 80) && !lets_in(&both, "eth0", 81));
        let open = of_nodes(
            "p",
            Selector::equals(LabelKey::node("pool"), "work"),
            vec![],
        );
        assert!(!lets_in(&world(vec![host(), open]), "eth0", 80));
    }
}

#[test]
fn what_the_host_forwards_is_not_judged() {
    let deny = of_nodes("p", Selector::all(), vec![rule(Deny)]);
    let state = world(vec![deny]);
    let prepared = PreparedState::new(&state);
    let path = (Some("eth0"), Some("eth1"), true);
    let question = question("203.0.113.7>198.51.100.1 TCP:80", path);
    for direction in Direction::BOTH {
        assert!(prepared.host_allows(&question, direction, &OracleOptions::default()));
    }
}
