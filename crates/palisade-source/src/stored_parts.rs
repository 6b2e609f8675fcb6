//! The parts held closed of a saved version, as they are stored on disk.
//!
//! Never: fails for a file of another build: a part with a reason that this build does not know is dropped, and found
//! again when the object is read.

use palisade_dialects::{ClosedPart, ClosedReason};
use palisade_effective::ClosedParts;
use palisade_manifest::{Location, Problem};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One part held closed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredPart {
    reason: String,
    object: Option<String>,
    field: String,
    text: String,
    file: String,
    line: u32,
    column: u32,
}

impl StoredPart {
    /// The parts of a version.
    pub(crate) fn all_of(closed: Option<&ClosedParts>) -> Vec<Self> {
        let parts = closed.into_iter().flat_map(|closed| &closed.parts);
        let stored = parts.map(|part| StoredPart {
            reason: part.reason.name().to_owned(),
            object: part.problem.object.clone(),
            field: part.problem.field.clone(),
            text: part.problem.reason.clone(),
            file: part.problem.location.file.to_string(),
            line: part.problem.location.line,
            column: part.problem.location.column,
        });
        stored.collect()
    }

    /// The parts, and the number of others; `None` if there are none.
    pub(crate) fn into_parts(stored: Vec<Self>, more: usize) -> Option<Arc<ClosedParts>> {
        let parts: Vec<ClosedPart> = stored
            .into_iter()
            .filter_map(StoredPart::into_part)
            .collect();
        (!parts.is_empty()).then(|| Arc::new(ClosedParts { parts, more }))
    }

    fn into_part(self) -> Option<ClosedPart> {
        let mut all = ClosedReason::ALL.iter();
        let reason = all.find(|reason| reason.name() == self.reason)?;
        Some(ClosedPart {
            reason: *reason,
            problem: Problem {
                location: Location {
                    file: self.file.into(),
                    line: self.line,
                    column: self.column,
                },
                object: self.object,
                field: self.field,
                reason: self.text,
            },
        })
    }
}
