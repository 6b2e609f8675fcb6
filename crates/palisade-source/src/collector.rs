//! Collects an input of any size object by object and keeps only what policy evaluation needs.

use crate::file_problem::origin_path;
use crate::input_diagnostics::{DiagnosticsCheckpoint, InputDiagnostics};
use crate::loaded_input::{LoadedInput, LoadedManifest, UnjudgedPod};
use crate::replacement::Replacement;
use crate::string_interner::StringInterner;
use crate::templates::{FileSummary, reword_problems};
use palisade_dialects::{LoweredObject, count_ignored, lower_object, unnamed_ports};
use palisade_effective::{
    BudgetUse, Definition, DefinitionChange, Diagnostic, EffectiveObjects, ElementBudget,
    ObjectOrigin, SourceDelta,
};
use palisade_manifest::{ObjectSink, Problem, RawObject, to_json};
use palisade_model::{Endpoint, EndpointId, Object, ObjectId, ObjectKey, Protocol, State, Update};
use std::collections::BTreeMap;
use std::mem::take;
use std::path::Path;
use std::sync::Arc;

/// So many definitions are put in force together.
const BATCH: usize = 1_000;

/// Everything read so far.
pub(crate) struct InputCollector {
    effective: EffectiveObjects,
    content: CollectedContent,
    /// Definitions that are not in force yet; those of the current document begin at the checkpoint.
    pending: Vec<DefinitionChange>,
    file: FileProgress,
    diagnostics: InputDiagnostics,
    ignored: BTreeMap<String, usize>,
    strings: StringInterner,
    /// The manifests, if they are kept.
    manifests: Option<Vec<LoadedManifest>>,
    unjudged_pods: Vec<UnjudgedPod>,
    unnamed_ports: Vec<(EndpointId, Vec<(Protocol, u16)>)>,
    /// What a change leaves out, if there is one.
    replacement: Option<Replacement>,
    /// The state at the beginning of the current document, for rollback.
    checkpoint: DocumentCheckpoint,
}

/// The file being read.
struct FileProgress {
    path: Arc<str>,
    /// Counts of its objects and of what could not be read.
    summary: FileSummary,
    unparsed_problems: Vec<Problem>,
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
            Update::Upsert(Object::Endpoint(endpoint)) if endpoint.is_completed() => {}
            Update::Upsert(Object::Endpoint(endpoint)) => {
                self.endpoints.push((endpoint.id.clone(), endpoint));
            }
            Update::Delete(ObjectKey::Endpoint(id)) => {
                self.endpoints.retain(|(endpoint, _)| *endpoint != id)
            }
            other => self.state.apply(other),
        }
    }
}

#[derive(Default)]
struct DocumentCheckpoint {
    pending: usize,
    manifests: usize,
    unjudged_pods: usize,
    unnamed_ports: usize,
    diagnostics: DiagnosticsCheckpoint,
    unparsed_problems: usize,
    file_summary: FileSummary,
    ignored: BTreeMap<String, usize>,
}

impl Default for InputCollector {
    fn default() -> Self {
        InputCollector {
            effective: EffectiveObjects::new(
                ["input".into()],
                ElementBudget::default(),
                BudgetUse::Advisory,
            ),
            content: CollectedContent::default(),
            pending: Vec::new(),
            file: FileProgress {
                path: "".into(),
                summary: FileSummary::default(),
                unparsed_problems: Vec::new(),
            },
            diagnostics: InputDiagnostics::default(),
            ignored: BTreeMap::new(),
            strings: StringInterner::default(),
            manifests: None,
            unjudged_pods: Vec::new(),
            unnamed_ports: Vec::new(),
            replacement: None,
            checkpoint: DocumentCheckpoint::default(),
        }
    }
}

impl ObjectSink for InputCollector {
    fn push_object(&mut self, object: RawObject) {
        if !self.file.summary.add(&object) {
            return;
        }
        let mut lowered = lower_object(&object);
        if let Some(kind) = lowered.ignored.take() {
            count_ignored(&mut self.ignored, kind, 1);
            self.add_diagnostics(&mut lowered);
            return;
        }
        let replacement = self.replacement.as_mut();
        if replacement.is_some_and(|replacement| !replacement.takes(&lowered.id)) {
            return;
        }
        if let Some(manifests) = &mut self.manifests {
            manifests.push(LoadedManifest {
                id: lowered.id.clone(),
                manifest: manifest_of(&object),
            });
        }
        self.strings.intern_lowered(&mut lowered);
        let id = Arc::new(lowered.id.clone());
        let origin = ObjectOrigin::File {
            path: Arc::clone(&self.file.path),
            location: lowered.location.clone(),
        };
        if let [Object::Endpoint(pod)] = &lowered.objects[..] {
            self.unjudged_pods.extend(UnjudgedPod::of(pod));
            let ports = unnamed_ports(&object);
            if !ports.is_empty() {
                self.unnamed_ports.push((pod.id.clone(), ports));
            }
        }
        let definition = Definition::new(id, &object, &mut lowered, origin);
        self.add_diagnostics(&mut lowered);
        self.pending.push(DefinitionChange::Upsert(definition));
    }

    fn push_problem(&mut self, problem: Problem) {
        self.file.unparsed_problems.push(problem);
    }

    fn begin_document(&mut self) {
        if self.pending.len() >= BATCH {
            self.flush();
        }
        self.checkpoint = DocumentCheckpoint {
            pending: self.pending.len(),
            manifests: self.manifests.as_ref().map_or(0, Vec::len),
            unjudged_pods: self.unjudged_pods.len(),
            unnamed_ports: self.unnamed_ports.len(),
            diagnostics: self.diagnostics.checkpoint(),
            unparsed_problems: self.file.unparsed_problems.len(),
            file_summary: self.file.summary,
            ignored: self.ignored.clone(),
        };
    }

    fn rollback_document(&mut self) {
        self.pending.truncate(self.checkpoint.pending);
        if let Some(manifests) = &mut self.manifests {
            manifests.truncate(self.checkpoint.manifests);
        }
        self.unjudged_pods.truncate(self.checkpoint.unjudged_pods);
        self.unnamed_ports.truncate(self.checkpoint.unnamed_ports);
        self.diagnostics
            .rollback(self.checkpoint.diagnostics.clone());
        self.file
            .unparsed_problems
            .truncate(self.checkpoint.unparsed_problems);
        self.file.summary = self.checkpoint.file_summary;
        self.ignored = self.checkpoint.ignored.clone();
    }
}

/// The manifest of an object; an item of a list gets the type that the list gives it.
fn manifest_of(object: &RawObject) -> serde_json::Value {
    let mut manifest = to_json(&object.root);
    if let Some(fields) = manifest.as_object_mut() {
        for (field, value) in [("apiVersion", &object.api_version), ("kind", &object.kind)] {
            fields.entry(field).or_insert_with(|| value.as_str().into());
        }
    }
    manifest
}

impl InputCollector {
    /// A collector that keeps the manifests.
    pub(crate) fn with_manifests() -> Self {
        InputCollector {
            manifests: Some(Vec::new()),
            ..InputCollector::default()
        }
    }

    /// Whether it keeps the manifests.
    pub(crate) fn keeps_manifests(&self) -> bool {
        self.manifests.is_some()
    }

    /// A collector of a change, and after that of what it is applied to.
    pub(crate) fn of_change() -> Self {
        InputCollector {
            replacement: Some(Replacement::default()),
            ..InputCollector::default()
        }
    }

    /// What follows is what the change is applied to; these objects of it are deleted.
    pub(crate) fn end_change(&mut self, is_deleted: Box<dyn Fn(&ObjectId) -> bool>) {
        if let Some(replacement) = &mut self.replacement {
            replacement.end_change(is_deleted);
        }
    }

    /// Begins a file.
    pub(crate) fn begin_file(&mut self, path: &Path) {
        self.begin_document();
        self.file.path = origin_path(path);
    }

    /// Takes the diagnostics of an object.
    fn add_diagnostics(&mut self, lowered: &mut LoweredObject) {
        for diagnostic in Diagnostic::take_from(lowered) {
            self.diagnostics.add(diagnostic);
        }
    }

    /// Puts the definitions in force.
    fn flush(&mut self) {
        let mut pending = take(&mut self.pending).into_iter().peekable();
        while pending.peek().is_some() {
            let delta = SourceDelta {
                changes: pending.by_ref().take(BATCH).collect(),
                ..SourceDelta::default()
            };
            let mut apply = |update| self.content.apply(update);
            self.effective.apply(0, delta, 0, &mut apply);
        }
    }

    /// Counts folders that cannot be read and are not listed.
    pub(crate) fn omit_folders(&mut self, folders: usize) {
        self.diagnostics.omit_errors(folders);
    }

    /// Records a file or folder that could not be read completely.
    pub(crate) fn add_unreadable(&mut self, problem: Problem) {
        self.file.summary = FileSummary::default();
        self.diagnostics
            .add_errors(take(&mut self.file.unparsed_problems));
        self.diagnostics.add(Diagnostic::error(problem));
    }

    /// Finishes a file; `head` is its beginning.
    pub(crate) fn end_file(&mut self, path: &Path, head: &[u8]) {
        let file_summary = take(&mut self.file.summary);
        reword_problems(path, head, file_summary, &mut self.file.unparsed_problems);
        self.diagnostics
            .add_errors(take(&mut self.file.unparsed_problems));
    }

    /// The result for so many files, with the warnings about the input as a whole.
    pub(crate) fn finish(mut self, files: usize) -> LoadedInput {
        self.flush();
        self.diagnostics
            .add_errors(take(&mut self.file.unparsed_problems));
        drop(take(&mut self.strings));
        for diagnostic in self.effective.diagnostics() {
            self.diagnostics.add(diagnostic);
        }
        let objects = self.effective.valid_count();
        drop(self.effective);
        let CollectedContent {
            mut state,
            endpoints,
        } = self.content;
        state.endpoints = endpoints.into_iter().collect();
        LoadedInput {
            state,
            manifests: self.manifests.unwrap_or_default(),
            unjudged_pods: self.unjudged_pods,
            unnamed_ports: self.unnamed_ports,
            diagnostics: self.diagnostics.finish(),
            files,
            objects,
            ignored: self.ignored,
        }
    }
}
