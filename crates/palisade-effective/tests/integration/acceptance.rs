//! What is in force of each policy, with its reasons and with its parts held closed, through edits and a restart.

use palisade_dialects::lower_object;
use palisade_effective::{
    BudgetUse, Definition, DefinitionChange, EffectiveObjects, ElementBudget, EnforcedVersion,
    ObjectOrigin, PolicyAcceptance, RestoredObject, SourceDelta,
};
use palisade_manifest::{Limits, extract_objects, parse};
use std::sync::Arc;

struct Scene {
    objects: EffectiveObjects,
    now: u64,
}

fn definition(file: &str, text: &str) -> Definition {
    let limits = Limits::default();
    let read = extract_objects(parse(file, text.as_bytes(), &limits), &limits);
    let raw = read.objects.into_iter().next().unwrap();
    let mut lowered = lower_object(&raw);
    let origin = ObjectOrigin::File {
        path: file.into(),
        location: raw.location.clone(),
    };
    Definition::new(Arc::new(lowered.id.clone()), &raw, &mut lowered, origin)
}

impl Scene {
    fn new() -> Self {
        let budget = ElementBudget {
            set: 50,
            ..ElementBudget::default()
        };
        let names = ["folder".into()];
        let budget_use = BudgetUse::Enforced;
        Scene {
            objects: EffectiveObjects::new(names, budget, budget_use),
            now: 0,
        }
    }

    fn apply(&mut self, changes: Vec<DefinitionChange>) {
        self.now += 1;
        let delta = SourceDelta {
            changes,
            in_sync: true,
            ..SourceDelta::default()
        };
        self.objects.apply(0, delta, self.now, &mut drop);
    }

    fn define(&mut self, file: &str, text: &str) -> &mut Self {
        self.apply(vec![DefinitionChange::Upsert(definition(file, text))]);
        self
    }

    /// The policies that are not enforced as written: `name state [errors] {parts held closed}`.
    fn shown(&mut self) -> Vec<String> {
        let report = self.objects.report();
        report.policies.iter().map(show).collect()
    }
}

fn show(policy: &PolicyAcceptance) -> String {
    let state = match policy.enforced {
        EnforcedVersion::Present => "present".to_owned(),
        EnforcedVersion::LastValid(version) => format!("last-valid-of-{}", version.since),
        EnforcedVersion::Isolation => "isolation".to_owned(),
        EnforcedVersion::Nothing => "nothing".to_owned(),
    };
    let errors: Vec<&str> = policy.errors.iter().map(|error| &*error.field).collect();
    let closed = policy.closed.iter().flat_map(|closed| &closed.parts);
    let closed: Vec<String> = closed
        .map(|part| format!("{}={}", part.problem.field, part.reason.name()))
        .collect();
    format!("{} {state} {errors:?} {closed:?}", policy.id)
}

fn admin(name: &str, peers: &str) -> String {
    format!(
        "{{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {{name: {name}}}, \
         spec: {{priority: 1, subject: {{namespaces: {{}}}}, egress: [{{action: Allow, to: [{peers}]}}]}}}}"
    )
}

const NAMES: &str = "{zones: [a.example.com]}";

#[test]
fn a_policy_through_its_versions() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.define("a", &admin("x", "{namespaces: {}}")).shown(),
        [""; 0]
    );
    let closed = r#"["spec.egress[0].to[0].zones=unknown-peer"]"#;
    assert_eq!(
        scene.define("a", &admin("x", NAMES)).shown(),
        [format!("AdminNetworkPolicy x present [] {closed}")]
    );
    // The parts are those of the version in force, not of the invalid one.
    let invalid =
        admin("x", "{namespaces: {}}, {zone: {}}").replace("priority: 1", "priority: 9999");
    assert_eq!(
        scene.define("a", &invalid).shown(),
        [format!(
            "AdminNetworkPolicy x last-valid-of-2 [\"spec.priority\"] {closed}"
        )]
    );
    assert_eq!(
        scene.define("a", &admin("x", "{namespaces: {}}")).shown(),
        [""; 0]
    );
    scene.define("a", &admin("x", NAMES));
    let id = definition("a", &admin("x", NAMES)).id;
    scene.apply(vec![DefinitionChange::Gone(id)]);
    assert_eq!(scene.shown(), [""; 0]);
}

#[test]
fn a_policy_that_was_never_valid() {
    let mut scene = Scene::new();
    let netpol = |spec: &str| {
        format!(
            "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: a}}, spec: {spec}}}"
        )
    };
    let isolating = netpol("{podSelector: {}, policyTypes: [Both]}");
    assert_eq!(
        scene.define("a", &isolating).shown(),
        [r#"NetworkPolicy default/a isolation ["spec.policyTypes[0]"] []"#]
    );
    let nothing = netpol("{podSelector: {matchLabel: {}}}");
    assert_eq!(
        scene.define("a", &nothing).shown(),
        [r#"NetworkPolicy default/a nothing ["spec.podSelector.matchLabel"] []"#]
    );
    // Of a policy of Calico as well, if its selector cannot be read; and a pod is no policy.
    let calico = "{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: c}, \
                  spec: {selector: app = 'a'}}";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: A_}}";
    scene.define("c", calico).define("p", pod);
    assert_eq!(
        scene.shown(),
        [
            r#"NetworkPolicy default/a nothing ["spec.podSelector.matchLabel"] []"#,
            r#"NetworkPolicy default/c nothing ["spec.selector"] []"#,
        ]
    );
}

#[test]
fn over_budget_and_twice() {
    let mut scene = Scene::new();
    let ports: Vec<String> = (1..200)
        .map(|port| format!("{{port: {}}}", 2 * port))
        .collect();
    let large = format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: large}}, spec: {{podSelector: {{}}, \
         ingress: [{{from: [{{podSelector: {{}}}}], ports: [{}]}}]}}}}",
        ports.join(", ")
    );
    scene.define("a", &large);
    let report = scene.objects.report();
    assert_eq!(
        show(&report.policies[0]),
        r#"NetworkPolicy default/large isolation ["spec"] []"#
    );
    assert!(
        report.policies[0].errors[0]
            .reason
            .contains("policy-set-max-elements")
    );
    assert!(!report.policies[0].errors[0].reason.ends_with("; "));
    let mut scene = Scene::new();
    scene.define("a", &admin("x", NAMES));
    scene.define("b", &admin("x", "{namespaces: {}}"));
    let report = scene.objects.report();
    let [policy] = &report.policies[..] else {
        panic!("{:?}", report.policies);
    };
    assert!(matches!(policy.enforced, EnforcedVersion::LastValid(_)));
    assert!(
        policy.errors[0].reason.contains("is defined twice"),
        "{policy:?}"
    );
    assert!(policy.closed.is_some());
}

#[test]
fn errors_are_bounded_and_counted() {
    let mut scene = Scene::new();
    let rules = vec!["{ports: [{port: 0}]}"; 300].join(", ");
    let text = format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: a}}, spec: {{ingress: [{rules}]}}}}"
    );
    scene.define("a", &text);
    let report = scene.objects.report();
    let policy = &report.policies[0];
    assert_eq!((policy.errors.len(), policy.more_errors), (20, 280));
    let peers = vec![NAMES; 100].join(", ");
    scene.define("x", &admin("x", &peers));
    let report = scene.objects.report();
    let closed = report.policies[0].closed.as_ref().unwrap();
    assert_eq!((closed.parts.len(), closed.more), (100, 0));
}

/// After a restart the last valid version has its parts, though its text is gone.
#[test]
fn a_restart_keeps_the_parts_of_the_last_valid_version() {
    let mut scene = Scene::new();
    scene.define("a", &admin("x", NAMES));
    let saved = scene.objects.take_unsaved();
    let mut later = Scene::new();
    later
        .objects
        .restore(saved.into_iter().map(|(id, version)| RestoredObject {
            id,
            source: None,
            version: version.unwrap(),
        }));
    let invalid = admin("x", "{}").replace("priority: 1", "priority: 9999");
    let shown = later.define("a", &invalid).shown();
    assert_eq!(
        shown,
        [
            r#"AdminNetworkPolicy x last-valid-of-1 ["spec.priority"] ["spec.egress[0].to[0].zones=unknown-peer"]"#
        ]
    );
}
