//! What is wrong with a definition of a policy, as far as it is kept: its errors, and its parts that are held closed.
//!
//! Promises: a bounded number of each is kept, and the others are counted. Never: decides what is in force.

use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_dialects::{ClosedPart, LoweredObject};
use palisade_manifest::Problem;

/// The maximum number of errors that are kept of one policy; the others are counted.
const MAX_ERRORS: usize = 20;

/// The parts of a policy that are held closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedParts {
    /// The first hundred, in the order of reading.
    pub parts: Vec<ClosedPart>,
    /// The number of the others.
    pub more: usize,
}

impl ClosedParts {
    /// Those of a lowered object; `None` if there are none.
    pub(crate) fn of(lowered: &LoweredObject) -> Option<Arc<Self>> {
        (!lowered.closed.is_empty()).then(|| {
            Arc::new(ClosedParts {
                parts: lowered.closed.clone(),
                more: lowered.more_closed,
            })
        })
    }
}

/// The errors of a definition of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DefinitionErrors {
    pub(crate) listed: Vec<Problem>,
    pub(crate) more: usize,
}

impl DefinitionErrors {
    /// The errors of a lowered object.
    pub(crate) fn of(lowered: &LoweredObject) -> Self {
        let omitted = lowered.omitted.iter().filter(|omitted| omitted.is_error);
        let omitted: usize = omitted.map(|omitted| omitted.count).sum();
        let listed: Vec<Problem> = lowered.errors.iter().take(MAX_ERRORS).cloned().collect();
        DefinitionErrors {
            more: omitted + lowered.errors.len() - listed.len(),
            listed,
        }
    }
}
