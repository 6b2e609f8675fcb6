//! One object of a file, read on its own: all of its meaning that does not depend on other objects,
//! so that an edit costs no more than the file it is in.

use crate::Diagnostic;
use crate::manifest_file::ConvertedObjects;
use crate::policy_cost::ObjectCost;
use crate::string_interner::StringInterner;
use palisade_dialects::{ContentHash, ProblemQuota, SubjectLocation, isolate, lower_object};
use palisade_manifest::{Location, RawObject};
use palisade_model::{Endpoint, Object, ObjectId, Policy};
use std::sync::Arc;

/// An object's name, kept once for all that know the object.
pub(crate) type SharedId = Arc<ObjectId>;

/// An object, read.
#[derive(Debug)]
pub(crate) struct FileObject {
    /// Its name.
    pub(crate) id: SharedId,
    /// Where it begins.
    pub(crate) location: Location,
    /// Tells its contents apart.
    pub(crate) hash: ContentHash,
    /// What it says; nothing if it was rejected.
    pub(crate) objects: Arc<Vec<Object>>,
    /// Whether it has errors.
    pub(crate) rejected: bool,
    /// Whether it is a pod that ran to its end.
    pub(crate) completed: bool,
    /// Errors and doubts.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Its kind, if that is none of policy's.
    pub(crate) ignored: Option<String>,
    /// What to enforce if it was rejected and never valid.
    pub(crate) isolation: Option<Box<Policy>>,
    /// The endpoint it would be if it did not use its node's network.
    pub(crate) on_host_network: Option<Box<Endpoint>>,
    /// What it takes of the kernel, if it is a policy.
    pub(crate) cost: Option<Box<ObjectCost>>,
    /// Where it says whom it is about, if it is a policy.
    pub(crate) subject: Option<Box<SubjectLocation>>,
}

impl FileObject {
    /// Reads the objects of a file.
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
