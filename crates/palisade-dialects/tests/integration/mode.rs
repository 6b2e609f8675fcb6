//! The annotation `palisade.dev/mode`: what it puts in audit, and what a value that is no mode comes to.

use crate::common;
use palisade_dialects::isolate;
use palisade_model::{Object, PolicyMode};

const KINDS: [(&str, &str); 4] = [
    ("networking.k8s.io/v1 NetworkPolicy", "{podSelector: {}}"),
    (
        "policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy",
        "{tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}",
    ),
    (
        "policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy",
        "{priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}",
    ),
    (
        "policy.networking.k8s.io/v1alpha1 BaselineAdminNetworkPolicy",
        "{subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}",
    ),
];

fn object(kind: &str, annotations: &str, rest: &str) -> String {
    let (version, kind) = kind.split_once(' ').unwrap_or(("v1", kind));
    let name = match kind {
        "BaselineAdminNetworkPolicy" => "default",
        _ => "a",
    };
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, annotations: {annotations}}}\n{rest}\n"
    )
}

/// The modes of policies, and whether pods and namespaces are in audit.
fn modes(text: &str) -> Vec<bool> {
    let lowering = common::lowering("f", text);
    assert!(lowering.errors.is_empty(), "{:?}", lowering.errors);
    let audit = |object: &Object| match object {
        Object::Policy(policy) => policy.mode == PolicyMode::Audit,
        Object::Endpoint(endpoint) => endpoint.audit,
        Object::Namespace(namespace) => namespace.audit,
        _ => false,
    };
    lowering.objects().map(|object| audit(&object)).collect()
}

#[test]
fn policies_of_every_kind() {
    for (kind, spec) in KINDS {
        let written = |annotations: &str| object(kind, annotations, &format!("spec: {spec}"));
        for (annotations, audit) in [
            ("{palisade.dev/mode: audit}", true),
            ("{palisade.dev/mode: enforce}", false),
            ("{example.com/mode: audit}", false),
            ("{}", false),
        ] {
            assert_eq!(
                modes(&written(annotations)),
                [audit],
                "{kind} {annotations}"
            );
        }
        for (annotations, reason) in [
            (
                "{palisade.dev/mode: Audit}",
                "\"Audit\" is not a mode: use audit or enforce",
            ),
            (
                "{palisade.dev/mode: ''}",
                "\"\" is not a mode: use audit or enforce",
            ),
            (
                "{palisade.dev/mode: [audit]}",
                "expected text, found a list",
            ),
        ] {
            let lowering = common::lowering("f", &written(annotations));
            let told: Vec<&str> = lowering.errors.iter().map(|e| &*e.reason).collect();
            assert_eq!(told, [reason], "{kind} {annotations}");
        }
        let lowering = common::lowering("f", &written("{palisade.dev/mod: audit}"));
        let told: Vec<&str> = lowering.warnings.iter().map(|w| &*w.reason).collect();
        let reason = "\"palisade.dev/mod\" is not an annotation of Palisade; did you mean palisade.dev/mode?";
        assert_eq!(told, [reason], "{kind}");
    }
}

/// What isolates in place of a policy that was never valid enforces nothing either if the policy would not.
#[test]
fn isolation_keeps_the_mode() {
    for (annotations, mode) in [
        ("{palisade.dev/mode: audit}", PolicyMode::Audit),
        ("{palisade.dev/mode: audti}", PolicyMode::Enforce),
    ] {
        let text = object(
            "networking.k8s.io/v1 NetworkPolicy",
            annotations,
            "spec: {podSelector: {}, ingress: [{ports: [{port: 0}]}]}",
        );
        let raw = common::raw("f", &text);
        let modes: Vec<_> = raw.iter().flat_map(isolate).map(|p| p.mode).collect();
        assert_eq!(modes, [mode], "{annotations}");
    }
}

#[test]
fn pods_workloads_and_namespaces() {
    let pod = "metadata: {annotations: {palisade.dev/mode: audit}}";
    for (written, audit) in [
        (object("Namespace", "{palisade.dev/mode: audit}", ""), true),
        (
            object("Pod", "{palisade.dev/mode: audit}", "spec: {}"),
            true,
        ),
        (
            object("Pod", "{palisade.dev/mode: enforce}", "spec: {}"),
            false,
        ),
        // That of a Deployment is not about its pods; that of its template is.
        (
            object(
                "apps/v1 Deployment",
                "{palisade.dev/mode: audit}",
                "spec: {template: {spec: {}}}",
            ),
            false,
        ),
        (
            object(
                "apps/v1 Deployment",
                "{}",
                &format!("spec: {{template: {{{pod}, spec: {{}}}}}}"),
            ),
            true,
        ),
    ] {
        assert_eq!(modes(&written), [audit], "{written}");
    }
    for kind in ["Namespace", "Pod"] {
        let text = object(kind, "{palisade.dev/mode: audti}", "");
        assert_eq!(modes(&text), [false], "{kind}: enforced");
        let lowering = common::lowering("f", &text);
        let told: Vec<&str> = lowering.warnings.iter().map(|w| &*w.reason).collect();
        let reason = "\"audti\" is not a mode: use audit or enforce; policy is enforced";
        assert_eq!(told, [reason], "{kind}");
    }
}
