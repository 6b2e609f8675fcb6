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
use crate::kind_reader::{KindRead, KindReader, Naming, find_reader, reader_of};
pub(crate) use fields::POLICY_KINDS;
use palisade_manifest::RawObject;
use palisade_model::Policy;
use variant::PolicyVariant;

/// The API group.
pub(crate) const GROUP: &str = "policy.networking.k8s.io";

/// The dialect of `policy.networking.k8s.io`.
pub(crate) struct PolicyApiDialect;

/// Every kind that is read.
pub(crate) const KINDS: &[KindReader] = &[
    KindReader {
        group: GROUP,
        version: "v1alpha2",
        kind: PolicyVariant::Cluster.kind(),
        naming: Naming::Cluster,
        object_group: GROUP,
        read: KindRead::One(|object, report| {
            cluster_policy::read(object, PolicyVariant::Cluster, report)
        }),
    },
    KindReader {
        group: GROUP,
        version: "v1alpha1",
        kind: PolicyVariant::Admin.kind(),
        naming: Naming::Cluster,
        object_group: GROUP,
        read: KindRead::One(|object, report| {
            cluster_policy::read(object, PolicyVariant::Admin, report)
        }),
    },
    KindReader {
        group: GROUP,
        version: "v1alpha1",
        kind: PolicyVariant::BaselineAdmin.kind(),
        naming: Naming::Cluster,
        object_group: GROUP,
        read: KindRead::One(|object, report| {
            cluster_policy::read(object, PolicyVariant::BaselineAdmin, report)
        }),
    },
];

impl Dialect for PolicyApiDialect {
    fn lower(&self, object: &RawObject) -> Option<LoweredObject> {
        find_reader(KINDS, object).map(|kind| kind.lower(object))
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy> {
        let kind = find_reader(KINDS, object).or_else(|| reader_of(KINDS, intended?));
        let isolated = kind.and_then(|kind| {
            let variant = PolicyVariant::of_kind(kind.kind)?;
            isolation::isolation_policy(&kind.interpret(object), variant)
        });
        isolated.into_iter().collect()
    }
}
