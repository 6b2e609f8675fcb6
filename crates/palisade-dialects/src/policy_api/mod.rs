//! The cluster-wide policies of `policy.networking.k8s.io`: ClusterNetworkPolicy, AdminNetworkPolicy and
//! BaselineAdminNetworkPolicy.
//!
//! Promises: each kind is read with the limits and validations of its published CRD, and every rejection names
//! field and reason; a peer of an unknown kind, and one without any, fails closed and never opens anything.
//!
//! Never: isolates pods by selecting them (`default_deny` is false): what no rule decides is left to the next
//! tier. Never selects a pod on the host network, as subject or as peer.

mod action;
mod cluster_policy;
mod domain_name;
mod fields;
mod isolation;
mod namespaced_pods;
mod peer;
mod ports;
mod protocols;
mod rule;
mod schema;
mod variant;

use crate::dialect::{Dialect, GroupVersionKind, LoweredObject};
use crate::kind_reader::{KindRead, KindReader, Naming};
pub(crate) use fields::POLICY_KINDS;
use palisade_manifest::RawObject;
use palisade_model::{ObjectId, Policy};
use variant::PolicyVariant;

/// The API group.
pub(crate) const GROUP: &str = "policy.networking.k8s.io";

/// The dialect of `policy.networking.k8s.io`.
pub(crate) struct PolicyApiDialect;

/// Every kind that is read.
const KINDS: [KindReader; 3] = [
    KindReader {
        group: GROUP,
        version: "v1alpha2",
        kind: PolicyVariant::Cluster.kind(),
        naming: Naming::Cluster,
        read: KindRead::One(|object, report| {
            cluster_policy::read(object, PolicyVariant::Cluster, report)
        }),
    },
    KindReader {
        group: GROUP,
        version: "v1alpha1",
        kind: PolicyVariant::Admin.kind(),
        naming: Naming::Cluster,
        read: KindRead::One(|object, report| {
            cluster_policy::read(object, PolicyVariant::Admin, report)
        }),
    },
    KindReader {
        group: GROUP,
        version: "v1alpha1",
        kind: PolicyVariant::BaselineAdmin.kind(),
        naming: Naming::Cluster,
        read: KindRead::One(|object, report| {
            cluster_policy::read(object, PolicyVariant::BaselineAdmin, report)
        }),
    },
];

impl Dialect for PolicyApiDialect {
    fn lower(&self, object: &RawObject) -> Option<LoweredObject> {
        let kind = find_reader(object)?;
        Some(match kind.version == object.version() {
            true => kind.lower(object),
            false => kind.reject_version(object),
        })
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy> {
        let kind = find_reader(object).or_else(|| intended.and_then(reader_of));
        let isolated = kind.and_then(|kind| {
            let variant = PolicyVariant::of_kind(kind.kind)?;
            isolation::isolation_policy(&kind.interpret(object), variant)
        });
        isolated.into_iter().collect()
    }
}

/// The kinds that are read.
pub(crate) fn supported_kinds() -> impl Iterator<Item = GroupVersionKind> {
    KINDS.iter().map(KindReader::group_version_kind)
}

/// The name of an object, interpreted as an object of this kind.
pub(crate) fn intended_id(object: &RawObject, gvk: GroupVersionKind) -> Option<ObjectId> {
    reader_of(gvk).map(|kind| kind.id_of(object))
}

fn reader_of(gvk: GroupVersionKind) -> Option<&'static KindReader> {
    KINDS.iter().find(|kind| kind.reads(gvk))
}

fn find_reader(object: &RawObject) -> Option<&'static KindReader> {
    let is_kind = |kind: &&KindReader| kind.kind == object.kind && kind.group == object.group();
    KINDS.iter().find(is_kind)
}
