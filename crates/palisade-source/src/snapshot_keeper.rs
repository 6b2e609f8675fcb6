//! Keeps the snapshot of a source of a server up to date, and knows what is wrong with it.
//!
//! Promises: the mark says that everything is stored only if it is; a file that cannot be written or read is
//! reported once, until it can, and costs only the snapshot. Never interprets an entry.

use crate::snapshot_store::{SnapshotEntry, SnapshotError, SnapshotMark, SnapshotStore};
use palisade_effective::Diagnostic;
use palisade_manifest::{Location, Problem};

/// A snapshot, and its problem.
#[derive(Debug)]
pub struct SnapshotKeeper {
    store: SnapshotStore,
    /// The server, for messages: `the API server`.
    server: &'static str,
    /// Whether everything that changed is stored.
    is_saved: bool,
    problem: Option<Diagnostic>,
}

impl SnapshotKeeper {
    /// The keeper of a snapshot of what `server` had.
    #[must_use]
    pub fn new(store: SnapshotStore, server: &'static str) -> Self {
        SnapshotKeeper {
            store,
            server,
            is_saved: true,
            problem: None,
        }
    }

    /// Passes on every entry, and returns what they are; `None` if there is no snapshot that can be used.
    pub fn restore(&mut self, take: impl FnMut(SnapshotEntry<'_>)) -> Option<SnapshotMark> {
        match self.store.restore(take) {
            Ok(mark) => mark,
            Err(error) => {
                let server = self.server;
                let consequence =
                    format!("it is ignored, and nothing changes until {server} answers");
                self.report("the snapshot cannot be used", &error, &consequence);
                None
            }
        }
    }

    /// Adds or replaces an entry; it is written by [`Self::save`].
    pub fn put(&mut self, entry: SnapshotEntry<'_>) {
        self.store.put(entry);
    }

    /// Removes an entry; this is written by [`Self::save`].
    pub fn remove(&mut self, key: &str) {
        self.store.remove(key);
    }

    /// Writes what was added and removed; returns whether there is another problem than before.
    pub fn save(&mut self) -> bool {
        let saved = self.store.save();
        self.is_saved = saved.is_ok();
        !self.is_saved && self.take_result(saved)
    }

    /// Says that these parts are stored completely, and whether they are followed. Returns whether there is
    /// another problem than before.
    pub fn mark(&mut self, parts: &[&str], is_followed: bool) -> bool {
        if !self.is_saved {
            return false;
        }
        let marked = self.store.set_mark(parts, is_followed);
        // What could not be read at the start was replaced by what the server has.
        (marked.is_err() || is_followed) && self.take_result(marked)
    }

    /// Makes room, after the changes were passed on: they do not wait for it. A problem is reported with the
    /// next change.
    pub fn compact(&mut self) {
        let compacted = self.store.compact();
        if compacted.is_err() {
            self.take_result(compacted);
        }
    }

    /// What is wrong with it.
    #[must_use]
    pub fn problem(&self) -> Option<&Diagnostic> {
        self.problem.as_ref()
    }

    fn take_result(&mut self, result: Result<(), SnapshotError>) -> bool {
        let Err(error) = result else {
            return self.problem.take().is_some();
        };
        let before = self.problem.clone();
        let server = self.server;
        let consequence =
            format!("an agent that starts while {server} cannot be reached would wait for it");
        self.report("the snapshot cannot be saved", &error, &consequence);
        self.problem != before
    }

    fn report(&mut self, what: &str, error: &SnapshotError, consequence: &str) {
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        let reason = format!(
            "{what} ({error}{}): {consequence}",
            cause.unwrap_or_default()
        );
        let location = Location {
            file: self.store.folder().display().to_string().into(),
            line: 1,
            column: 1,
        };
        self.problem = Some(Diagnostic::warning(Problem {
            location,
            object: None,
            field: String::new(),
            reason,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_cannot_be_stored_is_reported_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::new(dir.path(), "kubernetes", "here");
        let mut keeper = SnapshotKeeper::new(store, "the API server");
        let change = |keeper: &mut SnapshotKeeper, number: usize| {
            keeper.put(SnapshotEntry {
                key: &format!("pods/shop/{number}"),
                version: "1",
                text: "{}",
            });
            keeper.save()
        };
        let mark = |keeper: &mut SnapshotKeeper| keeper.mark(&["pods"], true);
        assert!(!change(&mut keeper, 0) && !mark(&mut keeper));
        let folder = dir.path().join("snapshot/kubernetes");
        assert!(folder.join("mark.json").exists());
        // Folders are in the way of the files that do not exist yet.
        let files = (0..64).map(|number| folder.join(format!("{number:02x}.log")));
        let missing: Vec<_> = files.filter(|file| !file.exists()).collect();
        missing
            .iter()
            .for_each(|file| std::fs::create_dir(file).unwrap());
        let news: Vec<bool> = (1..100).map(|n| change(&mut keeper, n)).collect();
        // Each names the first file that fails; that is the same in the end.
        assert!(news.contains(&true) && news.last() == Some(&false));
        assert!(!mark(&mut keeper));
        let reason = keeper.problem().unwrap().problem.reason.clone();
        assert!(
            reason.starts_with("the snapshot cannot be saved (opening "),
            "{reason}"
        );
        assert!(!folder.join("mark.json").exists());
        missing
            .iter()
            .for_each(|file| std::fs::remove_dir(file).unwrap());
        assert!(!change(&mut keeper, 100) && mark(&mut keeper));
        assert!(keeper.problem().is_none() && folder.join("mark.json").exists());
    }
}
