//! Collects an input of any size object by object and keeps only what policy evaluation needs.

use crate::file_problem::origin_path;
use crate::string_interner::StringInterner;
use crate::templates::{FileSummary, reword_problems};
use palisade_dialects::{CollectorCheckpoint, ProblemCollector, count_ignored, lower_object};
use palisade_effective::{
    BudgetUse, ChoiceFaults, Definition, DefinitionChange, Diagnostic, EffectiveObjects,
    ElementBudget, ObjectOrigin, SourceDelta,
};
use palisade_manifest::{ObjectSink, Problem, RawObject};
use palisade_model::{Endpoint, EndpointId, Object, ObjectKey, State, Update};
use std::collections::BTreeMap;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;

/// So many definitions are put in force together, if documents are smaller.
const BATCH: usize = 1_000;

/// Everything read so far.
pub(crate) struct InputCollector {
    effective: EffectiveObjects,
    content: CollectedContent,
    /// Definitions that are not in force yet; those of the current document begin at the checkpoint.
    pending: Vec<DefinitionChange>,
    /// The file being read.
    path: Arc<str>,
    problems: ProblemCollector,
    ignored: BTreeMap<String, usize>,
    /// Counts for the file being read: its objects and what could not be read.
    file_summary: FileSummary,
    unparsed_problems: Vec<Problem>,
    strings: StringInterner,
    /// The state at the beginning of the current document, for rollback.
    checkpoint: DocumentCheckpoint,
}

/// The objects in force so far. Endpoints are the bulk of an input, so they are collected in one vector that
/// becomes part of the state.
#[derive(Default)]
struct CollectedContent {
    state: State,
    endpoints: Vec<(EndpointId, Endpoint)>,
}

impl CollectedContent {
    fn apply(&mut self, update: Update) {
        match update {
            // Without addresses an analysis would take it for a pod with unknown ones.
            Update::Upsert(Object::Endpoint(endpoint)) if endpoint.completed => {}
            Update::Upsert(Object::Endpoint(endpoint)) => {
                self.endpoints.push((endpoint.id.clone(), endpoint));
            }
            Update::Delete(ObjectKey::Endpoint(id)) => self.endpoints.retain(|(of, _)| *of != id),
            other => self.state.apply(other),
        }
    }
}

#[derive(Default)]
struct DocumentCheckpoint {
    pending: usize,
    problems: CollectorCheckpoint,
    unparsed_problems: usize,
    file_summary: FileSummary,
    ignored: BTreeMap<String, usize>,
}

/// The result of reading an input.
pub(crate) struct CollectedInput {
    /// The valid objects and the isolation policies of invalid ones, without completed pods.
    pub(crate) state: State,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// The number of valid objects.
    pub(crate) objects: usize,
    pub(crate) ignored: BTreeMap<String, usize>,
}

impl Default for InputCollector {
    fn default() -> Self {
        InputCollector {
            effective: EffectiveObjects::new(
                ["input".into()],
                ElementBudget::default(),
                BudgetUse::Advisory,
                ChoiceFaults::default(),
            ),
            content: CollectedContent::default(),
            pending: Vec::new(),
            path: "".into(),
            problems: ProblemCollector::default(),
            ignored: BTreeMap::new(),
            file_summary: FileSummary::default(),
            unparsed_problems: Vec::new(),
            strings: StringInterner::default(),
            checkpoint: DocumentCheckpoint::default(),
        }
    }
}

impl ObjectSink for InputCollector {
    fn push_object(&mut self, object: RawObject) {
        if !self.file_summary.add(&object) {
            return;
        }
        let mut lowered = lower_object(&object);
        self.problems.add_all(false, take(&mut lowered.warnings));
        self.problems.add_all_omitted(take(&mut lowered.omitted));
        if let Some(kind) = lowered.ignored.take() {
            count_ignored(&mut self.ignored, kind, 1);
            return;
        }
        self.strings.intern_lowered(&mut lowered);
        let id = Arc::new(lowered.id.clone());
        let origin = ObjectOrigin::File {
            path: Arc::clone(&self.path),
            location: lowered.location.clone(),
        };
        let definition = Definition::new(id, &object, &mut lowered, origin);
        self.problems.add_all(true, lowered.errors);
        self.pending.push(DefinitionChange::Upsert(definition));
    }

    fn push_problem(&mut self, problem: Problem) {
        self.unparsed_problems.push(problem);
    }

    fn begin_document(&mut self) {
        if self.pending.len() >= BATCH {
            self.flush();
        }
        self.checkpoint = DocumentCheckpoint {
            pending: self.pending.len(),
            problems: self.problems.checkpoint(),
            unparsed_problems: self.unparsed_problems.len(),
            file_summary: self.file_summary,
            ignored: self.ignored.clone(),
        };
    }

    fn rollback_document(&mut self) {
        self.pending.truncate(self.checkpoint.pending);
        self.problems.rollback(self.checkpoint.problems.clone());
        self.unparsed_problems
            .truncate(self.checkpoint.unparsed_problems);
        self.file_summary = self.checkpoint.file_summary;
        self.ignored = self.checkpoint.ignored.clone();
    }
}

impl InputCollector {
    /// Begins a file.
    pub(crate) fn begin_file(&mut self, path: &Path) {
        self.begin_document();
        self.path = origin_path(path);
    }

    /// Puts the definitions in force.
    fn flush(&mut self) {
        let delta = SourceDelta {
            changes: take(&mut self.pending),
            ..SourceDelta::default()
        };
        let mut apply = |update| self.content.apply(update);
        self.effective.apply(0, delta, 0, &mut apply);
    }

    /// Counts folders that cannot be read and are not listed.
    pub(crate) fn omit_folders(&mut self, folders: usize) {
        self.problems.omit(true, folders);
    }

    /// Records a file or folder that could not be read completely.
    pub(crate) fn add_unreadable(&mut self, problem: Problem) {
        self.file_summary = FileSummary::default();
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
        self.problems.add(true, problem);
    }

    /// Finishes a file; `head` is its beginning.
    pub(crate) fn end_file(&mut self, path: &Path, head: &[u8]) {
        let file_summary = take(&mut self.file_summary);
        reword_problems(path, head, file_summary, &mut self.unparsed_problems);
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
    }

    /// The result, with the warnings about the input as a whole.
    pub(crate) fn finish(mut self) -> CollectedInput {
        self.flush();
        self.problems
            .add_all(true, take(&mut self.unparsed_problems));
        drop(take(&mut self.strings));
        for Diagnostic {
            problem,
            is_error,
            omitted,
        } in self.effective.diagnostics()
        {
            self.problems.add_summary(is_error, problem, omitted);
        }
        let objects = self.effective.valid_count();
        drop(self.effective);
        let CollectedContent {
            mut state,
            endpoints,
        } = self.content;
        state.endpoints = endpoints.into_iter().collect();
        let (errors, warnings, more) = self.problems.finish();
        let mut diagnostics = Diagnostic::from_lowered(errors, warnings, more);
        Diagnostic::sort(&mut diagnostics);
        CollectedInput {
            state,
            diagnostics,
            objects,
            ignored: self.ignored,
        }
    }
}
