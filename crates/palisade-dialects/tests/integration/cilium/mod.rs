//! Errors and warnings of Cilium's kinds: every reason, with its field and text.
//!
//! `cases.txt` has one object in a line, then what it results in, indented. A line begins with the kind: `policy`
//! and `clusterwide` with a spec, `object` and `clusterwide-object` with what a policy has besides its name, `group`
//! with the spec of a CiliumCIDRGroup, `slice` with what an EndpointSlice has. In a spec `..` stands for a selector
//! of all pods. To accept a change, run with `PALISADE_BLESS=1` and review the difference.

use crate::common;
use palisade_model::{Peer, Policy};

/// The manifest of a line.
fn manifest(word: &str, written: &str) -> String {
    let written = written.replace("..", "endpointSelector: {}");
    let object = |version: &str, kind: &str, rest: &str| {
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, {rest}}}\n")
    };
    let cilium = |kind: &str, rest: &str| object("cilium.io/v2", kind, rest);
    match word {
        "policy" => cilium("CiliumNetworkPolicy", &format!("spec: {written}")),
        "clusterwide" => cilium(
            "CiliumClusterwideNetworkPolicy",
            &format!("spec: {written}"),
        ),
        "object" => cilium("CiliumNetworkPolicy", &written),
        "clusterwide-object" => cilium("CiliumClusterwideNetworkPolicy", &written),
        "group" => cilium("CiliumCIDRGroup", &format!("spec: {written}")),
        _ => object("discovery.k8s.io/v1", "EndpointSlice", &written),
    }
}

/// The problems of an object, one a line.
fn problems(word: &str, written: &str) -> Vec<String> {
    common::problem_lines(&manifest(word, written))
}

#[test]
fn every_rejection_has_its_message() {
    common::check_cases("tests/integration/cilium/cases.txt", problems);
}

/// Lists at their greatest length, and one item longer.
#[test]
fn lengths_of_lists() {
    let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(", "));
    for (count, expected) in [
        (40, "  valid"),
        (
            41,
            "  error spec.ingress[0].toPorts[0]: too many ports: 41, the maximum is 40",
        ),
    ] {
        let ports = list("{port: '80'}", count);
        let spec = format!("{{.., ingress: [{{toPorts: [{{ports: {ports}}}]}}]}}");
        assert_eq!(problems("policy", &spec), [expected]);
    }
    for (count, expected) in [
        (40, "  valid"),
        (
            41,
            "  error spec.ingress[0].icmps[0]: too many types: 41, the maximum is 40",
        ),
    ] {
        let fields = list("{type: 8}", count);
        let spec = format!("{{.., ingress: [{{icmps: [{{fields: {fields}}}]}}]}}");
        assert_eq!(problems("policy", &spec), [expected]);
    }
}

/// The policies of an object, which has no error.
fn policies(word: &str, spec: &str) -> Vec<Policy> {
    let lowering = common::lowering("f", &manifest(word, spec));
    assert_eq!(lowering.errors, [], "{spec}");
    let objects = lowering.entries[0].objects.iter();
    let policy = |object: &palisade_model::Object| match object {
        palisade_model::Object::Policy(policy) => policy.clone(),
        other => panic!("{other:?}"),
    };
    objects.map(policy).collect()
}

/// The rules of egress with their names, by the part of the spec.
fn names(policies: &[Policy]) -> Vec<(u32, Vec<String>)> {
    let names = |policy: &Policy| {
        let rules = policy.egress.iter().flat_map(|egress| &egress.rules);
        let names = rules.map(|rule| match &rule.dns_names {
            None => format!("all of {}", rule.traffic.len()),
            Some(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                format!("{} of {}", names.join(" "), rule.traffic.len())
            }
        });
        (policy.id.part, names.collect())
    };
    policies.iter().map(names).collect()
}

/// Rules of DNS names are a policy of their own, directly before what allows whatever is asked for; only where queries
/// are read, and with one rule for each set of names.
#[test]
fn dns_rules_stand_before_other_allowances() {
    let dns = |port: &str, names: &str| {
        format!("{{ports: [{{port: '{port}', protocol: ANY}}], rules: {{dns: [{names}]}}}}")
    };
    let (a, b) = ("{matchName: A.b.}", "{matchPattern: '**.b'}");
    let plain = "{ports: [{port: '80', protocol: TCP}]}";
    let items = [
        dns("53", a),
        plain.to_owned(),
        dns("54", b),
        dns("55", a),
        dns("56", "{matchPattern: '*'}"),
    ];
    let spec = format!(
        "{{.., egress: [{{toEndpoints: [{{}}], toPorts: [{}]}}, {{toPorts: [{plain}]}}]}}",
        items.join(", ")
    );
    let found = policies("policy", &spec);
    assert_eq!(
        names(&found),
        [
            // What may ask for every name passes as well where nobody reads.
            (1, vec!["all of 3".to_owned(), "all of 1".to_owned()]),
            (
                2,
                ["* of 2", "a.b of 4", "**.b of 2"]
                    .map(str::to_owned)
                    .to_vec()
            )
        ]
    );
    let [allowances, dns] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(dns.precedence < allowances.precedence);
    let egress = dns.egress.as_ref().unwrap();
    assert!(!egress.default_deny && allowances.egress.as_ref().unwrap().default_deny);
    let mut prints: Vec<u64> = (egress.rules.iter())
        .map(|rule| rule.origin.fingerprint)
        .collect();
    prints.dedup();
    assert_eq!(prints.len(), 3);
    assert!(egress.rules.iter().all(|rule| rule.origin.index == 0));
}

/// Of a node nobody reads queries: every name is allowed as it is, and some names are held closed.
#[test]
fn dns_rules_of_nodes() {
    for (dns, expected) in [
        ("[{matchPattern: '*'}]", "all of 2"),
        ("[{matchName: a.b}]", "all of 0"),
    ] {
        let ports = "{port: '53', protocol: UDP}, {port: '53', protocol: TCP}";
        let spec = format!(
            "{{nodeSelector: {{}}, egress: [{{toPorts: [{{ports: [{ports}], rules: {{dns: {dns}}}}}]}}]}}"
        );
        let found = names(&policies("clusterwide", &spec));
        assert_eq!(found, [(1, vec![expected.to_owned()])], "{dns}");
    }
}

/// An empty list is held closed, and so is what another field of the item holds closed.
#[test]
fn dns_rules_that_are_held_closed() {
    for item in [
        "rules: {dns: []}",
        "rules: {dns: [{matchName: a.b}]}, listener: {envoyConfig: {name: e}, name: l}",
    ] {
        let spec = format!("{{.., egress: [{{toPorts: [{{ports: [{{port: '53'}}], {item}}}]}}]}}");
        let lowering = common::lowering("f", &manifest("policy", &spec));
        assert_eq!(lowering.closed.len(), 1, "{item}");
        let objects = &lowering.entries[0].objects;
        let opens = objects.iter().any(|object| match object {
            palisade_model::Object::Policy(policy) => policy
                .egress
                .iter()
                .flat_map(|egress| &egress.rules)
                .any(|rule| !rule.traffic.is_empty()),
            other => panic!("{other:?}"),
        });
        assert!(!opens, "{item}");
    }
}

/// Names select addresses outside of the cluster, and nodes never, whatever the mode of networks is.
#[test]
fn names_select_what_is_outside() {
    let found = policies(
        "policy",
        "{.., egress: [{toFQDNs: [{matchName: A.b}, {matchPattern: '*.b'}]}]}",
    );
    let [policy] = &found[..] else {
        panic!("{found:?}");
    };
    let mut with_nodes = policy.clone();
    palisade_dialects::match_nodes_by_cidr(&mut with_nodes);
    assert_eq!(with_nodes, *policy);
    let rules = &policy.egress.as_ref().unwrap().rules;
    assert!(palisade_dialects::has_names(policy.egress.as_ref()));
    assert!(!palisade_dialects::has_names(policy.ingress.as_ref()));
    let shown = rules[0].peers.iter().map(|peer| {
        assert!(peer.not_selector.is_some() && peer.nets.is_none());
        peer.selector.as_ref().unwrap().to_string()
    });
    let shown: Vec<String> = shown.collect();
    assert_eq!(
        shown,
        ["reserved:domain == \"a.b\"", "reserved:domain like \"*.b\""]
    );
}

/// A label of the source `k8s` is replaced by the policy's own namespace; every other test of the namespace is kept.
#[test]
fn tests_of_the_namespace_in_a_subject() {
    let key = "io.kubernetes.pod.namespace";
    let pods = ["default", "other"].map(|namespace| {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: {namespace}, labels: {{a: b}}}}}}"
        );
        common::lowering("pod", &text).state()
    });
    for (selector, expected) in [
        ("{}".to_owned(), [true, false]),
        (
            format!("{{matchLabels: {{\"k8s:{key}\": other}}}}"),
            [true, false],
        ),
        (
            format!("{{matchLabels: {{\"k8s:{key}\": other, a: b}}}}"),
            [true, false],
        ),
        (
            format!("{{matchLabels: {{\"k8s:{key}\": other, a: c}}}}"),
            [false, false],
        ),
        (
            format!("{{matchLabels: {{\"{key}\": other}}}}"),
            [false, false],
        ),
        (
            format!("{{matchLabels: {{\"any:{key}\": other}}}}"),
            [false, false],
        ),
        (
            format!("{{matchLabels: {{\"{key}\": default}}}}"),
            [true, false],
        ),
        (
            format!(
                "{{matchExpressions: [{{key: \"k8s:{key}\", operator: In, values: [other]}}]}}"
            ),
            [false, false],
        ),
        (
            format!(
                "{{matchExpressions: [{{key: \"{key}\", operator: NotIn, values: [default]}}]}}"
            ),
            [false, false],
        ),
        (
            format!("{{matchExpressions: [{{key: \"{key}\", operator: DoesNotExist}}]}}"),
            [false, false],
        ),
        (
            format!(
                "{{matchExpressions: [{{key: \"any:{key}\", operator: In, values: [default, other]}}]}}"
            ),
            [true, false],
        ),
    ] {
        let spec = format!("{{endpointSelector: {selector}, ingress: [{{fromEntities: [all]}}]}}");
        let lowering = common::lowering("f", &manifest("policy", &spec));
        assert_eq!(lowering.errors, [], "{selector}");
        let state = lowering.state();
        let policy = state.policies.values().next().unwrap();
        let selected = pods.each_ref().map(|pods| {
            let pod = pods.endpoints.values().next().unwrap();
            policy.subject.matches(&pods.endpoint_labels(pod))
        });
        assert_eq!(selected, expected, "{selector}");
    }
}

/// The name of a cluster is not served: a rule that allows matches nothing, and one that denies matches the pods that
/// may be meant, and never what is outside of the cluster.
#[test]
fn names_of_clusters_close_pods_only() {
    let peers = |list: &str, selector: &str| {
        let spec = format!("{{.., {list}: [{{fromEndpoints: [{selector}]}}]}}");
        let lowering = common::lowering("f", &manifest("clusterwide", &spec));
        assert_eq!(lowering.errors, []);
        let state = lowering.state();
        let policies = state.policies.values();
        let rules = policies.flat_map(|policy| policy.ingress.iter().flat_map(|side| &side.rules));
        let peers: Vec<_> = rules.flat_map(|rule| rule.peers.clone()).collect();
        (peers, lowering.closed.len())
    };
    let cluster = "io.cilium.k8s.policy.cluster";
    for selector in [
        format!("{{matchLabels: {{\"{cluster}\": other}}}}"),
        format!("{{matchExpressions: [{{key: \"{cluster}\", operator: In, values: [a, b]}}]}}"),
    ] {
        let (denied, closed) = peers("ingressDeny", &selector);
        assert_eq!(
            (denied, closed),
            (peers("ingressDeny", "{}").0, 1),
            "{selector}"
        );
        assert_eq!(peers("ingress", &selector), (Vec::new(), 1), "{selector}");
    }
}

/// A spec becomes a part that denies, before everything of the default tier, and a part that allows.
#[test]
fn parts_of_specs() {
    let text = manifest(
        "object",
        "spec: {.., ingress: [{}], ingressDeny: [{}]}, specs: [{.., egress: [{}]}, {.., egressDeny: [{}]}]",
    );
    let lowering = common::lowering("f", &text);
    let parts: Vec<_> = lowering.entries[0]
        .objects
        .iter()
        .map(|object| match object {
            palisade_model::Object::Policy(policy) => {
                let denies = |rules: &Option<palisade_model::DirectionRules>| {
                    rules
                        .as_ref()
                        .map(|rules| (rules.rules.len(), rules.default_deny))
                };
                let order = policy.precedence.order;
                let is_first = order < palisade_model::Order::At(-1.0e300);
                (
                    policy.id.part,
                    is_first,
                    denies(&policy.ingress),
                    denies(&policy.egress),
                )
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        parts,
        [
            (0, true, Some((1, false)), None),
            (1, false, Some((1, true)), None),
            (4, false, None, Some((1, true))),
            (6, true, None, Some((1, false))),
            (7, false, None, Some((0, true))),
        ]
    );
}

/// More parts than eight bits number.
#[test]
fn hundreds_of_specs() {
    let specs = vec!["{.., ingress: [{}], ingressDeny: [{}]}"; 200].join(", ");
    let lowering = common::lowering("f", &manifest("object", &format!("specs: [{specs}]")));
    let ids: std::collections::BTreeSet<_> = lowering.entries[0]
        .objects
        .iter()
        .map(|object| object.key())
        .collect();
    assert_eq!(ids.len(), 400);
}

#[test]
fn networks_match_nodes_where_the_operator_says_so() {
    let input = r#"
apiVersion: v1
kind: Node
metadata: {name: one}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: networks}
spec:
  endpointSelector: {}
  ingress:
  - fromCIDR: [192.0.2.0/24]
  - fromCIDRSet: [{cidrGroupRef: partners}]
  - fromCIDR: [0.0.0.0/0]
  - fromEntities: [world]
"#;
    let state = common::lowering("f", input).state();
    let node = state.node_labels(state.nodes.values().next().unwrap(), None);
    let excludes_node = |policy: &Policy| -> Vec<bool> {
        let rules = &policy.ingress.as_ref().unwrap().rules;
        let excludes = |peer: &Peer| {
            peer.not_selector
                .as_ref()
                .is_some_and(|not| not.matches(&node))
        };
        rules
            .iter()
            .map(|rule| rule.peers.iter().all(excludes))
            .collect()
    };
    let mut policy = state.policies.values().next().unwrap().clone();
    assert_eq!(excludes_node(&policy), [true; 4]);
    palisade_dialects::match_nodes_by_cidr(&mut policy);
    assert_eq!(excludes_node(&policy), [false, false, true, true]);
}
