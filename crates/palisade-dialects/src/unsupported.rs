//! Policy kinds that this build recognizes but does not enforce yet.
//!
//! Ignoring such a policy would allow traffic that it denies, so each is an error.

use crate::dialect::{
    DEFAULT_NAMESPACE, Dialect, GroupVersionKind, LoweredObject, literal_id, qualified_kind,
};
use palisade_manifest::{Problem, RawObject};
use palisade_model::Policy;

/// The dialects that are recognized only.
pub(crate) struct UnsupportedDialects;

/// An API group and its dialect, with namespaced and cluster-scoped kinds.
struct UnsupportedGroup {
    group: &'static str,
    dialect: &'static str,
    namespaced: &'static [&'static str],
    cluster: &'static [&'static str],
}

const CALICO_NAMESPACED: &[&str] = &["NetworkPolicy", "NetworkSet", "WorkloadEndpoint"];
const CALICO_CLUSTER: &[&str] = &[
    "GlobalNetworkPolicy",
    "GlobalNetworkSet",
    "HostEndpoint",
    "Profile",
    "Tier",
];

const GROUPS: [UnsupportedGroup; 2] = [
    UnsupportedGroup {
        group: "projectcalico.org",
        dialect: "Calico",
        namespaced: CALICO_NAMESPACED,
        cluster: CALICO_CLUSTER,
    },
    UnsupportedGroup {
        group: "crd.projectcalico.org",
        dialect: "Calico",
        namespaced: CALICO_NAMESPACED,
        cluster: CALICO_CLUSTER,
    },
];

/// The kinds that are recognized.
pub(crate) fn recognised_kinds() -> impl Iterator<Item = GroupVersionKind> {
    GROUPS.iter().flat_map(|group| {
        let kinds = group.namespaced.iter().chain(group.cluster);
        kinds.map(|kind| GroupVersionKind {
            group: group.group,
            version: None,
            kind,
        })
    })
}

/// The kinds that are recognized and not enforced, with their API groups, sorted.
#[must_use]
pub fn unsupported_kinds() -> Vec<String> {
    let kinds = recognised_kinds().map(|kind| format!("{} ({})", kind.kind, kind.group));
    let mut kinds: Vec<String> = kinds.collect();
    kinds.sort();
    kinds
}

impl Dialect for UnsupportedDialects {
    fn lower(&self, object: &RawObject) -> Option<LoweredObject> {
        let group = GROUPS.iter().find(|g| g.group == object.group())?;
        let kind = object.kind.as_str();
        let namespaced = group.namespaced.contains(&kind);
        if !namespaced && !group.cluster.contains(&kind) {
            return None;
        }
        let mut id = literal_id(object);
        if namespaced {
            id.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
        } else {
            id.namespace = None;
        }
        let problem = Problem {
            location: object.location.clone(),
            object: Some(id.to_string()),
            field: String::new(),
            reason: format!(
                "{} is a kind of the {} dialect, which this build does not enforce",
                qualified_kind(object),
                group.dialect
            ),
        };
        let mut lowered = LoweredObject::empty(id, object);
        lowered.errors.push(problem);
        Some(lowered)
    }

    fn isolate(&self, _: &RawObject, _: Option<GroupVersionKind>) -> Vec<Policy> {
        Vec::new()
    }
}
