//! Objects of Kubernetes itself: policy (NetworkPolicy), and the inventory that policies refer to.

mod inventory;
mod metadata;
mod policy;
mod port;

use inventory::{cluster, pod, service, workload};
use policy::{isolation, network_policy};

use crate::dialect::{DEFAULT_NAMESPACE, Dialect, GroupVersionKind, LoweredObject, literal_id};
use crate::names;
use crate::report::ObjectReport;
use palisade_manifest::{Field, Problem, RawObject};
use palisade_model::{Object, ObjectId, Policy, Str};

const EMPTY_NAMESPACE: &str = "it is empty: treated as missing";

/// The dialect of Kubernetes.
pub(crate) struct KubernetesDialect;

/// An object being lowered.
struct ManifestObject<'a> {
    id: ObjectId,
    root: Field<'a>,
}

impl ManifestObject<'_> {
    /// The namespace of a namespaced object.
    fn namespace(&self) -> Str {
        self.id
            .namespace
            .clone()
            .unwrap_or_else(|| DEFAULT_NAMESPACE.into())
    }
}

/// The scope and the name format of a kind.
#[derive(Clone, Copy)]
enum Naming {
    /// Namespaced; the name is a DNS subdomain.
    Namespaced,
    /// Cluster-scoped; the name is a DNS subdomain.
    Cluster,
    /// Cluster-scoped; the name is a DNS label.
    ClusterLabel,
}

type ReadFn = fn(&ManifestObject<'_>, &mut ObjectReport) -> Option<Object>;

struct KindReader {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    naming: Naming,
    read: ReadFn,
}

/// A kind of version v1.
const fn v1(group: &'static str, kind: &'static str, naming: Naming, read: ReadFn) -> KindReader {
    KindReader {
        group,
        version: "v1",
        kind,
        naming,
        read,
    }
}

/// Every kind that is read, with its group and version.
const KINDS: [KindReader; 13] = {
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
        v1("", "Node", Cluster, cluster::node),
        v1("", "Service", Namespaced, service::read),
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
            Ok(kind) => Some(lower_as(object, kind)),
            Err(Some(reader)) => Some(reject_version(object, reader)),
            Err(None) => None,
        }
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Option<Policy> {
        let kind = match find_reader(object) {
            Ok(kind) | Err(Some(kind)) => kind,
            Err(None) => intended.and_then(reader_of)?,
        };
        if kind.kind != "NetworkPolicy" {
            return None;
        }
        let manifest_object = ManifestObject {
            id: object_id_as(object, kind),
            root: object.field(),
        };
        let sound = names::dns_label_errors(&manifest_object.namespace()).is_empty();
        sound
            .then(|| isolation::isolation_policy(&manifest_object))
            .flatten()
    }
}

/// The kinds that are read.
pub(crate) fn supported_kinds() -> impl Iterator<Item = GroupVersionKind> {
    KINDS.iter().map(|kind| GroupVersionKind {
        group: kind.group,
        version: Some(kind.version),
        kind: kind.kind,
    })
}

/// Whether an object is in a group in which Kubernetes formerly served its kind.
pub(crate) fn is_former_group(object: &RawObject) -> bool {
    FORMER_GROUPS
        .iter()
        .any(|(group, kinds)| *group == object.group() && kinds.contains(&object.kind.as_str()))
}

/// The name of an object, interpreted as an object of this kind.
pub(crate) fn intended_id(object: &RawObject, gvk: GroupVersionKind) -> Option<ObjectId> {
    reader_of(gvk).map(|kind| object_id_as(object, kind))
}

fn object_id_as(object: &RawObject, kind: &KindReader) -> ObjectId {
    ObjectId {
        group: kind.group.into(),
        kind: kind.kind.into(),
        ..object_id(object, kind)
    }
}

fn reader_of(gvk: GroupVersionKind) -> Option<&'static KindReader> {
    KINDS
        .iter()
        .find(|kind| (kind.group, kind.kind) == (gvk.group, gvk.kind))
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

fn lower_as(object: &RawObject, reader: &KindReader) -> LoweredObject {
    let mut report = ObjectReport::new(object_id(object, reader).to_string());
    let manifest_object = checked_object(object, reader, &mut report);
    let lowered = (reader.read)(&manifest_object, &mut report).filter(|_| report.errors.is_empty());
    LoweredObject {
        objects: lowered.into_iter().collect(),
        omitted: report.omitted(),
        errors: report.errors,
        warnings: report.warnings,
        ..LoweredObject::empty(manifest_object.id, object)
    }
}

/// An object of an unsupported version: an error, as in the API server.
fn reject_version(object: &RawObject, reader: &KindReader) -> LoweredObject {
    let id = ObjectId {
        group: reader.group.into(),
        ..object_id(object, reader)
    };
    let mut lowered = LoweredObject::empty(id, object);
    let served_as = match reader.group {
        "" => reader.version.to_owned(),
        group => format!("{group}/{}", reader.version),
    };
    let mut problem = Problem {
        location: object.location.clone(),
        object: Some(lowered.id.to_string()),
        field: "apiVersion".to_owned(),
        reason: format!(
            "`{}` is not a supported version: {} is served as {served_as}",
            object.api_version, reader.kind
        ),
    };
    if let Ok(Some(field)) = object.field().get("apiVersion") {
        problem.location = field.location().clone();
    }
    lowered.errors.push(problem);
    lowered
}

/// The object's name, with the default namespace applied.
fn object_id(object: &RawObject, kind: &KindReader) -> ObjectId {
    let mut id = literal_id(object);
    match kind.naming {
        Naming::Namespaced => {
            id.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
        }
        Naming::Cluster | Naming::ClusterLabel => id.namespace = None,
    }
    id
}

/// The object, with errors for an invalid name.
fn checked_object<'a>(
    object: &'a RawObject,
    kind: &KindReader,
    report: &mut ObjectReport,
) -> ManifestObject<'a> {
    let id = object_id(object, kind);
    let root = object.field();
    if let Some(metadata) = report.object(&root, "metadata") {
        if let Some((name, field)) = report.text(&metadata, "name") {
            let reasons = match kind.naming {
                Naming::ClusterLabel => names::dns_label_errors(name),
                Naming::Namespaced | Naming::Cluster => names::dns_subdomain_errors(name),
            };
            report.errors(&field, reasons);
        }
        if let Some((namespace, field)) = report.text(&metadata, "namespace") {
            match kind.naming {
                _ if namespace.is_empty() => report.warn(&field, EMPTY_NAMESPACE),
                Naming::Namespaced => report.errors(&field, names::dns_label_errors(namespace)),
                Naming::Cluster | Naming::ClusterLabel => report.warn(
                    &field,
                    format!("{} is cluster-scoped: its namespace is ignored", kind.kind),
                ),
            }
        }
    }
    ManifestObject { id, root }
}
