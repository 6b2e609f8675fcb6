//! Finds and reads the files of a tree of manifests.
//!
//! [`Tree`] keeps the objects of each file, so that a scan reads only changed files, and never one that is
//! open for writing. Names that begin with a dot are skipped (version control, swap files of editors, the
//! hidden folders of a mounted ConfigMap). Links are followed within the roots; a link to the outside is a
//! problem. Each folder and each file is read once, under the first of its names. Only regular files are
//! opened. It never decides which version is in force.

use crate::file_problem::file_problem;
use crate::manifest_file::{
    FileId, ManifestFile, ProblemCounts, Stamp, file_id, is_manifest, parse_file, unreadable_file,
};
use crate::roots::{RootOpenError, Roots};
use crate::tree_limits::TreeLimits;
use palisade_dialects::MAX_PROBLEMS_PER_FILE;
use palisade_manifest::{Limits, Problem};
use palisade_sys::writers::{WriterPresence, detect_writers};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files known to be open for writing or written since they were last read.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteActivity {
    /// Written to, with no close event so far.
    pub(crate) open_files: BTreeSet<PathBuf>,
    /// Touched since the last scan: read again even if their stamp is unchanged.
    pub(crate) touched: BTreeSet<PathBuf>,
}

impl WriteActivity {
    /// Updates the sets after a scan; `closed` are the files without a writer.
    pub(crate) fn record_scan(&mut self, tree: &Tree, closed: &BTreeSet<FileId>) {
        self.open_files
            .retain(|path| file_id(path).is_some_and(|id| !closed.contains(&id)));
        self.open_files.extend(tree.being_written.iter().cloned());
        self.touched.clear();
    }
}

/// The files of a tree that are listed and not read.
#[derive(Debug, Default)]
pub(crate) struct FileListing {
    /// Their paths, in order.
    pub(crate) paths: Vec<PathBuf>,
    /// Their size.
    pub(crate) bytes: u64,
}

/// How much of the tree the last scan covered.
#[derive(Debug, Default)]
pub(crate) struct ScanCoverage {
    /// Folders and files that could not be read, with the reason.
    pub(crate) problems: Vec<Problem>,
    /// The number of such problems that are not listed.
    pub(crate) omitted_problems: usize,
    /// Whether it covered the whole tree, so that what it did not find is gone.
    pub(crate) is_complete: bool,
    /// Whether reading a file or a folder failed, so that reading it again may not.
    pub(crate) has_read_errors: bool,
    /// Whether a file disappeared during the scan.
    pub(crate) changed_during_scan: bool,
}

/// One or several trees of manifests, or single files.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) bounds: TreeLimits,
    /// For a tree that only lists its files: those found.
    pub(crate) listing: Option<FileListing>,
    /// The files by the path under which they were found.
    pub(crate) files: BTreeMap<PathBuf, ManifestFile>,
    pub(crate) coverage: ScanCoverage,
    /// The folders found.
    pub(crate) folders: BTreeMap<PathBuf, FileId>,
    /// The links found: their targets have to be watched too.
    pub(crate) links: BTreeSet<PathBuf>,
    /// The files that the last scan read.
    pub(crate) reread_files: BTreeMap<FileId, PathBuf>,
    /// The files that were open for writing.
    pub(crate) being_written: BTreeSet<PathBuf>,
    /// The last change of any file or folder found, in seconds and nanoseconds since 1970.
    pub(crate) last_change: (i64, i64),
    /// The number of objects in the files.
    pub(crate) object_count: usize,
    /// The number of listed problems of the files.
    pub(crate) reported: ProblemCounts,
}

impl Tree {
    /// A tree below these paths, not scanned yet.
    pub(crate) fn new(roots: Vec<PathBuf>) -> Self {
        Tree {
            roots,
            bounds: TreeLimits::default(),
            listing: None,
            files: BTreeMap::new(),
            coverage: ScanCoverage::default(),
            folders: BTreeMap::new(),
            links: BTreeSet::new(),
            reread_files: BTreeMap::new(),
            being_written: BTreeSet::new(),
            last_change: (0, 0),
            object_count: 0,
            reported: ProblemCounts::default(),
        }
    }

    /// Lists the files below these paths and reads none.
    pub(crate) fn list(roots: Vec<PathBuf>) -> Self {
        let mut unlisted = Tree::new(roots);
        unlisted.listing = Some(FileListing::default());
        Tree::scan(&unlisted, &mut WriteActivity::default())
    }

    /// Scans the whole tree and reads what changed since `previous`. Files that are open for writing keep
    /// their previous content; `activity` is updated.
    pub(crate) fn scan(previous: &Tree, activity: &mut WriteActivity) -> Self {
        let limits = Limits::default();
        activity.open_files.retain(|path| file_id(path).is_some());
        let mut walk = Walk::new(previous, ProblemCounts::default(), &limits, activity);
        for root in &previous.roots {
            walk.visit(root, 0, false);
        }
        let (tree, free) = walk.finish();
        activity.record_scan(&tree, &free);
        tree
    }

    /// Replaces or removes a file; returns its previous version.
    pub(crate) fn replace_file(
        &mut self,
        path: &Path,
        file: Option<ManifestFile>,
    ) -> Option<ManifestFile> {
        let object_count = file.as_ref().map_or(0, |file| file.content.objects.len());
        let reported = file
            .as_ref()
            .map_or(ProblemCounts::default(), |file| file.reported);
        let previous = match file {
            Some(file) => self.files.insert(path.to_path_buf(), file),
            None => self.files.remove(path),
        };
        let previous_count = previous
            .as_ref()
            .map_or(0, |previous| previous.content.objects.len());
        self.object_count = (self.object_count + object_count).saturating_sub(previous_count);
        let previous_reported = previous
            .as_ref()
            .map_or(ProblemCounts::default(), |previous| previous.reported);
        self.reported = self.reported.plus(reported).minus(previous_reported);
        previous
    }

    /// Reverts files that were written to while they were read to their previous version.
    pub(crate) fn revert_read(&mut self, path: &Path, previous: &BTreeMap<PathBuf, ManifestFile>) {
        let path = file_id(path)
            .and_then(|id| self.reread_files.get(&id).cloned())
            .unwrap_or_else(|| path.to_path_buf());
        if !self.reread_files.values().any(|read| *read == path) {
            return;
        }
        self.replace_file(&path, previous.get(&path).cloned());
        self.being_written.insert(path);
    }
}

/// A scanned tree, and the files that turned out to have no writer.
pub(crate) type ScanOutcome = (Tree, BTreeSet<FileId>);

/// A scan in progress.
pub(crate) struct Walk<'a> {
    limits: &'a Limits,
    previous: &'a BTreeMap<PathBuf, ManifestFile>,
    open_files: BTreeSet<FileId>,
    touched: BTreeSet<FileId>,
    /// Files that turned out to have no writer.
    closed: BTreeSet<FileId>,
    entered: BTreeSet<FileId>,
    is_full: bool,
    roots: Roots,
    /// The number of listed problems of files outside this scan.
    reported_elsewhere: ProblemCounts,
    tree: Tree,
}

impl<'a> Walk<'a> {
    /// A walk that starts from the tree of the last scan.
    pub(crate) fn new(
        previous: &'a Tree,
        reported_elsewhere: ProblemCounts,
        limits: &'a Limits,
        activity: &WriteActivity,
    ) -> Self {
        let ids = |paths: &BTreeSet<PathBuf>| paths.iter().filter_map(|p| file_id(p)).collect();
        Walk {
            limits,
            previous: &previous.files,
            open_files: ids(&activity.open_files),
            touched: ids(&activity.touched),
            closed: BTreeSet::new(),
            entered: BTreeSet::new(),
            is_full: false,
            roots: Roots::new(&previous.roots),
            reported_elsewhere,
            tree: Tree {
                bounds: previous.bounds,
                listing: previous.listing.as_ref().map(|_| FileListing::default()),
                coverage: ScanCoverage {
                    is_complete: true,
                    ..ScanCoverage::default()
                },
                ..Tree::new(previous.roots.clone())
            },
        }
    }

    /// The scanned tree, and the files that turned out to have no writer.
    pub(crate) fn finish(self) -> ScanOutcome {
        (self.tree, self.closed)
    }

    fn visit(&mut self, path: &Path, depth: usize, is_link: bool) {
        let root = depth == 0;
        let has_manifest_name = root || is_manifest(path);
        if is_link {
            self.tree.links.insert(path.to_path_buf());
        }
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            // Removed between listing and stat, or a dangling link: no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !root => return,
            // A link loop holds no manifests, so none can be missed.
            Err(error) if is_link && !has_manifest_name => return drop(error),
            Err(error) => {
                return self.report_read_error(path, &format!("cannot access it: {error}"));
            }
        };
        if meta.is_dir() {
            self.visit_folder(path, depth);
        } else if meta.is_file() && has_manifest_name {
            self.visit_file(path, &meta, is_link);
        } else if is_link && has_manifest_name {
            self.reject_outside_link(path);
        } else if root {
            self.report_unreadable(path, "it is neither a file nor a folder");
        }
    }

    fn visit_folder(&mut self, path: &Path, depth: usize) {
        let limit = self.tree.bounds.depth;
        if depth > limit {
            return self.report_unreadable(
                path,
                &format!("folders are nested deeper than the limit of {limit}; not entered"),
            );
        }
        let opened = match self.roots.open(path) {
            Ok(opened) => opened,
            // Removed since the stat.
            Err(RootOpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.tree.coverage.changed_during_scan = true;
                return;
            }
            Err(RootOpenError::Io(error)) => {
                return self.report_read_error(path, &format!("cannot access it: {error}"));
            }
            Err(RootOpenError::OutsideRoots(reason)) => {
                return self.report_unreadable(path, &reason);
            }
        };
        let meta = opened.meta();
        let changed = (meta.ctime(), meta.ctime_nsec());
        self.tree.last_change = self.tree.last_change.max(changed);
        let id = (meta.dev(), meta.ino());
        if !self.entered.insert(id) {
            return;
        }
        self.tree.folders.insert(path.to_path_buf(), id);
        let names = opened.entries().and_then(|entries| {
            let name = |entry: DirEntry| {
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                (entry.file_name(), is_link)
            };
            entries.map(|entry| entry.map(name)).collect()
        });
        let mut names: Vec<_> = match names {
            Ok(names) => names,
            Err(error) => {
                return self.report_read_error(path, &format!("cannot list it: {error}"));
            }
        };
        names.sort();
        for (name, is_link) in names {
            if !name.as_encoded_bytes().starts_with(b".") {
                self.visit(&path.join(name), depth + 1, is_link);
            }
        }
    }

    /// Reports a link with a manifest's name that leads outside the roots; such a file may define any object.
    fn reject_outside_link(&mut self, path: &Path) -> bool {
        let Err(RootOpenError::OutsideRoots(reason)) = self.roots.open(path) else {
            return false;
        };
        if self.tree.listing.is_some() {
            self.report_unreadable(path, &reason);
        } else {
            let file = unreadable_file(path, reason, self.quota_room());
            drop(self.tree.replace_file(path, Some(file)));
        }
        true
    }

    /// Handles a manifest file that was found.
    pub(crate) fn visit_file(&mut self, path: &Path, meta: &std::fs::Metadata, is_link: bool) {
        let stamp = Stamp::of(meta);
        self.tree.last_change = self.tree.last_change.max(stamp.changed);
        if self.is_full {
            return;
        }
        let limit = self.tree.bounds.files;
        if self.tree.files.len() >= limit {
            self.is_full = true;
            let reason =
                format!("limit of {limit} files reached; this file and all after it are not read");
            return self.report_unreadable(path, &reason);
        }
        if is_link && self.reject_outside_link(path) {
            return;
        }
        if !self.entered.insert(stamp.id) {
            return;
        }
        if let Some(listing) = &mut self.tree.listing {
            listing.bytes += stamp.size;
            return listing.paths.push(path.to_path_buf());
        }
        let previous = self.previous.get(path);
        let is_open = self.open_files.contains(&stamp.id);
        let touched = is_open || self.touched.contains(&stamp.id);
        let quota_room = self.quota_room();
        let is_unchanged = |previous: &&ManifestFile| {
            previous.stamp == Some(stamp) && !touched && !previous.may_report_more(quota_room)
        };
        let unchanged = previous.filter(is_unchanged);
        let file = match unchanged {
            Some(unchanged) => Some(unchanged.clone()),
            None => self.read_file(path, stamp, is_open, previous),
        };
        let Some(file) = file else { return };
        let objects = self.tree.object_count + file.content.objects.len();
        let limit = self.tree.bounds.objects;
        if objects > limit {
            self.is_full = true;
            let reason = format!(
                "limit of {limit} objects reached; this file and all after it are not read"
            );
            return self.report_unreadable(path, &reason);
        }
        self.tree.replace_file(path, Some(file));
    }

    /// Reads a changed file; `None` if it is gone, or new and open for writing.
    fn read_file(
        &mut self,
        path: &Path,
        stamp: Stamp,
        was_open: bool,
        previous: Option<&ManifestFile>,
    ) -> Option<ManifestFile> {
        if stamp.size > self.limits.file_bytes as u64 {
            let limit = self.limits.file_bytes >> 20;
            let reason = format!("it is larger than {limit} MiB and is not read");
            return Some(ManifestFile {
                stamp: Some(stamp),
                ..unreadable_file(path, reason, self.quota_room())
            });
        }
        let mut bytes = Vec::new();
        let opened = match self.roots.open(path) {
            Ok(opened) => opened.read(),
            Err(RootOpenError::Io(error)) => Err(error),
            Err(RootOpenError::OutsideRoots(reason)) => {
                return Some(unreadable_file(path, reason, self.quota_room()));
            }
        };
        let opened = opened.and_then(|mut file| {
            let writing = match detect_writers(&file) {
                WriterPresence::Present => true,
                WriterPresence::Absent => false,
                WriterPresence::Unknown => was_open,
            };
            let writing = writing && !palisade_sys::fault::is_injected("half-written-read");
            if !writing {
                // A file that grows meanwhile is read again when its writer closes it.
                let most = self.limits.file_bytes as u64 + 1;
                file.by_ref().take(most).read_to_end(&mut bytes)?;
            }
            Ok(writing)
        });
        match opened {
            Ok(true) => {
                self.tree.being_written.insert(path.to_path_buf());
                return previous.cloned();
            }
            Ok(false) => drop(self.closed.insert(stamp.id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.tree.coverage.changed_during_scan = true;
                return previous.cloned();
            }
            Err(error) => {
                self.tree.coverage.has_read_errors = true;
                let reason = format!("it cannot be read: {error}");
                return Some(unreadable_file(path, reason, self.quota_room()));
            }
        }
        self.tree.reread_files.insert(stamp.id, path.to_path_buf());
        let room = self.quota_room();
        let file = parse_file(path, &bytes, self.limits, room);
        Some(ManifestFile {
            stamp: Some(stamp),
            ..file
        })
    }

    /// The free room in the quota of problems.
    fn quota_room(&self) -> ProblemCounts {
        self.tree.reported.plus(self.reported_elsewhere).room()
    }

    /// Records that reading something failed: it is read again.
    fn report_read_error(&mut self, path: &Path, reason: &str) {
        self.tree.coverage.has_read_errors = true;
        self.report_unreadable(path, reason);
    }

    /// Records that something could not be read, so that no object can be treated as gone.
    fn report_unreadable(&mut self, path: &Path, reason: &str) {
        self.tree.coverage.is_complete = false;
        if self.tree.coverage.problems.len() >= MAX_PROBLEMS_PER_FILE {
            self.tree.coverage.omitted_problems += 1;
        } else {
            self.tree
                .coverage
                .problems
                .push(file_problem(path, reason.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "tests write files")]
    fn what_goes_beyond_a_bound_is_told_once_and_nothing_counts_as_gone() {
        let dir = tempfile::tempdir().unwrap();
        let object = "---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n";
        for (name, objects) in [("a", 2), ("b", 1), ("c", 3), ("d", 1)] {
            std::fs::write(
                dir.path().join(format!("{name}.yaml")),
                object.repeat(objects),
            )
            .unwrap();
        }
        let look = |files, objects| {
            let mut tree = Tree::new(vec![dir.path().to_path_buf()]);
            tree.bounds = TreeLimits {
                files,
                objects,
                depth: 1,
            };
            let tree = Tree::scan(&tree, &mut WriteActivity::default());
            let problems: Vec<String> = tree
                .coverage
                .problems
                .iter()
                .map(|p| {
                    format!(
                        "{}: {}",
                        &p.location.file[dir.path().as_os_str().len() + 1..],
                        p.reason
                    )
                })
                .collect();
            (
                tree.files.len(),
                tree.coverage.is_complete,
                problems.join("\n"),
            )
        };
        assert_eq!(look(4, 7), (4, true, String::new()));
        let files = "c.yaml: limit of 2 files reached; this file and all after it are not read";
        assert_eq!(look(2, 7), (2, false, files.to_owned()));
        let objects = "c.yaml: limit of 5 objects reached; this file and all after it are not read";
        assert_eq!(look(4, 5), (2, false, objects.to_owned()));
    }
}
