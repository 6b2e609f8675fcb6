//! The nodes that a spec selects.
//!
//! Promises: a node has the labels of its Node, of the source `k8s`, and `reserved:host`; it is judged at its host
//! endpoints, whichever dialect describes them. Source: Cilium, "Host Policies", and the labels that its agent gives
//! the host endpoint. Never: selects a node without a Node.

use super::label_key::LabelSource;
use super::selector::LabelRequirement;
use palisade_model::{LabelKey, Policy, Selector};

/// The host endpoints of the nodes that a selector selects.
pub(super) fn selected_nodes(requirements: &[LabelRequirement]) -> Selector {
    let tests = requirements.iter().map(test_of_node);
    Selector::and([Policy::node_subject()].into_iter().chain(tests))
}

fn test_of_node(LabelRequirement { key, test, .. }: &LabelRequirement) -> Selector {
    let holds = match key.source {
        LabelSource::Any | LabelSource::Kubernetes => {
            return test.to_selector(LabelKey::node(key.name.clone()));
        }
        LabelSource::Reserved if *key.name == *"host" => test.holds_if_empty(),
        _ => test.holds_if_absent(),
    };
    if holds {
        Selector::all()
    } else {
        Selector::none()
    }
}
