//! Host endpoints: which one governs an interface, what is always open, what the two kinds of traffic are asked.

use super::*;
use crate::naive::{NaivePath, audit_read, read};

/// An address of the host, which has no pod.
const HOST: &str = "192.0.2.9";

/// The host endpoint of an interface of this node.
fn host(name: &str, interface: &str, more: Value) -> Value {
    let spec = json!({ "node": "node-1", "interfaceName": interface });
    let mut host = calico("HostEndpoint", None, name, with(spec, more));
    host["metadata"]["labels"] = json!({ "role": name });
    host
}

fn path(input: Option<&'static str>, output: Option<&'static str>) -> NaivePath {
    NaivePath {
        input,
        output,
        is_forwarded: input.is_some() && output.is_some(),
        sent_to: None,
    }
}

/// Whether the host lets TCP from outside to a port of its own in.
fn lets_in(objects: &[Value], interface: &'static str, port: u16) -> bool {
    let flow = NaiveFlow {
        path: path(Some(interface), None),
        ..flow(NOWHERE, HOST, 6, port)
    };
    read(&cluster(objects), &flow).host
}

/// Whether it lets TCP of its own out.
fn lets_out(objects: &[Value], protocol: u8, port: u16) -> bool {
    let flow = NaiveFlow {
        path: path(None, Some("eth0")),
        ..flow(HOST, NOWHERE, protocol, port)
    };
    read(&cluster(objects), &flow).host
}

/// Whether it forwards TCP to port 80 of a pod, by which it came in.
fn forwards(objects: &[Value], port: u16) -> bool {
    let flow = NaiveFlow {
        path: NaivePath {
            is_forwarded: true,
            ..path(Some("eth0"), None)
        },
        ..flow(NOWHERE, WEB, 6, port)
    };
    read(&cluster(objects), &flow).host
}

fn allow(more: Value) -> Value {
    global(
        "p",
        with(json!({ "ingress": [{ "action": "Allow" }] }), more),
    )
}

#[test]
fn nothing_is_said_where_no_host_endpoint_is() {
    assert!(lets_in(&[], "eth0", 80));
    let other = calico(
        "HostEndpoint",
        None,
        "h",
        json!({ "node": "node-2", "interfaceName": "eth0" }),
    );
    assert!(lets_in(&[other], "eth0", 80));
    let own = [host("h", "eth0", json!({}))];
    assert!(!lets_in(&own, "eth0", 80) && lets_in(&own, "eth1", 80));
    let all = [host("h", "*", json!({}))];
    assert!(!lets_in(&all, "eth1", 80) && lets_in(&all, "lo", 80));
    assert!(read(&cluster(&all), &flow(NOWHERE, HOST, 6, 80)).host);
}

#[test]
fn one_that_names_the_interface_comes_first() {
    let open = json!({ "profiles": ["projectcalico-default-allow"] });
    let named = [
        host("a", "*", json!({})),
        host("z", "eth0", open.clone()),
        host("y", "eth0", json!({})),
    ];
    assert!(!lets_in(&named, "eth0", 80), "y comes before z");
    assert!(lets_in(&named[..2], "eth0", 80) && !lets_in(&named[..2], "eth1", 80));
}

#[test]
fn ports_that_are_always_open() {
    let own = [host("h", "eth0", json!({}))];
    assert!(lets_in(&own, "eth0", 22) && !lets_in(&own, "eth0", 53));
    assert!(!lets_out(&own, 6, 22) && lets_out(&own, 6, 6443));
    assert!(lets_out(&own, 17, 53) && !lets_out(&own, 6, 53));
    let deny = global("p", json!({ "ingress": [{ "action": "Deny" }] }));
    let own = [own[0].clone(), deny];
    assert!(lets_in(&own, "eth0", 22));
    // What is only forwarded is never open by its port.
    let deny = json!({ "ingress": [{ "action": "Deny" }], "applyOnForward": true });
    let own = [own[0].clone(), global("p", deny)];
    assert!(!forwards(&own, 22));
}

#[test]
fn policies_and_profiles() {
    let closed = host("h", "eth0", json!({}));
    assert!(lets_in(&[closed.clone(), allow(json!({}))], "eth0", 80));
    let selected = allow(json!({ "selector": "role == 'h'" }));
    assert!(lets_in(&[closed.clone(), selected], "eth0", 80));
    let other = allow(json!({ "selector": "role == 'other'" }));
    assert!(!lets_in(&[closed.clone(), other], "eth0", 80));
    // Those of namespaces and service accounts are for workloads.
    for field in ["namespaceSelector", "serviceAccountSelector"] {
        let of_workloads = allow(json!({ field: "!has(x)" }));
        assert!(!lets_in(&[closed.clone(), of_workloads], "eth0", 80));
    }
    let of_namespace = local("p", json!({ "ingress": [{ "action": "Allow" }] }));
    assert!(!lets_in(&[closed.clone(), of_namespace], "eth0", 80));
    // Profiles come after the tiers, and give labels.
    let profile = json!({ "ingress": [{ "action": "Allow" }], "labelsToApply": { "zone": "z" } });
    let open = host("h", "eth0", json!({ "profiles": ["open"] }));
    let profile = calico("Profile", None, "open", profile);
    assert!(lets_in(&[open.clone(), profile.clone()], "eth0", 80));
    let deny = json!({ "ingress": [{ "action": "Deny" }], "selector": "has(zone)" });
    assert!(!lets_in(&[open, profile, global("p", deny)], "eth0", 80));
}

#[test]
fn what_is_forwarded() {
    let own = host("h", "eth0", json!({}));
    assert!(
        forwards(std::slice::from_ref(&own), 80),
        "no policy is for it"
    );
    let deny = global("p", json!({ "ingress": [{ "action": "Deny" }] }));
    assert!(forwards(&[own.clone(), deny], 80), "not on forward");
    let on_forward = |rules: Value| {
        global(
            "p",
            json!({ "ingress": rules, "applyOnForward": true, "selector": "role == 'h'" }),
        )
    };
    let all = [own.clone(), on_forward(json!([{ "action": "Allow" }]))];
    assert!(forwards(&all, 80));
    let all = [own.clone(), on_forward(json!([]))];
    assert!(!forwards(&all, 80), "the default of the tier");
    let all = [own, on_forward(json!([{ "action": "Pass" }]))];
    assert!(forwards(&all, 80), "and profiles are not asked");
}

#[test]
fn named_ports_of_the_host() {
    let ports = json!({ "ports": [{ "name": "web", "protocol": "TCP", "port": 9000 }] });
    let own = host("h", "eth0", ports);
    let rule =
        json!([{ "action": "Allow", "protocol": "TCP", "destination": { "ports": ["web"] } }]);
    let allow = allow(json!({ "ingress": rule, "applyOnForward": true }));
    let all = [own, allow];
    assert!(lets_in(&all, "eth0", 9000) && !lets_in(&all, "eth0", 80));
    // What is forwarded to a pod meets the pod's.
    assert!(forwards(&all, 80) && !forwards(&all, 9000));
}

#[test]
fn audit() {
    let mut own = host("h", "eth0", json!({}));
    own["metadata"]["annotations"] = json!({ "palisade.dev/mode": "audit" });
    let flow = NaiveFlow {
        path: path(Some("eth0"), None),
        ..flow(NOWHERE, HOST, 6, 80)
    };
    let objects = cluster(&[own]);
    assert!(read(&objects, &flow).host && !audit_read(&objects, &flow).host);
}

/// A policy of one kind of early traffic, which passes port 80, denies 81 and allows 82.
fn early(kind: &str, direction: &str, end: &str) -> Value {
    let rule = |action: &str, port: u16| json!({ "action": action, "protocol": "TCP", end: { "ports": [port] } });
    let rules = [rule("Pass", 80), rule("Deny", 81), rule("Allow", 82)];
    let mut spec = json!({ "applyOnForward": true, kind: true });
    spec[direction] = json!(rules);
    global("early", spec)
}

#[test]
fn early_traffic_is_decided_or_left_to_the_next_policies() {
    let endpoint = host("h", "eth0", json!({}));
    for kind in ["doNotTrack", "preDNAT"] {
        let closed = [endpoint.clone(), early(kind, "ingress", "destination")];
        let seen = [79, 80, 81, 82].map(|port| lets_in(&closed, "eth0", port));
        assert_eq!(
            seen,
            [false, false, false, true],
            "{kind}: nothing else allows"
        );
        let open = [&closed[..], &[allow(json!({}))]].concat();
        let seen = [79, 80, 81, 82].map(|port| lets_in(&open, "eth0", port));
        assert_eq!(seen, [true, true, false, true], "{kind}");
        // What is forwarded is open behind it, and what it allows is not asked about again.
        let seen = [79, 81, 82].map(|port| forwards(&closed, port));
        assert_eq!(seen, [true, false, true], "{kind}");
        let deny = json!({ "ingress": [{ "action": "Deny" }], "applyOnForward": true });
        let shut = [&closed[..], &[global("z", deny)]].concat();
        let seen = [79, 81, 82].map(|port| forwards(&shut, port));
        assert_eq!(seen, [false, false, true], "{kind}");
    }
    let all_denied =
        json!({ "applyOnForward": true, "doNotTrack": true, "ingress": [{ "action": "Deny" }] });
    let locked = [endpoint, global("locked", all_denied)];
    assert!(lets_in(&locked, "eth0", 22) && !lets_in(&locked, "eth0", 23));
}

#[test]
fn untracked_traffic_is_decided_in_both_directions_and_as_it_leaves_the_host_only() {
    let endpoint = host("h", "eth0", json!({}));
    let out = [endpoint, early("doNotTrack", "egress", "destination")];
    let seen = [79, 81, 82].map(|port| lets_out(&out, 6, port));
    assert_eq!(seen, [false, false, true], "nothing else allows");
    // What is forwarded was tracked or not where it came in.
    let flow = NaiveFlow {
        path: NaivePath {
            is_forwarded: true,
            ..path(None, Some("eth0"))
        },
        ..flow(WEB, NOWHERE, 6, 81)
    };
    assert!(read(&cluster(&out), &flow).host);
}

#[test]
fn traffic_before_translation_has_the_destination_that_it_was_sent_to() {
    let objects = [
        host("h", "eth0", json!({})),
        early("preDNAT", "ingress", "destination"),
    ];
    let sent = |port: u16, to: u16| {
        let flow = NaiveFlow {
            path: NaivePath {
                sent_to: Some((HOST.parse().unwrap(), to)),
                is_forwarded: true,
                ..path(Some("eth0"), None)
            },
            ..flow(NOWHERE, WEB, 6, port)
        };
        read(&cluster(&objects), &flow).host
    };
    assert!(!sent(82, 81) && sent(81, 82) && sent(81, 80));
}
