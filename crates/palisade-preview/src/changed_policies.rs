//! Policies as text, in place of those of a state.
//!
//! Promises: an object replaces every policy that the object of its kind, namespace and name was lowered to; what is not
//! valid, or is no policy, is refused as a whole, with its place. Never: changes anything else of the state.

use palisade_dialects::lower_object;
use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::{Object, ObjectId, State, Update};
use std::collections::BTreeSet;

/// The greatest number of objects of a change.
const MAX_OBJECTS: usize = 1_000;

/// Why a change cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The text has an error.
    #[error("{0}")]
    Invalid(String),
    /// The text has something that is no policy.
    #[error(
        "{0} is no policy: `palisade preview` judges changes of namespaces, pods and networks, with the manifests"
    )]
    NoPolicy(ObjectId),
    /// The text has no object.
    #[error("the change has no object")]
    Empty,
    /// The text has too many objects.
    #[error("the change has {0} objects, more than {MAX_OBJECTS}")]
    TooMany(usize),
}

/// A state after a change.
#[derive(Debug)]
pub struct ChangedState {
    /// The state.
    pub state: State,
    /// What the dialects warn about, and what they hold closed.
    pub notes: Vec<String>,
}

/// The state in which the policies, tiers and network sets of this text (YAML or JSON) replace those that there are.
///
/// # Errors
/// If the text is not valid as a whole.
pub fn apply_policies(present: &State, text: &str) -> Result<ChangedState, ChangeError> {
    let limits = Limits::default();
    let read = extract_objects(parse("change", text.as_bytes(), &limits), &limits);
    if let Some(problem) = read.problems.first() {
        return Err(ChangeError::Invalid(problem.to_string()));
    }
    match read.objects.len() {
        0 => return Err(ChangeError::Empty),
        count if count > MAX_OBJECTS => return Err(ChangeError::TooMany(count)),
        _ => {}
    }
    let mut notes = Vec::new();
    let mut replaced: BTreeSet<ObjectId> = BTreeSet::new();
    let mut given = Vec::new();
    for raw in &read.objects {
        let lowered = lower_object(raw);
        if let Some(problem) = lowered.errors.first() {
            return Err(ChangeError::Invalid(problem.to_string()));
        }
        let is_policy = |object: &Object| {
            matches!(
                object,
                Object::Policy(_) | Object::Tier(_) | Object::NetworkSet(_)
            )
        };
        if lowered.ignored.is_some() || !lowered.objects.iter().all(is_policy) {
            return Err(ChangeError::NoPolicy(lowered.id));
        }
        notes.extend(lowered.warnings.iter().map(ToString::to_string));
        notes.extend(lowered.closed.iter().map(|part| part.problem.to_string()));
        replaced.insert(lowered.id);
        given.extend(lowered.objects);
    }
    let mut state = present.clone();
    state
        .policies
        .retain(|id, _| !replaced.contains(&id.object));
    for object in given {
        state.apply(Update::Upsert(object));
    }
    Ok(ChangedState { state, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a, namespace: ns}, \
                          spec: {podSelector: {}}}";

    fn apply(present: &State, text: &str) -> Result<State, String> {
        let changed = apply_policies(present, text);
        changed
            .map(|changed| changed.state)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn an_object_replaces_all_of_its_policies() {
        let specs = "{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: c, namespace: ns}, specs: \
                     [{endpointSelector: {}, ingress: [{}]}, {endpointSelector: {}, egress: [{}]}]}";
        let one = "{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: c, namespace: ns}, spec: \
                   {endpointSelector: {}, ingress: [{}]}}";
        let both = apply(&State::default(), &format!("{specs}\n---\n{POLICY}\n")).unwrap();
        assert_eq!(both.policies.len(), 3);
        let changed = apply(&both, one).unwrap();
        assert_eq!(changed.policies.len(), 2);
        assert_eq!(apply(&changed, one).unwrap().policies, changed.policies);
    }

    #[test]
    fn what_is_not_valid_is_refused_with_its_place() {
        for (text, message) in [
            ("", "no object"),
            ("{", "change:1"),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}}",
                "is no policy",
            ),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {name: p, namespace: ns}}",
                "is no policy",
            ),
            (
                &POLICY.replace("podSelector: {}", "podSelector: 3"),
                "podSelector",
            ),
        ] {
            let refused = apply(&State::default(), text).unwrap_err();
            assert!(refused.contains(message), "{text}: {refused}");
        }
        let many = format!("{POLICY}\n---\n").repeat(MAX_OBJECTS + 1);
        assert!(apply(&State::default(), &many).is_err());
    }
}
