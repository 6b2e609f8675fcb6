//! Which folders are watched, and what an event in one of them is about.
//!
//! Watched are the folders of the tree, and every folder in which a change can make the tree, or a
//! file that is a link, lead elsewhere. It never looks into files.

use crate::places::{Entry, entries_on_the_way};
use crate::scan::{FileId, Tree, identity, is_manifest, problem};
use palisade_manifest::Problem;
use palisade_sys::watch::{DirWatch, WatchError, WatchId};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The folders watched.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    folders: BTreeMap<PathBuf, (WatchId, FileId)>,
    by_watch: BTreeMap<WatchId, BTreeSet<PathBuf>>,
    in_tree: BTreeSet<PathBuf>,
    /// Entries elsewhere that the tree hangs on.
    entries: BTreeSet<Entry>,
    /// Whether a folder could not be watched, the last time it was tried.
    pub(crate) incomplete: bool,
}

/// How many folders that cannot be watched are told of.
const TOLD: usize = 100;

/// What an event is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The path.
    pub(crate) path: PathBuf,
    /// Whether its content, if it is a file, counts.
    pub(crate) counts: bool,
    /// Whether the tree, or a link in it, leads over it.
    pub(crate) hangs: bool,
}

impl Watching {
    /// Watches what a tree now hangs on, and nothing else. Says whether a folder was not watched
    /// before (what happened in it until now was not seen), and what cannot be watched.
    pub(crate) fn follow<T>(
        &mut self,
        watch: &mut impl DirWatch,
        root: &Path,
        tree: &Tree<T>,
    ) -> (bool, Vec<Problem>) {
        self.entries = entries_on_the_way(root);
        for link in &tree.links {
            self.entries.extend(entries_on_the_way(link));
        }
        self.in_tree = tree.folders.keys().cloned().collect();
        let mut wanted = tree.folders.clone();
        for folder in self.entries.iter().map(|(folder, _)| folder) {
            if let (false, Some(id)) = (wanted.contains_key(folder), identity(folder)) {
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
            self.leave(watch, &path);
        }
        let mut fresh = false;
        let mut problems = Vec::new();
        let mut more = 0;
        self.incomplete = false;
        for (path, id) in wanted {
            if self.folders.contains_key(&path) {
                continue;
            }
            match watch.add(&path) {
                Ok(number) => {
                    fresh = true;
                    self.by_watch
                        .entry(number)
                        .or_default()
                        .insert(path.clone());
                    self.folders.insert(path, (number, id));
                }
                // Gone since it was found: the folder above says so too.
                Err(WatchError::Add { source, .. }) if is_gone(&source) => self.incomplete = true,
                Err(error) => {
                    self.incomplete = true;
                    if problems.len() < TOLD {
                        problems.push(problem(&path, unwatched(&error)));
                    } else {
                        more += 1;
                    }
                }
            }
        }
        if more > 0 {
            let reason = format!("and {more} more folders cannot be watched");
            problems.push(problem(root, reason));
        }
        (fresh, problems)
    }

    fn leave(&mut self, watch: &mut impl DirWatch, path: &Path) {
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

    /// Forgets a watch whose folder was moved or deleted. Says whether anything hung on it.
    pub(crate) fn lost(&mut self, watch: &mut impl DirWatch, number: WatchId) -> bool {
        let paths = self.by_watch.get(&number).cloned().unwrap_or_default();
        for path in &paths {
            self.leave(watch, path);
        }
        !paths.is_empty()
    }

    /// What an event is about: nothing, or a path of the tree, or one that the tree hangs on.
    pub(crate) fn subjects(&self, number: WatchId, name: Option<&OsStr>) -> Vec<Subject> {
        let folders = self.by_watch.get(&number).into_iter().flatten();
        let subject = |folder: &PathBuf| {
            let in_tree = self.in_tree.contains(folder);
            let Some(name) = name else {
                return in_tree.then(|| Subject {
                    path: folder.clone(),
                    counts: false,
                    hangs: false,
                });
            };
            let path = folder.join(name);
            let hangs = self.entries.contains(&(folder.clone(), name.to_owned()));
            (in_tree || hangs).then(|| Subject {
                counts: hangs || is_manifest(&path),
                path,
                hangs,
            })
        };
        folders.filter_map(subject).collect()
    }
}

fn unwatched(error: &WatchError) -> String {
    let hint = match error {
        WatchError::Add { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            "; raise fs.inotify.max_user_watches"
        }
        _ => "",
    };
    format!(
        "changes in it are seen late, because it cannot be watched; it is tried again, after a minute \
         at the latest: {error}{hint}"
    )
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
