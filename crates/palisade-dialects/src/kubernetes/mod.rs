//! Kubernetes' own objects: NetworkPolicy, and what policy is about.
//!
//! Policies are read strictly: what the API server would refuse is refused, and so is every field it
//! does not know. Everything else is read leniently: a dump carries hundreds of fields, and only
//! those that policy depends on are looked at.

mod cluster;
mod ip_block;
mod isolation;
mod metadata;
mod network_policy;
mod pod;
mod rule;
mod selector;
mod service;
mod workload;

use crate::dialect::{Dialect, Lowered, written_id};
use crate::names;
use crate::report::Report;
use crate::unknown::{self, Known};
use palisade_manifest::{Field, Problem, RawObject};
use palisade_model::{Endpoint, Object, ObjectId, Policy, Str};

/// The namespace of an object of a namespaced kind that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

const EMPTY_NAMESPACE: &str = "it is empty, which is as good as missing";

/// The dialect.
pub(crate) struct Kubernetes;

/// An object that is being read.
struct Source<'a> {
    id: ObjectId,
    root: Field<'a>,
}

impl Source<'_> {
    /// The namespace of an object of a namespaced kind.
    fn namespace(&self) -> Str {
        self.id
            .namespace
            .clone()
            .unwrap_or_else(|| DEFAULT_NAMESPACE.into())
    }
}

/// What an object says.
#[derive(Default)]
struct Parts {
    objects: Vec<Object>,
    completed: bool,
    on_host_network: Option<Endpoint>,
}

impl From<Object> for Parts {
    fn from(object: Object) -> Self {
        Parts {
            objects: vec![object],
            ..Parts::default()
        }
    }
}

/// How a kind is named in its own right.
#[derive(Clone, Copy)]
enum Naming {
    /// In a namespace, by a DNS subdomain.
    Namespaced,
    /// In the cluster, by a DNS subdomain.
    Cluster,
    /// In the cluster, by a DNS label.
    ClusterLabel,
}

struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    naming: Naming,
    read: fn(&Source<'_>, &mut Report) -> Option<Parts>,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    naming: Naming,
    read: fn(&Source<'_>, &mut Report) -> Option<Parts>,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        naming,
        read,
    }
}

const KINDS: [Kind; 13] = [
    kind(
        "networking.k8s.io",
        "v1",
        "NetworkPolicy",
        Naming::Namespaced,
        network_policy::read,
    ),
    kind("", "v1", "Pod", Naming::Namespaced, pod::read),
    kind(
        "",
        "v1",
        "Namespace",
        Naming::ClusterLabel,
        cluster::namespace,
    ),
    kind("", "v1", "Node", Naming::Cluster, cluster::node),
    kind("", "v1", "Service", Naming::Namespaced, service::read),
    kind(
        "",
        "v1",
        "ServiceAccount",
        Naming::Namespaced,
        cluster::service_account,
    ),
    kind(
        "",
        "v1",
        "ReplicationController",
        Naming::Namespaced,
        workload::read,
    ),
    kind(
        "apps",
        "v1",
        "Deployment",
        Naming::Namespaced,
        workload::read,
    ),
    kind(
        "apps",
        "v1",
        "StatefulSet",
        Naming::Namespaced,
        workload::read,
    ),
    kind(
        "apps",
        "v1",
        "DaemonSet",
        Naming::Namespaced,
        workload::read,
    ),
    kind(
        "apps",
        "v1",
        "ReplicaSet",
        Naming::Namespaced,
        workload::read,
    ),
    kind("batch", "v1", "Job", Naming::Namespaced, workload::read),
    kind("batch", "v1", "CronJob", Naming::Namespaced, workload::read),
];

/// Groups under which Kubernetes served some of the kinds above before.
const FORMER: [(&str, &[&str]); 1] = [(
    "extensions",
    &["NetworkPolicy", "Deployment", "DaemonSet", "ReplicaSet"],
)];

impl Dialect for Kubernetes {
    fn read(&self, object: &RawObject) -> Option<Lowered> {
        match kind_of(object) {
            Ok(kind) => Some(read(object, kind)),
            Err(Some(served)) => Some(other_version(object, served)),
            Err(None) => None,
        }
    }

    fn isolate(&self, object: &RawObject) -> Option<Policy> {
        let kind = match kind_of(object) {
            Ok(kind) | Err(Some(kind)) => kind,
            Err(None) if unknown::is_known(object) => return None,
            Err(None) => unknown::meant(object).and_then(kind_as)?,
        };
        if kind.kind != "NetworkPolicy" {
            return None;
        }
        let source = Source {
            id: ObjectId {
                group: kind.group.into(),
                kind: kind.kind.into(),
                ..identity(object, kind)
            },
            root: object.field(),
        };
        let sound = names::dns_label(&source.namespace()).is_empty();
        sound.then(|| isolation::of(&source)).flatten()
    }
}

/// The kinds that are read.
pub(crate) fn kinds() -> impl Iterator<Item = Known> {
    KINDS.iter().map(|kind| Known {
        group: kind.group,
        version: Some(kind.version),
        kind: kind.kind,
    })
}

/// Whether an object is of a group under which Kubernetes served its kind before.
pub(crate) fn served_before(object: &RawObject) -> bool {
    FORMER
        .iter()
        .any(|(group, kinds)| *group == object.group() && kinds.contains(&object.kind.as_str()))
}

/// The name of an object, read as one of this kind.
pub(crate) fn identity_as(object: &RawObject, known: Known) -> Option<ObjectId> {
    let kind = kind_as(known)?;
    Some(ObjectId {
        group: kind.group.into(),
        kind: kind.kind.into(),
        ..identity(object, kind)
    })
}

fn kind_as(known: Known) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| (kind.group, kind.kind) == (known.group, known.kind))
}

/// The reader of an object; else the kind as it is read, if the object is of another version.
fn kind_of(object: &RawObject) -> Result<&'static Kind, Option<&'static Kind>> {
    let former = served_before(object);
    let served = KINDS
        .iter()
        .find(|k| k.kind == object.kind && (k.group == object.group() || former));
    match served {
        Some(kind) if !former && kind.version == object.version() => Ok(kind),
        other => Err(other),
    }
}

fn read(object: &RawObject, kind: &Kind) -> Lowered {
    let mut report = Report::new(identity(object, kind).to_string());
    let source = source(object, kind, &mut report);
    let parts = (kind.read)(&source, &mut report).filter(|_| report.errors.is_empty());
    let parts = parts.unwrap_or_default();
    Lowered {
        objects: parts.objects,
        more: report.more(),
        errors: report.errors,
        warnings: report.warnings,
        completed: parts.completed,
        on_host_network: parts.on_host_network,
        ..Lowered::empty(source.id, object)
    }
}

/// An object of a version that is not read: an error, as it is to the API server.
fn other_version(object: &RawObject, served: &Kind) -> Lowered {
    let id = ObjectId {
        group: served.group.into(),
        ..identity(object, served)
    };
    let mut lowered = Lowered::empty(id, object);
    let served_as = match served.group {
        "" => served.version.to_owned(),
        group => format!("{group}/{}", served.version),
    };
    let mut problem = Problem {
        location: object.location.clone(),
        object: Some(lowered.id.to_string()),
        field: "apiVersion".to_owned(),
        reason: format!(
            "`{}` is not a version that is read: {} is served as {served_as}",
            object.api_version, served.kind
        ),
    };
    if let Ok(Some(field)) = object.field().get("apiVersion") {
        problem.location = field.location().clone();
    }
    lowered.errors.push(problem);
    lowered
}

/// The object's name, with the namespace it has by default.
fn identity(object: &RawObject, kind: &Kind) -> ObjectId {
    let mut id = written_id(object);
    match kind.naming {
        Naming::Namespaced => {
            id.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
        }
        Naming::Cluster | Naming::ClusterLabel => id.namespace = None,
    }
    id
}

/// The object with its name checked.
fn source<'a>(object: &'a RawObject, kind: &Kind, report: &mut Report) -> Source<'a> {
    let id = identity(object, kind);
    let root = object.field();
    if let Some(metadata) = report.object(&root, "metadata") {
        if let Some((name, field)) = report.text(&metadata, "name") {
            let reasons = match kind.naming {
                Naming::ClusterLabel => names::dns_label(name),
                Naming::Namespaced | Naming::Cluster => names::dns_subdomain(name),
            };
            report.errors(&field, reasons);
        }
        if let Some((namespace, field)) = report.text(&metadata, "namespace") {
            match kind.naming {
                _ if namespace.is_empty() => report.warn(&field, EMPTY_NAMESPACE),
                Naming::Namespaced => report.errors(&field, names::dns_label(namespace)),
                Naming::Cluster | Naming::ClusterLabel => report.warn(
                    &field,
                    format!("a {} belongs to no namespace: this is ignored", kind.kind),
                ),
            }
        }
    }
    Source { id, root }
}
