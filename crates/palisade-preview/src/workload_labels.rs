//! The fewest labels by which a policy can name the pods of a workload.
//!
//! Promises: the labels are on every pod of the workload; they are on no other pod or network set of the namespace if any of
//! its labels can tell them apart. Never: uses a label that differs between the pods of a controller or from one rollout to the
//! next.

use palisade_model::{Endpoint, EndpointId, Labels, State};
use std::collections::{BTreeMap, BTreeSet};

/// Labels by name and value.
pub(crate) type LabelMap = BTreeMap<String, String>;

/// Labels that controllers give to single pods, or anew with each rollout.
const UNSTABLE: [&str; 12] = [
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "pod-template-generation",
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
    "helm.sh/chart",
];

/// Labels that people use to name workloads, the most usual first.
const USUAL: [&str; 6] = [
    "app",
    "app.kubernetes.io/name",
    "k8s-app",
    "name",
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
];

/// So many labels are combined at most; more are used all together.
const MAX_COMBINED: usize = 3;

/// The labels that pods have in common and keep.
pub(crate) fn common_labels<'e>(pods: impl IntoIterator<Item = &'e Endpoint>) -> LabelMap {
    let mut common: Option<LabelMap> = None;
    for pod in pods {
        let labels = pod.labels.iter();
        let own: LabelMap = labels
            .filter(|(key, _)| is_stable(key))
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        match &mut common {
            None => common = Some(own),
            Some(common) => common.retain(|key, value| own.get(key) == Some(value)),
        }
    }
    common.unwrap_or_default()
}

/// Labels of this domain are on every endpoint of Calico, for example its namespace, and tell no workload.
const CALICO_DOMAIN: &str = "projectcalico.org/";

/// Whether a label names a workload, and stays the same over its pods and rollouts.
pub(crate) fn is_stable(key: &str) -> bool {
    !UNSTABLE.contains(&key) && !key.starts_with(CALICO_DOMAIN)
}

/// Whether all of these labels are among those of an object.
pub(crate) fn has_labels(own: &Labels, labels: &LabelMap) -> bool {
    let mut labels = labels.iter();
    labels.all(|(key, value)| own.get(key).is_some_and(|own| **own == **value))
}

/// The fewest of these labels that no other pod or network set of the namespace has all of; if there are none, all of
/// them.
pub(crate) fn distinguishing_labels(
    state: &State,
    namespace: &str,
    own: &BTreeSet<EndpointId>,
    labels: &LabelMap,
) -> LabelMap {
    let pods = state.endpoints.values().filter(|endpoint| {
        endpoint.id.namespace.as_deref() == Some(namespace)
            && !endpoint.is_host()
            && !endpoint.uses_host_network()
            && !own.contains(&endpoint.id)
    });
    let sets = state.network_sets.values();
    let sets = sets.filter(|set| set.id.namespace.as_deref() == Some(namespace));
    let others: Vec<&Labels> = pods
        .map(|pod| &pod.labels)
        .chain(sets.map(|set| &set.labels))
        .collect();
    let mut keys: Vec<&String> = labels.keys().collect();
    let rank = |key: &str| USUAL.iter().position(|usual| *usual == key);
    keys.sort_by_key(|key| (rank(key).unwrap_or(USUAL.len()), *key));
    for size in 1..=MAX_COMBINED.min(keys.len()) {
        for chosen in combinations(&keys, size) {
            let subset: LabelMap = labels
                .iter()
                .filter(|(key, _)| chosen.contains(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if !others.iter().any(|other| has_labels(other, &subset)) {
                return subset;
            }
        }
    }
    labels.clone()
}

/// Every choice of so many of these keys, in their order.
fn combinations<'k>(keys: &[&'k String], size: usize) -> Vec<Vec<&'k String>> {
    let Some((first, rest)) = keys.split_first() else {
        return match size {
            0 => vec![Vec::new()],
            _ => Vec::new(),
        };
    };
    if size == 0 {
        return vec![Vec::new()];
    }
    let with_first = combinations(rest, size - 1).into_iter().map(|mut chosen| {
        chosen.insert(0, first);
        chosen
    });
    with_first.chain(combinations(rest, size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_generators::line;

    fn chosen(pods: &[&str], own: &[usize]) -> String {
        let pods: Vec<Endpoint> = pods.iter().map(|pod| line::endpoint(pod)).collect();
        let mut state = State::default();
        for pod in &pods {
            state.endpoints.insert(pod.id.clone(), pod.clone());
        }
        let ids = own.iter().map(|at| pods[*at].id.clone()).collect();
        let common = common_labels(own.iter().map(|at| &pods[*at]));
        let labels = distinguishing_labels(&state, "n", &ids, &common);
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        labels.join(" ")
    }

    #[test]
    fn the_fewest_labels_that_tell_apart() {
        let web = "n/web app=web tier=front zone=a";
        assert_eq!(chosen(&[web], &[0]), "app=web");
        assert_eq!(
            chosen(&[web, "n/api app=web tier=back zone=a"], &[0]),
            "tier=front"
        );
        let both = [
            "n/a app=web zone=a",
            "n/b app=web zone=b",
            "n/c app=api zone=a",
        ];
        assert_eq!(chosen(&both, &[0]), "app=web zone=a");
        assert_eq!(chosen(&both, &[0, 1]), "app=web");
    }

    #[test]
    fn what_changes_with_a_rollout_is_not_used() {
        let own = "n/web pod-template-hash=1 zone=a";
        assert_eq!(chosen(&[own, "n/other zone=a"], &[0]), "zone=a");
    }

    #[test]
    fn other_namespaces_do_not_matter() {
        assert_eq!(
            chosen(&["n/web app=web b=c", "m/web app=web"], &[0]),
            "app=web"
        );
    }
}
