//! Objects that the API server accepts are accepted with the same meaning, and with a warning where other
//! programs read them differently.

use crate::common::{self, lint};
use palisade_model::{Action, Endpoint, Object, Policy, TrafficMatch};

/// The only policy of a text, and its warnings.
fn policy(text: &str) -> (Policy, Vec<String>) {
    let lowering = common::lowering("f", text);
    assert_eq!(lowering.errors, [], "{text}");
    let policy = lowering.objects().find_map(|object| match object {
        Object::Policy(policy) => Some(policy),
        _ => None,
    });
    let warnings = lowering.warnings.iter().map(ToString::to_string);
    (policy.expect("a policy"), warnings.collect())
}

fn block(block: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: a}}, spec: \
         {{podSelector: {{}}, ingress: [{{from: [{{ipBlock: {block}}}]}}]}}}}"
    )
}

#[test]
fn networks_in_the_meaning_of_the_api_server() {
    for (odd, plain, warnings) in [
        ("{cidr: 010.0.0.0/8}", "{cidr: 10.0.0.0/8}", 1),
        ("{cidr: 10.0.0.0/08}", "{cidr: 10.0.0.0/8}", 1),
        ("{cidr: 10.1.2.3/8}", "{cidr: 10.0.0.0/8}", 1),
        ("{cidr: '::ffff:10.0.0.0/104'}", "{cidr: 10.0.0.0/8}", 1),
        ("{cidr: 'fd00::1/064'}", "{cidr: 'fd00::/64'}", 2),
        (
            "{cidr: 10.0.0.0/8, except: [10.010.0.0/16]}",
            "{cidr: 10.0.0.0/8, except: [10.10.0.0/16]}",
            1,
        ),
        (
            "{cidr: 10.0.0.0/8, except: ['::ffff:10.1.0.0/112']}",
            "{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}",
            1,
        ),
        (
            "{cidr: '::ffff:10.0.0.0/104', except: ['::ffff:10.1.0.0/112']}",
            "{cidr: 10.0.0.0/8, except: [10.1.0.0/16]}",
            2,
        ),
    ] {
        let (odd_policy, said) = policy(&block(odd));
        let (plain_policy, nothing) = policy(&block(plain));
        let peers = |policy: &Policy| {
            let rules = policy.ingress.as_ref().map(|ingress| &ingress.rules);
            rules
                .and_then(|rules| rules.first())
                .map(|rule| rule.peers.clone())
        };
        assert_eq!(peers(&odd_policy), peers(&plain_policy), "{odd}");
        assert_eq!(said.len(), warnings, "{odd}: {said:?}");
        assert!(
            said.iter().all(|said| said.contains("it is read as")),
            "{said:?}"
        );
        assert_eq!(nothing, Vec::<String>::new());
    }
}

/// As Kubernetes' in the same words: in rules of Calico, and in its network sets.
#[test]
fn networks_of_calico_in_the_same_meaning() {
    let rule = |net: &str| {
        let (policy, said) = policy(&format!(
            "{{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {{name: a}}, spec: \
             {{ingress: [{{action: Allow, source: {{nets: ['{net}']}}}}]}}}}"
        ));
        let rules = policy.ingress.expect("ingress rules").rules;
        (rules[0].peers[0].nets.clone(), said)
    };
    let set = |net: &str| {
        let lowering = common::lowering(
            "f",
            &format!(
                "{{apiVersion: projectcalico.org/v3, kind: GlobalNetworkSet, metadata: {{name: a}}, spec: \
                 {{nets: ['{net}']}}}}"
            ),
        );
        assert_eq!(lowering.errors, [], "{net}");
        let sets = lowering.objects().filter_map(|object| match object {
            Object::NetworkSet(set) => Some(set.nets),
            _ => None,
        });
        (sets.last(), lowering.warnings.len())
    };
    for (odd, plain, warnings) in [
        ("010.0.0.0/8", "10.0.0.0/8", 1),
        ("10.0.0.0/08", "10.0.0.0/8", 1),
        ("10.1.2.3/8", "10.0.0.0/8", 1),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8", 1),
        ("fd00::1/064", "fd00::/64", 2),
        // An address is a network of one.
        ("10.0.0.1", "10.0.0.1/32", 0),
        ("fd00::1", "fd00::1/128", 0),
    ] {
        let ((odd_nets, said), (nets, nothing)) = (rule(odd), rule(plain));
        assert_eq!(odd_nets, nets, "{odd}");
        assert_eq!(
            (said.len(), nothing.len()),
            (warnings, 0),
            "{odd}: {said:?}"
        );
        assert_eq!(set(odd), (set(plain).0, warnings), "{odd}");
    }
}

/// Of Calico, a rule that denies or passes is closed too: it denies.
#[test]
fn a_rule_of_calico_with_an_unknown_field_opens_nothing() {
    for (rest, path) in [
        ("zones: [a]", "zones"),
        ("source: {zone: a}", "source.zone"),
        (
            "destination: {zone: a, nets: [10.0.0.0/8]}",
            "destination.zone",
        ),
        (
            "source: {serviceAccounts: {uid: a}}",
            "source.serviceAccounts.uid",
        ),
        ("protocol: ICMP, icmp: {kind: 8}", "icmp.kind"),
    ] {
        for (action, denies) in [
            ("Allow", false),
            ("Log", false),
            ("Deny", true),
            ("Pass", true),
        ] {
            let text = format!(
                "{{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {{name: a}}, spec: \
                 {{ingress: [{{action: {action}, {rest}}}, {{action: Allow}}]}}}}"
            );
            let lowering = common::lowering("f", &text);
            let closed: Vec<&str> = lowering.closed.iter().map(|p| &*p.field).collect();
            assert_eq!(closed, [format!("spec.ingress[0].{path}")]);
            let (policy, _) = policy(&text);
            let rules = policy.ingress.expect("ingress rules").rules;
            if denies {
                assert_eq!(rules[0].action, Action::Deny, "{text}");
                assert!(
                    rules[0].peers[0].is_any() && rules[0].local.is_none(),
                    "{text}"
                );
                assert_eq!(rules[0].traffic, [TrafficMatch::any()], "{text}");
            } else {
                assert!(rules[0].peers.is_empty(), "{text}")
            }
            // The other rule is as written.
            assert!(rules[1].action == Action::Allow && rules[1].peers[0].is_any());
        }
    }
}

/// A field of a newer API, or a slip that is like nothing known, never opens a rule.
#[test]
fn a_rule_with_an_unknown_field_allows_nothing() {
    for (rule, path) in [
        ("{zones: [a]}", "zones"),
        ("{from: [{zone: a, podSelector: {}}]}", "from[0].zone"),
        (
            "{from: [{ipBlock: {cidr: 10.0.0.0/8, zone: a}}]}",
            "from[0].ipBlock.zone",
        ),
        (
            "{from: [{podSelector: {zone: a}}]}",
            "from[0].podSelector.zone",
        ),
        ("{ports: [{number: 80}]}", "ports[0].number"),
    ] {
        let text = format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: a, zone: b}}, spec: \
             {{ingress: [{rule}, {{}}]}}}}"
        );
        let lowering = common::lowering("f", &text);
        assert_eq!(lowering.errors, [], "{rule}");
        let closed: Vec<&str> = lowering.closed.iter().map(|p| &*p.field).collect();
        assert_eq!(closed, [format!("spec.ingress[0].{path}")]);
        let (policy, warnings) = policy(&text);
        let rules = policy.ingress.expect("ingress rules").rules;
        assert!(rules[0].peers.is_empty(), "{rule}: {rules:?}");
        // The other rule is as written.
        assert!(rules[1].peers[0].is_any());
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("unknown field `zone`: it is ignored"),
            "{warnings:?}"
        );
    }
}

#[test]
fn an_empty_namespace_is_as_good_as_none() {
    for kind in [
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy",
        "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nspec: {}",
        "apiVersion: v1\nkind: Pod",
        "apiVersion: v1\nkind: Namespace",
    ] {
        let lowering = common::lowering(
            "f",
            &format!("{kind}\nmetadata: {{name: a, namespace: ''}}\n"),
        );
        assert_eq!(lowering.errors, []);
        let empty = "metadata.namespace: it is empty: treated as missing";
        let said = |text: &str| {
            lowering
                .warnings
                .iter()
                .any(|p| p.to_string().ends_with(text))
        };
        assert!(said(empty), "{:?}", lowering.warnings);
        let namespace = lowering.entries[0].id.namespace.as_deref();
        let expected = (!kind.ends_with("Namespace")).then_some("default");
        assert_eq!(namespace, expected, "{kind}");
    }
}

/// The pods of a text, and their warnings.
fn pods(text: &str) -> (Vec<Endpoint>, Vec<String>) {
    let raw = common::raw("f", text);
    let lowering = common::lower(&raw);
    assert_eq!(lowering.errors, []);
    let pods = lowering.objects().filter_map(|object| match object {
        Object::Endpoint(pod) => Some(pod),
        _ => None,
    });
    let said = lowering
        .warnings
        .iter()
        .cloned()
        .chain(lint(&raw, &lowering));
    (
        pods.collect(),
        said.map(|problem| common::problem(&problem)).collect(),
    )
}

#[test]
fn an_empty_protocol_of_a_port_is_tcp() {
    let (pods, said) = pods(
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, ports: \
         [{name: http, containerPort: 80, protocol: ''}]}]}}",
    );
    assert_eq!(pods[0].ports.len(), 1);
    assert_eq!(pods[0].ports[0].protocol, palisade_model::Protocol::TCP);
    assert_eq!(said, Vec::<String>::new());
}

#[test]
fn addresses_that_no_pod_can_have_and_those_of_another() {
    let pod = |name: &str, created: &str, ips: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, creationTimestamp: {created:?}}}\n\
             status: {{podIPs: [{ips}]}}\n"
        )
    };
    for (address, what) in [
        ("0.0.0.0", "the unspecified address"),
        ("::", "the unspecified address"),
        ("127.0.0.1", "a loopback address"),
        ("::1", "a loopback address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("224.0.0.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
    ] {
        let ips = format!("{{ip: 10.0.0.1}}, {{ip: '{address}'}}");
        let (pods, said) = pods(&pod("a", "2026-01-01T00:00:00Z", &ips));
        assert_eq!(
            pods[0].addresses,
            ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]
        );
        let said = said.last().unwrap();
        assert!(
            said.ends_with(&format!("is {what}, which is not valid for a pod; ignored")),
            "{said}"
        );
    }
    let both = "{ip: 10.0.0.1}, {ip: 'fd00::1'}";
    let text = [
        pod("old", "2026-01-01T00:00:00Z", both),
        pod("young", "2026-02-01T00:00:00Z", both),
        pod("other", "2026-03-01T00:00:00Z", "{ip: 10.0.0.2}"),
    ];
    let (_, said) = pods(&text.concat());
    assert_eq!(
        said,
        [
            "Pod default/old: f:2:1: status: address 10.0.0.1 is also claimed by Pod default/young, which \
             gets it",
            "Pod default/old: f:2:1: status: address fd00::1 is also claimed by Pod default/young, which \
             gets it",
        ]
    );
}
