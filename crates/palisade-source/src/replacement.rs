//! Which objects of an input a change leaves out: those that it has itself, and those that it deletes.

use palisade_model::ObjectId;
use std::collections::BTreeSet;

/// Whether an object is deleted.
pub(crate) type DeletionTest = Box<dyn Fn(&ObjectId) -> bool>;

/// What a change leaves out of the objects that are read after it.
#[derive(Default)]
pub(crate) struct Replacement {
    given: BTreeSet<ObjectId>,
    /// Which objects are deleted, once the change has been read.
    is_deleted: Option<DeletionTest>,
}

impl Replacement {
    /// What follows is what the change is applied to.
    pub(crate) fn end_change(&mut self, is_deleted: DeletionTest) {
        self.is_deleted = Some(is_deleted);
    }

    /// Whether an object that was read now counts.
    pub(crate) fn takes(&mut self, id: &ObjectId) -> bool {
        match &self.is_deleted {
            None => {
                self.given.insert(id.clone());
                true
            }
            // Asked first, so that whoever deletes knows of what is replaced as well.
            Some(is_deleted) => !is_deleted(id) && !self.given.contains(id),
        }
    }
}
