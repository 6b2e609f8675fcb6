//! What all dialects have in common: their trait, the kinds that they read, and what an object is lowered to.

use crate::closed_part::ClosedPart;
use crate::quota::OmittedProblems;
use palisade_manifest::{Location, Problem, RawObject};
use palisade_model::{Object, ObjectId, ObjectKind, Policy};

/// The namespace of a namespaced object without one.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// One family of policy kinds.
pub(crate) trait Dialect: Sync {
    /// Lowers an object; `None` if its API group, version and kind belong to another dialect.
    fn lower(&self, object: &RawObject) -> Option<LoweredObject>;

    /// The isolation policies of an object that was rejected and never valid: they isolate the object's subject
    /// in the directions of the object. None for kinds that do not isolate, and if the subject cannot be
    /// read. `intended` is the kind that an object of an unknown kind was likely intended to be.
    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy>;
}

/// A kind that a dialect reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupVersionKind {
    /// The API group.
    pub(crate) group: &'static str,
    /// The version that is read; `None` if any version is.
    pub(crate) version: Option<&'static str>,
    /// The name of the kind.
    pub(crate) kind: &'static str,
}

impl GroupVersionKind {
    /// `apiVersion Kind`, without the version if any version is read.
    pub(crate) fn qualified(&self) -> String {
        let version = match (self.group, self.version) {
            ("", version) => version.unwrap_or_default().to_owned(),
            (group, None) => group.to_owned(),
            (group, Some(version)) => format!("{group}/{version}"),
        };
        format!("{version} {}", self.kind)
    }
}

/// A lowered object.
#[derive(Clone, Debug, PartialEq)]
pub struct LoweredObject {
    /// The object's name, with the default namespace applied.
    pub id: ObjectId,
    /// The beginning of the object.
    pub location: Location,
    /// The model objects, with the facts that decide whether they count
    /// ([`Object::into_effective`]). Empty if there are errors, and for kinds that no dialect reads.
    pub objects: Vec<Object>,
    /// The errors: the first hundred, in the order of reading.
    pub errors: Vec<Problem>,
    /// Warnings: valid, but likely not intended; the first hundred.
    pub warnings: Vec<Problem>,
    /// The parts that are held closed: the first hundred.
    pub closed: Vec<ClosedPart>,
    /// The number of further parts held closed.
    pub more_closed: usize,
    /// Summaries of further errors, warnings and parts held closed.
    pub omitted: Vec<OmittedProblems>,
    /// Its kind (`v1 ConfigMap`, `networking.k8s.io/v1 Ingress`), if the kind is ignored.
    pub ignored: Option<String>,
}

impl LoweredObject {
    /// A result without model objects.
    pub(crate) fn empty(id: ObjectId, object: &RawObject) -> Self {
        LoweredObject {
            id,
            location: object.location.clone(),
            objects: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            closed: Vec::new(),
            more_closed: 0,
            omitted: Vec::new(),
            ignored: None,
        }
    }
}

/// The name of an object as written; its kind is not interpreted.
pub(crate) fn literal_id(object: &RawObject) -> ObjectId {
    ObjectId {
        namespace: object.namespace.as_deref().map(Into::into),
        name: object.name.as_str().into(),
        kind: ObjectKind::new(object.group(), &object.kind),
    }
}

/// `apiVersion Kind`, as written.
pub(crate) fn qualified_kind(object: &RawObject) -> String {
    format!("{} {}", object.api_version, object.kind)
}
