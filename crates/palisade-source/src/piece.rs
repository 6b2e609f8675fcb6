//! One object of a file, read on its own: all of its meaning that does not depend on other objects,
//! so that an edit costs no more than the file it is in.

use crate::Flaw;
use palisade_dialects::{ContentHash, SubjectPlace, isolate, read};
use palisade_manifest::{Location, RawObject};
use palisade_model::{Endpoint, Object, ObjectId, Policy};
use std::sync::Arc;

/// An object, read.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Its name.
    pub(crate) id: ObjectId,
    /// Where it begins.
    pub(crate) location: Location,
    /// Tells its contents apart.
    pub(crate) hash: String,
    /// What it says; nothing if it was rejected.
    pub(crate) objects: Arc<Vec<Object>>,
    /// Whether it has errors.
    pub(crate) rejected: bool,
    /// Errors and doubts.
    pub(crate) flaws: Vec<Flaw>,
    /// Its kind, if that is none of policy's.
    pub(crate) ignored: Option<String>,
    /// What to enforce if it was rejected and never valid.
    pub(crate) isolation: Option<Policy>,
    /// The endpoint it would be if it did not use its node's network.
    pub(crate) on_host_network: Option<Endpoint>,
    /// Where it says whom it is about.
    pub(crate) subject: SubjectPlace,
}

impl Piece {
    /// Reads an object.
    pub(crate) fn of(raw: RawObject) -> Self {
        let lowered = read(&raw);
        let rejected = !lowered.errors.is_empty();
        let flaws = Flaw::all(lowered.errors, lowered.warnings);
        Piece {
            id: lowered.id,
            location: lowered.location,
            hash: ContentHash::of(&raw.root).to_string(),
            objects: Arc::new(lowered.objects),
            rejected,
            flaws,
            ignored: lowered.ignored,
            isolation: if rejected { isolate(&raw) } else { None },
            on_host_network: lowered.on_host_network,
            subject: SubjectPlace::of(&raw),
        }
    }
}
