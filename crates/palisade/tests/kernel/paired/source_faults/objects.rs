//! The objects of the cluster, and their random changes: policies, labels, namespaces that come after their
//! pods, and addresses that change their holder.
//!
//! Whatever they are, client may send to server, and stranger may not: [`Objects::states`] asserts it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use palisade_generators::Dice;
use palisade_generators::naive::{self, NaiveFlow};
use serde_json::{Value, json};

/// The local workloads, all in namespace shop.
pub(crate) const LOCAL: [&str; 4] = ["client", "server", "stranger", "mob"];
pub(crate) const CLIENT: usize = 0;
pub(crate) const SERVER: usize = 1;
pub(crate) const STRANGER: usize = 2;
pub(crate) const MOB: usize = 3;
/// Addresses of pods of other nodes; the last belongs to the pod whose namespace has a label for each step.
pub(crate) const REMOTE: [&str; 4] = [
    "203.0.113.5",
    "203.0.113.130",
    "198.51.100.2",
    "198.51.100.3",
];
/// Port of the datagrams.
pub(crate) const PORT: u16 = 7001;
/// Port of the long connection.
pub(crate) const LONG: u16 = 8080;
/// The datagrams that the namespace marks may send in the present step.
pub(crate) const MARK: u16 = 7003;

/// The kinds of objects, in the order in which their number is their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespace,
    Node,
    Pod,
    Policy,
}

/// One object: its kind, its namespace (or nothing) and its name.
pub(crate) type Key = (Kind, &'static str, String);
/// A change of one object; none deletes it.
pub(crate) type Change = (Key, Option<Value>);

/// The address of a local workload, by family.
pub(crate) fn address(pod: usize, family: usize) -> IpAddr {
    let text = match family {
        0 => format!("10.77.0.{}", pod + 1),
        _ => format!("fd77::{}", pod + 1),
    };
    text.parse().unwrap()
}

/// All objects of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(pub(crate) BTreeMap<Key, Value>);

fn key(kind: Kind, namespace: &'static str, name: impl Into<String>) -> Key {
    (kind, namespace, name.into())
}

fn timestamp(age: u64) -> String {
    format!(
        "20{:02}-11-0{}T10:00:{:02}Z",
        20 + age / 540 % 20,
        1 + age / 60 % 9,
        age % 60
    )
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "uid": format!("ns-{name}"), "labels": labels}})
}

fn pod(namespace: &str, name: &str, labels: &Value, addresses: &[String], age: u64) -> Value {
    let ips: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let node = if namespace == "shop" { "n1" } else { "n2" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}-{age}"),
            "labels": labels, "creationTimestamp": timestamp(age)},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}]},
        "status": {"phase": "Running", "podIP": addresses[0], "podIPs": ips},
    })
}

/// A local pod; its label `step` tells which of its versions the agent has.
fn local_pod(pod_: usize, mood: usize, step: u64) -> Value {
    let labels =
        json!({"app": LOCAL[pod_], "mood": format!("m{mood}"), "step": format!("s{step}")});
    let own = [0, 1].map(|family| address(pod_, family).to_string());
    pod("shop", LOCAL[pod_], &labels, &own, 0)
}

fn policy(namespace: &str, name: &str, selector: &Value, rest: &Value) -> Value {
    let mut spec = json!({"podSelector": selector});
    for (field, value) in rest.as_object().unwrap() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")},
        "spec": spec,
    })
}

/// The policy that keeps server open to client and closed to stranger, in one of its spellings.
fn keep(dice: &mut Dice) -> Value {
    let datagrams = [
        json!({"port": PORT, "protocol": "UDP"}),
        json!({"port": PORT - 1, "endPort": PORT + 40, "protocol": "UDP"}),
    ];
    let peers = [
        json!({"podSelector": {"matchLabels": {"app": "client"}}}),
        json!({"podSelector": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["client", "nobody"]}]}}),
        json!({"ipBlock": {"cidr": "10.77.0.1/32"}}),
    ];
    // Both families have to be allowed, so the block is never alone.
    let first = peers[dice.below(2)].clone();
    let mut from = vec![first];
    if dice.chance(40) {
        from.push(peers[2].clone());
    }
    dice.shuffle(&mut from);
    let ports = json!([dice.pick(&datagrams), {"port": LONG}]);
    let mut rules = vec![json!({"from": from, "ports": ports})];
    if dice.chance(50) {
        rules.push(json!({"from": [{"podSelector": {"matchLabels": {"app": "nobody"}}}]}));
    }
    dice.shuffle(&mut rules);
    policy(
        "shop",
        "keep",
        &json!({"matchLabels": {"app": "server"}}),
        &json!({"policyTypes": ["Ingress"], "ingress": rules}),
    )
}

fn ports(dice: &mut Dice) -> Value {
    let all = [
        json!([{"port": PORT, "protocol": "UDP"}]),
        json!([{"port": PORT - 1, "endPort": PORT + 20, "protocol": "UDP"}, {"port": 80}]),
        json!([{"port": PORT}, {"port": 9, "protocol": "UDP"}]),
        json!([]),
    ];
    dice.pick(&all).clone()
}

/// A peer that is never stranger.
fn peer(dice: &mut Dice) -> Value {
    let mood = format!("m{}", dice.below(3));
    let team = *dice.pick(&["blue", "green"]);
    let all = [
        json!({"podSelector": {"matchLabels": {"mood": mood, "app": "mob"}}}),
        json!({"podSelector": {"matchExpressions": [
            {"key": "app", "operator": "NotIn", "values": ["stranger"]},
            {"key": "mood", "operator": "In", "values": [mood]}]}}),
        json!({"namespaceSelector": {"matchLabels": {"team": team}}}),
        json!({"namespaceSelector": {"matchLabels": {"team": team}},
            "podSelector": {"matchLabels": {"mood": mood}}}),
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "late"}}}),
        json!({"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"]}}),
        json!({"ipBlock": {"cidr": "198.51.100.0/24"}}),
    ];
    dice.pick(&all).clone()
}

/// A policy of mob or server that lets others in, or of mob that lets it out.
fn random_policy(dice: &mut Dice, name: &str) -> Value {
    let mut rules = |direction: &str| -> Value {
        let mut rule = || {
            let mut rule = json!({direction: [peer(dice)]});
            let ports = ports(dice);
            if ports != json!([]) {
                rule["ports"] = ports;
            }
            rule
        };
        json!([rule(), rule()])
    };
    let (ingress, egress) = (rules("from"), rules("to"));
    let (who, spec) = match dice.below(4) {
        0 => (
            "server",
            json!({"policyTypes": ["Ingress"], "ingress": ingress}),
        ),
        1 => ("mob", json!({"policyTypes": ["Egress"], "egress": egress})),
        2 => ("mob", json!({"policyTypes": ["Ingress"], "ingress": []})),
        _ => (
            "mob",
            json!({"policyTypes": ["Ingress"], "ingress": ingress}),
        ),
    };
    policy("shop", name, &json!({"matchLabels": {"app": who}}), &spec)
}

/// Client may send to server, and to what else this says.
fn client_egress(dice: &mut Dice) -> Value {
    let rules = json!([
        {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}]},
        {"to": [peer(dice)], "ports": [{"port": PORT, "protocol": "UDP"}]},
    ]);
    policy(
        "shop",
        "client-out",
        &json!({"matchLabels": {"app": "client"}}),
        &json!({"policyTypes": ["Egress"], "egress": rules}),
    )
}

impl Objects {
    /// What the server has before the first step.
    pub(crate) fn first(dice: &mut Dice) -> Self {
        let mut objects = Objects::default();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n1"},
            "spec": {"podCIDR": "10.92.0.0/24", "podCIDRs": ["10.92.0.0/24", "fd92::/64"]}});
        objects.0.insert(key(Kind::Node, "", "n1"), node);
        for (name, labels) in [
            ("shop", json!({})),
            ("far", json!({"team": "blue"})),
            ("marks", json!({"step": "s0"})),
        ] {
            objects
                .0
                .insert(key(Kind::Namespace, "", name), namespace(name, labels));
        }
        for (at, name) in LOCAL.into_iter().enumerate() {
            objects
                .0
                .insert(key(Kind::Pod, "shop", name), local_pod(at, at % 3, 0));
        }
        for (ns, name, ip) in [("far", "x0", REMOTE[0]), ("marks", "m", REMOTE[3])] {
            let labels = json!({"app": "remote", "mood": "m1"});
            let value = pod(ns, name, &labels, &[ip.to_owned()], 1);
            objects.0.insert(key(Kind::Pod, ns, name), value);
        }
        objects
            .0
            .insert(key(Kind::Policy, "shop", "keep"), keep(dice));
        objects.apply(&Objects::marks(0));
        objects
    }

    /// What tells that everything before it was received, one for each resource: a label of a pod, the name of a
    /// policy, and the port on which a namespace may send to client.
    pub(crate) fn marks(step: u64) -> Vec<Change> {
        let rules = json!([
            {"from": [{"namespaceSelector": {"matchLabels": {"step": "s0"}}}],
             "ports": [{"port": MARK - 1, "protocol": "UDP"}]},
            {"from": [{"namespaceSelector": {"matchLabels": {"step": "s1"}}}],
             "ports": [{"port": MARK, "protocol": "UDP"}]},
        ]);
        let client = json!({"matchLabels": {"app": "client"}});
        let nobody = json!({"matchLabels": {"app": "nobody"}});
        let ingress = json!({"policyTypes": ["Ingress"], "ingress": rules});
        let mut marks = vec![
            (
                key(Kind::Pod, "shop", "server"),
                Some(local_pod(SERVER, 1, step)),
            ),
            (
                key(Kind::Namespace, "", "marks"),
                Some(namespace(
                    "marks",
                    json!({"step": format!("s{}", step % 2)}),
                )),
            ),
        ];
        let version = |step: u64| key(Kind::Policy, "shop", format!("version-{step}"));
        if step == 0 {
            marks.push((
                key(Kind::Policy, "shop", "marks"),
                Some(policy("shop", "marks", &client, &ingress)),
            ));
        } else {
            marks.push((version(step - 1), None));
        }
        let name = version(step);
        let value = policy("shop", &name.2, &nobody, &json!({"ingress": []}));
        marks.push((name, Some(value)));
        marks
    }

    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for (key, value) in changes {
            match value {
                Some(value) => self.0.insert(key.clone(), value.clone()),
                None => self.0.remove(key),
            };
        }
    }

    /// Random changes of a step, in the order in which they happen.
    pub(crate) fn random_changes(&self, dice: &mut Dice, step: u64) -> Vec<Change> {
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..dice.between(1, 3) {
            let more = self.random_change(dice, step);
            // Each object once in a step.
            if more
                .iter()
                .all(|(key, _)| changes.iter().all(|(other, _)| other != key))
            {
                changes.extend(more);
            }
        }
        changes
    }

    fn random_change(&self, dice: &mut Dice, step: u64) -> Vec<Change> {
        let name = format!("r{}", dice.below(3));
        let own = key(Kind::Policy, "shop", &*name);
        match dice.below(9) {
            0..=2 => vec![(own, Some(random_policy(dice, &name)))],
            3 => vec![(own, None)],
            4 => vec![(key(Kind::Policy, "shop", "keep"), Some(keep(dice)))],
            5 => {
                let at = *dice.pick(&[CLIENT, STRANGER, MOB]);
                let value = local_pod(at, dice.below(3), step);
                vec![(key(Kind::Pod, "shop", LOCAL[at]), Some(value))]
            }
            6 => {
                let out = key(Kind::Policy, "shop", "client-out");
                let value = (!self.0.contains_key(&out)).then(|| client_egress(dice));
                let team = *dice.pick(&["blue", "green"]);
                let far = namespace("far", json!({"team": team}));
                vec![(out, value), (key(Kind::Namespace, "", "far"), Some(far))]
            }
            7 => self.late(dice, step),
            _ => self.moved(dice, step),
        }
    }

    /// A namespace with a pod and a policy comes or goes, in any order.
    fn late(&self, dice: &mut Dice, step: u64) -> Vec<Change> {
        let whole = key(Kind::Namespace, "", "late");
        let is_there = self.0.contains_key(&whole);
        let labels = json!({"app": "remote", "mood": format!("m{}", dice.below(3))});
        let team = *dice.pick(&["blue", "green"]);
        let all = [
            (whole, namespace("late", json!({"team": team}))),
            (
                key(Kind::Pod, "late", "p"),
                pod("late", "p", &labels, &[REMOTE[1].to_owned()], step),
            ),
            (
                key(Kind::Policy, "late", "all"),
                policy("late", "all", &json!({}), &json!({"ingress": []})),
            ),
        ];
        let mut changes: Vec<Change> = all
            .into_iter()
            .map(|(key, value)| (key, (!is_there).then_some(value)))
            .collect();
        dice.shuffle(&mut changes);
        changes
    }

    /// An address of another node's pod gets a new holder, before the old one is gone or after it.
    fn moved(&self, dice: &mut Dice, step: u64) -> Vec<Change> {
        let old = self
            .0
            .keys()
            .find(|(kind, ns, _)| *kind == Kind::Pod && *ns == "far");
        let labels = json!({"app": "remote", "mood": format!("m{}", dice.below(3))});
        let name = format!("x{step}");
        let value = pod("far", &name, &labels, &[REMOTE[0].to_owned()], step);
        let mut changes: Vec<Change> = vec![(key(Kind::Pod, "far", name), Some(value))];
        changes.extend(old.map(|old| (old.clone(), None)));
        dice.shuffle(&mut changes);
        changes
    }

    /// Every state in which some of the changes were received and others not: resources are followed apart from
    /// each other, and a new list has what is there before what is gone.
    pub(crate) fn states(&self, changes: &[Change]) -> Vec<Vec<Value>> {
        let mut states = vec![self.clone()];
        for change in changes {
            let mut more = states.clone();
            for state in &mut more {
                state.apply(std::slice::from_ref(change));
            }
            states.extend(more);
        }
        let values = states
            .into_iter()
            .map(|state| state.0.into_values().collect());
        values.collect()
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        self.0.values().cloned().collect()
    }

    /// The number of objects that a source of these reports.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }
}

/// Whether a new flow is allowed on this host, by the naive reading: the other side of a pod of another node is
/// enforced there.
pub(crate) fn is_allowed(
    objects: &[Value],
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    port: u16,
) -> bool {
    let flow = NaiveFlow {
        source: from,
        destination: to,
        protocol,
        ports: Some((40_000, port)),
        icmp: None,
        path: Default::default(),
        query: Default::default(),
    };
    let is_remote = |ip: IpAddr| REMOTE.contains(&&*ip.to_string());
    let (egress, ingress) = naive::verdicts(objects, &flow);
    (egress || is_remote(from)) && (ingress || is_remote(to))
}
