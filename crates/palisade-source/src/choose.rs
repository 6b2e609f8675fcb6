//! Which version of one object is in force.
//!
//! A valid object is in force. An invalid one leaves its last valid version in force, or, if there
//! never was one, isolates what it selects. Of an object defined twice, the version in force stays.
//! Nothing here remembers anything.

use crate::memory::{InForce, Version};
use crate::piece::Piece;
use palisade_model::Object;
use std::path::Path;
use std::sync::Arc;

/// What is in force now.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The object.
    pub(crate) object: InForce,
    /// Whether that is not what the files say, or not all of it.
    pub(crate) kept: bool,
}

/// One definition of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition<'a> {
    /// The file it is in.
    pub(crate) file: &'a Arc<Path>,
    /// What it says.
    pub(crate) piece: &'a Piece,
}

/// Decides between the definitions of one object, in the order of the files, and what was in force
/// before. `now` is in seconds since 1970.
pub(crate) fn choose(
    before: Option<&InForce>,
    definitions: &[Definition<'_>],
    now: u64,
) -> Option<Choice> {
    let valid_before = before.filter(|before| before.version.is_some());
    let twice = definitions.len() > 1;
    if let (true, Some(before)) = (twice, valid_before) {
        let same = || {
            definitions
                .iter()
                .filter(|definition| !definition.piece.rejected && is(before, definition.piece))
        };
        let unmoved = same().find(|definition| *definition.file == before.file);
        let object = match unmoved.or(same().next()) {
            Some(definition) => in_force(*definition, valid_before, now),
            None => before.clone(),
        };
        return Some(Choice { object, kept: true });
    }
    let first = *definitions.first()?;
    if !first.piece.rejected {
        let object = in_force(first, valid_before, now);
        return Some(Choice {
            object,
            kept: twice,
        });
    }
    let file = Arc::clone(first.file);
    let object = match valid_before {
        Some(before) => InForce {
            file,
            ..before.clone()
        },
        None => InForce {
            version: None,
            file,
            objects: Arc::new(vec![Object::Policy(*first.piece.isolation.clone()?)]),
        },
    };
    Some(Choice { object, kept: true })
}

fn is(object: &InForce, piece: &Piece) -> bool {
    let version = object.version.as_ref();
    version.is_some_and(|version| version.hash == piece.hash)
}

fn in_force(definition: Definition<'_>, before: Option<&InForce>, now: u64) -> InForce {
    let known = before.filter(|before| is(before, definition.piece));
    let since = known
        .and_then(|before| before.version.as_ref())
        .map_or(now, |v| v.since);
    InForce {
        version: Some(Version {
            hash: definition.piece.hash,
            since,
        }),
        file: Arc::clone(definition.file),
        objects: Arc::clone(&definition.piece.objects),
    }
}
