//! One object of a file, read on its own: all of its meaning that does not depend on other objects,
//! so that an edit costs no more than the file it is in.

use crate::Flaw;
use crate::budget::ObjectCost;
use crate::scan::Made;
use crate::strings::Strings;
use palisade_dialects::{ContentHash, Quota, SubjectPlace, isolate, read};
use palisade_manifest::{Location, RawObject};
use palisade_model::{Endpoint, Object, ObjectId, Policy};
use std::sync::Arc;

/// An object's name, kept once for all that know the object.
pub(crate) type Id = Arc<ObjectId>;

/// An object, read.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its name.
    pub(crate) id: Id,
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
    pub(crate) flaws: Vec<Flaw>,
    /// Its kind, if that is none of policy's.
    pub(crate) ignored: Option<String>,
    /// What to enforce if it was rejected and never valid.
    pub(crate) isolation: Option<Box<Policy>>,
    /// The endpoint it would be if it did not use its node's network.
    pub(crate) on_host_network: Option<Box<Endpoint>>,
    /// What it takes of the kernel, if it is a policy.
    pub(crate) cost: Option<Box<ObjectCost>>,
    /// Where it says whom it is about, if it is a policy.
    pub(crate) subject: Option<Box<SubjectPlace>>,
}

impl Piece {
    /// Reads the objects of a file.
    pub(crate) fn all_of(raw: Vec<RawObject>, mut quota: Quota) -> Made<Self> {
        let mut strings = Strings::default();
        let pieces = raw.into_iter().map(|raw| {
            let mut piece = Piece::of(&raw, &mut strings);
            piece.flaws.retain(|flaw| {
                let told = quota.has_room(flaw.error);
                if told {
                    quota.admit(flaw.error);
                } else {
                    quota.leave_out(flaw.error, flaw.count());
                }
                told
            });
            piece.flaws.shrink_to_fit();
            piece
        });
        Made {
            objects: pieces.collect(),
            quota,
        }
    }

    fn of(raw: &RawObject, strings: &mut Strings) -> Self {
        let mut lowered = read(raw);
        strings.share_id(&mut lowered.id);
        lowered
            .objects
            .iter_mut()
            .for_each(|object| strings.share(object));
        lowered.objects.shrink_to_fit();
        let is_policy = |object: &Object| matches!(object, Object::Policy(_));
        let subject = lowered.objects.iter().any(is_policy);
        let rejected = !lowered.errors.is_empty();
        let flaws = Flaw::all(lowered.errors, lowered.warnings, lowered.more);
        Piece {
            id: Arc::new(lowered.id),
            location: lowered.location,
            hash: ContentHash::of(&raw.root),
            cost: ObjectCost::of(&lowered.objects).map(Box::new),
            objects: Arc::new(lowered.objects),
            rejected,
            completed: lowered.completed,
            flaws,
            ignored: lowered.ignored,
            isolation: rejected.then(|| isolate(raw).map(Box::new)).flatten(),
            on_host_network: lowered.on_host_network.map(Box::new),
            subject: subject.then(|| Box::new(SubjectPlace::of(raw))),
        }
    }
}
