//! The networks of nodes' pods are owners of their own: what is outside of them takes no entry for each pod.

use palisade_engine::{Engine, EngineOptions};
use palisade_model::{
    Action, DirectionRules, Endpoint, LabelKey, Labels, Node, Object, ObjectId, ObjectKind, Order,
    Peer, Policy, PolicyId, PolicyMode, Precedence, Prefix, Rule, RuleOrigin, Selector,
    TrafficMatch, TrafficScope, Update, reserved,
};

fn pod(number: u8, is_local: bool) -> Object {
    let id = ObjectId {
        namespace: Some("shop".into()),
        name: format!("pod-{number}").into(),
        kind: ObjectKind::new("", "Pod"),
    };
    Object::Endpoint(Endpoint {
        node: Some("node-1".into()),
        interface: is_local.then(|| "pal0".into()),
        addresses: vec![[10, 0, 1, number].into()],
        ..Endpoint::pod(id)
    })
}

/// Allows what is no pod, node or network of pods; in one network as well if there is one.
fn outside_policy(nets: Option<Vec<Prefix>>) -> Object {
    let inside = [
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_NODE,
        reserved::KIND_POD_NETWORK,
    ];
    let kind = LabelKey::reserved(reserved::KIND);
    let peer = Peer {
        not_selector: Some(Selector::is_in(kind, inside.map(Into::into))),
        nets,
        ..Peer::any()
    };
    Object::Policy(Policy {
        scope: TrafficScope::Endpoints,
        observes_dns: false,
        id: PolicyId {
            object: ObjectId {
                namespace: None,
                name: "outside".into(),
                kind: ObjectKind::new("example.org", "Policy"),
            },
            part: 1,
        },
        tier: "default".into(),
        precedence: Precedence {
            order: Order::At(1000.0),
            rank: 1,
        },
        mode: PolicyMode::Enforce,
        subject: Selector::all(),
        ingress: None,
        egress: Some(DirectionRules {
            default_deny: true,
            rules: vec![Rule {
                origin: RuleOrigin {
                    index: 0,
                    name: None,
                    fingerprint: 1,
                    line: None,
                },
                action: Action::Allow,
                peers: vec![peer],
                local: None,
                traffic: vec![TrafficMatch::any()],
                dns_names: None,
            }],
        }),
        line: None,
    })
}

/// The number of entries of the address table with these pods.
fn entries(pods: u8, nets: Option<Vec<Prefix>>, has_network: bool) -> usize {
    let mut engine = Engine::new(EngineOptions::default());
    let node = Node {
        name: "node-1".into(),
        labels: Labels::new(),
        addresses: vec![[192, 168, 0, 1].into()],
        internal_addresses: Vec::new(),
        pod_networks: vec!["10.0.1.0/24".parse().unwrap()],
        audit: false,
    };
    let network = node.pod_network().filter(|_| has_network);
    let mut objects = vec![outside_policy(nets), pod(1, true), Object::Node(node)];
    objects.extend(network.map(Object::NetworkSet));
    objects.extend((2..=pods).map(|number| pod(number, false)));
    engine.apply(objects.into_iter().map(Update::Upsert));
    engine.tables().addresses.len()
}

#[test]
fn the_outside_takes_no_entry_for_a_pod_in_a_network_of_pods() {
    let around = Some(vec!["10.0.0.0/8".parse().unwrap()]);
    for nets in [None, around] {
        let few = entries(3, nets.clone(), true);
        assert_eq!(entries(200, nets.clone(), true), few, "{nets:?}");
        // Without the network each pod takes one.
        assert_eq!(
            entries(200, nets.clone(), false),
            entries(3, nets, false) + 197
        );
    }
}
