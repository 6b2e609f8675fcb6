//! Objects of Kubernetes itself: policy (NetworkPolicy), and the inventory that policies refer to.

mod inventory;
mod policy;

pub use inventory::unnamed_ports::unnamed_ports;
use inventory::{cluster, endpoint_slice, pod, service, workload};
use policy::{isolation, network_policy};

use crate::dialect::{Dialect, GroupVersionKind, LoweredObject};
use crate::fields::PolicyKind;
use crate::kind_reader::{KindRead, KindReader, Naming, ReadFn, find_reader, reader_of};
use crate::names;
use palisade_manifest::RawObject;
use palisade_model::Policy;

/// The kinds of policies of Kubernetes, with their fields.
pub(crate) const POLICY_KINDS: &[PolicyKind] = &[policy::fields::NETWORK_POLICY];

pub(crate) use policy::fields;
pub(crate) use policy::network_policy::{
    KNOWN_SPEC as KUBERNETES_SPEC, read_spec as read_policy_spec,
};

/// The dialect of Kubernetes.
pub(crate) struct KubernetesDialect;

/// A kind of version v1.
const fn v1(group: &'static str, kind: &'static str, naming: Naming, read: ReadFn) -> KindReader {
    KindReader {
        group,
        version: "v1",
        kind,
        naming,
        object_group: group,
        read: KindRead::One(read),
    }
}

/// Every kind that is read, with its group and version.
pub(crate) const KINDS: &[KindReader] = {
    use Naming::{Cluster, ClusterLabel, Namespaced};
    const NETWORKING: &str = "networking.k8s.io";
    &[
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
            object_group: "",
            read: KindRead::Several(cluster::node),
        },
        v1("", "Service", Namespaced, service::read),
        KindReader {
            group: "discovery.k8s.io",
            version: "v1",
            kind: "EndpointSlice",
            naming: Namespaced,
            object_group: "discovery.k8s.io",
            read: KindRead::Several(endpoint_slice::read),
        },
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
        match reader_of_object(object) {
            Some(kind) => Some(kind.lower(object)),
            None => Some(custom_workload_reader(object)?.lower_served(object)),
        }
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy> {
        let kind = reader_of_object(object).or_else(|| reader_of(KINDS, intended?));
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

/// The reader of a workload of other software, of any version.
fn custom_workload_reader(object: &RawObject) -> Option<KindReader> {
    let mut groups = workload::CUSTOM_WORKLOADS.iter();
    let (group, kinds) = groups.find(|(group, _)| *group == object.group())?;
    let kind = kinds.iter().find(|kind| **kind == object.kind)?;
    Some(v1(group, kind, Naming::Namespaced, workload::read_custom))
}

/// Whether an object is in a group in which Kubernetes formerly served its kind.
pub(crate) fn is_former_group(object: &RawObject) -> bool {
    FORMER_GROUPS
        .iter()
        .any(|(group, kinds)| *group == object.group() && kinds.contains(&object.kind.as_str()))
}

/// The reader of an object, also of one in a group that formerly served its kind.
fn reader_of_object(object: &RawObject) -> Option<&'static KindReader> {
    find_reader(KINDS, object).or_else(|| {
        let mut kinds = KINDS.iter().filter(|_| is_former_group(object));
        kinds.find(|kind| kind.kind == object.kind)
    })
}
