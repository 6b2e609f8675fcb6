//! Computes the objects in force from the present files and from what was in force before.
//!
//! An object that no file defines any more is removed, but only after an undisturbed full scan, and not while
//! the file it came from, or a file that contains its name, cannot be read completely.
//! [`crate::version_choice`] decides which version of a defined object is in force.
//!
//! The work is proportional to the change: only objects of changed files, and orphans, are decided again.

use crate::file_object::{FileObject, SharedId};
use crate::host_network::HostNetworkLint;
use crate::manifest_file::{ManifestFile, file_problem};
use crate::name_index::{NameIndex, is_indexable};
use crate::policy_cost::{OversizedPolicy, PolicyCostTracker};
use crate::scan::Tree;
use crate::version_choice::{ChosenVersion, Definition, choose_version};
use crate::version_store::{EffectiveObject, VersionStore};
use crate::{Diagnostic, ElementBudget, RetainedObject, SourceReport, UpdateBatch};
use palisade_dialects::{
    MAX_PROBLEMS_PER_INPUT, MAX_PROBLEMS_PER_OBJECT, OmittedCounts, ProblemQuota, count_ignored,
    duplicate_definition, omitted_definitions,
};
use palisade_manifest::Location;
use palisade_model::{Object, ObjectId, Update};
use palisade_sys::fault;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The objects of a file.
type FileObjects = Arc<Vec<FileObject>>;
/// A definition of an object: the file and the index in its objects.
type DefinitionSite = (Arc<Path>, usize);

/// All definitions of an object, in order. Nearly always one, and there are many objects.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DefinitionSites {
    One(DefinitionSite),
    Many(BTreeSet<DefinitionSite>),
}

impl DefinitionSites {
    fn add(&mut self, place: DefinitionSite) {
        match self {
            DefinitionSites::One(one) => *self = DefinitionSites::Many([one.clone(), place].into()),
            DefinitionSites::Many(many) => drop(many.insert(place)),
        }
    }

    /// Removes a definition; `None` if no other is left.
    fn without(self, place: &DefinitionSite) -> Option<Self> {
        match self {
            DefinitionSites::One(one) => (one != *place).then_some(DefinitionSites::One(one)),
            DefinitionSites::Many(mut many) => {
                many.remove(place);
                match many.len() {
                    0 | 1 => many.pop_first().map(DefinitionSites::One),
                    _ => Some(DefinitionSites::Many(many)),
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &DefinitionSite> {
        let (one, many) = match self {
            DefinitionSites::One(one) => (Some(one), None),
            DefinitionSites::Many(many) => (None, Some(many)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// Computes the objects in force and keeps their indexes.
#[derive(Debug)]
pub(crate) struct Reconciler {
    store: VersionStore,
    files: BTreeMap<Arc<Path>, FileObjects>,
    /// The files with diagnostics; most files have none.
    reportable: BTreeSet<Arc<Path>>,
    defined: BTreeMap<SharedId, DefinitionSites>,
    /// Objects defined more than once.
    duplicates: BTreeSet<SharedId>,
    /// Objects in force that no file defines.
    orphans: BTreeSet<SharedId>,
    /// Objects in force that the files do not define, or not validly.
    retained: BTreeSet<SharedId>,
    /// Completed pods.
    completed: BTreeSet<SharedId>,
    host_network: HostNetworkLint,
    costs: PolicyCostTracker,
    started: bool,
}

impl Reconciler {
    /// Starts from the stored versions.
    pub(crate) fn new(store: VersionStore, budget: ElementBudget) -> Self {
        Reconciler {
            orphans: store.iter().map(|(id, _)| id.clone()).collect(),
            store,
            files: BTreeMap::new(),
            reportable: BTreeSet::new(),
            defined: BTreeMap::new(),
            duplicates: BTreeSet::new(),
            retained: BTreeSet::new(),
            completed: BTreeSet::new(),
            host_network: HostNetworkLint::default(),
            costs: PolicyCostTracker::new(budget),
            started: false,
        }
    }

    /// The objects in force, for saving.
    pub(crate) fn store(&mut self) -> &mut VersionStore {
        &mut self.store
    }

    /// Whether any object is in force that no file defines: only a full scan can find that it is gone.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// The element budget of the last scan.
    pub(crate) fn budget(&self) -> ElementBudget {
        self.costs.budget()
    }

    /// Takes in a scan made at `now` (seconds since 1970), a full one or one of the files in `only`; returns
    /// the updates. `undisturbed` means that nothing happened in the tree before and during the scan, so that
    /// what it did not find is gone.
    pub(crate) fn reconcile(
        &mut self,
        tree: &Tree<FileObject>,
        paths: Option<&BTreeSet<PathBuf>>,
        undisturbed: bool,
        budget: ElementBudget,
        now: u64,
    ) -> UpdateBatch {
        let mut changed = self.update_files(tree, paths);
        self.host_network.update(&changed, |id| {
            let (file, index) = self.defined.get(id)?.iter().next()?;
            self.files.get(file)?.get(*index)
        });
        self.update_costs(&mut changed, budget);
        changed.extend(self.orphans.iter().cloned());
        let is_settled = undisturbed || fault::is_injected("removed-before-settled");
        let scan = ScanContext {
            tree,
            is_conclusive: is_settled && tree.being_written.is_empty(),
            incomplete_files: IncompleteFiles::default(),
            now,
        };
        let mut updates = Vec::new();
        for id in changed {
            self.reconcile_object(id, &scan, &mut updates);
        }
        if !self.started {
            self.started = true;
            let all = self
                .store
                .iter()
                .flat_map(|(_, object)| object.objects.iter());
            updates = all.cloned().map(Update::Upsert).collect();
        }
        UpdateBatch {
            updates,
            in_sync: true,
            report: self.report(tree),
        }
    }

    /// Updates the index. Returns the objects that the changed files define or defined.
    fn update_files(
        &mut self,
        tree: &Tree<FileObject>,
        paths: Option<&BTreeSet<PathBuf>>,
    ) -> BTreeSet<SharedId> {
        let mut changed = BTreeSet::new();
        let current = |path: &Path| tree.files.get(path).map(|file| &file.objects);
        let differs = |(path, was): &(&Arc<Path>, &FileObjects)| {
            !current(path).is_some_and(|is| Arc::ptr_eq(is, was))
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
        for path in stale {
            let pieces = self.files.remove(&path).unwrap_or_default();
            self.reportable.remove(&path);
            for (index, file_object) in pieces.iter().enumerate() {
                let place = (Arc::clone(&path), index);
                let places = self.defined.remove(&file_object.id);
                if let Some(places) = places.and_then(|places| places.without(&place)) {
                    self.defined.insert(file_object.id.clone(), places);
                }
                changed.insert(file_object.id.clone());
            }
        }
        let found: Vec<(&PathBuf, &ManifestFile<FileObject>)> = match paths {
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
            self.files
                .insert(Arc::clone(&path), Arc::clone(&file.objects));
            for (index, file_object) in file.objects.iter().enumerate() {
                if file_object.ignored.is_none() {
                    let place = (Arc::clone(&path), index);
                    match self.defined.get_mut(&file_object.id) {
                        Some(places) => places.add(place),
                        None => {
                            let one = DefinitionSites::One(place);
                            drop(self.defined.insert(file_object.id.clone(), one));
                        }
                    }
                    changed.insert(file_object.id.clone());
                }
            }
        }
        changed
    }

    /// Updates the costs of changed policies. Adds to `changed` every policy whose admission changed.
    fn update_costs(&mut self, changed: &mut BTreeSet<SharedId>, budget: ElementBudget) {
        if self.costs.set_budget(budget) {
            // Rare: every policy is checked against the new budget.
            let is_policy = |id: &&SharedId| {
                self.first_definition(id)
                    .is_some_and(|file_object| file_object.cost.is_some())
            };
            changed.extend(self.defined.keys().filter(is_policy).cloned());
        }
        for id in changed.iter() {
            let place = self.defined.get(id).and_then(|places| places.iter().next());
            let file_object = place.and_then(|(file, index)| self.files.get(file)?.get(*index));
            let valid = file_object.filter(|file_object| !file_object.rejected);
            self.costs.update(id, valid);
        }
        changed.extend(self.costs.allocate());
    }

    /// The first definition of an object.
    fn first_definition(&self, id: &ObjectId) -> Option<&FileObject> {
        let (file, index) = self.defined.get(id)?.iter().next()?;
        self.files.get(file)?.get(*index)
    }

    /// The policies over a budget, in the order of their names.
    fn over_budget(&self) -> Vec<OversizedPolicy> {
        let over = self.costs.over_limit().filter_map(|id| {
            let file_object = self.first_definition(id)?;
            let bound = self.costs.exceeded_limit(id, file_object)?;
            let cost = file_object.cost.as_ref()?;
            Some(cost.oversized_policy(
                (&file_object.id, &file_object.location),
                bound,
                self.costs.budget(),
            ))
        });
        over.collect()
    }

    fn definitions(&self, id: &ObjectId) -> Vec<Definition<'_>> {
        let places = self
            .defined
            .get(id)
            .into_iter()
            .flat_map(DefinitionSites::iter);
        places
            .filter_map(|(file, index)| {
                let file_object = self.files.get(file)?.get(*index)?;
                Some(Definition {
                    file,
                    object: file_object,
                })
            })
            .collect()
    }

    fn reconcile_object(
        &mut self,
        id: SharedId,
        scan: &ScanContext<'_>,
        updates: &mut Vec<Update>,
    ) {
        let definitions = self.definitions(&id);
        let (count, lingers) = (definitions.len(), definitions.is_empty());
        let completed = definitions
            .iter()
            .any(|definition| definition.object.completed);
        let previous = self.store.get(&id);
        let choice = match previous {
            Some(before) if lingers => decide_orphan(&id, before, scan),
            before => {
                let is_over = |file_object: &FileObject| {
                    self.costs.exceeded_limit(&id, file_object).is_some()
                };
                choose_version(before, &definitions, is_over, scan.now)
            }
        };
        let set_membership = |set: &mut BTreeSet<SharedId>, is: bool| match is {
            true => set.insert(id.clone()),
            false => set.remove(&id),
        };
        set_membership(&mut self.duplicates, count > 1);
        set_membership(&mut self.completed, completed);
        set_membership(&mut self.orphans, lingers && choice.is_some());
        set_membership(
            &mut self.retained,
            choice.as_ref().is_some_and(|choice| choice.retained),
        );
        let (was, is) = match choice {
            Some(chosen) => {
                let is = Arc::clone(&chosen.object.objects);
                let was = self.store.insert(&id, chosen.object);
                (was, is)
            }
            None => (self.store.remove(&id), Arc::default()),
        };
        let was = was.map(|was| was.objects).unwrap_or_default();
        if Arc::ptr_eq(&was, &is) || was == is {
            return;
        }
        if !self.started {
            self.store.mark_changed(&id);
        }
        diff_objects(&was, &is, updates);
    }

    fn report(&self, tree: &Tree<FileObject>) -> SourceReport {
        let mut flaws = DiagnosticCollector::default();
        for diagnostic in tree.problems.iter().cloned().map(Diagnostic::error) {
            flaws.add(diagnostic);
        }
        flaws.omit(true, tree.omitted_problems);
        let mut ignored = BTreeMap::new();
        let notable = self.reportable.iter();
        for (path, file) in notable.filter_map(|path| tree.files.get_key_value(&**path)) {
            let mut last = file_problem(path, String::new()).location;
            let of_file = file.problems.iter().cloned().map(Diagnostic::error);
            let of_pieces = file
                .objects
                .iter()
                .flat_map(|file_object| &file_object.diagnostics)
                .cloned();
            for diagnostic in of_file.chain(of_pieces) {
                last = last.max(diagnostic.problem.location.clone());
                flaws.add(diagnostic);
            }
            if file.has_reported_problems() {
                let more = file.omitted.summaries(&last, None, "this file");
                more.into_iter()
                    .for_each(|more| flaws.add(Diagnostic::from_omitted(more)));
            } else {
                flaws.omit(true, file.omitted.errors);
                flaws.omit(false, file.omitted.warnings);
            }
            if file.empty && self.orphans_of(path).next().is_some() {
                let reason = "the file is empty; its previous objects stay in force until the file is \
                              deleted";
                flaws.add(Diagnostic::error(file_problem(path, reason.to_owned())));
            }
            for kind in file
                .objects
                .iter()
                .filter_map(|file_object| file_object.ignored.clone())
            {
                count_ignored(&mut ignored, kind);
            }
        }
        for path in &tree.being_written {
            let reason = "another process has the file open for writing; until it is closed, its previous \
                          content is used and no object is removed";
            flaws.add(Diagnostic::warning(file_problem(path, reason.to_owned())));
        }
        for id in &self.duplicates {
            self.report_duplicates(id, &mut flaws);
        }
        for warning in self.host_network.warnings() {
            flaws.add(Diagnostic::warning(warning.clone()));
        }
        let over_budget = self.over_budget();
        let consequence = "the last valid version stays in force; if there is none, the selected pods are \
                           isolated";
        for over in &over_budget {
            flaws.add(Diagnostic::error(over.problem(consequence)));
        }
        let retained_objects = self
            .retained
            .iter()
            .filter_map(|id| Some(retained_object(id, self.store.get(id)?)));
        let mut kept: Vec<RetainedObject> = retained_objects.collect();
        kept.sort_by(|a, b| a.object.cmp(&b.object));
        SourceReport {
            files: tree.files.len(),
            objects: self.store.len(),
            problems: flaws.finish(),
            retained: kept,
            over_budget,
            ignored,
            completed: self.completed.iter().map(|id| (**id).clone()).collect(),
        }
    }

    /// The orphans that stay in force because of this file.
    fn orphans_of(&self, file: &Path) -> impl Iterator<Item = &SharedId> {
        let is_of = move |id: &&SharedId| self.store.get(id).is_some_and(|o| *o.file == *file);
        self.orphans.iter().filter(is_of)
    }

    fn report_duplicates(&self, id: &ObjectId, flaws: &mut DiagnosticCollector) {
        let definitions = self.definitions(id);
        let Some((first, others)) = definitions.split_first() else {
            return;
        };
        let first = &first.object.location;
        let (reported, untold) = others.split_at(others.len().min(MAX_PROBLEMS_PER_OBJECT));
        for other in reported {
            let problem = duplicate_definition(id, &other.object.location, first);
            flaws.add(Diagnostic::error(problem));
        }
        let mut omitted = OmittedCounts::default();
        omitted.add(true, untold.len());
        for more in omitted_definitions(id, first, omitted) {
            flaws.add(Diagnostic::from_omitted(more));
        }
    }
}

/// The scan that decisions are based on.
struct ScanContext<'a> {
    tree: &'a Tree<FileObject>,
    /// Whether objects that it did not find are gone.
    is_conclusive: bool,
    incomplete_files: IncompleteFiles<'a>,
    /// Its time, in seconds since 1970.
    now: u64,
}

/// The files that may hold unreadable objects, and for each name in them the first such file. Built only if
/// an object is missing.
#[derive(Default)]
struct IncompleteFiles<'a> {
    files: OnceCell<Vec<(&'a Path, &'a ManifestFile<FileObject>)>>,
    names: OnceCell<BTreeMap<&'a [u8], &'a Path>>,
}

impl<'a> IncompleteFiles<'a> {
    fn files(&self, tree: &'a Tree<FileObject>) -> &[(&'a Path, &'a ManifestFile<FileObject>)] {
        self.files.get_or_init(|| {
            let files = tree.files.iter().map(|(path, file)| (&**path, file));
            files
                .filter(|(_, file)| file.unparsed_names().is_some())
                .collect()
        })
    }

    /// The first incomplete file that contains this name.
    fn find_name(&self, name: &str, tree: &'a Tree<FileObject>) -> Option<&'a Path> {
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

/// The diagnostics of a report, within its quota.
struct DiagnosticCollector {
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
    fn add(&mut self, diagnostic: Diagnostic) {
        if self.quota.has_room(diagnostic.is_error) {
            self.quota.admit(diagnostic.is_error);
            self.diagnostics.push(diagnostic);
        } else {
            self.last = Some(diagnostic.problem.location);
            self.quota
                .omit(diagnostic.is_error, diagnostic.omitted.max(1));
        }
    }

    fn omit(&mut self, is_error: bool, count: usize) {
        self.quota.omit(is_error, count);
    }

    fn finish(mut self) -> Vec<Diagnostic> {
        Diagnostic::sort(&mut self.diagnostics);
        let last = self
            .diagnostics
            .last()
            .map(|diagnostic| diagnostic.problem.location.clone());
        if let Some(at) = self.last.or(last) {
            let more = self.quota.omitted().summaries(&at, None, "the whole input");
            self.diagnostics
                .extend(more.into_iter().map(Diagnostic::from_omitted));
        }
        self.diagnostics
    }
}

fn clone_path<V>((path, _): (&Arc<Path>, V)) -> Arc<Path> {
    Arc::clone(path)
}

/// Whether a file has anything to report.
fn is_reportable(file: &ManifestFile<FileObject>) -> bool {
    let has_report = |file_object: &FileObject| {
        !file_object.diagnostics.is_empty() || file_object.ignored.is_some()
    };
    file.empty
        || !file.omitted.is_empty()
        || !file.problems.is_empty()
        || file.objects.iter().any(has_report)
}

/// Decides whether an object that no file defines stays in force.
fn decide_orphan(
    id: &ObjectId,
    previous: &EffectiveObject,
    scan: &ScanContext<'_>,
) -> Option<ChosenVersion> {
    let tree = scan.tree;
    let file_of_object = tree.files.get(&*previous.file);
    let incomplete = |file: &ManifestFile<FileObject>| {
        file.incomplete && !fault::is_injected("incomplete-file-drops")
    };
    let empty =
        |file: &ManifestFile<FileObject>| file.empty && !fault::is_injected("empty-file-drops");
    let file = if file_of_object.is_some_and(|file| incomplete(file) || empty(file)) {
        Some(Arc::clone(&previous.file))
    } else {
        let named = || {
            scan.incomplete_files
                .find_name(&id.name, tree)
                .map(Arc::from)
        };
        match fault::is_injected("incomplete-file-drops") {
            true => None,
            false => named(),
        }
    };
    if file.is_none() && tree.is_complete && scan.is_conclusive {
        return None;
    }
    let retained = file.is_some() || !tree.is_complete;
    Some(ChosenVersion {
        object: EffectiveObject {
            file: file.unwrap_or_else(|| Arc::clone(&previous.file)),
            ..previous.clone()
        },
        retained,
    })
}

/// Adds the difference between two versions to `updates`.
fn diff_objects(previous: &[Object], current: &[Object], updates: &mut Vec<Update>) {
    let gone = |object: &&Object| !current.iter().any(|other| other.key() == object.key());
    updates.extend(
        previous
            .iter()
            .filter(gone)
            .map(|object| Update::Delete(object.key())),
    );
    let new = current.iter().filter(|object| !previous.contains(object));
    updates.extend(new.cloned().map(Update::Upsert));
}

fn retained_object(id: &ObjectId, object: &EffectiveObject) -> RetainedObject {
    let version = object.version.as_ref();
    RetainedObject {
        object: id.to_string(),
        since: version.map(|version| version.since),
        hash: version.map(|version| version.hash.to_string()),
    }
}
