//! Cilium's policies of nodes with an agent and real packets: what the host itself sends and has.

use crate::agent;
use crate::agent::site::{OTHER, Site};
use palisade_testkit::need_root;
use std::net::IpAddr;

const API: usize = 1;

fn policy(spec: &str) -> String {
    format!(
        "{{apiVersion: cilium.io/v2, kind: CiliumClusterwideNetworkPolicy, metadata: {{name: nodes}}, spec: {spec}}}\n"
    )
}

fn node(name: &str, role: &str, addresses: [IpAddr; 2]) -> String {
    let [v4, v6] = addresses;
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{role: {role}}}}}, status: {{addresses: [\
         {{type: InternalIP, address: '{v4}'}}, {{type: InternalIP, address: '{v6}'}}]}}}}\n"
    )
}

/// What the status says of the node.
fn told_of_node(site: &Site) -> String {
    let text = String::from_utf8(site.shop.agent.run(&["status"]).stdout).unwrap();
    let line = text.lines().find(|line| line.contains("Node n1: "));
    line.map(|line| line.split("Node n1: ").last().unwrap().to_owned())
        .unwrap_or_default()
}

#[test]
fn a_node_that_a_policy_selects_is_closed_but_for_what_the_policy_allows() {
    if !need_root() {
        return;
    }
    let site = Site::open("nodes");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    let [v4, v6] = site.addresses(outside);
    let edge = format!(
        "{{nodeSelector: {{matchLabels: {{role: edge}}}}, ingress: [\
         {{fromCIDR: [{v4}/32, '{v6}/128'], toPorts: [{{ports: [{{port: '8080', protocol: TCP}}]}}]}}, \
         {{fromEntities: [remote-node], toPorts: [{{ports: [{{port: '10250', protocol: TCP}}]}}]}}]}}"
    );
    // Without its Node the host is open, and the status says so.
    agent.apply("policy.yaml", &policy(&edge));
    assert!(site.tcp(outside, host, 8081) && !site.has_host_chains());
    assert_eq!(
        told_of_node(&site),
        "not enforced: there is no such Node, so no policy of nodes selects this host"
    );
    // A node that no policy selects pays nothing.
    let of_host = site.addresses(host);
    agent.apply("node.yaml", &node("n1", "inner", of_host));
    assert!(site.tcp(outside, host, 8081) && !site.has_host_chains());
    // Its labels change.
    agent.apply("node.yaml", &node("n1", "edge", of_host));
    assert!(site.has_host_chains());
    assert_eq!(told_of_node(&site), "every other interface");
    let name = "ciliumclusterwidenetworkpolicy/nodes";
    let policy_told = agent.json(&["policy", "get", name]);
    assert_eq!(policy_told["selects"][0], "Node n1", "{policy_told:#}");
    assert_eq!(policy_told["endpoints"], 1, "{policy_told:#}");
    assert!(site.tcp(outside, host, 8080) && !site.tcp(outside, host, 8081));
    assert!(!site.udp(outside, host, 8080) && !site.echo(outside, host));
    assert!(site.tcp(outside, host, 22), "failsafe");
    assert!(!site.tcp(other, host, 8080) && !site.tcp(other, host, 10250));
    assert!(
        site.tcp(host, outside, 8081) && site.echo(host, outside),
        "no rule for egress"
    );
    let explain = |port: &str| {
        let from = OTHER[0];
        agent.json(&["explain", "--from", from, "--to", "host:n1", "--port", port])
    };
    let explained = explain("10250");
    assert_eq!(explained["verdict"], "Deny", "{explained:#}");
    let at = &explained["hosts"][0];
    assert_eq!(at["interface"], "*", "{explained:#}");
    assert_eq!(at["decidedBy"]["type"], "TierDefault", "{explained:#}");
    // Another node is known by its addresses.
    agent.apply(
        "other.yaml",
        &node("n2", "inner", OTHER.map(|of| of.parse().unwrap())),
    );
    assert!(site.tcp(other, host, 10250) && !site.tcp(other, host, 8080));
    assert_eq!(explain("10250")["verdict"], "Allow");
    // Nothing that is forwarded is judged, and no interface of a workload.
    assert!(site.tcp(outside, other, 8081) && site.tcp(other, outside, 8081));
    assert!(site.tcp_to_pod(outside, API, 8081));
    let pod = site.shop.pods[API];
    assert!(site.tcp(pod, outside, 8081) && site.tcp(pod, host, 8081));

    // A new agent finds what it wants.
    let before = agent::nft(&site.shop.lab, "list table inet palisade");
    let mut site = site;
    site.shop.agent.terminate();
    site.shop.agent.start(&site.shop.lab);
    let after = agent::nft(&site.shop.lab, "list table inet palisade");
    assert_eq!(after, before);
    let agent = &site.shop.agent;
    agent.apply("node.yaml", &node("n1", "inner", of_host));
    assert!(site.tcp(outside, host, 8081) && !site.has_host_chains());
    agent.apply("node.yaml", &node("n1", "edge", of_host));
    assert!(!site.tcp(outside, host, 8081));
    agent.delete("policy.yaml");
    assert!(site.tcp(outside, host, 8081) && !site.has_host_chains());
    assert_eq!(told_of_node(&site), "");
}

#[test]
fn beside_a_host_endpoint_of_calico_and_in_audit() {
    if !need_root() {
        return;
    }
    let site = Site::open("nodes-calico");
    let (host, outside, other) = (site.host(), site.outside(), site.other);
    let agent = &site.shop.agent;
    let spec = "{nodeSelector: {}, ingress: [{fromEntities: [world], \
        toPorts: [{ports: [{port: '8080', protocol: TCP}]}]}], egressDeny: [{toEntities: [world], \
        toPorts: [{ports: [{port: '9000', protocol: UDP}]}]}], enableDefaultDeny: {egress: false}}";
    agent.apply("policy.yaml", &policy(spec));
    agent.apply("node.yaml", &node("n1", "edge", site.addresses(host)));
    for from in [outside, other] {
        assert!(site.tcp(from, host, 8080) && !site.tcp(from, host, 8081));
        assert!(site.udp(host, from, 9001) && !site.udp(host, from, 9000));
    }
    // The endpoint governs its interface: what no policy allows is denied there, on egress as well.
    let endpoint = "{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: uplink}, \
        spec: {node: n1, interfaceName: out0}}\n";
    agent.apply("host.yaml", endpoint);
    assert!(site.tcp(outside, host, 8080) && !site.tcp(outside, host, 8081));
    assert!(!site.udp(host, outside, 9001) && !site.udp(host, outside, 9000));
    assert!(site.udp(host, other, 9001) && !site.udp(host, other, 9000));
    assert!(site.tcp(other, host, 8080) && !site.tcp(other, host, 8081));
    // A policy of Calico selects the endpoint, and not the node.
    let calico = "{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: c}, \
        spec: {order: 10, types: [Ingress, Egress], selector: all(), ingress: [{action: Deny, protocol: TCP, \
        destination: {ports: [8080]}}], egress: [{action: Allow}]}}\n";
    agent.apply("calico.yaml", calico);
    assert!(!site.tcp(outside, host, 8080) && site.tcp(other, host, 8080));
    assert!(site.udp(host, outside, 9001), "allowed by it");
    assert!(
        !site.udp(host, outside, 9000),
        "what Cilium denies comes first"
    );
    assert!(
        site.tcp(outside, other, 8080),
        "nothing is for what is forwarded"
    );
    agent.delete("calico.yaml");
    agent.delete("host.yaml");

    // In audit by the annotation of the Node, nothing is denied.
    let audited = node("n1", "edge", site.addresses(host)).replace(
        "labels:",
        "annotations: {palisade.dev/mode: audit}, labels:",
    );
    agent.apply("node.yaml", &audited);
    assert!(site.tcp(outside, host, 8081) && site.udp(host, outside, 9000));
    let reported = agent.audited_packets(2);
    assert_eq!(reported[0]["endpoint"], "host:n1", "{:#}", reported[0]);
    agent.apply("node.yaml", &node("n1", "edge", site.addresses(host)));
    assert!(!site.tcp(outside, host, 8081));
    let site = Site::with("nodes-audit", &["--host-policy-audit"]);
    let (host, outside) = (site.host(), site.outside());
    let agent = &site.shop.agent;
    agent.apply("policy.yaml", &policy(spec));
    agent.apply("node.yaml", &node("n1", "edge", site.addresses(host)));
    assert!(site.has_host_chains() && site.tcp(outside, host, 8081));
}
