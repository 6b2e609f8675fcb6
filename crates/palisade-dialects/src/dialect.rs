//! The trait of all dialects, and the selection of the dialect of an object.

use crate::kubernetes::KubernetesDialect;
use crate::quota::OmittedProblems;
use crate::unknown;
use crate::unsupported::UnsupportedDialects;
use palisade_manifest::{Location, Problem, RawObject};
use palisade_model::{Object, ObjectId, Policy};

/// One family of policy kinds.
pub(crate) trait Dialect: Sync {
    /// Lowers an object; `None` if its API group, version and kind belong to another dialect.
    fn lower(&self, object: &RawObject) -> Option<LoweredObject>;

    /// The isolation policy of an object that [`lower_object`] rejects and that was never valid: it isolates
    /// the object's subject in the directions of the object. `None` for kinds that do not isolate, and if the
    /// subject cannot be read.
    fn isolate(&self, object: &RawObject) -> Option<Policy>;
}

/// Every dialect of this build.
const DIALECTS: [&dyn Dialect; 2] = [&KubernetesDialect, &UnsupportedDialects];

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
    /// Summaries of further errors and warnings.
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
            omitted: Vec::new(),
            ignored: None,
        }
    }
}

/// Lowers one object with its dialect.
#[must_use]
pub fn lower_object(object: &RawObject) -> LoweredObject {
    DIALECTS
        .iter()
        .find_map(|dialect| dialect.lower(object))
        .unwrap_or_else(|| unknown::lower_unknown(object))
}

/// The isolation policy of an object that [`lower_object`] rejects and that was never valid, if its kind
/// isolates, its namespace is valid and its subject can be read.
///
/// A Kubernetes NetworkPolicy, also one with a mistyped kind or version, isolates the pods its podSelector
/// selects. There is no isolation policy if the podSelector contains any error, or if it is missing and
/// another field may be a misspelling of it; otherwise a missing podSelector selects every pod of the
/// namespace, as in a valid policy. The directions are those of policyTypes; both if policyTypes contains
/// anything unreadable or a field of the spec may be a misspelling of it; without policyTypes, ingress, and
/// egress as well if `egress` is not empty.
#[must_use]
pub fn isolate(object: &RawObject) -> Option<Policy> {
    DIALECTS.iter().find_map(|dialect| dialect.isolate(object))
}

/// The name of an object as written; its kind is not interpreted.
pub(crate) fn literal_id(object: &RawObject) -> ObjectId {
    ObjectId {
        namespace: object.namespace.as_deref().map(Into::into),
        name: object.name.as_str().into(),
        group: object.group().into(),
        kind: object.kind.as_str().into(),
    }
}

/// `apiVersion Kind`, as written.
pub(crate) fn qualified_kind(object: &RawObject) -> String {
    format!("{} {}", object.api_version, object.kind)
}
