//! Partial scans: reads single files where the events show that nothing else in the tree changed.
//!
//! The cost is that of these files, whatever the size of the tree. If one of them might count more than once
//! or under another name, is missing, or exceeds a limit, nothing is changed and the caller has to make a
//! full scan ([`Tree::scan`]), which alone can find that an object is gone.

use crate::manifest_file::ManifestFile;
use crate::scan::{ScanOutcome, Tree, Walk, WriteActivity};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The result of a partial scan.
#[derive(Debug)]
pub(crate) struct PartialScan {
    /// The previous versions of these files; a new file has none.
    pub(crate) previous: BTreeMap<PathBuf, ManifestFile>,
    /// The files scanned.
    pub(crate) paths: BTreeSet<PathBuf>,
}

impl Tree {
    /// Scans the files that were touched since the last scan or were being written then. `None` if a full
    /// scan is needed; then the tree and `activity` are unchanged.
    pub(crate) fn scan_changed_files(
        &mut self,
        activity: &mut WriteActivity,
    ) -> Option<PartialScan> {
        // A link may lead to any of the files, and an unreadable folder may hold anything.
        if !self.coverage.is_complete
            || self.coverage.changed_during_scan
            || !self.links.is_empty()
            || !self.coverage.problems.is_empty()
        {
            return None;
        }
        let being_written = std::mem::take(&mut self.being_written);
        let paths: BTreeSet<PathBuf> = (activity.touched.iter())
            .chain(&activity.open_files)
            .chain(&being_written)
            .cloned()
            .collect();
        let Some(outcome) = self.read_files(&paths, activity) else {
            self.being_written = being_written;
            return None;
        };
        let (seen, free) = outcome;
        activity.record_scan(&seen, &free);
        self.last_change = self.last_change.max(seen.last_change);
        self.being_written = seen.being_written;
        self.reread_files = seen.reread_files;
        let mut files = seen.files;
        let mut previous_files = BTreeMap::new();
        for path in &paths {
            if let Some(previous) = self.replace_file(path, files.remove(path)) {
                previous_files.insert(path.clone(), previous);
            }
        }
        Some(PartialScan {
            previous: previous_files,
            paths,
        })
    }

    /// Reads these files into a tree of their own; also returns the files without a writer.
    fn read_files(
        &self,
        paths: &BTreeSet<PathBuf>,
        activity: &WriteActivity,
    ) -> Option<ScanOutcome> {
        let limits = palisade_manifest::Limits::default();
        let mut walk = Walk::new(self, self.reported, &limits, activity);
        for path in paths {
            let in_tree = |folder: &Path| self.folders.contains_key(folder);
            if !path.parent().is_some_and(in_tree) || !crate::manifest_file::is_manifest(path) {
                return None;
            }
            let meta = std::fs::symlink_metadata(path).ok()?;
            if !meta.is_file() || meta.nlink() != 1 {
                return None;
            }
            walk.visit_file(path, &meta, false);
        }
        let (seen, free) = walk.finish();
        let same = |path: &&PathBuf| self.files.contains_key(*path);
        let new = seen.files.len() - seen.files.keys().filter(same).count();
        let bounds = self.bounds;
        let within = self.files.len() + new <= bounds.files
            && self.object_count + seen.object_count <= bounds.objects;
        let is_read = seen.coverage.is_complete
            && !seen.coverage.has_read_errors
            && !seen.coverage.changed_during_scan;
        (is_read && within).then_some((seen, free))
    }
}
