//! What every dialect does, and which one an object belongs to.

use crate::kubernetes::KubernetesDialect;
use crate::quota::OmittedProblems;
use crate::unknown;
use crate::unsupported::UnsupportedDialects;
use palisade_manifest::{Location, Problem, RawObject};
use palisade_model::{Endpoint, Object, ObjectId, Policy};

/// One language of policy objects.
pub(crate) trait Dialect: Sync {
    /// Reads an object, or leaves it to the next dialect. Decided by API group, version and kind.
    fn lower(&self, object: &RawObject) -> Option<LoweredObject>;

    /// What to enforce in the place of an object that [`lower_object`] refuses and that was never valid: a
    /// policy that isolates what the object is about, in the directions it names. `None` for kinds
    /// that do not isolate, and where the subject cannot be read.
    fn isolate(&self, object: &RawObject) -> Option<Policy>;
}

/// Every dialect this build knows.
const DIALECTS: [&dyn Dialect; 2] = [&KubernetesDialect, &UnsupportedDialects];

/// One object, read.
#[derive(Clone, Debug, PartialEq)]
pub struct LoweredObject {
    /// The object's name, with the namespace it has by default.
    pub id: ObjectId,
    /// Where it begins.
    pub location: Location,
    /// What it says. Empty if there are errors, for kinds no dialect reads, and for objects that
    /// say nothing about policy (a pod on its node's network).
    pub objects: Vec<Object>,
    /// Why it cannot be taken: the first hundred reasons, in the order of reading.
    pub errors: Vec<Problem>,
    /// What is taken, but is likely not meant; the first hundred.
    pub warnings: Vec<Problem>,
    /// How many more of both there are.
    pub omitted: Vec<OmittedProblems>,
    /// Its kind (`v1 ConfigMap`, `networking.k8s.io/v1 Ingress`), if that is none of policy's.
    pub ignored: Option<String>,
    /// Whether it is a pod that ran to its end, and so has an endpoint that holds no address.
    pub completed: bool,
    /// The endpoint it would be if it did not use its node's network. Such a pod is the node, and
    /// neither peer nor subject of policy.
    pub on_host_network: Option<Endpoint>,
}

impl LoweredObject {
    /// An object that says nothing (yet).
    pub(crate) fn empty(id: ObjectId, object: &RawObject) -> Self {
        LoweredObject {
            id,
            location: object.location.clone(),
            objects: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
            omitted: Vec::new(),
            ignored: None,
            completed: false,
            on_host_network: None,
        }
    }
}

/// Reads one object by the dialect it is written in.
#[must_use]
pub fn lower_object(object: &RawObject) -> LoweredObject {
    DIALECTS
        .iter()
        .find_map(|dialect| dialect.lower(object))
        .unwrap_or_else(|| unknown::lower_unknown(object))
}

/// The policy to enforce in the place of an object that [`lower_object`] refuses and that was never valid,
/// if its kind isolates, its namespace is sound and its subject can be read.
///
/// A Kubernetes NetworkPolicy, also one whose kind or version is mistyped, isolates the pods its
/// podSelector selects. A podSelector with anything
/// wrong in it is not read; one that is missing beside a field that may be its misspelling is not
/// either; one that is missing otherwise selects every pod of the namespace, as in a valid policy.
/// The directions are those of policyTypes; where these hold anything unreadable, or a field of the
/// spec may be their misspelling, both; where they are missing, ingress, and egress as well if there
/// is anything in `egress`.
#[must_use]
pub fn isolate(object: &RawObject) -> Option<Policy> {
    DIALECTS.iter().find_map(|dialect| dialect.isolate(object))
}

/// The name of an object as it stands there; nothing is known of its kind.
pub(crate) fn literal_id(object: &RawObject) -> ObjectId {
    ObjectId {
        namespace: object.namespace.as_deref().map(Into::into),
        name: object.name.as_str().into(),
        group: object.group().into(),
        kind: object.kind.as_str().into(),
    }
}

/// `apiVersion Kind`, as it stands in the file.
pub(crate) fn qualified_kind(object: &RawObject) -> String {
    format!("{} {}", object.api_version, object.kind)
}
