//! One object of a file, lowered on its own. Nothing here depends on other objects, so the cost of an edit is
//! that of its file.

use crate::Diagnostic;
use crate::manifest_file::ConvertedObjects;
use crate::policy_cost::ObjectCost;
use crate::string_interner::StringInterner;
use palisade_dialects::{ContentHash, ProblemQuota, SubjectLocation, isolate, lower_object};
use palisade_manifest::{Location, RawObject};
use palisade_model::{Endpoint, Object, ObjectId, Policy};
use std::sync::Arc;

/// An object's name, shared by all structures that refer to the object.
pub(crate) type SharedId = Arc<ObjectId>;

/// A lowered object.
#[derive(Debug)]
pub(crate) struct FileObject {
    /// Its name.
    pub(crate) id: SharedId,
    /// The beginning of the object.
    pub(crate) location: Location,
    /// The hash of its content.
    pub(crate) hash: ContentHash,
    /// Its model objects; empty if it was rejected.
    pub(crate) objects: Arc<Vec<Object>>,
    /// Whether it has errors.
    pub(crate) rejected: bool,
    /// Whether it is a completed pod.
    pub(crate) completed: bool,
    /// Errors and warnings.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Its kind, if the kind is ignored.
    pub(crate) ignored: Option<String>,
    /// The isolation policy that is in force if it was rejected and no version was ever valid.
    pub(crate) isolation: Option<Box<Policy>>,
    /// The endpoint it would be without host networking.
    pub(crate) on_host_network: Option<Box<Endpoint>>,
    /// Its cost in kernel elements, if it is a policy.
    pub(crate) cost: Option<Box<ObjectCost>>,
    /// The location of its subject selector, if it is a policy.
    pub(crate) subject: Option<Box<SubjectLocation>>,
}

impl FileObject {
    /// Lowers the objects of a file.
    pub(crate) fn from_raw_objects(
        raw: Vec<RawObject>,
        mut quota: ProblemQuota,
    ) -> ConvertedObjects<Self> {
        let mut strings = StringInterner::default();
        let pieces = raw.into_iter().map(|raw| {
            let mut file_object = FileObject::new(&raw, &mut strings);
            file_object.diagnostics.retain(|diagnostic| {
                let has_room = quota.has_room(diagnostic.is_error);
                if has_room {
                    quota.admit(diagnostic.is_error);
                } else {
                    quota.omit(diagnostic.is_error, diagnostic.count());
                }
                has_room
            });
            file_object.diagnostics.shrink_to_fit();
            file_object
        });
        ConvertedObjects {
            objects: pieces.collect(),
            quota,
        }
    }

    fn new(raw: &RawObject, strings: &mut StringInterner) -> Self {
        let mut lowered = lower_object(raw);
        strings.intern_id(&mut lowered.id);
        lowered
            .objects
            .iter_mut()
            .for_each(|object| strings.intern_object(object));
        lowered.objects.shrink_to_fit();
        let is_policy = |object: &Object| matches!(object, Object::Policy(_));
        let subject = lowered.objects.iter().any(is_policy);
        let rejected = !lowered.errors.is_empty();
        let flaws = Diagnostic::from_lowered(lowered.errors, lowered.warnings, lowered.omitted);
        FileObject {
            id: Arc::new(lowered.id),
            location: lowered.location,
            hash: ContentHash::of(&raw.root),
            cost: ObjectCost::of(&lowered.objects).map(Box::new),
            objects: Arc::new(lowered.objects),
            rejected,
            completed: lowered.completed,
            diagnostics: flaws,
            ignored: lowered.ignored,
            isolation: rejected.then(|| isolate(raw).map(Box::new)).flatten(),
            on_host_network: lowered.on_host_network.map(Box::new),
            subject: subject.then(|| Box::new(SubjectLocation::of(raw))),
        }
    }
}
