//! A look at single files, where the events say that nothing else of the tree changed.
//!
//! It costs what these files cost, whatever the size of the tree. Wherever one of them might count
//! more than once or under another name, is not there, or goes beyond a bound, it changes nothing and
//! asks for a look at the whole tree ([`Tree::scan`]), which alone can find that something is gone.

use crate::scan::{Activity, File, Seen, Tree, Walk};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a look at single files found.
#[derive(Debug)]
pub(crate) struct Glance<T> {
    /// These files as they were before; one that was not there is missing.
    pub(crate) before: BTreeMap<PathBuf, File<T>>,
    /// The files looked at.
    pub(crate) paths: BTreeSet<PathBuf>,
}

impl<T> Tree<T> {
    /// Looks at the files that were touched since the last look, and at those being written then.
    /// `None` if that is not enough; then nothing has changed, in the tree or in `activity`.
    pub(crate) fn glance(&mut self, activity: &mut Activity) -> Option<Glance<T>> {
        // A link may lead to any of the files, and what could not be looked into may hold anything.
        if !self.whole || self.moved || !self.links.is_empty() || !self.problems.is_empty() {
            return None;
        }
        let being_written = std::mem::take(&mut self.being_written);
        let paths: BTreeSet<PathBuf> = (activity.touched.iter())
            .chain(&activity.busy)
            .chain(&being_written)
            .cloned()
            .collect();
        let Some(seen) = self.look_at(&paths, activity) else {
            self.being_written = being_written;
            return None;
        };
        let (seen, free) = seen;
        activity.seen(&seen, &free);
        self.newest = self.newest.max(seen.newest);
        self.being_written = seen.being_written;
        self.read_anew = seen.read_anew;
        let mut files = seen.files;
        let mut before = BTreeMap::new();
        for path in &paths {
            if let Some(was) = self.put(path, files.remove(path)) {
                before.insert(path.clone(), was);
            }
        }
        Some(Glance { before, paths })
    }

    /// These files as they are, as a tree of their own, and those nobody is writing.
    fn look_at(&self, paths: &BTreeSet<PathBuf>, activity: &Activity) -> Option<Seen<T>> {
        let limits = palisade_manifest::Limits::default();
        let mut walk = Walk::beside(self, self.told, &limits, activity);
        for path in paths {
            let in_tree = |folder: &Path| self.folders.contains_key(folder);
            if !path.parent().is_some_and(in_tree) || !crate::scan::is_manifest(path) {
                return None;
            }
            let meta = std::fs::symlink_metadata(path).ok()?;
            if !meta.is_file() || meta.nlink() != 1 {
                return None;
            }
            walk.found(path, &meta);
        }
        let (seen, free) = walk.end();
        let same = |path: &&PathBuf| self.files.contains_key(*path);
        let new = seen.files.len() - seen.files.keys().filter(same).count();
        let bounds = self.bounds;
        let within =
            self.files.len() + new <= bounds.files && self.objects + seen.objects <= bounds.objects;
        (seen.whole && !seen.moved && within).then_some((seen, free))
    }
}
