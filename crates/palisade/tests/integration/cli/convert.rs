//! `palisade convert`: its documents, its report, its exit codes and its JSON.

use super::{PODS, World, policy, run};
use palisade_testkit::spelling::misspelled_keys;
use serde_json::{Value, json};

const WEB: &str = "policyTypes: [Ingress],\n ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]";

const BLOCK: &str =
    "ingress: [\n {from: [{podSelector: {}}]},\n {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]";

/// The JSON of a conversion. Its objects have keys of their own, so only the rest is checked for spelling.
fn converted(world: &World, target: &str) -> Value {
    let ran = world.run("convert", &format!("-o json --to {target}"));
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(value["apiVersion"], "palisade.io/v1");
    let mut rest = value.clone();
    rest["objects"] = Value::Null;
    assert_eq!(misspelled_keys(&rest), [""; 0]);
    value
}

#[test]
fn documents_are_written_for_each_object() {
    let world = World::of(&[("pods.yaml", PODS), ("p.yaml", &policy(WEB))]);
    let ran = world.run("convert", "--to cilium");
    assert_eq!((ran.code, &*ran.err), (0, ""));
    assert_eq!(
        ran.out,
        "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata:\n  name: p\n  namespace: shop\nspec:\n  \
         endpointSelector: {}\n  ingress:\n  - fromEndpoints:\n    - matchLabels:\n        \"k8s:app\": web\n    \
         toPorts:\n    - ports:\n      - port: \"80\"\n        protocol: TCP\n"
    );
    assert_eq!(world.run("convert", "--to cilium -o yaml").out, ran.out);
    // What was written is a manifest like any other: the same connections, and back again.
    let cilium = World::of(&[("pods.yaml", PODS), ("p.yaml", &ran.out)]);
    let connections = |world: &World| world.run("connections", "").out;
    assert_eq!(connections(&cilium), connections(&world));
    let back = cilium.run("convert", "--to kubernetes");
    assert_eq!((back.code, &*back.err), (0, ""));
    let back = World::of(&[("pods.yaml", PODS), ("p.yaml", &back.out)]);
    assert_eq!(back.run("convert", "--to cilium").out, ran.out);
}

#[test]
fn what_cannot_be_said_is_exit_code_1_with_the_rule() {
    let both = format!(
        "{}---\n{}",
        policy(WEB),
        policy(BLOCK).replace("name: p,", "name: q,")
    );
    let world = World::of(&[("pods.yaml", PODS), ("p.yaml", &both)]);
    let ran = world.run("convert", "--to cilium");
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains("name: p\n") && !ran.out.contains("name: q\n"),
        "{ran:?}"
    );
    assert_eq!(
        ran.err,
        "p.yaml:12: NetworkPolicy shop/q: ingress[1].from[0]: networks of Cilium never match pods or nodes, but \
         10.0.0.0/8 matches them too\n1 object written, 1 not convertible\n"
    );
    let json = converted(&world, "cilium");
    assert_eq!(
        json["inexpressible"],
        json!([{
            "policy": {"kind": "NetworkPolicy", "namespace": "shop", "name": "q"},
            "rule": "ingress[1].from[0]",
            "reason": "networks of Cilium never match pods or nodes, but 10.0.0.0/8 matches them too",
            "at": "p.yaml:12",
        }])
    );
    assert_eq!(json["objects"][0]["kind"], "CiliumNetworkPolicy");
    assert_eq!(json["objects"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.run("convert", "--to calico").code, 0);
}

#[test]
fn one_policy_can_be_selected() {
    let both = format!(
        "{}---\n{}",
        policy(WEB),
        policy(BLOCK).replace("name: p,", "name: q,")
    );
    let world = World::of(&[("pods.yaml", PODS), ("p.yaml", &both)]);
    for kind in [
        "NetworkPolicy",
        "networkpolicy",
        "networkpolicy.networking.k8s.io",
    ] {
        let ran = world.run("convert", &format!("--to calico {kind} q -n shop"));
        assert_eq!(
            (ran.code, ran.out.matches("kind: ").count()),
            (0, 1),
            "{ran:?}"
        );
        assert!(ran.out.contains("  name: q\n"), "{ran:?}");
    }
    let ran = world.run("convert", "--to calico networkpolicy q -n other");
    assert_eq!((ran.code, &*ran.out), (2, ""));
    assert_eq!(
        ran.err,
        "palisade: there is no networkpolicy q in namespace other\n"
    );
    assert_eq!(world.run("convert", "--to calico -n other").out, "");
}

#[test]
fn audit_is_kept() {
    let audit = policy(WEB).replace(
        "namespace: shop}",
        "namespace: shop, annotations: {palisade.dev/mode: audit}}",
    );
    let world = World::of(&[("pods.yaml", PODS), ("p.yaml", &audit)]);
    for target in ["cilium", "calico", "kubernetes"] {
        let json = converted(&world, target);
        let annotations = &json["objects"][0]["metadata"]["annotations"];
        assert_eq!(
            annotations,
            &json!({"palisade.dev/mode": "audit"}),
            "{target}"
        );
    }
}

#[test]
fn usage_and_errors() {
    assert_eq!(
        run(&["convert", "-f", "/not/there", "--to", "cilium"]).code,
        2
    );
    assert_eq!(run(&["convert", "--to", "cilium"]).code, 2);
    let world = World::of(&[("p.yaml", &policy("policyTypes: [Both]"))]);
    assert_eq!(world.run("convert", "--to istio").code, 2);
    let ran = world.run("convert", "--to cilium");
    assert_eq!((ran.code, &*ran.out), (1, ""));
    assert!(ran.err.contains("\"Both\" is not a policy type"), "{ran:?}");
    assert!(
        ran.err
            .contains("the policy has errors, so what it says is not known"),
        "{ran:?}"
    );
    let twice = World::of(&[("p.yaml", &policy(WEB)), ("q.yaml", &policy(BLOCK))]);
    for target in ["kubernetes", "calico"] {
        let ran = twice.run("convert", &format!("--to {target}"));
        assert_eq!((ran.code, &*ran.out), (1, ""));
        assert!(
            ran.err.contains("the policy is defined more than once"),
            "{ran:?}"
        );
    }
    let yaml = world.run("lint", "-o yaml");
    assert_eq!(
        (yaml.code, &*yaml.err),
        (
            2,
            "palisade: only the commands convert and suggest print YAML\n"
        )
    );
}

/// A policy of Calico becomes one of the others, as far as they can say it, and is the same to `connections`.
#[test]
fn calicos_policies_are_converted() {
    let calico = |name: &str, spec: &str| {
        format!(
            "apiVersion: crd.projectcalico.org/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {spec}\n---\n"
        )
    };
    let workloads = "has(projectcalico.org/orchestrator)";
    let p = format!(
        "{{order: 1000, selector: app == 'web', ingress: [{{action: Allow, protocol: TCP, \
         source: {{selector: \"app == 'guest' && {workloads}\", namespaceSelector: all()}}, \
         destination: {{ports: [http]}}}}]}}"
    );
    let early = "{order: 10, selector: all(), egress: [{action: Allow}]}";
    let text = format!("{}{}", calico("p", &p), calico("q", early));
    let world = World::of(&[("pods.yaml", PODS), ("p.yaml", &text)]);
    for (target, kind) in [
        ("kubernetes", "NetworkPolicy"),
        ("cilium", "CiliumNetworkPolicy"),
    ] {
        let ran = world.run("convert", &format!("--to {target}"));
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("shop/q: "), "{ran:?}");
        assert!(
            ran.err.ends_with("1 object written, 1 not convertible\n"),
            "{ran:?}"
        );
        let json = converted(&world, target);
        assert_eq!(json["objects"][0]["kind"], kind);
        let alone = World::of(&[("pods.yaml", PODS), ("p.yaml", &calico("p", &p))]);
        let written = World::of(&[("pods.yaml", PODS), ("p.yaml", &ran.out)]);
        let of = |world: &World| world.json("connections", "")["connections"].clone();
        assert!(of(&alone).as_array().is_some_and(|all| !all.is_empty()));
        assert_eq!(of(&alone), of(&written), "{target}");
    }
}
