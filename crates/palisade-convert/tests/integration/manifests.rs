//! Manifests as tests write them, and the states that they are lowered to, as the product does it.

use palisade_analysis::{StateView, diff};
use palisade_convert::{
    Conversion, PolicySource, TargetDialect, WrittenObject, convert, lower_written,
};
use palisade_dialects::{is_policy_kind, lower_object};
use palisade_effective::{
    BudgetUse, Definition, DefinitionChange, EffectiveObjects, ElementBudget, ObjectOrigin,
    SourceDelta,
};
use palisade_manifest::{Limits, RawObject, extract_objects, parse, to_json};
use palisade_model::{Labels, NetworkSet, NetworkSetKind, ObjectId, ObjectKind, Policy, State};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A state, and the policies in it.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) state: State,
    pub(crate) sources: Vec<PolicySource>,
}

/// The objects of a text.
pub(crate) fn objects(file: &str, text: &str) -> Vec<RawObject> {
    let limits = Limits::default();
    let read = extract_objects(parse(file, text.as_bytes(), &limits), &limits);
    assert_eq!(read.problems, [], "{text}");
    read.objects
}

impl Input {
    /// The input of these texts; nothing in them is refused, unless the text is to have errors.
    pub(crate) fn of(texts: &[(&str, &str)]) -> Self {
        let raws: Vec<RawObject> = texts
            .iter()
            .flat_map(|(file, text)| objects(file, text))
            .collect();
        let mut effective = EffectiveObjects::new(
            ["manifests".into()],
            ElementBudget::default(),
            BudgetUse::Advisory,
        );
        let mut delta = SourceDelta::default();
        let mut policies: Vec<(ObjectId, Value)> = Vec::new();
        for raw in &raws {
            let mut lowered = lower_object(raw);
            if is_policy_kind(&lowered.id.kind) {
                policies.push((lowered.id.clone(), to_json(&raw.root)));
            }
            if lowered.ignored.is_none() {
                let origin = ObjectOrigin::File {
                    path: lowered.location.file.clone(),
                    location: lowered.location.clone(),
                };
                let id = Arc::new(lowered.id.clone());
                let definition = Definition::new(id, raw, &mut lowered, origin);
                delta.changes.push(DefinitionChange::Upsert(definition));
            }
        }
        let mut state = State::default();
        effective.apply(0, delta, 0, &mut |update| state.apply(update));
        add_network_sets(&mut state);
        let sources = policies.into_iter();
        let sources = sources.map(|(id, manifest)| PolicySource::new(id, &manifest, &state));
        Input {
            sources: sources.collect(),
            state,
        }
    }

    /// Converts the policies whose name passes a test.
    pub(crate) fn convert(
        &self,
        target: TargetDialect,
        is_selected: impl Fn(&ObjectId) -> bool,
    ) -> Conversion {
        convert(&self.sources, is_selected, &self.state, target)
    }

    /// The state in which what was written replaces what it was written for.
    pub(crate) fn replaced(&self, written: &[WrittenObject]) -> State {
        let mut state = self.state.clone();
        let gone: BTreeSet<&ObjectId> = written.iter().map(|object| &object.source).collect();
        state.policies.retain(|id, _| !gone.contains(&id.object));
        for object in written {
            for policy in lower(&object.object) {
                let before = state.policies.insert(policy.id.clone(), policy);
                assert_eq!(before, None, "a name is there twice");
            }
        }
        state
    }
}

/// Adds network sets of Calico with the labels of pods: no policy of another dialect selects them, and so none that is
/// converted may.
fn add_network_sets(state: &mut State) {
    let nets = ["203.0.113.0/25", "198.51.100.0/26", "fd00:2::/64"];
    for (index, net) in nets.into_iter().enumerate() {
        let app = ["web", "db", "api"][index];
        for namespace in ["shop", "stock"] {
            let id = ObjectId {
                namespace: Some(namespace.into()),
                name: app.into(),
                kind: ObjectKind::new("projectcalico.org", "NetworkSet"),
            };
            let set = NetworkSet {
                kind: NetworkSetKind::NetworkSet,
                labels: Labels::from([("app".into(), app.into()), ("tier".into(), "front".into())]),
                nets: vec![net.parse().unwrap()],
                id: id.clone(),
            };
            state.network_sets.insert(id, set);
        }
    }
}

/// The policies of the model that a written object is.
pub(crate) fn lower(object: &Value) -> Vec<Policy> {
    lower_written(object).unwrap_or_else(|error| panic!("{error}: {object:#}"))
}

/// Asserts that two states have the same connections, enforced and as if nothing were in audit.
#[track_caller]
pub(crate) fn assert_same_connections(old: &State, new: &State, what: &str) {
    let enforced = diff(old, new);
    assert!(enforced.is_empty(), "{what}: {:#?}", enforced.report(true));
    let audit = diff(StateView::audit(old), StateView::audit(new));
    assert!(audit.is_empty(), "{what}, audit: {:#?}", audit.report(true));
}
