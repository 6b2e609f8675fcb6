//! Which addresses the ends of rules match, worked out by hand in a cluster that has one of each kind.

use super::lowered::{CLUSTER, cluster, policy};
use crate::common;
use palisade_model::{Family, Peer, Prefix, Selector, State};
use std::net::IpAddr;

const ADDRESSES: [(&str, &str); 10] = [
    ("web", "10.0.0.1"),
    ("db", "10.0.0.2"),
    ("till", "10.0.1.1"),
    ("vm", "10.0.2.1"),
    ("partners", "192.0.2.7"),
    ("trusted", "198.51.100.7"),
    ("host", "203.0.113.1"),
    ("node", "203.0.113.9"),
    ("group", "203.0.113.70"),
    ("outside", "2001:db8::1"),
];

/// Whether one of the holders of an address matches.
fn holder_matches(state: &State, address: IpAddr, selector: &Selector) -> bool {
    let endpoints = state.endpoints.values().any(|endpoint| {
        endpoint.addresses.contains(&address) && selector.matches(&state.endpoint_labels(endpoint))
    });
    let sets = state.network_sets.values().any(|set| {
        set.nets.iter().any(|net| net.contains(address))
            && selector.matches(&state.network_set_labels(set))
    });
    let nodes = state.nodes.values().any(|node| {
        node.addresses.contains(&address) && selector.matches(&state.node_labels(node, None))
    });
    endpoints || sets || nodes
}

fn peer_matches(state: &State, peer: &Peer, address: IpAddr) -> bool {
    let is_in = |nets: &[Prefix]| nets.iter().any(|net| net.contains(address));
    let matches = |selector: &Selector| holder_matches(state, address, selector);
    peer.selector.as_ref().is_none_or(matches)
        && !peer.not_selector.as_ref().is_some_and(matches)
        && peer.nets.as_deref().is_none_or(is_in)
        && !is_in(&peer.not_nets)
}

/// The names of the addresses that a source matches, in a policy of this word.
fn sources(word: &str, source: &str) -> String {
    let state = cluster();
    let spec = format!("{{ingress: [{{action: Allow, source: {source}}}]}}");
    let policy = policy(word, &spec);
    let rule = &policy.ingress.as_ref().unwrap().rules[0];
    let [peer] = &rule.peers[..] else {
        panic!("{rule:?}");
    };
    let matched = ADDRESSES.iter().filter(|(_, address)| {
        let address: IpAddr = address.parse().unwrap();
        let is_of_family =
            |family: Option<Family>| family.is_none_or(|of| of == Family::of(address));
        let is_possible = rule.traffic.iter().any(|of| is_of_family(of.family));
        is_possible && peer_matches(&state, peer, address)
    });
    let names: Vec<&str> = matched.map(|(name, _)| *name).collect();
    names.join(" ")
}

const KNOWN_OF_SHOP: &str = "web db vm partners";
const ALL: &str = "web db till vm partners trusted host node group outside";

#[test]
fn peers_of_a_policy_of_a_namespace() {
    for (source, expected) in [
        ("{}", ALL),
        ("{selector: ''}", ALL),
        ("{serviceAccounts: {}}", ALL),
        // A selector without a namespace selector stays in the namespace, and matches what is known there.
        ("{selector: all()}", KNOWN_OF_SHOP),
        ("{selector: app == 'web'}", "web"),
        ("{selector: '!has(app)'}", "partners"),
        ("{selector: app != 'web'}", "db vm partners"),
        ("{selector: '!(app == \"web\")'}", "db vm partners"),
        ("{selector: \"app not in {'web', 'db'}\"}", "vm partners"),
        ("{selector: app contains 'e'}", "web"),
        ("{selector: app starts with 'd'}", "db"),
        ("{selector: app endswith 'm'}", "vm"),
        ("{selector: 'app in {}'}", ""),
        // So does `notSelector` alone: the others that are known in the namespace.
        ("{notSelector: app == 'web'}", "db vm partners"),
        ("{notSelector: '!has(app)'}", "web db vm"),
        ("{notSelector: all()}", ""),
        ("{selector: has(app), notSelector: app == 'db'}", "web vm"),
        // The namespaces.
        ("{namespaceSelector: all()}", "web db till vm partners"),
        ("{namespaceSelector: global()}", "trusted host"),
        (
            "{namespaceSelector: '!global()'}",
            "web db till vm partners",
        ),
        ("{namespaceSelector: '!all()'}", "trusted host"),
        ("{namespaceSelector: team == 'a'}", KNOWN_OF_SHOP),
        // A negative test holds for what has no namespace.
        ("{namespaceSelector: team != 'a'}", "till trusted host"),
        ("{namespaceSelector: '!has(team)'}", "trusted host"),
        ("{namespaceSelector: 'all() && team != \"a\"'}", "till"),
        (
            "{namespaceSelector: projectcalico.org/name == 'bank'}",
            "till",
        ),
        (
            "{namespaceSelector: kubernetes.io/metadata.name == 'bank'}",
            "till",
        ),
        (
            "{namespaceSelector: all(), selector: app == 'web'}",
            "web till",
        ),
        (
            "{namespaceSelector: global(), selector: has(kind)}",
            "trusted",
        ),
        (
            "{namespaceSelector: all(), notSelector: app == 'web'}",
            "db vm partners",
        ),
        (
            "{namespaceSelector: team == 'b', notSelector: app == 'web'}",
            "",
        ),
        // The service accounts.
        ("{serviceAccounts: {names: [front]}}", "web"),
        ("{serviceAccounts: {names: [front, default]}}", "web db"),
        ("{serviceAccounts: {selector: role == 'front'}}", "web"),
        (
            "{serviceAccounts: {selector: role != 'front'}}",
            "db vm partners",
        ),
        (
            "{serviceAccounts: {names: [default], selector: has(role)}}",
            "",
        ),
        (
            "{serviceAccounts: {names: [default]}, namespaceSelector: all()}",
            "db till",
        ),
        // Labels that Calico makes.
        (
            "{selector: projectcalico.org/serviceaccount == 'default'}",
            "db",
        ),
        (
            "{selector: projectcalico.org/orchestrator == 'k8s'}",
            "web db",
        ),
        (
            "{selector: projectcalico.org/orchestrator != 'k8s'}",
            "vm partners",
        ),
        (
            "{selector: has(projectcalico.org/orchestrator)}",
            "web db vm",
        ),
        (
            "{selector: \"projectcalico.org/orchestrator in {'k8s', 'openstack'}\"}",
            "web db vm",
        ),
        ("{selector: projectcalico.org/namespace == 'bank'}", ""),
        (
            "{selector: projectcalico.org/namespace == 'bank', namespaceSelector: all()}",
            "till",
        ),
        (
            "{selector: pcns.team == 'b', namespaceSelector: all()}",
            "till",
        ),
        (
            "{selector: pcns.projectcalico.org/name == 'shop'}",
            KNOWN_OF_SHOP,
        ),
        ("{selector: pcsa.role == 'front'}", "web"),
        ("{selector: pcsa.projectcalico.org/name == 'front'}", "web"),
        // Labels of profiles, where the endpoint has none of its own.
        ("{selector: zone == 'dmz'}", "vm"),
        ("{selector: app == 'other'}", ""),
        // Networks.
        ("{nets: [10.0.0.0/24]}", "web db"),
        ("{nets: [10.0.0.2]}", "db"),
        ("{nets: [10.0.0.0/24, '2001:db8::/32']}", "web db outside"),
        ("{nets: [10.0.0.0/8], selector: app == 'web'}", "web"),
        ("{nets: [10.0.0.0/8], notNets: [10.0.0.0/24]}", "till vm"),
        // Without a network of the other family, no packet of it matches.
        (
            "{notNets: [10.0.0.0/8]}",
            "partners trusted host node group",
        ),
        (
            "{notNets: [10.0.0.0/8, 'fd00::/8']}",
            "partners trusted host node group outside",
        ),
        (
            "{nets: [10.0.0.0/24, '2001:db8::/32'], notNets: [10.0.0.2]}",
            "web",
        ),
        // What excludes every address matches nothing, of either family.
        ("{notNets: [0.0.0.0/0]}", ""),
        ("{notNets: ['::/0']}", ""),
        ("{notNets: [0.0.0.0/0, '::/0']}", ""),
        ("{nets: [10.0.0.0/8], notNets: ['fd00::/8']}", ""),
    ] {
        assert_eq!(sources("policy", source), expected, "{source}");
    }
}

#[test]
fn peers_of_a_cluster_wide_policy() {
    const KNOWN: &str = "web db till vm partners trusted host";
    for (source, expected) in [
        ("{}", ALL),
        ("{serviceAccounts: {}}", ALL),
        ("{selector: all()}", KNOWN),
        ("{selector: app == 'web'}", "web till host"),
        ("{selector: '!has(app)'}", "partners trusted"),
        // `notSelector` alone matches what is nowhere known, and nodes, which Calico's selectors do not know.
        (
            "{notSelector: app == 'web'}",
            "db vm partners trusted node group outside",
        ),
        (
            "{notSelector: '!has(app)'}",
            "web db till vm host node group outside",
        ),
        ("{notSelector: all()}", "node group outside"),
        ("{notSelector: all(), nets: [203.0.113.0/24]}", "node group"),
        ("{namespaceSelector: all()}", "web db till vm partners"),
        ("{namespaceSelector: global()}", "trusted host"),
        (
            "{namespaceSelector: team == 'b', selector: app == 'web'}",
            "till",
        ),
        (
            "{namespaceSelector: all(), notSelector: app == 'web'}",
            "db vm partners",
        ),
        ("{serviceAccounts: {names: [default]}}", "db till"),
        (
            "{serviceAccounts: {selector: role == 'front'}, notSelector: all()}",
            "",
        ),
        ("{selector: projectcalico.org/namespace == 'bank'}", "till"),
        (
            "{selector: '!has(projectcalico.org/namespace)'}",
            "trusted host",
        ),
        ("{selector: pcns.team != 'a'}", "till trusted host"),
    ] {
        assert_eq!(sources("global", source), expected, "{source}");
    }
}

/// One holder must match whole: not one label of this, and another of that.
#[test]
fn several_holders_of_an_address() {
    let both = format!(
        "{CLUSTER}---\n{{apiVersion: projectcalico.org/v3, kind: GlobalNetworkSet, metadata: {{name: b, labels: {{kind: vip}}}}, spec: {{nets: [10.0.0.1]}}}}\n"
    );
    let state = common::lowering("f", &both).state();
    let address = "10.0.0.1".parse().unwrap();
    for (source, expected) in [
        ("{selector: app == 'web'}", true),
        ("{selector: kind == 'vip'}", true),
        ("{selector: app == 'web' && kind == 'vip'}", false),
        ("{selector: '!has(app)'}", true),
        ("{notSelector: '!has(app)'}", false),
        ("{namespaceSelector: global()}", true),
        ("{namespaceSelector: all()}", true),
        (
            "{namespaceSelector: global(), selector: app == 'web'}",
            false,
        ),
    ] {
        let spec = format!("{{ingress: [{{action: Allow, source: {source}}}]}}");
        let policy = policy("global", &spec);
        let peer = &policy.ingress.unwrap().rules[0].peers[0];
        assert_eq!(peer_matches(&state, peer, address), expected, "{source}");
    }
}
