//! Several sources: precedence, duplicates between them, in-sync marks, staleness, restored versions.
//!
//! Policies are written `name:port`; `name:!` is an invalid one.

use palisade_dialects::lower_object;
use palisade_effective::{
    BudgetUse, Definition, DefinitionChange, EffectiveObjects, ElementBudget, ObjectOrigin,
    RestoredObject, SourceDelta, SourceNumber,
};
use palisade_manifest::{Limits, RawObject, extract_objects, parse};
use palisade_model::{PortRange, PortSpec, State};
use std::sync::Arc;

struct Scene {
    objects: EffectiveObjects,
    state: State,
    now: u64,
}

fn raw(text: &str) -> RawObject {
    let limits = Limits::default();
    let read = extract_objects(parse("object", text.as_bytes(), &limits), &limits);
    read.objects.into_iter().next().unwrap()
}

fn definition(text: &str, version: u32) -> Definition {
    let raw = raw(text);
    let mut lowered = lower_object(&raw);
    let origin = ObjectOrigin::Resource {
        version: version.to_string().into(),
        location: raw.location.clone(),
    };
    let id = Arc::new(lowered.id.clone());
    Definition::new(id, &raw, &mut lowered, origin)
}

fn policy(written: &str) -> String {
    let (name, port) = written.split_once(':').unwrap();
    let port = port.replace('!', "0");
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: {name}}}, \
         spec: {{podSelector: {{}}, ingress: [{{ports: [{{port: {port}}}]}}]}}}}"
    )
}

impl Scene {
    fn new(sources: &[&str]) -> Self {
        let names = sources.iter().map(|name| (*name).into());
        Scene {
            objects: EffectiveObjects::new(names, ElementBudget::default(), BudgetUse::Enforced),
            state: State::default(),
            now: 0,
        }
    }

    fn apply(&mut self, source: SourceNumber, delta: SourceDelta) {
        self.now += 1;
        let state = &mut self.state;
        self.objects
            .apply(source, delta, self.now, &mut |update| state.apply(update));
    }

    /// A source defines these policies, in addition to what it has.
    fn define(&mut self, source: SourceNumber, policies: &str) {
        let version = u32::try_from(self.now).unwrap();
        let upsert = |written| DefinitionChange::Upsert(definition(&policy(written), version));
        let changes = policies.split_whitespace().map(upsert).collect();
        self.apply(
            source,
            SourceDelta {
                changes,
                ..SourceDelta::default()
            },
        );
    }

    fn remove(&mut self, source: SourceNumber, name: &str) {
        let id = definition(&policy(&format!("{name}:1")), 0).id;
        self.apply(
            source,
            SourceDelta {
                changes: vec![DefinitionChange::Gone(id)],
                ..SourceDelta::default()
            },
        );
    }

    fn sync(&mut self, source: SourceNumber) {
        self.apply(
            source,
            SourceDelta {
                in_sync: true,
                ..SourceDelta::default()
            },
        );
    }

    /// The policies in force, `!` for each error, `kept` for each retained object.
    fn shown(&mut self) -> String {
        let mut shown: Vec<String> = Vec::new();
        for policy in self.state.policies.values() {
            let rules = policy.ingress.as_ref().map_or(&[][..], |d| &d.rules);
            let port = rules.iter().flat_map(|rule| &rule.traffic).next();
            let port = match port.and_then(|t| t.destination.any_of.as_deref()) {
                Some([PortSpec::Range(PortRange { first, .. })]) => first.to_string(),
                _ => "isolated".to_owned(),
            };
            shown.push(format!("{}:{port}", policy.id.object.name));
        }
        let report = self.objects.report();
        for problem in &report.problems {
            shown.push(format!("! {}", problem.problem.reason));
        }
        for kept in &report.retained {
            let since = kept.since.map_or("never".to_owned(), |at| at.to_string());
            shown.push(format!("kept {} {since}", kept.object));
        }
        assert_eq!(report.objects, self.state.policies.len());
        shown.join("\n")
    }
}

const TWICE: &str =
    "! NetworkPolicy default/a is defined twice: here and at object, resource version";

#[test]
fn until_all_are_in_sync_precedence_decides() {
    let mut scene = Scene::new(&["first", "second"]);
    scene.define(1, "a:2 b:2");
    scene.sync(1);
    assert!(!scene.objects.in_sync());
    scene.define(0, "a:1");
    scene.sync(0);
    assert!(scene.objects.in_sync());
    let shown = scene.shown();
    assert_eq!(
        shown,
        format!("a:1\nb:2\n{TWICE} 2\nkept NetworkPolicy default/a 3")
    );
}

#[test]
fn the_holder_of_a_name_stays() {
    let mut scene = Scene::new(&["first", "second"]);
    scene.sync(0);
    scene.define(1, "a:2");
    scene.sync(1);
    scene.define(0, "a:1");
    assert!(scene.shown().starts_with("a:2\n! "), "{}", scene.shown());
    // Each definition of the holder's source takes effect only when it is the only one.
    scene.remove(0, "a");
    assert_eq!(scene.shown(), "a:2");
    scene.define(0, "a:1");
    scene.remove(1, "a");
    assert_eq!(scene.shown(), "a:1");
    scene.remove(0, "a");
    assert_eq!(scene.shown(), "");
}

#[test]
fn an_invalid_version_takes_nothing_out_of_force() {
    let mut scene = Scene::new(&["only"]);
    scene.define(0, "a:1 b:!");
    scene.sync(0);
    assert_eq!(
        scene.shown(),
        "a:1\nb:isolated\nkept NetworkPolicy default/b never"
    );
    let versions = |scene: &mut Scene| -> Vec<(String, bool)> {
        let saved = scene.objects.take_unsaved().into_iter();
        saved
            .map(|(id, version)| (id.name.to_string(), version.is_some()))
            .collect()
    };
    assert_eq!(
        versions(&mut scene),
        [("a".to_owned(), true), ("b".to_owned(), true)]
    );
    // The invalid version replaces the definition of the former resource version.
    scene.define(0, "a:!");
    assert_eq!(
        scene.shown(),
        "a:1\nb:isolated\nkept NetworkPolicy default/a 1\nkept NetworkPolicy default/b never"
    );
    scene.remove(0, "b");
    assert_eq!(
        versions(&mut scene),
        [("a".to_owned(), true), ("b".to_owned(), false)]
    );
}

#[test]
fn a_resource_version_replaces_the_former_one_of_its_source() {
    let mut scene = Scene::new(&["first", "second"]);
    scene.define(0, "a:1");
    scene.sync(0);
    scene.sync(1);
    for port in [2, 3] {
        scene.define(0, &format!("a:{port}"));
        assert_eq!(scene.shown(), format!("a:{port}"));
    }
    scene.define(1, "a:4");
    assert!(scene.shown().starts_with(&format!("a:3\n{TWICE}")));
    scene.remove(1, "a");
    assert_eq!(scene.shown(), "a:3");
}

#[test]
fn each_source_is_stale_by_itself() {
    let mut scene = Scene::new(&["first", "second"]);
    let stale = |reason: &str| SourceDelta {
        in_sync: true,
        stale: Some(reason.to_owned()),
        ..SourceDelta::default()
    };
    scene.apply(1, stale("no connection"));
    scene.apply(1, stale("no connection"));
    let since = |scene: &Scene, source: usize| {
        let stale = scene.objects.sources()[source].stale.clone();
        stale.map(|stale| (stale.since, stale.reason))
    };
    assert_eq!(since(&scene, 1), Some((1, "no connection".to_owned())));
    assert_eq!(since(&scene, 0), None);
    scene.apply(1, stale("no answer"));
    let expected = Some((1, "no answer".to_owned()));
    assert_eq!(since(&scene, 1), expected, "another reason, the same time");
    scene.sync(1);
    assert_eq!(since(&scene, 1), None);
}

#[test]
fn what_was_restored_holds_its_name_until_its_source_is_in_sync() {
    let mut before = Scene::new(&["first", "second"]);
    before.define(1, "a:2 gone:2");
    let saved = before.objects.take_unsaved();
    let mut scene = Scene::new(&["first", "second"]);
    let restored = saved.into_iter().map(|(id, version)| RestoredObject {
        id,
        source: Some("second".into()),
        version: version.unwrap(),
    });
    scene.objects.restore(restored);
    assert_eq!(scene.objects.restored(1).count(), 2);
    scene.define(0, "a:1");
    scene.sync(0);
    assert_eq!(scene.state.policies.len(), 1, "the holder was restored");
    scene.define(1, "a:2");
    scene.sync(1);
    let shown = scene.shown();
    assert!(
        shown.starts_with("a:2\n! "),
        "what is absent is gone: {shown}"
    );
    // The objects of a source that is not configured any more are dropped.
    let saved = scene.objects.take_unsaved();
    let mut other = Scene::new(&["other"]);
    let restored = saved.into_iter().filter_map(|(id, version)| {
        Some(RestoredObject {
            id,
            source: Some("second".into()),
            version: version?,
        })
    });
    other.objects.restore(restored);
    other.sync(0);
    assert_eq!(other.shown(), "");
}

#[test]
fn phase_and_host_network_decide_which_pods_hold_addresses() {
    let pod = |name: &str, spec: &str, phase: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {spec}, \
             status: {{phase: {phase}, podIP: 10.0.0.1}}}}"
        )
    };
    let mut scene = Scene::new(&["only"]);
    let changes = [
        pod("done", "{}", "Succeeded"),
        pod("host", "{hostNetwork: true}", "Running"),
        pod("runs", "{}", "Running"),
    ];
    let upsert = |text: &String| DefinitionChange::Upsert(definition(text, 1));
    let changes = changes.iter().map(upsert).collect();
    scene.apply(
        0,
        SourceDelta {
            changes,
            ..SourceDelta::default()
        },
    );
    let endpoints = scene.state.endpoints.values();
    let shown: Vec<String> = endpoints
        .map(|e| format!("{} {} {:?}", e.id.name, e.is_completed(), e.addresses))
        .collect();
    assert_eq!(shown, ["done true []", "runs false [10.0.0.1]"]);
    assert!(
        scene
            .objects
            .take_unsaved()
            .iter()
            .all(|(_, v)| v.is_none())
    );
    assert_eq!(
        scene.objects.report().problems,
        [],
        "no address is claimed twice"
    );
    // A pod on the host network is no endpoint any more.
    let id = definition(&pod("runs", "{}", "Running"), 0).id;
    scene.apply(
        0,
        SourceDelta {
            changes: vec![
                DefinitionChange::Gone(id),
                upsert(&pod("runs", "{hostNetwork: true}", "Running")),
            ],
            ..SourceDelta::default()
        },
    );
    assert_eq!(scene.state.endpoints.len(), 1);
}

fn pod(written: &str) -> String {
    let (name, value) = written.split_once(':').unwrap();
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{v: \"{value}\"}}}}}}")
}

/// What can happen to one object in two sources.
const STEPS: [(SourceNumber, &str); 7] = [
    (0, "1"),
    (1, "1"),
    (1, "2"),
    (0, "gone"),
    (1, "gone"),
    (0, "sync"),
    (1, "sync"),
];

/// The value in force after these steps, of an object that is written so.
fn value_after(steps: &[usize], write: fn(&str) -> String) -> Option<String> {
    let mut scene = Scene::new(&["first", "second"]);
    for (at, step) in steps.iter().enumerate() {
        let (source, what) = STEPS[*step];
        let changes = match what {
            "sync" => vec![],
            "gone" => vec![DefinitionChange::Gone(definition(&write("a:1"), 0).id)],
            value => {
                let version = u32::try_from(at).unwrap();
                let written = definition(&write(&format!("a:{value}")), version);
                vec![DefinitionChange::Upsert(written)]
            }
        };
        let delta = SourceDelta {
            changes,
            in_sync: what == "sync",
            ..SourceDelta::default()
        };
        scene.apply(source, delta);
    }
    let pods = scene.state.endpoints.values();
    let pods = pods.filter_map(|pod| pod.labels.get("v").map(ToString::to_string));
    let policies = scene.state.policies.values().filter_map(|policy| {
        let rule = policy.ingress.as_ref()?.rules.first()?;
        match rule.traffic.first()?.destination.any_of.as_deref()? {
            [PortSpec::Range(PortRange { first, .. })] => Some(first.to_string()),
            _ => None,
        }
    });
    pods.chain(policies).next()
}

/// The content of a policy is always kept, that of a pod is forgotten where it is in force for good.
#[test]
fn a_pod_whose_content_was_forgotten_is_in_force_as_a_policy_is() {
    let length = 5;
    let mut compared = 0;
    for number in 0..STEPS.len().pow(length) {
        let digit = |at| number / STEPS.len().pow(at) % STEPS.len();
        let steps: Vec<usize> = (0..length).map(digit).collect();
        let (of_pod, of_policy) = (value_after(&steps, pod), value_after(&steps, policy));
        assert_eq!(of_pod, of_policy, "{:?}", steps.iter().map(|at| STEPS[*at]));
        compared += usize::from(of_pod.is_some());
    }
    assert!(compared > 5_000, "{compared}");
}
