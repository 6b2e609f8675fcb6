//! Sources of updates: where objects come from, as one stream.
//!
//! A [`Source`] says everything it knows once, marks the moment it is in sync, and from then on says
//! what changes. Whatever happens on the way (a broken file, a lost watch, a rescan), the sum of
//! what it said is always what is in force. Sources never judge policy and never touch the kernel.

mod bounds;
mod budget;
mod choose;
mod collect;
mod directory;
mod glance;
mod host_network;
mod keeper;
mod load;
mod memory;
mod named;
mod one_file;
mod piece;
mod places;
mod roots;
mod scan;
mod strings;
mod unrendered;
mod watching;

pub use budget::{BudgetHandle, DearRule, OverBudget};
pub use directory::{Directory, DirectoryOptions, SettleHandle, StopHandle};
pub use load::{Loaded, Progress, load, load_with};
pub use memory::MemoryError;
pub use one_file::FileWatch;
pub use palisade_engine::{Bound, Budget};

use palisade_dialects::More;
use palisade_manifest::Problem;
use palisade_model::Update;
use std::ops::ControlFlow;

/// Updates that belong together, and what the source now has to report.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// What changed, in any order.
    pub updates: Vec<Update>,
    /// Whether everything the source knows has now been said. Once true it stays true.
    pub in_sync: bool,
    /// What people should know about the input as it stands after this batch.
    pub report: Report,
}

/// The state of a source's input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Files (or other units) read.
    pub files: usize,
    /// Objects in force.
    pub objects: usize,
    /// What is wrong, by file and line.
    pub problems: Vec<Flaw>,
    /// Objects of which an earlier version, or an isolating stand-in, is in force.
    pub kept: Vec<Kept>,
    /// Policies that take more of the kernel than they may: what was valid last stays in force.
    pub over_budget: Vec<OverBudget>,
    /// Objects that are none of our business, by `apiVersion kind`.
    pub ignored: std::collections::BTreeMap<String, usize>,
    /// Pods that ran to their end: they hold no address, whoever still has it.
    pub completed: std::collections::BTreeSet<palisade_model::ObjectId>,
}

/// A problem and how bad it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where and why.
    pub problem: Problem,
    /// Whether it keeps something from being in force (an error) or not (a warning).
    pub error: bool,
    /// If it stands for problems that are not told one by one: how many these are. Otherwise 0.
    pub more: usize,
}

impl Ord for Flaw {
    /// By place; errors before warnings.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |flaw: &Flaw| (!flaw.error, flaw.more);
        (self.problem.cmp(&other.problem)).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Flaw {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Flaw {
    pub(crate) fn error(problem: Problem) -> Self {
        Flaw {
            problem: problem.bounded(),
            error: true,
            more: 0,
        }
    }

    pub(crate) fn warning(problem: Problem) -> Self {
        Flaw {
            problem: problem.bounded(),
            error: false,
            more: 0,
        }
    }

    pub(crate) fn all(errors: Vec<Problem>, warnings: Vec<Problem>, more: Vec<More>) -> Vec<Flaw> {
        let errors = errors.into_iter().map(Flaw::error);
        let warnings = warnings.into_iter().map(Flaw::warning);
        let more = more.into_iter().map(Flaw::more);
        errors.chain(warnings).chain(more).collect()
    }

    pub(crate) fn more(more: More) -> Self {
        Flaw {
            problem: more.problem.bounded(),
            error: more.is_error,
            more: more.count,
        }
    }

    /// How many problems it is.
    pub fn count(&self) -> usize {
        self.more.max(1)
    }

    /// How many errors, and how many warnings, these are, with those that are not told one by one.
    pub fn totals(flaws: &[Flaw]) -> (usize, usize) {
        let of = |error| flaws.iter().filter(move |flaw| flaw.error == error);
        let total = |error| of(error).map(Flaw::count).sum();
        (total(true), total(false))
    }

    /// By place; each once.
    pub(crate) fn sort(flaws: &mut Vec<Flaw>) {
        flaws.sort();
        flaws.dedup();
    }
}

/// An object of which the files do not say, or not validly, what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
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
    /// Only what the source cannot go on from; everything else is a [`Flaw`] of a report.
    fn run(&mut self, sink: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> Result<(), SourceError>;
}

/// Why a source ended.
#[derive(Debug)]
pub struct SourceError {
    /// What it was doing to what.
    pub doing: String,
    /// What went wrong.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.doing)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.cause)
    }
}
