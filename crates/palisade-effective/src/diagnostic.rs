//! Problems with their severity, and lists of them within a quota.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem::take;
use palisade_dialects::{
    ClosedPart, LoweredObject, MAX_PROBLEMS_PER_INPUT, OmittedProblems, ProblemQuota,
};
use palisade_manifest::{Location, Problem};

/// How serious a problem is, the most serious first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An error, which keeps an object out of force.
    Error,
    /// A part of an object in force that is held closed.
    HeldClosed,
    /// Valid, but likely not intended.
    Warning,
}

/// A problem and its severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The place and the reason.
    pub problem: Problem,
    /// How serious it is.
    pub severity: Severity,
    /// If it summarizes problems that are not listed: their number. Otherwise 0.
    pub omitted: usize,
}

impl Ord for Diagnostic {
    /// By location; the most serious first.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |diagnostic: &Diagnostic| (diagnostic.severity, diagnostic.omitted);
        (self.problem.cmp(&other.problem)).then_with(|| key(self).cmp(&key(other)))
    }
}

impl PartialOrd for Diagnostic {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Diagnostic {
    fn new(severity: Severity, problem: Problem) -> Self {
        Diagnostic {
            problem: problem.truncated(),
            severity,
            omitted: 0,
        }
    }

    /// An error.
    pub fn error(problem: Problem) -> Self {
        Diagnostic::new(Severity::Error, problem)
    }

    /// A warning.
    pub fn warning(problem: Problem) -> Self {
        Diagnostic::new(Severity::Warning, problem)
    }

    /// A part that is held closed.
    pub fn held_closed(part: ClosedPart) -> Self {
        Diagnostic::new(Severity::HeldClosed, part.problem)
    }

    /// Takes the diagnostics of a lowered object.
    pub fn take_from(lowered: &mut LoweredObject) -> Vec<Diagnostic> {
        let errors = take(&mut lowered.errors).into_iter().map(Diagnostic::error);
        let closed = take(&mut lowered.closed).into_iter();
        let warnings = take(&mut lowered.warnings).into_iter();
        let omitted = take(&mut lowered.omitted).into_iter();
        errors
            .chain(closed.map(Diagnostic::held_closed))
            .chain(warnings.map(Diagnostic::warning))
            .chain(omitted.map(Diagnostic::from_omitted))
            .collect()
    }

    /// A summary of problems that are not listed.
    pub fn from_omitted(more: OmittedProblems) -> Self {
        Diagnostic {
            severity: if more.is_error {
                Severity::Error
            } else {
                Severity::Warning
            },
            problem: more.problem.truncated(),
            omitted: more.count,
        }
    }

    /// Whether it is an error, which keeps an object out of force.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The number of problems it stands for.
    pub fn count(&self) -> usize {
        self.omitted.max(1)
    }

    /// The numbers of errors and of all others, including those that are not listed.
    pub fn count_by_severity(diagnostics: &[Diagnostic]) -> (usize, usize) {
        let total = |error| {
            let counted = diagnostics.iter().filter(|d| d.is_error() == error);
            counted.map(Diagnostic::count).sum()
        };
        (total(true), total(false))
    }

    /// Sorts by location and removes duplicates.
    pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
        diagnostics.sort();
        diagnostics.dedup();
    }
}

/// Diagnostics within the quota of an input; those beyond it are counted.
#[derive(Clone, Debug, PartialEq)]
pub struct DiagnosticCollector {
    diagnostics: Vec<Diagnostic>,
    quota: ProblemQuota,
    /// The location of the last problem that was only counted.
    last: Option<Location>,
}

impl Default for DiagnosticCollector {
    fn default() -> Self {
        DiagnosticCollector {
            diagnostics: Vec::new(),
            quota: ProblemQuota::uniform(MAX_PROBLEMS_PER_INPUT),
            last: None,
        }
    }
}

impl DiagnosticCollector {
    /// Adds a diagnostic.
    pub fn add(&mut self, diagnostic: Diagnostic) {
        if self.quota.has_room(diagnostic.is_error()) {
            self.quota.admit(diagnostic.is_error());
            self.diagnostics.push(diagnostic);
        } else {
            self.quota.omit(diagnostic.is_error(), diagnostic.count());
            self.last = Some(diagnostic.problem.location);
        }
    }

    /// Adds everything that another collector holds or counts.
    pub(crate) fn add_all(&mut self, other: &DiagnosticCollector) {
        other.diagnostics.iter().cloned().for_each(|d| self.add(d));
        let omitted = other.quota.omitted();
        self.omit(true, omitted.errors);
        self.omit(false, omitted.warnings);
        self.last = other.last.clone().or(self.last.take());
    }

    /// Counts problems that are not listed.
    pub fn omit(&mut self, is_error: bool, count: usize) {
        self.quota.omit(is_error, count);
    }

    /// The diagnostics by location, and summaries of those beyond the quota.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        Diagnostic::sort(&mut self.diagnostics);
        let last = self.diagnostics.last();
        let last = last.map(|diagnostic| diagnostic.problem.location.clone());
        if let Some(at) = self.last.or(last) {
            let more = self.quota.omitted().summaries(&at, None, "the whole input");
            self.diagnostics
                .extend(more.into_iter().map(Diagnostic::from_omitted));
        }
        self.diagnostics
    }
}
