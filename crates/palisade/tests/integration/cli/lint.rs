//! `palisade lint`: its output as text and as JSON, its exit codes, the examples, and dumps of clusters.

use super::{PODS, World, policy, run, run_with};
use palisade_testkit::dump::ClusterDump;
use serde_json::json;
use std::path::{Path, PathBuf};

const DENY_ALL: &str = "policyTypes: [Ingress]";

#[test]
fn no_finding_is_exit_code_0() {
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[], "0 policies, 0 findings\n"),
        (&[("pods.yaml", PODS)], "0 policies, 0 findings\n"),
        (
            &[("pods.yaml", PODS), ("p.yaml", &policy(DENY_ALL))],
            "1 policy, 0 findings\n",
        ),
    ];
    for (files, expected) in cases {
        let ran = World::of(files).run("lint", "");
        assert_eq!((ran.code, &*ran.out, &*ran.err), (0, expected, ""));
    }
    let path = World::of(&[("p.yaml", &policy(DENY_ALL))]);
    let input = run_with(
        &[
            "lint",
            "-f",
            path.file("p.yaml").to_str().unwrap(),
            "-f",
            "-",
        ],
        PODS,
    );
    assert_eq!((input.code, &*input.out), (0, "1 policy, 0 findings\n"));
}

#[test]
fn findings_are_exit_code_1() {
    let text = policy(
        "policyTypes: [Ingress], ingress: [\n {from: [{podSelector: {matchLabels: {app: web}}}]},\n \
         {from: [{namespaceSelector: {matchLabels: {team: slaes}}},\n \
         {podSelector: {matchLabels: {app: wbe}}}]}]",
    );
    let world = World::of(&[("pods.yaml", PODS), ("p.yaml", &text)]);
    let ran = world.run("lint", "");
    assert_eq!(ran.err, "");
    assert_eq!(
        ran.out,
        "p.yaml:6: peer-selects-nothing: NetworkPolicy shop/p: ingress rule 1: peer 0 of the rule matches nothing: \
         no namespace is labelled team = \"slaes\"\n  try: did you mean team = \"sales\"?\n\
         p.yaml:6: peer-selects-nothing: NetworkPolicy shop/p: ingress rule 1: peer 1 of the rule matches nothing: \
         no pod or workload in namespace shop is labelled app = \"wbe\"\n  try: did you mean app = \"web\"?\n\
         1 policy, 2 findings\n"
    );
    assert_eq!(ran.code, 1);
    let json = world.json("lint", "");
    assert_eq!(
        (&json["policies"], &json["unchecked"]),
        (&json!(1), &json!([]))
    );
    assert_eq!(
        json["findings"][0],
        json!({
            "code": "PeerSelectsNothing",
            "policy": {"kind": "NetworkPolicy", "namespace": "shop", "name": "p", "line": "p.yaml:1"},
            "direction": "Ingress",
            "rule": 1,
            "line": "p.yaml:6",
            "message": "peer 0 of the rule matches nothing: no namespace is labelled team = \"slaes\"",
            "suggestion": "did you mean team = \"sales\"?",
        })
    );
    assert_eq!(json["findings"].as_array().unwrap().len(), 2);
}

#[test]
fn references_to_what_is_not_there_are_findings() {
    let text = r#"
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  endpointSelector: {}
  ingress: [{fromCIDRSet: [{cidrGroupRef: partner}]}]
  egress: [{toServices: [{k8sService: {serviceName: databse, namespace: shop}}]}]
---
apiVersion: cilium.io/v2
kind: CiliumCIDRGroup
metadata: {name: partners}
spec: {externalCIDRs: [198.51.100.0/24]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: database-x, namespace: shop, labels: {kubernetes.io/service-name: database}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.9]}]
"#;
    let ran = World::of(&[("pods.yaml", PODS), ("p.yaml", text)]).run("lint", "");
    assert_eq!(
        (&*ran.out, &*ran.err, ran.code),
        (
            "p.yaml:7: peer-selects-nothing: CiliumNetworkPolicy shop/p: ingress rule 0: its peer matches nothing: \
             no CiliumCIDRGroup is named \"partner\"\n  try: did you mean \"partners\"?\n\
             p.yaml:8: peer-selects-nothing: CiliumNetworkPolicy shop/p: egress rule 0: its peer matches nothing: \
             no EndpointSlice in namespace shop is labelled kubernetes.io/service-name = \"databse\"\n  \
             try: did you mean kubernetes.io/service-name = \"database\"?\n\
             1 policy, 2 findings\n",
            "",
            1
        )
    );
}

#[test]
fn references_of_calico_to_what_is_not_there_are_findings() {
    let text = r#"
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  tier: security
  selector: all()
  types: [Ingress, Egress]
  ingress:
  - {action: Allow, source: {services: {name: databse}}}
  - {action: Allow, source: {serviceAccounts: {names: [frnt]}}}
  - {action: Allow, source: {selector: kind == 'partnr'}}
  egress:
  - {action: Allow, destination: {services: {name: databse}}}
---
apiVersion: projectcalico.org/v3
kind: Tier
metadata: {name: sceurity}
spec: {order: 10}
---
apiVersion: projectcalico.org/v3
kind: NetworkSet
metadata: {name: partners, namespace: shop, labels: {kind: partner}}
spec: {nets: [198.51.100.0/24]}
---
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata: {name: vm, namespace: shop}
spec: {orchestrator: openstack, ipNetworks: [10.0.2.1/32], profiles: [dmz], serviceAccountName: front}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: front, namespace: shop}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: database-x, namespace: shop, labels: {kubernetes.io/service-name: database}}
addressType: IPv4
ports: [{port: 5432}]
endpoints: [{addresses: [10.0.0.9]}]
"#;
    let ran = World::of(&[("pods.yaml", PODS), ("p.yaml", text)]).run("lint", "");
    let policy = "NetworkPolicy.projectcalico.org shop/p";
    let expected = format!(
        "p.yaml:2: tier-missing: {policy}: its tier \"security\" does not exist, so it is evaluated after all tiers \
         that do, and what it selects and does not allow is denied there\n  try: did you mean \"sceurity\"?\n\
         p.yaml:10: peer-selects-nothing: {policy}: ingress rule 0: its peer matches nothing: no EndpointSlice in \
         namespace shop is labelled kubernetes.io/service-name = \"databse\"\n  \
         try: did you mean kubernetes.io/service-name = \"database\"?\n\
         p.yaml:11: peer-selects-nothing: {policy}: ingress rule 1: its peer matches nothing: no endpoint, network \
         set or node in namespace shop is running as service account \"frnt\"\n  try: did you mean \"front\"?\n\
         p.yaml:12: peer-selects-nothing: {policy}: ingress rule 2: its peer matches nothing: no endpoint, network \
         set or node in namespace shop is labelled kind = \"partnr\"\n  try: did you mean kind = \"partner\"?\n\
         p.yaml:14: service-missing: {policy}: egress rule 0: it matches nothing: Service shop/databse has no \
         EndpointSlice with ports here\n  try: did you mean \"shop/database\"?\n\
         profile-missing: WorkloadEndpoint shop/vm: its profile \"dmz\" does not exist, so what no policy decides is \
         denied\n  try: create the profile, or the namespace or service account of which it is made\n\
         1 policy, 6 findings\n"
    );
    assert_eq!((&*ran.out, &*ran.err, ran.code), (&*expected, "", 1));
}

#[test]
fn rules_that_decide_instead_are_named() {
    let rule = "{from: [{podSelector: {matchLabels: {app: web}}}]}";
    let text = policy(&format!("ingress: [{rule},\n {rule}]"));
    let db = "apiVersion: v1\nkind: Pod\nmetadata: {name: db, namespace: shop}\n";
    let world = World::of(&[("pods.yaml", PODS), ("db.yaml", db), ("p.yaml", &text)]);
    let json = world.json("lint", "");
    assert_eq!(
        json["findings"][0]["related"],
        json!([{
            "policy": {"kind": "NetworkPolicy", "namespace": "shop", "name": "p", "line": "p.yaml:1"},
            "direction": "Ingress",
            "index": 0,
            "line": "p.yaml:4",
            "action": "Allow",
        }])
    );
    assert_eq!(json["findings"][0]["code"], "RuleNeverReached");
}

/// Errors of the manifests, and policies without pods, are no clean result.
#[test]
fn what_cannot_be_checked_is_exit_code_1() {
    let broken = World::of(&[
        ("pods.yaml", PODS),
        ("p.yaml", &policy("policyTypes: [Both]")),
    ]);
    let ran = broken.run("lint", "");
    assert_eq!((ran.code, &*ran.out), (1, "1 policy, 0 findings\n"));
    assert!(ran.err.contains("\"Both\" is not a policy type"), "{ran:?}");
    let ran = World::of(&[("p.yaml", &policy(DENY_ALL))]).run("lint", "");
    assert_eq!(
        (ran.code, &*ran.out, &*ran.err),
        (
            1,
            "not checked: there is no pod or workload, so it is not known what policies select\n\
             1 policy, 0 findings\n",
            ""
        )
    );
    let missing = run(&["lint", "-f", "/not/there"]);
    assert_eq!((missing.code, &*missing.out), (2, ""));
    assert_eq!(run(&["lint"]).code, 2);
}

/// The examples are free of findings, but for one that leaves something to policies which its cluster does not have;
/// policies that tell a pod's own node from others are not looked at.
#[test]
fn examples_have_the_findings_that_are_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found = Vec::new();
    let mut lint = |name: &str, paths: &[PathBuf]| {
        let mut args = vec!["lint"];
        for path in paths {
            args.extend(["-f", path.to_str().unwrap()]);
        }
        let ran = run(&args);
        assert_eq!(ran.err, "", "{name}");
        let places = ran.out.lines().filter(|line| line.contains(".yaml:"));
        let codes = places.filter_map(|line| line.split(": ").nth(1));
        let before = found.len();
        found.extend(codes.map(|code| format!("{name}: {code}")));
        let unchecked = ran.out.lines().filter_map(|line| line.split_once(": "));
        let unchecked = unchecked.filter(|(word, _)| *word == "not checked");
        found.extend(unchecked.map(|(word, _)| format!("{name}: {word}")));
        assert_eq!(ran.code, i32::from(found.len() > before), "{ran:?}");
    };
    lint("shop", &[folder.join("shop")]);
    for dialect in [
        "networkpolicy",
        "clusternetworkpolicy",
        "ciliumnetworkpolicy",
        "caliconetworkpolicy",
    ] {
        let files = std::fs::read_dir(folder.join("policies").join(dialect)).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let mut manifests: Vec<PathBuf> = paths
            .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
            .collect();
        manifests.sort();
        for manifest in manifests {
            let name = manifest.file_stem().unwrap().to_str().unwrap().to_owned();
            lint(&name, &[folder.join("policies/cluster.yaml"), manifest]);
        }
    }
    assert_eq!(
        found,
        [
            "egress-to-names: pass-into-nothing",
            "no-way-out: pass-into-nothing",
            "api-server-and-node: not checked",
            "deny-over-allow: not checked",
        ]
    );
}

#[test]
fn a_dump_of_a_cluster_is_checked() {
    let dump = ClusterDump {
        pods: 600,
        workloads: 60,
        namespaces: 12,
        policies: 90,
    };
    let mut text = Vec::new();
    dump.write(&mut text).unwrap();
    let world = World::of(&[("all.json", &String::from_utf8(text).unwrap())]);
    let json = world.json("lint", "");
    assert_eq!(json["policies"], 90);
    assert_eq!(json["unchecked"], json!([]));
}

#[test]
fn what_policies_do_at_hosts_is_not_called_nothing() {
    let of = |kind: &str, spec: &str| {
        format!(
            "{{apiVersion: projectcalico.org/v3, kind: {kind}, metadata: {{name: node-1, labels: {{role: node}}}}, spec: {spec}}}\n"
        )
    };
    let endpoint = of("HostEndpoint", "{node: node-1, interfaceName: eth0}");
    let rules = "[{action: Allow, protocol: TCP, destination: {ports: [80]}}, {action: Allow, protocol: TCP, destination: {ports: [80]}}]";
    let spec = |selector: &str| {
        format!("{{selector: \"{selector}\", types: [Ingress], ingress: {rules}}}")
    };
    let on_hosts = of("GlobalNetworkPolicy", &spec("role == 'node'"));
    let world = World::of(&[
        ("pods.yaml", PODS),
        ("h.yaml", &endpoint),
        ("p.yaml", &on_hosts),
    ]);
    let told = world.json("lint", "");
    assert_eq!(told["findings"], json!([]), "{told:#}");
    let unchecked =
        "whether 1 policies that select host endpoints, and their rules, change anything";
    assert_eq!(told["unchecked"], json!([unchecked]));
    // One that selects no host is checked as before.
    let on_pods = of("GlobalNetworkPolicy", &spec("app == 'web'"));
    let world = World::of(&[
        ("pods.yaml", PODS),
        ("h.yaml", &endpoint),
        ("p.yaml", &on_pods),
    ]);
    let told = world.json("lint", "");
    assert_eq!(told["unchecked"], json!([]), "{told:#}");
    assert!(!told["findings"].as_array().unwrap().is_empty(), "{told:#}");
}

#[test]
fn a_policy_of_nodes_that_selects_none() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {role: edge}}}\n";
    let policy = |role: &str| {
        format!(
            "{{apiVersion: cilium.io/v2, kind: CiliumClusterwideNetworkPolicy, metadata: {{name: nodes}}, \
             spec: {{nodeSelector: {{matchLabels: {{role: {role}}}}}, ingress: [{{fromEntities: [world]}}]}}}}\n"
        )
    };
    let misspelled = [
        ("n.yaml", node),
        ("p.yaml", &policy("egde")),
        ("pods.yaml", PODS),
    ];
    let ran = World::of(&misspelled).run("lint", "");
    assert_eq!(
        ran.out,
        "p.yaml:1: subject-selects-nothing: CiliumClusterwideNetworkPolicy nodes: it selects nothing: no endpoint is \
         of a node labelled role = \"egde\"\n  try: did you mean role = \"edge\"?\n1 policy, 1 finding\n"
    );
    let selected = [
        ("n.yaml", node),
        ("p.yaml", &policy("edge")),
        ("pods.yaml", PODS),
    ];
    let ran = World::of(&selected).run("lint", "");
    assert!(ran.out.ends_with("1 policy, 0 findings\n"), "{}", ran.out);
}
