//! Sources of policy objects: each source delivers its objects as one stream of updates.
//!
//! A [`Source`] first delivers every object it has, then marks that it is in sync, and after that delivers
//! changes only. The sum of its updates is always the state in force, also after a broken file, a lost watch
//! or a full scan. A source never evaluates policy and never accesses the kernel.

mod collector;
mod directory;
mod file_object;
mod file_watch;
mod host_network;
mod load;
mod manifest_file;
mod name_index;
mod partial_scan;
mod path_entries;
mod policy_cost;
mod reconciler;
mod roots;
mod scan;
mod string_interner;
mod templates;
mod tree_limits;
mod version_choice;
mod version_store;
mod watch_set;

pub use directory::{Directory, DirectoryOptions, SettleHandle, StopHandle};
pub use file_watch::FileWatch;
pub use load::{LoadProgress, LoadedInput, load, load_with_progress};
pub use palisade_engine::{ElementBudget, ExceededLimit};
pub use policy_cost::{ElementBudgetHandle, ExpensiveRule, OversizedPolicy};
pub use version_store::VersionStoreError;

use palisade_dialects::OmittedProblems;
use palisade_manifest::Problem;
use palisade_model::Update;
use std::ops::ControlFlow;

/// A batch of updates that belong together, and the source's report after them.
#[derive(Clone, Debug, Default)]
pub struct UpdateBatch {
    /// The changes, in any order.
    pub updates: Vec<Update>,
    /// Whether every object of the source has been delivered. Once true it stays true.
    pub in_sync: bool,
    /// The state of the input after this batch, for status.
    pub report: SourceReport,
}

/// The state of a source's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReport {
    /// The number of files (or other units) read.
    pub files: usize,
    /// The number of objects in force.
    pub objects: usize,
    /// Errors and warnings, by file and line.
    pub problems: Vec<Diagnostic>,
    /// Objects of which an earlier version, or an isolation policy, is in force.
    pub retained: Vec<RetainedObject>,
    /// Policies over their element budget: their last valid version stays in force.
    pub over_budget: Vec<OversizedPolicy>,
    /// The number of ignored objects of other kinds, by `apiVersion kind`.
    pub ignored: std::collections::BTreeMap<String, usize>,
    /// Pods that have completed: they own no address, even if their status still lists one.
    pub completed: std::collections::BTreeSet<palisade_model::ObjectId>,
}

/// A problem and its severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The place and the reason.
    pub problem: Problem,
    /// True for an error, which keeps an object out of force; false for a warning.
    pub is_error: bool,
    /// If it summarizes problems that are not listed: their number. Otherwise 0.
    pub omitted: usize,
}

impl Ord for Diagnostic {
    /// By location; errors before warnings.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |diagnostic: &Diagnostic| (!diagnostic.is_error, diagnostic.omitted);
        (self.problem.cmp(&other.problem)).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Diagnostic {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Diagnostic {
    pub(crate) fn error(problem: Problem) -> Self {
        Diagnostic {
            problem: problem.truncated(),
            is_error: true,
            omitted: 0,
        }
    }

    pub(crate) fn warning(problem: Problem) -> Self {
        Diagnostic {
            problem: problem.truncated(),
            is_error: false,
            omitted: 0,
        }
    }

    pub(crate) fn from_lowered(
        errors: Vec<Problem>,
        warnings: Vec<Problem>,
        omitted: Vec<OmittedProblems>,
    ) -> Vec<Diagnostic> {
        let errors = errors.into_iter().map(Diagnostic::error);
        let warnings = warnings.into_iter().map(Diagnostic::warning);
        let more = omitted.into_iter().map(Diagnostic::from_omitted);
        errors.chain(warnings).chain(more).collect()
    }

    pub(crate) fn from_omitted(more: OmittedProblems) -> Self {
        Diagnostic {
            problem: more.problem.truncated(),
            is_error: more.is_error,
            omitted: more.count,
        }
    }

    /// The number of problems it stands for.
    pub fn count(&self) -> usize {
        self.omitted.max(1)
    }

    /// The numbers of errors and of warnings, including those that are not listed.
    pub fn count_by_severity(diagnostics: &[Diagnostic]) -> (usize, usize) {
        let of = |error| {
            diagnostics
                .iter()
                .filter(move |diagnostic| diagnostic.is_error == error)
        };
        let total = |error| of(error).map(Diagnostic::count).sum();
        (total(true), total(false))
    }

    /// Sorts by location and removes duplicates.
    pub(crate) fn sort(diagnostics: &mut Vec<Diagnostic>) {
        diagnostics.sort();
        diagnostics.dedup();
    }
}

/// An object whose version in force is not a valid definition of the present files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedObject {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// When the version in force was read, in seconds since 1970; `None` if no version was ever valid and an
    /// isolation policy is in force.
    pub since: Option<u64>,
    /// The hash of the version in force, in hexadecimal.
    pub hash: Option<String>,
}

/// A source of objects.
pub trait Source: Send {
    /// The kind of this source and its location, for status.
    fn describe(&self) -> (String, String);

    /// Passes batches to `sink` until it breaks or the source's stop handle is used.
    ///
    /// # Errors
    /// Only errors after which the source cannot continue; everything else is a [`Diagnostic`] in a report.
    fn run(
        &mut self,
        sink: &mut dyn FnMut(UpdateBatch) -> ControlFlow<()>,
    ) -> Result<(), SourceError>;
}

/// Why a source ended.
#[derive(Debug)]
pub struct SourceError {
    /// The operation and its object.
    pub action: String,
    /// The cause.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.action)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.cause)
    }
}
