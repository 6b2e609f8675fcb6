//! What a source reports: the difference since its last report, and its state.

use crate::SharedId;
use crate::definition::{Definition, ObjectOrigin};
use crate::diagnostic::DiagnosticCollector;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use palisade_model::Str;

/// The position of a source among the sources: a lower number has precedence.
pub type SourceNumber = u16;

/// A change of the definitions of a source.
#[derive(Debug)]
pub enum DefinitionChange {
    /// A definition was added, or replaced one of the same origin: of the same place in a file, or of any other
    /// resource version.
    Upsert(Definition),
    /// A definition is not there any more. The object stays in force until it is [`Gone`](Self::Gone) or
    /// defined again.
    Delete {
        /// The object.
        id: SharedId,
        /// Where the definition was.
        origin: ObjectOrigin,
    },
    /// The source has no definition of this object, but cannot tell whether there is one.
    Missing {
        /// The object.
        id: SharedId,
        /// Whether this is reported: something cannot be read. Otherwise the source only waits for a
        /// complete read.
        is_reported: bool,
    },
    /// The object does not exist in this source.
    Gone(SharedId),
}

/// The changes of one source since its last delta.
#[derive(Debug, Default)]
pub struct SourceDelta {
    /// The changed definitions: deletions first, the last definition of an object before the others.
    pub changes: Vec<DefinitionChange>,
    /// Whether everything that the source has was delivered. Once true it stays true.
    pub in_sync: bool,
    /// Why changes may be missed; `None` while the source is followed.
    pub stale: Option<String>,
    /// Since when, in seconds since 1970, if not since now: a source that starts from what it stored.
    pub stale_since: Option<u64>,
    /// The state of the source's input, if it changed.
    pub report: Option<SourceReport>,
}

/// The state of a source's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReport {
    /// The number of files (or other units) read.
    pub files: usize,
    /// Errors and warnings of single objects and files.
    pub problems: DiagnosticCollector,
    /// The number of ignored objects of other kinds, by `apiVersion kind`.
    pub ignored: BTreeMap<String, usize>,
    /// The resources that a server does not have: policy APIs that are not installed there.
    pub absent: Vec<String>,
}

/// Since when and why a source is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staleness {
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// The reason.
    pub reason: String,
}

/// One source as the component sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceState {
    /// Its name.
    pub name: Str,
    /// Whether everything that it has was delivered.
    pub in_sync: bool,
    /// Since when and why it is not followed any more.
    pub stale: Option<Staleness>,
    /// The state of its input.
    pub(crate) report: SourceReport,
}

impl SourceState {
    /// A source that has delivered nothing yet.
    pub fn new(name: Str) -> Self {
        SourceState {
            name,
            in_sync: false,
            stale: None,
            report: SourceReport::default(),
        }
    }

    /// The resources that a server does not have.
    pub fn absent(&self) -> &[String] {
        &self.report.absent
    }
}
