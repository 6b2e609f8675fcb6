//! What the files of a tree define, and what changed since the last report.
//!
//! An object that no file defines any more is reported as gone, but only after an undisturbed full scan, and
//! not while the file it came from, or a file that contains its name, cannot be read completely.
//!
//! The work is proportional to the change: only changed files, and objects without a definition, are looked
//! at again.

use crate::file_object::{FileObject, FileObjects};
use crate::file_problem::{file_problem, origin_path};
use crate::manifest_file::ManifestFile;
use crate::name_index::{NameIndex, is_indexable};
use crate::scan::Tree;
use palisade_dialects::count_ignored;
use palisade_effective::{
    DefinitionChange, Diagnostic, DiagnosticCollector, ObjectOrigin, SharedId, SourceDelta,
    SourceReport,
};
use palisade_manifest::Location;
use palisade_sys::fault;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The objects that were reported.
#[derive(Debug, Default)]
pub(crate) struct FileIndex {
    files: BTreeMap<Arc<Path>, Arc<FileObjects>>,
    /// The files with diagnostics; most files have none.
    reportable: BTreeSet<Arc<Path>>,
    /// The number of definitions of each object.
    defined: BTreeMap<SharedId, u32>,
    /// Objects that no file defines any more and that are not known to be gone, with the file that they came
    /// from or that may hold them.
    orphans: BTreeMap<SharedId, Arc<Path>>,
    /// Definitions that the first scan reports.
    waiting: Vec<DefinitionChange>,
}

impl FileIndex {
    /// Starts from restored objects: they are orphans until a file defines them.
    pub(crate) fn new<'a>(
        restored: impl IntoIterator<Item = (&'a SharedId, &'a ObjectOrigin)>,
    ) -> Self {
        let orphans = restored.into_iter().map(|(id, origin)| {
            let file: &str = match origin {
                ObjectOrigin::File { path, .. } => path,
                ObjectOrigin::Resource { .. } => "",
            };
            (id.clone(), Arc::from(Path::new(file)))
        });
        FileIndex {
            orphans: orphans.collect(),
            ..FileIndex::default()
        }
    }

    /// Whether any object has no definition: only a full scan can find that it is gone.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The changes of a scan, a full one or one of the files in `paths`. `undisturbed` means that nothing
    /// happened in the tree before and during the scan, so that what it did not find is gone.
    pub(crate) fn update(
        &mut self,
        tree: &Tree,
        paths: Option<&BTreeSet<PathBuf>>,
        undisturbed: bool,
    ) -> SourceDelta {
        let mut changes = std::mem::take(&mut self.waiting);
        self.remove_stale_files(tree, paths, &mut changes);
        self.add_new_files(tree, paths, &mut changes);
        let is_settled = undisturbed || fault::is_injected("removed-before-settled");
        let is_conclusive = is_settled && tree.being_written.is_empty();
        let incomplete_files = IncompleteFiles::default();
        for (id, file) in std::mem::take(&mut self.orphans) {
            let holder = incomplete_files.find_holder(&id.name, &file, tree);
            if holder.is_none() && tree.coverage.is_complete && is_conclusive {
                changes.push(DefinitionChange::Gone(id));
                continue;
            }
            let is_reported = holder.is_some() || !tree.coverage.is_complete;
            self.orphans.insert(id.clone(), holder.unwrap_or(file));
            changes.push(DefinitionChange::Missing { id, is_reported });
        }
        SourceDelta {
            changes,
            in_sync: true,
            stale: None,
            stale_since: None,
            report: Some(self.report(tree)),
        }
    }

    /// The inventory in new files, before the first scan. Other definitions wait for that scan: which of them
    /// is chosen depends on all of them.
    pub(crate) fn add_part(&mut self, tree: &Tree, paths: &BTreeSet<PathBuf>) -> SourceDelta {
        let mut changes = Vec::new();
        self.add_new_files(tree, Some(paths), &mut changes);
        let is_inventory = |change: &DefinitionChange| match change {
            DefinitionChange::Upsert(definition) => definition.is_inventory(),
            _ => false,
        };
        let (changes, waiting) = changes.into_iter().partition(is_inventory);
        self.waiting.extend::<Vec<_>>(waiting);
        SourceDelta {
            changes,
            ..SourceDelta::default()
        }
    }

    fn remove_stale_files(
        &mut self,
        tree: &Tree,
        paths: Option<&BTreeSet<PathBuf>>,
        changes: &mut Vec<DefinitionChange>,
    ) {
        let current = |path: &Path| tree.files.get(path).map(|file| &file.content);
        let differs = |(path, content): &(&Arc<Path>, &Arc<FileObjects>)| {
            !current(path).is_some_and(|current| Arc::ptr_eq(current, content))
        };
        let stale: Vec<Arc<Path>> = match paths {
            None => self.files.iter().filter(differs).map(clone_path).collect(),
            Some(only) => {
                let known = only
                    .iter()
                    .filter_map(|path| self.files.get_key_value(&**path));
                known.filter(differs).map(clone_path).collect()
            }
        };
        // In reverse, so that of many definitions of one object the last goes first.
        for path in stale.into_iter().rev() {
            let content = self.files.remove(&path).unwrap_or_default();
            self.reportable.remove(&path);
            let (origin, file) = (origin_path(&path), file_problem(&path, String::new()));
            for object in content.defined().rev() {
                let id = object.id.clone();
                let origin = ObjectOrigin::File {
                    path: Arc::clone(&origin),
                    location: Location {
                        line: object.line,
                        column: object.column,
                        ..file.location.clone()
                    },
                };
                match self.defined.get_mut(&id).filter(|count| **count > 1) {
                    Some(count) => *count -= 1,
                    None => {
                        self.defined.remove(&id);
                        self.orphans.insert(id.clone(), Arc::clone(&path));
                    }
                }
                changes.push(DefinitionChange::Delete { id, origin });
            }
        }
    }

    fn add_new_files(
        &mut self,
        tree: &Tree,
        paths: Option<&BTreeSet<PathBuf>>,
        changes: &mut Vec<DefinitionChange>,
    ) {
        let found: Vec<(&PathBuf, &ManifestFile)> = match paths {
            None => tree.files.iter().collect(),
            Some(only) => {
                let found = only
                    .iter()
                    .filter_map(|path| tree.files.get_key_value(path));
                found.collect()
            }
        };
        for (path, file) in found {
            if self.files.contains_key(&**path) {
                continue;
            }
            let path: Arc<Path> = path.as_path().into();
            if is_reportable(file) {
                self.reportable.insert(Arc::clone(&path));
            }
            self.files.insert(path, Arc::clone(&file.content));
            for object in file.content.defined() {
                *self.defined.entry(object.id.clone()).or_default() += 1;
                self.orphans.remove(&object.id);
            }
            let definitions = file.content.take_definitions().into_iter();
            changes.extend(definitions.map(DefinitionChange::Upsert));
        }
    }

    fn report(&self, tree: &Tree) -> SourceReport {
        let mut problems = DiagnosticCollector::default();
        for problem in &tree.coverage.problems {
            problems.add(Diagnostic::error(problem.clone()));
        }
        problems.omit(true, tree.coverage.omitted_problems);
        let mut ignored = BTreeMap::new();
        let reportable = self.reportable.iter();
        for (path, file) in reportable.filter_map(|path| tree.files.get_key_value(&**path)) {
            let mut last = file_problem(path, String::new()).location;
            let of_file = file.problems.iter().cloned().map(Diagnostic::error);
            let objects = &file.content.objects;
            let of_objects = objects.iter().flat_map(FileObject::diagnostics);
            for diagnostic in of_file.chain(of_objects.cloned()) {
                last = last.max(diagnostic.problem.location.clone());
                problems.add(diagnostic);
            }
            if file.has_reported_problems() {
                let more = file.omitted.summaries(&last, None, "this file");
                more.into_iter()
                    .for_each(|more| problems.add(Diagnostic::from_omitted(more)));
            } else {
                problems.omit(true, file.omitted.errors);
                problems.omit(false, file.omitted.warnings);
            }
            if file.empty && self.orphans.values().any(|orphan| **orphan == **path) {
                let reason = "the file is empty; its previous objects stay in force until the file is \
                              deleted";
                problems.add(Diagnostic::error(file_problem(path, reason.to_owned())));
            }
            let kinds = objects.iter().filter_map(FileObject::ignored).cloned();
            kinds.for_each(|kind| count_ignored(&mut ignored, kind, 1));
        }
        for path in &tree.being_written {
            let reason = "another process has the file open for writing; until it is closed, its previous \
                          content is used and no object is removed";
            problems.add(Diagnostic::warning(file_problem(path, reason.to_owned())));
        }
        SourceReport {
            files: tree.files.len(),
            problems,
            ignored,
            absent: Vec::new(),
        }
    }
}

/// The files that may hold unreadable objects, and for each name in them the first such file. Built only if
/// an object is missing.
#[derive(Default)]
struct IncompleteFiles<'a> {
    files: OnceCell<Vec<(&'a Path, &'a ManifestFile)>>,
    names: OnceCell<BTreeMap<&'a [u8], &'a Path>>,
}

impl<'a> IncompleteFiles<'a> {
    /// The file that may hold an object that came from `file`: this file, or one that contains its name.
    fn find_holder(&self, name: &str, file: &Arc<Path>, tree: &'a Tree) -> Option<Arc<Path>> {
        let drops = fault::is_injected("incomplete-file-drops");
        let own = tree.files.get(&**file).is_some_and(|file| {
            let is_empty = file.empty && !fault::is_injected("empty-file-drops");
            file.incomplete && !drops || is_empty
        });
        match (own, drops) {
            (true, _) => Some(Arc::clone(file)),
            (false, true) => None,
            (false, false) => self.find_name(name, tree).map(Arc::from),
        }
    }

    fn files(&self, tree: &'a Tree) -> &[(&'a Path, &'a ManifestFile)] {
        self.files.get_or_init(|| {
            let files = tree.files.iter().map(|(path, file)| (&**path, file));
            files
                .filter(|(_, file)| file.unparsed_names().is_some())
                .collect()
        })
    }

    /// The first incomplete file that contains this name.
    fn find_name(&self, name: &str, tree: &'a Tree) -> Option<&'a Path> {
        if !is_indexable(name.as_bytes()) {
            let mut files = self.files(tree).iter();
            return files
                .find(|(_, file)| file.may_define(name))
                .map(|(path, _)| *path);
        }
        let names = self.names.get_or_init(|| {
            let mut names = BTreeMap::new();
            for (path, file) in self.files(tree) {
                let of_file = file.unparsed_names().into_iter().flat_map(NameIndex::names);
                for name in of_file {
                    names.entry(name).or_insert(*path);
                }
            }
            names
        });
        names.get(name.as_bytes()).copied()
    }
}

fn clone_path<V>((path, _): (&Arc<Path>, V)) -> Arc<Path> {
    Arc::clone(path)
}

/// Whether a file has anything to report.
fn is_reportable(file: &ManifestFile) -> bool {
    file.empty
        || !file.omitted.is_empty()
        || !file.problems.is_empty()
        || file.content.objects.iter().any(FileObject::is_reported)
}
