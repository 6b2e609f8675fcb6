//! For any input lowering gives a result, never panics, and keeps its promises.

use crate::common::{EntryStatus, Lowering, lower};
use palisade_dialects::{isolate, lower_object};
use palisade_manifest::{Limits, extract_objects, parse as read_file};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// Words that occur in manifests, valid and invalid, so that random structures get past the first checks.
const WORDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "spec",
    "status",
    "podSelector",
    "namespaceSelector",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "policyTypes",
    "ingress",
    "egress",
    "from",
    "to",
    "ports",
    "port",
    "endPort",
    "protocol",
    "ipBlock",
    "cidr",
    "except",
    "containers",
    "initContainers",
    "restartPolicy",
    "containerPort",
    "hostNetwork",
    "podIP",
    "podIPs",
    "ip",
    "phase",
    "template",
    "jobTemplate",
    "clusterIP",
    "clusterIPs",
    "targetPort",
    "addresses",
    "address",
    "type",
    "ownerReferences",
    "controller",
    "creationTimestamp",
    "selector",
    "podselector",
    "tier",
    "priority",
    "subject",
    "namespaces",
    "pods",
    "networks",
    "nodes",
    "domainNames",
    "action",
    "portNumber",
    "portRange",
    "namedPort",
    "protocols",
    "tcp",
    "destinationPort",
    "destinationNamedPort",
    "number",
    "range",
    "start",
    "end",
    "order",
    "types",
    "source",
    "destination",
    "nets",
    "notNets",
    "notSelector",
    "notPorts",
    "notProtocol",
    "serviceAccounts",
    "services",
    "icmp",
    "http",
    "ipVersion",
    "defaultAction",
    "stagedAction",
    "doNotTrack",
    "applyOnForward",
    "labelsToApply",
    "ipNetworks",
    "expectedIPs",
    "interfaceName",
    "profiles",
    "",
];

const VALUES: &[&str] = &[
    "null",
    "true",
    "0",
    "80",
    "65535",
    "65536",
    "-1",
    "1.5",
    "\"\"",
    "\"80\"",
    "\"http\"",
    "\"TCP\"",
    "\"UDP\"",
    "\"tcp\"",
    "\"In\"",
    "\"NotIn\"",
    "\"Exists\"",
    "\"DoesNotExist\"",
    "\"Ingress\"",
    "\"Egress\"",
    "\"10.0.0.0/8\"",
    "\"10.1.0.0/16\"",
    "\"fd00::/8\"",
    "\"10.0.0.1\"",
    "\"::1\"",
    "\"010.0.0.0/8\"",
    "\"None\"",
    "\"Admin\"",
    "\"Baseline\"",
    "\"Accept\"",
    "\"Allow\"",
    "\"Deny\"",
    "\"Pass\"",
    "\"Log\"",
    "\"ICMP\"",
    "\"Set\"",
    "\"all()\"",
    "\"global()\"",
    "\"!has(a)\"",
    "\"a in {'b'\"",
    "\"80:90\"",
    "4",
    "\"Always\"",
    "\"Succeeded\"",
    "\"2026-09-01T12:30:15Z\"",
    "\"a\"",
    "\"A b\"",
    "\"\\u00e9\"",
    "{}",
    "[]",
];

const KINDS: &[(&str, &str)] = &[
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("networking.k8s.io/v1beta1", "NetworkPolicy"),
    ("extensions/v1beta1", "NetworkPolicy"),
    ("v1", "Pod"),
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "ReplicationController"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
    ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
    (
        "policy.networking.k8s.io/v1alpha1",
        "BaselineAdminNetworkPolicy",
    ),
    ("cilium.io/v2", "CiliumNetworkPolicy"),
    ("projectcalico.org/v3", "NetworkPolicy"),
    ("projectcalico.org/v3", "GlobalNetworkPolicy"),
    ("crd.projectcalico.org/v1", "NetworkPolicy"),
    ("projectcalico.org/v3", "StagedGlobalNetworkPolicy"),
    ("projectcalico.org/v3", "StagedKubernetesNetworkPolicy"),
    ("projectcalico.org/v3", "Tier"),
    ("projectcalico.org/v3", "Profile"),
    ("projectcalico.org/v3", "NetworkSet"),
    ("projectcalico.org/v3", "HostEndpoint"),
    ("projectcalico.org/v3", "WorkloadEndpoint"),
    ("example.com/v1", "Thing"),
];

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        8 => proptest::sample::select(VALUES).prop_map(str::to_owned),
        1 => any::<i64>().prop_map(|n| n.to_string()),
        1 => "[ -~]{0,12}".prop_map(|text| format!("{text:?}")),
    ];
    leaf.prop_recursive(6, 48, 6, |inner| {
        let key = proptest::sample::select(WORDS);
        prop_oneof![
            2 => proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(","))),
            5 => proptest::collection::btree_map(key, inner, 0..5).prop_map(|fields| {
                let fields: Vec<String> =
                    fields.iter().map(|(k, v)| format!("{k:?}:{v}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

/// A spec that is nearly valid: each part is valid or random.
fn spec() -> impl Strategy<Value = String> {
    let part = |sound: &'static str| prop_oneof![3 => Just(sound.to_owned()), 1 => value()];
    (
        part(r#"{"matchLabels":{"app":"web"}}"#),
        part(r#"["Ingress","Egress"]"#),
        part(r#"[{"podSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]"#),
        part(r#"[{"port":80,"endPort":90},{"port":"http"}]"#),
        part(r#"{"name":"a","labels":{"a":"b"}}"#),
        part(r#"{"containers":[{"ports":[{"name":"http","containerPort":80}]}]}"#),
    )
        .prop_map(|(selector, types, peers, ports, metadata, pod)| {
            format!(
                r#"{{"podSelector":{selector},"policyTypes":{types},
                "ingress":[{{"from":{peers},"ports":{ports}}}],
                "template":{{"metadata":{metadata},"spec":{pod}}}}}"#
            )
        })
}

/// The same for cluster-wide policies, with the fields of all kinds.
fn cluster_spec() -> impl Strategy<Value = String> {
    let part = |sound: &'static str| prop_oneof![6 => Just(sound.to_owned()), 1 => value()];
    let word = |words: &'static [&'static str]| {
        prop_oneof![
            6 => proptest::sample::select(words).prop_map(|word| format!("{word:?}")),
            1 => value(),
        ]
    };
    let place = prop_oneof![
        Just(""),
        Just(r#""tier":"Admin","#),
        Just(r#""tier":"Baseline","#)
    ];
    (
        place,
        part(r#"{"namespaces":{"matchLabels":{"team":"a"}}}"#),
        word(&["Accept", "Allow", "Deny", "Pass"]),
        part(r#"[{"namespaces":{}},{"pods":{"namespaceSelector":{},"podSelector":{}}}]"#),
        part(r#"[{"networks":["10.0.0.0/8"]},{"nodes":{}},{"later":{}}]"#),
        prop_oneof![
            part(r#""ports":[{"portNumber":{"port":80}},{"portRange":{"start":1,"end":9}}]"#),
            part(r#""protocols":[{"tcp":{"destinationPort":{"number":80}}}]"#),
            Just(r#""name":"a""#.to_owned()),
        ],
    )
        .prop_map(|(place, subject, action, from, to, ports)| {
            let ports = if ports.starts_with("\"n") || ports.starts_with("\"p") {
                ports
            } else {
                format!("\"ports\":{ports}")
            };
            format!(
                r#"{{{place}"priority":7,"subject":{subject},
                "ingress":[{{"action":{action},"from":{from},{ports}}}],
                "egress":[{{"action":{action},"to":{to},{ports}}}]}}"#
            )
        })
}

/// The same for Calico's kinds.
fn calico_spec() -> impl Strategy<Value = String> {
    let part = |sound: &'static str| prop_oneof![6 => Just(sound.to_owned()), 1 => value()];
    let word = |words: &'static [&'static str]| {
        prop_oneof![
            6 => proptest::sample::select(words).prop_map(|word| format!("{word:?}")),
            1 => value(),
        ]
    };
    let selector = || {
        word(&[
            "",
            "all()",
            "app == 'web' && !has(b)",
            "a in {'b',}",
            "!(a contains 'b' || has(c))",
            "c not in {}",
            "a starts with \"b\"",
            "a ==",
        ])
    };
    (
        selector(),
        word(&["Allow", "Deny", "Pass", "Log"]),
        part(r#"{"nets":["10.0.0.0/8","fd00::/8"],"notNets":["10.1.0.0/16"]}"#),
        part(r#"{"ports":[80,"90:99","http"],"notPorts":[95]}"#),
        selector(),
        prop_oneof![
            Just(r#""order":10"#),
            Just(r#""types":["Egress"]"#),
            Just(r#""tier":"t""#),
        ],
    )
        .prop_map(|(selector, action, source, destination, namespaces, place)| {
            format!(
                r#"{{{place},"selector":{selector},
                "ingress":[{{"action":{action},"protocol":"TCP","source":{source},"destination":{destination}}}],
                "egress":[{{"action":{action},"destination":{{"namespaceSelector":{namespaces}}}}}]}}"#
            )
        })
}

fn object() -> impl Strategy<Value = String> {
    let names = proptest::sample::select(&["a", "b", "B_"][..]);
    let any_kind = (
        proptest::sample::select(KINDS),
        prop_oneof![value(), spec(), cluster_spec()],
    );
    // Most kinds have no field of its spec.
    let of_calico = |kind: &&(&str, &str)| kind.0.contains("projectcalico.org");
    let of_calico: Vec<_> = KINDS.iter().filter(of_calico).copied().collect();
    let of_calico = (proptest::sample::select(of_calico), calico_spec());
    let parts = (prop_oneof![3 => any_kind, 1 => of_calico], names, value());
    parts.prop_map(|(((version, kind), spec), name, status)| {
        format!(
            r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"{name}"}},
            "spec":{spec},"status":{status}}}"#
        )
    })
}

fn check(lowering: &Lowering) {
    let mut rejected = 0;
    for entry in &lowering.entries {
        match entry.status {
            EntryStatus::Accepted => assert!(entry.isolation.is_empty()),
            EntryStatus::Rejected => {
                rejected += 1;
                assert!(entry.objects.is_empty(), "{} is half taken", entry.id);
            }
            EntryStatus::Duplicate { .. } => {
                rejected += 1;
                assert!(entry.isolation.is_empty());
            }
        }
        let rules = |policy: &palisade_model::Policy| {
            let directions = [&policy.ingress, &policy.egress];
            directions
                .into_iter()
                .flatten()
                .map(|d| d.rules.len())
                .sum::<usize>()
        };
        for isolation in &entry.isolation {
            // A NetworkPolicy isolates without rules, a cluster-wide policy by a rule that denies everything.
            let mut directions = [&isolation.ingress, &isolation.egress]
                .into_iter()
                .flatten();
            assert!(directions.all(|of| *of == of.isolation(isolation.line.clone())));
            assert!(rules(isolation) <= 2);
        }
    }
    assert!(lowering.errors.len() >= rejected);
    for problem in lowering.errors.iter().chain(&lowering.warnings) {
        assert!(problem.object.is_some() && !problem.reason.is_empty());
        assert!(problem.location.line > 0);
    }
}

fn lowered(text: &str) -> Lowering {
    let limits = Limits::default();
    let read_in = extract_objects(read_file("x", text.as_bytes(), &limits), &limits);
    for object in &read_in.objects {
        assert!(lower_object(object).errors.is_empty() || lower_object(object).objects.is_empty());
        let _ = isolate(object);
    }
    let lowering = lower(&read_in.objects);
    check(&lowering);
    assert_eq!(lower(&read_in.objects), lowering);
    lowering
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_of_any_content(objects in proptest::collection::vec(object(), 1..4)) {
        let all = lowered(&objects.join("\n---\n"));
        let ignored: usize = all.ignored.values().sum();
        prop_assert_eq!(all.entries.len() + ignored, objects.len());
    }

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        lowered(&text);
    }

    #[test]
    fn text_of_manifest_words(
        lines in proptest::collection::vec(
            (0usize..6, proptest::sample::select(WORDS), proptest::sample::select(VALUES)), 0..24)
    ) {
        let mut text = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n".to_owned();
        for (indent, key, value) in lines {
            text += &format!("{}{key}: {value}\n", "  ".repeat(indent));
        }
        lowered(&text);
    }
}

/// Random input is useful only if some of it is accepted.
#[test]
fn the_generator_reaches_both_outcomes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = (0, 0, 0);
    for _ in 0..400 {
        let text = object().new_tree(&mut runner).unwrap().current();
        for entry in lowered(&text).entries {
            match entry.status {
                EntryStatus::Accepted => counts.0 += 1,
                _ => counts.1 += 1,
            }
            counts.2 += usize::from(!entry.isolation.is_empty());
        }
    }
    assert!(counts.0 > 60 && counts.1 > 60 && counts.2 > 5, "{counts:?}");
}
