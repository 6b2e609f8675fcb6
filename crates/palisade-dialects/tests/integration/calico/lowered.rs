//! What policies of Calico become, worked out by hand: which endpoints a policy selects, which directions it governs,
//! and where it stands.

use super::manifest;
use crate::common;
use palisade_model::{
    Direction, Object, Peer, Policy, PolicyMode, Profile, Protocol, State, TrafficScope,
};

/// Two namespaces, and one address of everything that a selector may or may not match.
pub(super) const CLUSTER: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: bank, labels: {team: b}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: front, namespace: shop, labels: {role: front}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {serviceAccountName: front}, status: {phase: Running, podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, labels: {app: db}}, status: {phase: Running, podIP: 10.0.0.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: till, namespace: bank, labels: {app: web}}, status: {phase: Running, podIP: 10.0.1.1}}
---
{apiVersion: projectcalico.org/v3, kind: Profile, metadata: {name: dmz}, spec: {labelsToApply: {zone: dmz, app: other}}}
---
{apiVersion: projectcalico.org/v3, kind: WorkloadEndpoint, metadata: {name: vm, namespace: shop, labels: {app: vm}}, spec: {orchestrator: openstack, ipNetworks: [10.0.2.1/32], profiles: [dmz]}}
---
{apiVersion: projectcalico.org/v3, kind: NetworkSet, metadata: {name: partners, namespace: shop, labels: {kind: partner}}, spec: {nets: [192.0.2.0/24]}}
---
{apiVersion: projectcalico.org/v3, kind: GlobalNetworkSet, metadata: {name: trusted, labels: {kind: trusted}}, spec: {nets: [198.51.100.0/24]}}
---
{apiVersion: projectcalico.org/v3, kind: HostEndpoint, metadata: {name: host, labels: {app: web}}, spec: {node: one, interfaceName: eth0, expectedIPs: [203.0.113.1], profiles: [dmz]}}
---
{apiVersion: v1, kind: Node, metadata: {name: one, labels: {app: web}}, status: {addresses: [{type: InternalIP, address: 203.0.113.9}]}}
---
{apiVersion: cilium.io/v2, kind: CiliumCIDRGroup, metadata: {name: group, labels: {app: web}}, spec: {externalCIDRs: [203.0.113.64/26]}}
"#;

pub(super) fn cluster() -> State {
    let lowering = common::lowering("f", CLUSTER);
    assert_eq!(lowering.errors, []);
    lowering.state()
}

/// The policy of a word and a spec, in the namespace `shop`.
pub(super) fn policy(word: &str, spec: &str) -> Policy {
    let text = manifest(word, spec).replacen("name: a", "name: a, namespace: shop", 1);
    let lowering = common::lowering("f", &text);
    assert_eq!(lowering.errors, [], "{text}");
    match &lowering.entries[0].objects[..] {
        [Object::Policy(policy)] => policy.clone(),
        other => panic!("{text}: {other:?}"),
    }
}

/// The other end is `source` of ingress and `destination` of egress; the own end is tested too.
#[test]
fn both_ends() {
    let ends = "source: {nets: [10.0.0.1]}, destination: {nets: [10.0.0.2]}";
    let spec =
        format!("{{ingress: [{{action: Allow, {ends}}}], egress: [{{action: Allow, {ends}}}]}}");
    let policy = policy("global", &spec);
    let nets = |peer: &Peer| peer.nets.clone().unwrap()[0].to_string();
    let of = |direction| {
        let rule = &policy.rules(direction).unwrap().rules[0];
        (nets(&rule.peers[0]), nets(rule.local.as_ref().unwrap()))
    };
    let [one, two] = ["10.0.0.1/32", "10.0.0.2/32"].map(str::to_owned);
    assert_eq!(of(Direction::Ingress), (one.clone(), two.clone()));
    assert_eq!(of(Direction::Egress), (two, one));
}

#[test]
fn families() {
    for (rule, expected) in [
        ("ipVersion: 4", "[Some(V4)]"),
        ("ipVersion: 6", "[Some(V6)]"),
        ("source: {nets: [10.0.0.0/8]}", "[Some(V4)]"),
        ("source: {nets: [10.0.0.0/8, 'fd00::/8']}", "[None]"),
        (
            "source: {nets: [10.0.0.0/8, 'fd00::/8'], notNets: ['fd00::/9']}",
            "[Some(V6)]",
        ),
        ("source: {notNets: ['fd00::/8']}", "[Some(V6)]"),
        ("ipVersion: 4, source: {notNets: ['fd00::/8']}", "[]"),
        (
            "source: {nets: [10.0.0.0/8]}, destination: {notNets: ['fd00::/8']}",
            "[]",
        ),
        (
            "source: {notNets: [10.0.0.0/8]}, destination: {notNets: [10.0.0.0/8]}",
            "[Some(V4)]",
        ),
    ] {
        let policy = policy(
            "policy",
            &format!("{{ingress: [{{action: Deny, {rule}}}]}}"),
        );
        let traffic = &policy.ingress.unwrap().rules[0].traffic;
        let families: Vec<_> = traffic.iter().map(|of| of.family).collect();
        assert_eq!(format!("{families:?}"), expected, "{rule}");
    }
}

#[test]
fn the_endpoints_of_a_policy() {
    let state = cluster();
    for (word, spec, expected) in [
        ("policy", "{}", "db vm web"),
        ("policy", "{selector: all()}", "db vm web"),
        ("policy", "{selector: app == 'web'}", "web"),
        ("policy", "{selector: app != 'web'}", "db vm"),
        ("policy", "{selector: zone == 'dmz'}", "vm"),
        ("policy", "{serviceAccountSelector: role == 'front'}", "web"),
        (
            "policy",
            "{serviceAccountSelector: role != 'front'}",
            "db vm",
        ),
        (
            "policy",
            "{serviceAccountSelector: projectcalico.org/name == 'default'}",
            "db",
        ),
        (
            "policy",
            "{selector: app == 'db', serviceAccountSelector: has(role)}",
            "",
        ),
        ("global", "{}", "host till db vm web"),
        ("global", "{namespaceSelector: ''}", "host till db vm web"),
        ("global", "{selector: app == 'web'}", "host till web"),
        ("global", "{selector: app != 'web'}", "db vm"),
        ("global", "{selector: zone == 'dmz'}", "host vm"),
        (
            "global",
            "{serviceAccountSelector: role != 'front'}",
            "till db vm",
        ),
        ("global", "{namespaceSelector: all()}", "till db vm web"),
        ("global", "{namespaceSelector: team == 'b'}", "till"),
        ("global", "{namespaceSelector: '!has(team)'}", ""),
        (
            "global",
            "{namespaceSelector: team != 'b', selector: app == 'web'}",
            "web",
        ),
        ("global", "{selector: pcns.team == 'b'}", "till"),
        (
            "global",
            "{selector: projectcalico.org/orchestrator == 'k8s'}",
            "till db web",
        ),
        ("staged", "{selector: app == 'web'}", "web"),
        ("staged-global", "{selector: app == 'web'}", "host till web"),
        (
            "global",
            "{selector: has(app), applyOnForward: true}",
            "host till db vm web",
        ),
        (
            "staged-kubernetes",
            "{podSelector: {matchLabels: {app: web}}}",
            "web",
        ),
    ] {
        let policy = policy(word, spec);
        let endpoints = state.endpoints.values();
        let selected =
            endpoints.filter(|endpoint| policy.subject.matches(&state.endpoint_labels(endpoint)));
        let names: Vec<String> = selected
            .map(|endpoint| endpoint.id.name.to_string())
            .collect();
        assert_eq!(names.join(" "), expected, "{word} {spec}");
    }
}

#[test]
fn the_directions_of_a_policy() {
    for (spec, expected) in [
        ("{}", [true, false]),
        ("{types: []}", [true, false]),
        ("{ingress: []}", [true, false]),
        ("{egress: []}", [true, false]),
        ("{ingress: [], egress: []}", [true, false]),
        ("{egress: [{action: Allow}]}", [false, true]),
        ("{ingress: [], egress: [{action: Allow}]}", [false, true]),
        ("{ingress: [{action: Allow}]}", [true, false]),
        (
            "{ingress: [{action: Allow}], egress: [{action: Allow}]}",
            [true, true],
        ),
        ("{types: [Egress]}", [false, true]),
        ("{types: [Egress, Ingress]}", [true, true]),
        (
            "{types: [Ingress], egress: [{action: Allow}]}",
            [true, false],
        ),
    ] {
        let policy = policy("policy", spec);
        let governs = Direction::BOTH.map(|direction| policy.rules(direction).is_some());
        assert_eq!(governs, expected, "{spec}");
        let denies = [&policy.ingress, &policy.egress].into_iter().flatten();
        assert!(denies.into_iter().all(|rules| rules.default_deny), "{spec}");
    }
}

/// By order, then kind of dialect at order 1000, then name, namespace, kind.
#[test]
fn the_order_in_the_default_tier() {
    let object = |kind: &str, name: &str, spec: &str| {
        format!(
            "---\n{{apiVersion: projectcalico.org/v3, kind: {kind}, metadata: {{name: {name}}}, spec: {spec}}}\n"
        )
    };
    let global = |name: &str, spec: &str| object("GlobalNetworkPolicy", name, spec);
    let text = [
        global("a-last", "{}"),
        object("NetworkPolicy", "a-last", "{}"),
        object("StagedNetworkPolicy", "a-last", "{}"),
        global("z-1000", "{order: 1000}"),
        global("y-1000", "{order: 1000.0}"),
        global("x-after", "{order: 1000.5}"),
        global("w-negative", "{order: -1}"),
        global("b-last", "{order: null}"),
        "---\n{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: kubernetes}, spec: {}}\n".to_owned(),
        "---\n{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: cilium}, spec: {endpointSelector: {}, ingress: [{}], ingressDeny: [{}]}}\n".to_owned(),
    ];
    let state = common::lowering("f", &text.concat()).state();
    let mut policies: Vec<&Policy> = state.policies.values().collect();
    policies.sort_by(|a, b| {
        let by_place = a.precedence.cmp(&b.precedence);
        by_place.then_with(|| a.id.cmp_by_name(&b.id))
    });
    let names: Vec<String> = policies
        .iter()
        .map(|policy| format!("{} {}", policy.id.object.kind.name(), policy.id.object.name))
        .collect();
    assert_eq!(
        names,
        [
            "CiliumNetworkPolicy cilium",
            "GlobalNetworkPolicy w-negative",
            "GlobalNetworkPolicy y-1000",
            "GlobalNetworkPolicy z-1000",
            "CiliumNetworkPolicy cilium",
            "NetworkPolicy kubernetes",
            "GlobalNetworkPolicy x-after",
            "GlobalNetworkPolicy a-last",
            "NetworkPolicy a-last",
            "StagedNetworkPolicy a-last",
            "GlobalNetworkPolicy b-last",
        ]
    );
    assert!(policies.iter().all(|policy| &*policy.tier == "default"));
}

#[test]
fn tiers_that_are_built_in_are_no_objects() {
    let objects = |word: &str, spec: &str| {
        let lowering = common::lowering("f", &manifest(word, spec));
        assert_eq!(lowering.errors, []);
        lowering.entries[0].objects.clone()
    };
    assert_eq!(
        objects("tier:default", "{order: 1000000.0, defaultAction: Deny}"),
        []
    );
    assert_eq!(objects("tier:kube-admin", "{}"), []);
    assert_eq!(objects("tier:kube-baseline", "{defaultAction: Pass}"), []);
    let [Object::Tier(tier)] = &objects("tier:security", "{}")[..] else {
        panic!("no tier");
    };
    assert_eq!(format!("{:?} {:?}", tier.order, tier.default), "Last Deny");
    let [Object::Tier(tier)] = &objects("tier:security", "{order: -2.5, defaultAction: Pass}")[..]
    else {
        panic!("no tier");
    };
    assert_eq!(
        format!("{:?} {:?}", tier.order, tier.default),
        "At(-2.5) Pass"
    );
}

#[test]
fn what_is_staged_is_in_audit() {
    let audit = "metadata: {name: a, annotations: {palisade.dev/mode: audit}}, spec: {}";
    let enforce = audit.replace("audit", "enforce");
    for (word, written, mode) in [
        ("policy", "{}", PolicyMode::Enforce),
        ("object", audit, PolicyMode::Audit),
        ("global-object", audit, PolicyMode::Audit),
        ("staged", "{}", PolicyMode::Audit),
        ("staged", "{stagedAction: Set}", PolicyMode::Audit),
        ("staged-global", "{}", PolicyMode::Audit),
        ("staged-kubernetes", "{}", PolicyMode::Audit),
        ("staged-object", &enforce, PolicyMode::Audit),
        ("staged-kubernetes-object", &enforce, PolicyMode::Audit),
    ] {
        assert_eq!(policy(word, written).mode, mode, "{word} {written}");
    }
    for action in ["Delete", "Learn", "Ignore"] {
        for word in ["staged", "staged-global", "staged-kubernetes"] {
            let spec = format!("{{stagedAction: {action}}}");
            let lowering = common::lowering("f", &manifest(word, &spec));
            assert_eq!(lowering.errors, []);
            assert_eq!(lowering.entries[0].objects, [], "{word} {action}");
        }
    }
    // A staged policy of Kubernetes stands where those of Kubernetes do.
    let of_kubernetes = common::lowering(
        "f",
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: shop}, spec: {ingress: [{}]}}",
    );
    let [Object::Policy(of_kubernetes)] = &of_kubernetes.entries[0].objects[..] else {
        panic!("no policy");
    };
    let staged = policy("staged-kubernetes", "{ingress: [{}]}");
    assert_eq!(staged.subject, of_kubernetes.subject);
    assert_eq!(staged.ingress, of_kubernetes.ingress);
    assert_eq!(staged.precedence, of_kubernetes.precedence);
}

#[test]
fn the_profiles_of_a_workload() {
    for (profiles, expected) in [
        ("[]", vec![]),
        ("[kns.shop]", vec![Profile::ALLOW_ALL]),
        ("[kns.bank]", vec![Profile::ALLOW_ALL]),
        ("[projectcalico-default-allow]", vec![Profile::ALLOW_ALL]),
        ("[ksa.shop.front]", vec![]),
        (
            "[b, kns.shop, ksa.shop.front, a]",
            vec!["b", Profile::ALLOW_ALL, "a"],
        ),
    ] {
        let lowering = common::lowering(
            "f",
            &manifest("workload", &format!("{{profiles: {profiles}}}")),
        );
        assert_eq!(lowering.errors, []);
        let [Object::Endpoint(endpoint)] = &lowering.entries[0].objects[..] else {
            panic!("{profiles}");
        };
        let found: Vec<&str> = endpoint.profiles.iter().map(|name| &**name).collect();
        assert_eq!(found, expected, "{profiles}");
    }
    for name in [
        "kns.shop",
        "ksa.shop.front",
        "projectcalico-default-allow",
        Profile::ALLOW_ALL,
    ] {
        let lowering = common::lowering("f", &manifest(&format!("profile:{name}"), "{}"));
        assert_eq!(lowering.entries[0].objects, [], "{name}");
    }
}

/// Parts that are not served open nothing, and close what denies.
#[test]
fn rules_held_closed() {
    for (direction, end, part) in [
        ("ingress", "source", "domains: [a.example.com]"),
        ("egress", "source", "domains: [a.example.com]"),
        ("egress", "destination", "zone: a"),
    ] {
        for (action, peers) in [("Allow", 0), ("Log", 0), ("Deny", 1), ("Pass", 1)] {
            let spec = format!("{{{direction}: [{{action: {action}, {end}: {{{part}}}}}]}}");
            let policy = policy("global", &spec);
            let rules = policy.ingress.or(policy.egress).unwrap();
            let rule = &rules.rules[0];
            assert_eq!(rule.peers, vec![Peer::any(); peers], "{spec}");
            let action = rule.action.to_string();
            assert_eq!(action == "deny", peers == 1, "{spec}: {action}");
        }
    }
    let policy = policy(
        "policy",
        "{ingress: [{action: Allow, http: {methods: [GET]}}]}",
    );
    assert_eq!(policy.ingress.unwrap().rules[0].peers, []);
}

/// What Calico's API server refuses and Felix enforces all the same, or would: accepted, as it is written.
#[test]
fn what_is_accepted_although_the_api_server_refuses_it() {
    for (why, spec) in [
        (
            "networks of both families: each packet is compared with those of its family",
            "{ingress: [{action: Allow, source: {nets: [10.0.0.0/8, 'fd00::/8']}}]}",
        ),
        (
            "networks of both families, at the two ends: it matches nothing, with a warning",
            "{ingress: [{action: Allow, source: {nets: [10.0.0.0/8]}, destination: {nets: ['fd00::/8']}}]}",
        ),
        (
            "a network of another family than `ipVersion`: the same",
            "{ingress: [{action: Allow, ipVersion: 6, source: {nets: [10.0.0.0/8]}}]}",
        ),
        (
            "an address for a network",
            "{ingress: [{action: Allow, source: {nets: [10.0.0.1]}}]}",
        ),
        (
            "a network with bits behind its length, with a warning",
            "{ingress: [{action: Allow, source: {nets: [10.0.0.1/8]}}]}",
        ),
        (
            "global() beside other tests",
            "{ingress: [{action: Allow, source: {namespaceSelector: global() || has(a)}}]}",
        ),
        (
            "`icmp` beside the number of its protocol",
            "{ingress: [{action: Allow, protocol: 1, icmp: {type: 8}}]}",
        ),
        ("a hint of a newer version", "{performanceHints: [other]}"),
        (
            "the same hint twice",
            "{performanceHints: [AssumeNeededOnEveryNode, AssumeNeededOnEveryNode]}",
        ),
    ] {
        let found = common::problem_lines(&manifest("policy", spec));
        let is_accepted = found.iter().all(|line| !line.starts_with("  error"));
        assert!(is_accepted, "{why}: {found:?}");
    }
    // Policies of a tier have the name of the tier before their own.
    let found = common::problem_lines(&manifest(
        "object",
        "metadata: {name: security.a}, spec: {}",
    ));
    assert_eq!(found, ["  valid"]);
}

/// Calico's clients store labels and annotations of resources in an annotation.
#[test]
fn stored_metadata_are_those_of_the_object() {
    let set = |metadata: &str| {
        let text = format!(
            "{{apiVersion: crd.projectcalico.org/v1, kind: GlobalNetworkSet, metadata: {{name: a, {metadata}}}, \
             spec: {{nets: [192.0.2.0/24]}}}}"
        );
        let lowering = common::lowering("f", &text);
        assert_eq!(
            (&lowering.errors[..], &lowering.warnings[..]),
            (&[][..], &[][..])
        );
        match &lowering.entries[0].objects[..] {
            [Object::NetworkSet(set)] => {
                let labels = set.labels.iter();
                let labels = labels.map(|(key, value)| format!("{key}={value}"));
                labels.collect::<Vec<_>>().join(",")
            }
            other => panic!("{text}: {other:?}"),
        }
    };
    let stored = r#"projectcalico.org/metadata: '{"labels": {"a": "1", "b": "2"}, "uid": "x"}'"#;
    for (metadata, labels) in [
        (format!("annotations: {{{stored}}}"), "a=1,b=2"),
        (
            format!("annotations: {{{stored}}}, labels: {{}}"),
            "a=1,b=2",
        ),
        // Older versions stored them as labels: what is stored comes before them.
        (
            format!("labels: {{a: '3', c: '4'}}, annotations: {{{stored}, x: other}}"),
            "a=1,b=2,c=4",
        ),
        (
            "labels: {a: '3'}, annotations: {projectcalico.org/metadata: '{}'}".to_owned(),
            "a=3",
        ),
    ] {
        assert_eq!(set(&metadata), labels, "{metadata}");
    }
    let audit = r#"annotations: {projectcalico.org/metadata: '{"annotations": {"palisade.dev/mode": "audit"}}'}"#;
    let policy = |spec: &str| {
        format!(
            "{{apiVersion: crd.projectcalico.org/v1, kind: NetworkPolicy, metadata: {{name: default.a, {audit}}}, spec: {spec}}}"
        )
    };
    let lowering = common::lowering("f", &policy("{}"));
    match &lowering.entries[0].objects[..] {
        [Object::Policy(policy)] => assert_eq!(policy.mode, PolicyMode::Audit),
        other => panic!("{other:?}"),
    }
    // What isolates in its place would be in audit as well.
    let raw = common::raw("f", &policy("{order: much}"));
    let isolated = palisade_dialects::isolate(&raw[0]);
    assert_eq!(isolated[0].mode, PolicyMode::Audit);
}

#[test]
fn host_endpoints() {
    let objects = |spec: &str| {
        let text = manifest(
            "host-object",
            &format!(
                "metadata: {{name: a, labels: {{app: web}}, annotations: {{palisade.dev/mode: audit}}}}, spec: {spec}"
            ),
        );
        let lowering = common::lowering("f", &text);
        assert_eq!(lowering.errors, [], "{text}");
        match &lowering.entries[0].objects[..] {
            [Object::Endpoint(endpoint), Object::NetworkSet(holder)] => {
                (endpoint.clone(), holder.clone())
            }
            other => panic!("{text}: {other:?}"),
        }
    };
    let (endpoint, holder) = objects(
        "{node: one, interfaceName: '*', expectedIPs: [192.0.2.1], profiles: [kns.shop, ksa.shop.web, own], \
         ports: [{name: http, port: 80, protocol: TCP}]}",
    );
    assert_eq!(endpoint.id, holder.id);
    assert_eq!(endpoint.labels, holder.labels);
    assert_eq!(
        endpoint.labels.get("app").map(|value| &**value),
        Some("web")
    );
    assert!(endpoint.is_host() && endpoint.audit && endpoint.addresses.is_empty());
    let place = (endpoint.node.as_deref(), endpoint.interface.as_deref());
    assert_eq!(place, (Some("one"), Some("*")));
    assert_eq!(endpoint.named_port("http", Protocol::TCP), Some(80));
    assert_eq!(endpoint.profiles, [Profile::ALLOW_ALL, "own"]);
    assert_eq!(format!("{:?}", holder.nets), "[192.0.2.1/32]");
    // Nothing allows everything unless it is written.
    let (endpoint, holder) = objects("{node: one, interfaceName: eth0}");
    assert!(endpoint.profiles.is_empty() && holder.nets.is_empty());
    let (endpoint, _) = objects("{node: one, expectedIPs: [192.0.2.1]}");
    assert_eq!(endpoint.interface, None);
}

#[test]
fn the_traffic_of_a_policy() {
    use TrafficScope::{Endpoints, Forwarded, PreDnat, Untracked};
    for (spec, expected) in [
        ("{applyOnForward: true}", Forwarded),
        ("{applyOnForward: false}", Endpoints),
        ("{}", Endpoints),
        ("{applyOnForward: true, doNotTrack: true}", Untracked),
        ("{applyOnForward: true, preDNAT: true}", PreDnat),
    ] {
        for word in ["global", "staged-global"] {
            assert_eq!(policy(word, spec).scope, expected, "{word} {spec}");
        }
    }
}

/// A network that excludes every address of its family: Calico refuses it, here the rule matches none of them.
#[test]
fn a_negated_catch_all_is_warned_of() {
    let spec = "{ingress: [{action: Allow, source: {notNets: [10.0.0.0/8, 0.0.0.0/0]}}, \
                {action: Deny, destination: {notNets: ['::/0']}}, {action: Allow, source: {notNets: [0.0.0.0/1]}}]}";
    let found = common::problem_lines(&manifest("policy", spec));
    let warning = |place: &str, all: &str, family: &str| {
        format!(
            "  warning spec.ingress{place}.notNets: {all} excludes every {family} address, so the rule matches none of \
             them; Calico's API server refuses it"
        )
    };
    let expected = [
        warning("[0].source", "0.0.0.0/0", "IPv4"),
        warning("[1].destination", "::/0", "IPv6"),
    ];
    assert_eq!(found, expected);
}
