//! The set of watched folders, and the paths that an event in one of them concerns.
//!
//! Watched are the folders of the tree, and every folder in which a change can make the tree, or a linked
//! file, lead elsewhere. It never reads files.

use crate::file_problem::file_problem;
use crate::manifest_file::{FileId, file_id, is_manifest};
use crate::path_entries::{FolderEntry, entries_on_path};
use crate::scan::Tree;
use palisade_manifest::Problem;
use palisade_sys::watch::{DirWatch, WatchError, WatchId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The watched folders.
#[derive(Debug, Default)]
pub(crate) struct WatchSet {
    folders: BTreeMap<PathBuf, (WatchId, FileId)>,
    by_watch: BTreeMap<WatchId, BTreeSet<PathBuf>>,
    in_tree: BTreeSet<PathBuf>,
    /// Entries outside the tree that its paths depend on.
    path_entries: BTreeSet<FolderEntry>,
    /// Whether a folder could not be watched at the last attempt.
    pub(crate) incomplete: bool,
}

/// How many folders without a watch are listed.
const MAX_REPORTED_FOLDERS: usize = 100;

/// A path that an event concerns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventTarget {
    /// The path.
    pub(crate) path: PathBuf,
    /// Whether its content, if it is a file, belongs to the tree.
    pub(crate) is_relevant: bool,
    /// Whether the path of the tree, or of a link in it, passes through it.
    pub(crate) is_on_path: bool,
}

impl WatchSet {
    /// Watches the folders that the tree now depends on, and no others. Returns whether a folder was newly
    /// watched (earlier changes in it caused no event), and the folders that cannot be watched.
    pub(crate) fn update(
        &mut self,
        watch: &mut impl DirWatch,
        root: &Path,
        tree: &Tree,
    ) -> (bool, Vec<Problem>) {
        self.path_entries = entries_on_path(root);
        for link in &tree.links {
            self.path_entries.extend(entries_on_path(link));
        }
        let mut wanted = tree.folders.clone();
        if tree.coverage.has_read_errors {
            // What was not found may only not have been read: its changes are still of interest.
            for (path, (_, id)) in &self.folders {
                if self.in_tree.contains(path) {
                    wanted.entry(path.clone()).or_insert(*id);
                }
            }
        }
        self.in_tree = wanted.keys().cloned().collect();
        for folder in self.path_entries.iter().map(|(folder, _)| folder) {
            if let (false, Some(id)) = (wanted.contains_key(folder), file_id(folder)) {
                wanted.insert(folder.clone(), id);
            }
        }
        let stale: Vec<PathBuf> = self
            .folders
            .iter()
            .filter(|(path, (_, id))| wanted.get(*path) != Some(id))
            .map(|(path, _)| path.clone())
            .collect();
        for path in stale {
            self.unwatch(watch, &path);
        }
        let mut has_new_folders = false;
        let mut problems = Vec::new();
        let mut omitted = 0;
        self.incomplete = false;
        for (path, id) in wanted {
            if self.folders.contains_key(&path) {
                continue;
            }
            match watch.add(&path) {
                Ok(number) => {
                    has_new_folders = true;
                    self.by_watch
                        .entry(number)
                        .or_default()
                        .insert(path.clone());
                    self.folders.insert(path, (number, id));
                }
                // Removed since it was found: its parent reports that too.
                Err(WatchError::Add { source, .. }) if is_missing(&source) => {
                    self.incomplete = true
                }
                Err(error) => {
                    self.incomplete = true;
                    if problems.len() < MAX_REPORTED_FOLDERS {
                        problems.push(file_problem(&path, watch_failure_reason(&error)));
                    } else {
                        omitted += 1;
                    }
                }
            }
        }
        if omitted > 0 {
            let reason = format!("and {omitted} more folders cannot be watched");
            problems.push(file_problem(root, reason));
        }
        (has_new_folders, problems)
    }

    fn unwatch(&mut self, watch: &mut impl DirWatch, path: &Path) {
        let Some((number, _)) = self.folders.remove(path) else {
            return;
        };
        let Some(paths) = self.by_watch.get_mut(&number) else {
            return;
        };
        paths.remove(path);
        if paths.is_empty() {
            self.by_watch.remove(&number);
            watch.remove(number);
        }
    }

    /// Drops the watch of a folder that was moved or deleted. Returns whether the tree depended on it.
    pub(crate) fn remove_watch(&mut self, watch: &mut impl DirWatch, number: WatchId) -> bool {
        let paths = self.by_watch.get(&number).cloned().unwrap_or_default();
        for path in &paths {
            self.unwatch(watch, path);
        }
        !paths.is_empty()
    }

    /// The paths that an event concerns: paths of the tree, or paths that the tree depends on.
    pub(crate) fn targets(&self, number: WatchId, name: Option<&OsStr>) -> Vec<EventTarget> {
        let folders = self.by_watch.get(&number).into_iter().flatten();
        let subject = |folder: &PathBuf| {
            let in_tree = self.in_tree.contains(folder);
            let Some(name) = name else {
                return in_tree.then(|| EventTarget {
                    path: folder.clone(),
                    is_relevant: false,
                    is_on_path: false,
                });
            };
            let path = folder.join(name);
            let is_on_path = self
                .path_entries
                .contains(&(folder.clone(), name.to_owned()));
            (in_tree || is_on_path).then(|| EventTarget {
                is_relevant: is_on_path || is_manifest(&path),
                path,
                is_on_path,
            })
        };
        folders.filter_map(subject).collect()
    }
}

fn watch_failure_reason(error: &WatchError) -> String {
    let hint = match error {
        WatchError::Add { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            "; raise fs.inotify.max_user_watches"
        }
        _ => "",
    };
    format!(
        "cannot watch this folder; until it can be watched, a full scan at least once a minute finds its \
         changes: {error}{hint}"
    )
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
