//! Sources of updates: where objects come from, as one stream.
//!
//! A [`Source`] says everything it knows once, marks the moment it is in sync, and from then on says
//! what changes. Whatever happens on the way (a broken file, a lost watch, a rescan), the sum of
//! what it said is always what is in force. Sources never judge policy and never touch the kernel.

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

/// Updates that belong together, and what the source now has to report.
#[derive(Clone, Debug, Default)]
pub struct UpdateBatch {
    /// What changed, in any order.
    pub updates: Vec<Update>,
    /// Whether everything the source knows has now been said. Once true it stays true.
    pub in_sync: bool,
    /// What people should know about the input as it stands after this batch.
    pub report: SourceReport,
}

/// The state of a source's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReport {
    /// Files (or other units) read.
    pub files: usize,
    /// Objects in force.
    pub objects: usize,
    /// What is wrong, by file and line.
    pub problems: Vec<Diagnostic>,
    /// Objects of which an earlier version, or an isolating stand-in, is in force.
    pub retained: Vec<RetainedObject>,
    /// Policies that take more of the kernel than they may: what was valid last stays in force.
    pub over_budget: Vec<OversizedPolicy>,
    /// Objects that are none of our business, by `apiVersion kind`.
    pub ignored: std::collections::BTreeMap<String, usize>,
    /// Pods that ran to their end: they hold no address, whoever still has it.
    pub completed: std::collections::BTreeSet<palisade_model::ObjectId>,
}

/// A problem and how bad it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where and why.
    pub problem: Problem,
    /// Whether it keeps something from being in force (an error) or not (a warning).
    pub is_error: bool,
    /// If it stands for problems that are not told one by one: how many these are. Otherwise 0.
    pub omitted: usize,
}

impl Ord for Diagnostic {
    /// By place; errors before warnings.
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

    /// How many problems it is.
    pub fn count(&self) -> usize {
        self.omitted.max(1)
    }

    /// How many errors, and how many warnings, these are, with those that are not told one by one.
    pub fn count_by_severity(diagnostics: &[Diagnostic]) -> (usize, usize) {
        let of = |error| {
            diagnostics
                .iter()
                .filter(move |diagnostic| diagnostic.is_error == error)
        };
        let total = |error| of(error).map(Diagnostic::count).sum();
        (total(true), total(false))
    }

    /// By place; each once.
    pub(crate) fn sort(diagnostics: &mut Vec<Diagnostic>) {
        diagnostics.sort();
        diagnostics.dedup();
    }
}

/// An object of which the files do not say, or not validly, what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedObject {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// When the version in force was read, in seconds since 1970; `None` where there never was a
    /// valid one and the object isolates what it selects.
    pub since: Option<u64>,
    /// The hash of the version in force, in hexadecimal.
    pub hash: Option<String>,
}

/// Where objects come from.
pub trait Source: Send {
    /// What kind of source this is, and where: for status.
    fn describe(&self) -> (String, String);

    /// Hands batches to `sink` until it breaks, or until the source's own stop handle is used.
    ///
    /// # Errors
    /// Only what the source cannot go on from; everything else is a [`Diagnostic`] of a report.
    fn run(
        &mut self,
        sink: &mut dyn FnMut(UpdateBatch) -> ControlFlow<()>,
    ) -> Result<(), SourceError>;
}

/// Why a source ended.
#[derive(Debug)]
pub struct SourceError {
    /// What it was doing to what.
    pub action: String,
    /// What went wrong.
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
