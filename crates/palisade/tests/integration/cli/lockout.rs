//! `palisade diff` warns first where a change of host policy would lock people out of a host, or the host out of its
//! API server.

use super::{Ran, World, finish};
use serde_json::{Value, json};
use std::process::Command;

const BASE: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [198.51.100.7]}, {addresses: [192.0.2.1]}]
ports: [{name: https, port: 16443, protocol: TCP}]
"#;

/// A host endpoint of node-1, and a policy with these rules.
fn hosts(ingress: &str, egress: &str) -> String {
    format!(
        "{{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {{name: node-1, labels: {{role: node}}}}, \
         spec: {{node: node-1, interfaceName: eth0}}}}\n---\n\
         {{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {{name: node}}, spec: {{selector: \
         role == 'node', types: [Ingress, Egress], ingress: [{ingress}], egress: [{egress}]}}}}\n"
    )
}

/// The difference that these host policies make, by somebody whose session is described by this variable.
fn diff(hosts: &str, session: &str, more: &[&str]) -> Ran {
    let old = World::of(&[("base.yaml", BASE)]);
    let new = World::of(&[("base.yaml", BASE), ("hosts.yaml", hosts)]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command
        .args(["diff", "-f", old.path(), "-f", new.path()])
        .args(more)
        .env("SSH_CONNECTION", session);
    let mut ran = finish(command, "");
    ran.out = ran.out.replace(&format!("{}/", new.path()), "");
    ran
}

fn lockouts(hosts: &str, session: &str, more: &[&str]) -> Vec<Value> {
    let ran = diff(hosts, session, &[&["-o", "json"], more].concat());
    let told = ran.json();
    let found = told["lockouts"].as_array().unwrap().clone();
    let lists = [
        "hostsOpened",
        "hostsClosed",
        "forwardedOpened",
        "forwardedClosed",
    ];
    let changed = lists.map(|key| told[key].as_array().unwrap().len());
    let is_different = !found.is_empty() || changed != [0; 4];
    assert_eq!(ran.code, i32::from(is_different), "{ran:?}");
    found
}

const SESSION: &str = "203.0.113.5 50000 192.0.2.1 2222";

#[test]
fn a_first_host_policy_that_cuts_the_session_and_the_api_server_is_told_first() {
    let found = lockouts(&hosts("", ""), SESSION, &[]);
    let told: Vec<_> = found
        .iter()
        .map(|of| {
            [
                &of["access"],
                &of["node"],
                &of["interface"],
                &of["peer"],
                &of["port"],
            ]
        })
        .collect();
    assert_eq!(
        json!(told),
        json!([
            ["Session", "node-1", "eth0", "203.0.113.5", 2222],
            // The API server on the host itself is reached without an interface.
            ["ApiServer", "node-1", "eth0", "198.51.100.7", 16443],
        ])
    );
    assert_eq!(found[0]["decidedBy"]["type"], "TierDefault");
    assert_eq!(found[0]["decidedBy"]["isolating"][0]["name"], "node");

    let ran = diff(&hosts("", ""), SESSION, &[]);
    let first = ran.out.lines().next().unwrap();
    assert!(
        first.starts_with(
            "warning: would cut your session from 203.0.113.5: TCP 2222 to host:node-1 (eth0) is denied by the \
             default of tier default, which applies because of"
        ),
        "{}",
        ran.out
    );
    assert!(
        first.ends_with(
            "; add a rule that allows it, or tcp:2222 to --failsafe-inbound-ports, or begin with --host-policy-audit"
        ),
        "{}",
        ran.out
    );
}

#[test]
fn what_policies_or_failsafe_ports_leave_open_is_not_told() {
    let allowed = hosts(
        "{action: Allow, protocol: TCP, source: {nets: [203.0.113.0/24]}, destination: {ports: [2222]}}",
        "{action: Allow, protocol: TCP, destination: {ports: [16443]}}",
    );
    assert_eq!(lockouts(&allowed, SESSION, &[]), [json!(null); 0]);
    let failsafe = [
        "--failsafe-inbound-ports",
        "tcp:203.0.113.5/32:2222,tcp:22",
        "--failsafe-outbound-ports",
        "tcp:16443",
    ];
    assert_eq!(
        lockouts(&hosts("", ""), SESSION, &failsafe),
        [json!(null); 0]
    );
    // A client outside of the network of the failsafe port is cut.
    let other = "203.0.113.6 50000 192.0.2.1 2222";
    assert_eq!(lockouts(&hosts("", ""), other, &failsafe).len(), 1);
    // A session on a host without policies is not concerned.
    let elsewhere = "203.0.113.5 50000 192.0.2.2 2222";
    let found = lockouts(&hosts("", "{action: Allow}"), elsewhere, &[]);
    assert_eq!(found, [json!(null); 0]);
    // An endpoint in audit cuts nothing, and would.
    let audit = hosts("", "").replace(
        "labels: {role: node}",
        "annotations: {palisade.dev/mode: audit}, labels: {role: node}",
    );
    assert_eq!(lockouts(&audit, SESSION, &[]), [json!(null); 0]);
    assert_eq!(lockouts(&audit, SESSION, &["--audit"]).len(), 2);
}

#[test]
fn ssh_is_cut_if_nobody_can_connect() {
    let none = ["--failsafe-inbound-ports", "none"];
    let ssh = |source: &str| {
        let rule = format!(
            "{{action: Allow, protocol: TCP, source: {source}, destination: {{ports: [22]}}}}"
        );
        lockouts(&hosts(&rule, "{action: Allow}"), "", &none)
    };
    assert_eq!(ssh("{nets: [203.0.113.77/32]}"), [json!(null); 0]);
    assert_eq!(ssh("{notNets: [0.0.0.0/1]}"), [json!(null); 0]);
    let found = ssh("{nets: [203.0.113.77/32], notNets: [203.0.113.0/24]}");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["access"], "Ssh");
    let denied = hosts(
        "{action: Deny, protocol: TCP, destination: {ports: [22]}}, {action: Allow}",
        "{action: Allow}",
    );
    let found = lockouts(&denied, "", &none);
    assert_eq!(found[0]["decidedBy"]["type"], "Rule", "{found:?}");
    let wrong = diff(&denied, "", &["--failsafe-inbound-ports", "22"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("PROTOCOL:PORT"), "{}", wrong.err);
}

#[test]
fn connections_and_diff_show_what_hosts_let_in_and_out() {
    let rule = "{action: Allow, protocol: TCP, source: {nets: [203.0.113.0/24]}, destination: {ports: [10250]}}";
    let hosts = hosts(rule, "");
    let world = World::of(&[("base.yaml", BASE), ("hosts.yaml", &hosts)]);
    let told = world.json("connections", "");
    let rows = told["hosts"].as_array().unwrap();
    let ingress: Vec<&Value> = rows
        .iter()
        .filter(|row| row["direction"] == "Ingress")
        .collect();
    assert_eq!(ingress.len(), 2, "{told:#}");
    let with_kubelet = |row: &&&Value| row["connections"].to_string().contains("10250");
    let kubelet = ingress.iter().find(with_kubelet).unwrap();
    assert_eq!(
        [&kubelet["node"], &kubelet["interface"], &kubelet["peers"]],
        [&json!("node-1"), &json!("eth0"), &json!(["203.0.113.0/24"])]
    );
    // Failsafe ports are open to every other address too.
    let other = ingress.iter().find(|row| !with_kubelet(row)).unwrap();
    assert!(
        other["connections"].to_string().contains("[22,22]"),
        "{other:#}"
    );
    let text = world.run("connections", "").out;
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("203.0.113.0/24 host:node-1 (eth0)"),
        "{text}"
    );

    let ran = diff(&hosts, "", &[]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("Closed at hosts:"), "{}", ran.out);
    assert!(!ran.out.contains("Opened at hosts:"), "{}", ran.out);
}
