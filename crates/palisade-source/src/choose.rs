//! Which version of one object is in force.
//!
//! A valid object is in force. An invalid one, or one that takes more than it may, leaves its last valid version in force, or, if there
//! never was one, isolates what it selects. Of an object defined twice, the version in force stays.
//! Nothing here remembers anything.

use crate::budget::isolating;
use crate::memory::{InForce, Version};
use crate::piece::Piece;
use palisade_model::Object;
use palisade_sys::fault;
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
/// before; `is_over_budget` says which take more than they may. `now` is in seconds since 1970.
pub(crate) fn choose(
    before: Option<&InForce>,
    definitions: &[Definition<'_>],
    is_over_budget: impl Fn(&Piece) -> bool,
    now: u64,
) -> Option<Choice> {
    let is_taken = |piece: &Piece| !piece.rejected && !is_over_budget(piece);
    let valid_before = before.filter(|before| before.version.is_some());
    let twice = definitions.len() > 1 && !fault::is_on("first-definition-wins");
    if let (true, Some(before)) = (twice, valid_before) {
        let same = || {
            definitions
                .iter()
                .filter(|definition| is_taken(definition.piece) && is(before, definition.piece))
        };
        let unmoved = same().find(|definition| *definition.file == before.file);
        let object = match unmoved.or(same().next()) {
            Some(definition) => in_force(*definition, valid_before, now),
            None => before.clone(),
        };
        return Some(Choice { object, kept: true });
    }
    let first = *definitions.first()?;
    if is_taken(first.piece) {
        let object = in_force(first, valid_before, now);
        return Some(Choice {
            object,
            kept: twice,
        });
    }
    let file = Arc::clone(first.file);
    let object = match valid_before.filter(|_| !fault::is_on("last-valid-dropped")) {
        Some(before) => InForce {
            file,
            ..before.clone()
        },
        None if fault::is_on("never-valid-passes") => return None,
        None => InForce {
            version: None,
            file,
            objects: Arc::new(match &first.piece.isolation {
                Some(isolation) => vec![Object::Policy(*isolation.clone())],
                None if first.piece.rejected => return None,
                None => isolating(&first.piece.objects),
            }),
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
