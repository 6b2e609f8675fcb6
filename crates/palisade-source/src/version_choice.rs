//! Decides which version of one object is in force.
//!
//! A valid object is in force. For an invalid object, or one over its element budget, the last valid version
//! stays in force; if there is none, an isolation policy takes its place. Of an object defined twice, the
//! version in force stays. The functions here keep no state.

use crate::file_object::FileObject;
use crate::policy_cost::isolation_policies;
use crate::version_store::{EffectiveObject, ValidVersion};
use palisade_model::Object;
use palisade_sys::fault;
use std::path::Path;
use std::sync::Arc;

/// The version that is in force now.
#[derive(Debug)]
pub(crate) struct ChosenVersion {
    /// The object.
    pub(crate) object: EffectiveObject,
    /// Whether it differs from the definitions in the files.
    pub(crate) retained: bool,
}

/// One definition of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition<'a> {
    /// The file it is in.
    pub(crate) file: &'a Arc<Path>,
    /// The lowered object.
    pub(crate) object: &'a FileObject,
}

/// Chooses between the definitions of one object, in the order of the files, and the version in force before;
/// `is_over_budget` tells which definitions exceed their budget. `now` is in seconds since 1970.
pub(crate) fn choose_version(
    previous: Option<&EffectiveObject>,
    definitions: &[Definition<'_>],
    is_over_budget: impl Fn(&FileObject) -> bool,
    now: u64,
) -> Option<ChosenVersion> {
    let is_acceptable =
        |file_object: &FileObject| !file_object.rejected && !is_over_budget(file_object);
    let previous_valid = previous.filter(|before| before.version.is_some());
    let is_duplicate = definitions.len() > 1 && !fault::is_injected("first-definition-wins");
    if let (true, Some(before)) = (is_duplicate, previous_valid) {
        let same = || {
            definitions.iter().filter(|definition| {
                is_acceptable(definition.object) && is_same_version(before, definition.object)
            })
        };
        let unmoved = same().find(|definition| *definition.file == before.file);
        let object = match unmoved.or(same().next()) {
            Some(definition) => make_effective(*definition, previous_valid, now),
            None => before.clone(),
        };
        return Some(ChosenVersion {
            object,
            retained: true,
        });
    }
    let first = *definitions.first()?;
    if is_acceptable(first.object) {
        let object = make_effective(first, previous_valid, now);
        return Some(ChosenVersion {
            object,
            retained: is_duplicate,
        });
    }
    let file = Arc::clone(first.file);
    let object = match previous_valid.filter(|_| !fault::is_injected("last-valid-dropped")) {
        Some(before) => EffectiveObject {
            file,
            ..before.clone()
        },
        None if fault::is_injected("never-valid-passes") => return None,
        None => EffectiveObject {
            version: None,
            file,
            objects: Arc::new(match &first.object.isolation {
                Some(isolation) => vec![Object::Policy(*isolation.clone())],
                None if first.object.rejected => return None,
                None => isolation_policies(&first.object.objects),
            }),
        },
    };
    Some(ChosenVersion {
        object,
        retained: true,
    })
}

fn is_same_version(object: &EffectiveObject, file_object: &FileObject) -> bool {
    let version = object.version.as_ref();
    version.is_some_and(|version| version.hash == file_object.hash)
}

fn make_effective(
    definition: Definition<'_>,
    previous: Option<&EffectiveObject>,
    now: u64,
) -> EffectiveObject {
    let known = previous.filter(|before| is_same_version(before, definition.object));
    let since = known
        .and_then(|before| before.version.as_ref())
        .map_or(now, |v| v.since);
    EffectiveObject {
        version: Some(ValidVersion {
            hash: definition.object.hash,
            since,
        }),
        file: Arc::clone(definition.file),
        objects: Arc::clone(&definition.object.objects),
    }
}
