//! Collects the diagnostics of one file after the other within the quotas of a file and of the input.

use palisade_dialects::{MAX_PROBLEMS_PER_FILE, MAX_PROBLEMS_PER_INPUT, ProblemQuota};
use palisade_effective::Diagnostic;
use palisade_manifest::{Location, Problem};

/// The diagnostics so far.
#[derive(Debug, Default)]
pub(crate) struct InputDiagnostics {
    diagnostics: Vec<Diagnostic>,
    quotas: Quotas,
}

/// The state of [`InputDiagnostics`], for rollback.
#[derive(Clone, Debug, Default)]
pub(crate) struct DiagnosticsCheckpoint {
    length: usize,
    quotas: Quotas,
}

#[derive(Clone, Debug)]
struct Quotas {
    input: ProblemQuota,
    file: ProblemQuota,
    /// The last location in the file.
    last: Option<Location>,
}

impl Default for Quotas {
    fn default() -> Self {
        Quotas {
            input: ProblemQuota::uniform(MAX_PROBLEMS_PER_INPUT),
            file: ProblemQuota::uniform(MAX_PROBLEMS_PER_FILE),
            last: None,
        }
    }
}

impl InputDiagnostics {
    /// Adds a diagnostic, or counts what it stands for.
    pub(crate) fn add(&mut self, diagnostic: Diagnostic) {
        let (at, is_error) = (&diagnostic.problem.location, diagnostic.is_error());
        let is_of_file = |last: &Location| last.file == at.file;
        if !self.quotas.last.as_ref().is_none_or(is_of_file) {
            self.end_file();
        }
        let Quotas { input, file, last } = &mut self.quotas;
        if last.as_ref().is_none_or(|last| last < at) {
            *last = Some(at.clone());
        }
        if !file.has_room(is_error) {
            file.omit(is_error, diagnostic.count());
        } else if !input.has_room(is_error) {
            input.omit(is_error, diagnostic.count());
        } else if file.admit(is_error) && input.admit(is_error) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds errors.
    pub(crate) fn add_errors(&mut self, problems: impl IntoIterator<Item = Problem>) {
        let errors = problems.into_iter().map(Diagnostic::error);
        errors.for_each(|error| self.add(error));
    }

    /// Counts errors of the input that have no location.
    pub(crate) fn omit_errors(&mut self, count: usize) {
        self.quotas.input.omit(true, count);
    }

    /// The present state, for [`rollback`](Self::rollback).
    pub(crate) fn checkpoint(&self) -> DiagnosticsCheckpoint {
        DiagnosticsCheckpoint {
            length: self.diagnostics.len(),
            quotas: self.quotas.clone(),
        }
    }

    /// Removes everything added since the checkpoint.
    pub(crate) fn rollback(&mut self, checkpoint: DiagnosticsCheckpoint) {
        self.diagnostics.truncate(checkpoint.length);
        self.quotas = checkpoint.quotas;
    }

    fn end_file(&mut self) {
        let new = ProblemQuota::uniform(MAX_PROBLEMS_PER_FILE);
        let file = std::mem::replace(&mut self.quotas.file, new);
        if let Some(last) = self.quotas.last.take() {
            let more = file.omitted().summaries(&last, None, "this file");
            let more = more.into_iter().map(Diagnostic::from_omitted);
            self.diagnostics.extend(more);
        }
    }

    /// The diagnostics by location, with summaries of those that are not listed.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        let last = self.quotas.last.clone();
        self.end_file();
        if let Some(last) = last {
            let omitted = self.quotas.input.omitted();
            let more = omitted.summaries(&last, None, "the whole input");
            let more = more.into_iter().map(Diagnostic::from_omitted);
            self.diagnostics.extend(more);
        }
        Diagnostic::sort(&mut self.diagnostics);
        self.diagnostics
    }
}
