//! Decides which version of one object is in force.
//!
//! A valid object is in force. For an invalid object, or one over its element budget, the last valid version
//! stays in force; if there is none, an isolation policy takes its place. Of an object defined twice, the
//! version in force stays. The functions here keep no state.

use crate::definition::{Definition, ObjectOrigin};
use crate::definition_problems::ClosedParts;
use crate::source::SourceNumber;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_dialects::ContentHash;
use palisade_model::Object;

/// Deliberate errors of the choice, for tests.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(
    not(feature = "faults"),
    allow(unreachable_pub, reason = "public where faults can be injected")
)]
pub struct ChoiceFaults {
    /// A duplicate definition is ignored.
    pub first_definition_wins: bool,
    /// The last valid version of an invalid object goes out of force.
    pub last_valid_dropped: bool,
    /// An object that was never valid does not isolate.
    pub never_valid_passes: bool,
}

/// A valid version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidVersion {
    /// Its hash.
    pub hash: ContentHash,
    /// When it was first read, in seconds since 1970.
    pub since: u64,
}

/// A version in force.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveVersion {
    /// `None` for the isolation policy of an object that was never valid.
    pub version: Option<ValidVersion>,
    /// The source that it came from.
    pub source: SourceNumber,
    /// Where it was read, or where a later version may be.
    pub origin: ObjectOrigin,
    /// Its model objects.
    pub objects: Arc<Vec<Object>>,
    /// Its parts that are held closed.
    pub closed: Option<Arc<ClosedParts>>,
}

/// The decision about one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionChoice {
    /// The definition of this index.
    Definition(usize),
    /// What is in force now.
    Unchanged,
    /// What is in force now; a later version may be at the first definition.
    LastValid,
    /// The isolation policy of the first definition.
    Isolation,
    /// Nothing.
    Nothing,
}

/// What the choice knows of the version in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreviousVersion<'a> {
    pub(crate) hash: ContentHash,
    pub(crate) source: SourceNumber,
    pub(crate) origin: &'a ObjectOrigin,
}

/// Chooses between the definitions of one object, in the order of precedence, and the last valid version in
/// force; `is_over_budget` tells which definitions exceed their budget. `is_contested` means that there are
/// several definitions, or may be. Also returns whether the object is retained: what is in force may differ
/// from the definitions.
pub(crate) fn choose_version(
    previous: Option<PreviousVersion<'_>>,
    definitions: &[(SourceNumber, Box<Definition>)],
    is_contested: bool,
    is_over_budget: impl Fn(&Definition) -> bool,
    faults: ChoiceFaults,
) -> (VersionChoice, bool) {
    let is_acceptable =
        |definition: &Definition| !definition.is_rejected && !is_over_budget(definition);
    let is_duplicate = is_contested && !faults.first_definition_wins;
    if let (true, Some(before)) = (is_duplicate, previous) {
        let same = || {
            let all = definitions.iter().enumerate();
            all.filter(|(_, (_, d))| is_acceptable(d) && d.hash == before.hash)
        };
        let is_unmoved = |(source, definition): &(SourceNumber, Box<Definition>)| {
            *source == before.source && definition.origin.is_same_unit(before.origin)
        };
        let unmoved = same().find(|(_, definition)| is_unmoved(definition));
        let choice = unmoved.or(same().next());
        let choice = choice.map_or(VersionChoice::Unchanged, |(index, _)| {
            VersionChoice::Definition(index)
        });
        return (choice, true);
    }
    let Some((_, first)) = definitions.first() else {
        return (VersionChoice::Nothing, false);
    };
    if is_acceptable(first) {
        return (VersionChoice::Definition(0), is_duplicate);
    }
    if previous.is_some() && !faults.last_valid_dropped {
        return (VersionChoice::LastValid, true);
    }
    let isolates = !first.isolation.is_empty() || !first.is_rejected;
    if !isolates || faults.never_valid_passes {
        return (VersionChoice::Nothing, false);
    }
    (VersionChoice::Isolation, true)
}
