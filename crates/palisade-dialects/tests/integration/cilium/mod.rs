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

/// Rules of DNS that allow every name need no proxy: the rule is as open as without them, and nothing is held closed.
/// With names only, nothing is open.
#[test]
fn dns_rules_that_allow_every_name() {
    let lowered = |rules: &str| {
        let ports = "{ports: [{port: '53', protocol: ANY}]";
        let spec =
            format!("{{.., egress: [{{toEndpoints: [{{}}], toPorts: [{ports}{rules}}}]}}]}}");
        let lowering = common::lowering("f", &manifest("policy", &spec));
        assert_eq!(lowering.errors, []);
        let [palisade_model::Object::Policy(policy)] = &lowering.entries[0].objects[..] else {
            panic!("{:?}", lowering.entries[0].objects);
        };
        let rules = policy.egress.clone().map(|egress| egress.rules);
        let rule = rules.unwrap_or_default().remove(0);
        (rule.peers, rule.traffic, lowering.closed.len())
    };
    let (peers, traffic, _) = lowered("");
    for every in [
        "[{matchPattern: '*'}]",
        "[{matchName: a.b}, {matchPattern: '*'}]",
    ] {
        let found = lowered(&format!(", rules: {{dns: {every}}}"));
        assert_eq!(found, (peers.clone(), traffic.clone(), 0), "{every}");
    }
    for some in [
        "[{matchPattern: '*.b'}]",
        "[{matchPattern: '**.'}]",
        "[{matchName: a.b}]",
        "[]",
    ] {
        let (_, traffic, closed) = lowered(&format!(", rules: {{dns: {some}}}"));
        assert_eq!((traffic.len(), closed), (0, 1), "{some}");
    }
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
            (3, false, None, Some((1, true))),
            (4, true, None, Some((1, false))),
            (5, false, None, Some((0, true))),
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
