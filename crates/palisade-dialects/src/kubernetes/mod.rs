//! Objects of Kubernetes itself: policy (NetworkPolicy), and the inventory that policies refer to.

mod inventory;
mod policy;

use inventory::{cluster, endpoint_slice, pod, service, workload};
use policy::{isolation, network_policy};

use crate::dialect::{Dialect, GroupVersionKind, LoweredObject};
use crate::fields::PolicyKind;
use crate::kind_reader::{KindRead, KindReader, Naming, ReadFn};
use crate::names;
use palisade_manifest::RawObject;
use palisade_model::{ObjectId, Policy};

/// The kinds of policies of Kubernetes, with their fields.
pub(crate) const POLICY_KINDS: &[PolicyKind] = &[policy::fields::NETWORK_POLICY];

/// The dialect of Kubernetes.
pub(crate) struct KubernetesDialect;

/// A kind of version v1.
const fn v1(group: &'static str, kind: &'static str, naming: Naming, read: ReadFn) -> KindReader {
    KindReader {
        group,
        version: "v1",
        kind,
        naming,
        read: KindRead::One(read),
    }
}

/// Every kind that is read, with its group and version.
const KINDS: [KindReader; 14] = {
    use Naming::{Cluster, ClusterLabel, Namespaced};
    const NETWORKING: &str = "networking.k8s.io";
    [
        v1(
            NETWORKING,
            "NetworkPolicy",
            Namespaced,
            network_policy::read,
        ),
        v1("", "Pod", Namespaced, pod::read),
        v1("", "Namespace", ClusterLabel, cluster::namespace),
        KindReader {
            group: "",
            version: "v1",
            kind: "Node",
            naming: Cluster,
            read: KindRead::Several(cluster::node),
        },
        v1("", "Service", Namespaced, service::read),
        v1(
            "discovery.k8s.io",
            "EndpointSlice",
            Namespaced,
            endpoint_slice::read,
        ),
        v1("", "ServiceAccount", Namespaced, cluster::service_account),
        v1("", "ReplicationController", Namespaced, workload::read),
        v1("apps", "Deployment", Namespaced, workload::read),
        v1("apps", "StatefulSet", Namespaced, workload::read),
        v1("apps", "DaemonSet", Namespaced, workload::read),
        v1("apps", "ReplicaSet", Namespaced, workload::read),
        v1("batch", "Job", Namespaced, workload::read),
        v1("batch", "CronJob", Namespaced, workload::read),
    ]
};

/// Groups in which Kubernetes formerly served some of the kinds above.
const FORMER_GROUPS: [(&str, &[&str]); 1] = [(
    "extensions",
    &["NetworkPolicy", "Deployment", "DaemonSet", "ReplicaSet"],
)];

impl Dialect for KubernetesDialect {
    fn lower(&self, object: &RawObject) -> Option<LoweredObject> {
        match find_reader(object) {
            Ok(kind) => Some(kind.lower(object)),
            Err(Some(kind)) => Some(kind.reject_version(object)),
            Err(None) => None,
        }
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy> {
        let kind = match find_reader(object) {
            Ok(kind) | Err(Some(kind)) => Some(kind),
            Err(None) => intended.and_then(reader_of),
        };
        let Some(kind) = kind.filter(|kind| kind.kind == "NetworkPolicy") else {
            return Vec::new();
        };
        let manifest_object = kind.interpret(object);
        let is_sound = names::dns_label_errors(&manifest_object.namespace()).is_empty();
        let isolated = is_sound
            .then(|| isolation::isolation_policy(&manifest_object))
            .flatten();
        isolated.into_iter().collect()
    }
}

/// The kinds that are read.
pub(crate) fn supported_kinds() -> impl Iterator<Item = GroupVersionKind> {
    KINDS.iter().map(KindReader::group_version_kind)
}

/// Whether an object is in a group in which Kubernetes formerly served its kind.
pub(crate) fn is_former_group(object: &RawObject) -> bool {
    FORMER_GROUPS
        .iter()
        .any(|(group, kinds)| *group == object.group() && kinds.contains(&object.kind.as_str()))
}

/// The name of an object, interpreted as an object of this kind.
pub(crate) fn intended_id(object: &RawObject, gvk: GroupVersionKind) -> Option<ObjectId> {
    reader_of(gvk).map(|kind| kind.id_of(object))
}

fn reader_of(gvk: GroupVersionKind) -> Option<&'static KindReader> {
    KINDS.iter().find(|kind| kind.reads(gvk))
}

/// The reader of an object; if the object is of another version, the reader of its kind.
fn find_reader(object: &RawObject) -> Result<&'static KindReader, Option<&'static KindReader>> {
    let former = is_former_group(object);
    let served = KINDS
        .iter()
        .find(|k| k.kind == object.kind && (k.group == object.group() || former));
    match served {
        Some(kind) if !former && kind.version == object.version() => Ok(kind),
        other => Err(other),
    }
}
