//! The snapshot of what the server had: written as its objects change, read when the source starts.
//!
//! The fields that policy needs are stored, as the server wrote them, and read as if they were a list: an
//! object that the server still has is no change afterwards, and one that it has no more goes with the first
//! complete list. A file that cannot be written or read is reported, and costs only the snapshot.

use crate::list::ObjectIdentity;
use crate::object_index::{IndexChanges, ObjectIndex, StoredChange};
use crate::resource_event::ResourceEvent;
use palisade_effective::Diagnostic;
use palisade_source::{SnapshotEntry, SnapshotKeeper, SnapshotStore};
use std::ops::ControlFlow;

/// Why the resources of a snapshot are not followed.
const NO_ANSWER: &str = "the API server has not answered since the agent started";
/// Objects are passed on when there are so many.
const CHUNK: usize = 1_000;

/// The snapshot of all resources.
#[derive(Debug)]
pub(crate) struct SourceSnapshot(SnapshotKeeper);

impl SourceSnapshot {
    pub(crate) fn new(store: SnapshotStore) -> Self {
        SourceSnapshot(SnapshotKeeper::new(store, "the API server"))
    }

    /// Passes on what is stored. Returns since when changes may be missing; `None` if there is nothing.
    pub(crate) fn restore(
        &mut self,
        indexes: &mut [ObjectIndex],
        mut pass_on: impl FnMut(IndexChanges) -> ControlFlow<()>,
    ) -> ControlFlow<(), Option<u64>> {
        let mut changes = IndexChanges::default();
        let mut flow = ControlFlow::Continue(());
        let mut count = 0_usize;
        let mark = self.0.restore(|entry| {
            let resource = entry.key.split('/').next().unwrap_or_default();
            let index = indexes.iter_mut().find(|index| index.name() == resource);
            let Some(index) = index.filter(|_| flow.is_continue()) else {
                return;
            };
            let identity = ObjectIdentity {
                resource_version: entry.version.to_owned(),
                ..ObjectIdentity::of(entry.text)
            };
            index.apply(
                ResourceEvent::Object(identity, entry.text.into()),
                &mut changes,
            );
            count += 1;
            if changes.changes.len() >= CHUNK {
                flow = pass_on(std::mem::take(&mut changes));
            }
        });
        flow?;
        let Some(mark) = mark else {
            return ControlFlow::Continue(None);
        };
        let is_complete =
            |index: &&mut ObjectIndex| mark.complete.iter().any(|c| c == index.name());
        for index in indexes.iter_mut().filter(is_complete) {
            index.is_listed = true;
            index.interruption = Some(NO_ANSWER.to_owned());
        }
        tracing::info!(
            objects = count,
            "started from the snapshot of the API server's objects"
        );
        pass_on(changes)?;
        ControlFlow::Continue(Some(mark.since()))
    }

    /// Writes what changed; returns whether there is another problem than before.
    pub(crate) fn save(&mut self, changes: &mut IndexChanges) -> bool {
        for StoredChange { key, value } in changes.stored.iter_mut().flat_map(std::mem::take) {
            match value {
                Some((version, text)) => self.0.put(SnapshotEntry {
                    key: &key,
                    version: &version,
                    text: &text,
                }),
                None => self.0.remove(&key),
            }
        }
        self.0.save()
    }

    /// Says that all of these resources are stored, and whether they are followed. Returns whether there is
    /// another problem than before.
    pub(crate) fn mark(&mut self, indexes: &[ObjectIndex], is_followed: bool) -> bool {
        let names: Vec<&str> = indexes.iter().map(ObjectIndex::name).collect();
        self.0.mark(&names, is_followed)
    }

    /// Makes room, after the changes were passed on: they do not wait for it.
    pub(crate) fn compact(&mut self) {
        self.0.compact();
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<&Diagnostic> {
        self.0.problem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::RESOURCES;

    #[test]
    fn a_change_that_cannot_be_stored_is_reported_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let store = SnapshotStore::new(dir.path(), "kubernetes", "here");
        let mut snapshot = SourceSnapshot::new(store);
        let indexes: Vec<ObjectIndex> = RESOURCES.into_iter().map(ObjectIndex::new).collect();
        let change = |number: usize| IndexChanges {
            stored: Some(vec![StoredChange {
                key: format!("pods/shop/{number}"),
                value: Some(("1".into(), "{}".to_owned())),
            }]),
            ..IndexChanges::default()
        };
        assert!(!snapshot.save(&mut change(0)) && !snapshot.mark(&indexes, true));
        let folder = dir.path().join("snapshot/kubernetes");
        assert!(folder.join("mark.json").exists());
        // Folders are in the way of the files that do not exist yet.
        let files = (0..64).map(|number| folder.join(format!("{number:02x}.log")));
        let missing: Vec<_> = files.filter(|file| !file.exists()).collect();
        missing
            .iter()
            .for_each(|file| std::fs::create_dir(file).unwrap());
        let news: Vec<bool> = (1..100).map(|n| snapshot.save(&mut change(n))).collect();
        // Each names the first file that fails; that is the same in the end.
        assert!(news.contains(&true) && news.last() == Some(&false));
        assert!(!snapshot.mark(&indexes, true));
        let reason = snapshot.problem().unwrap().problem.reason.clone();
        assert!(
            reason.starts_with("the snapshot cannot be saved (opening "),
            "{reason}"
        );
        assert!(!folder.join("mark.json").exists());
        missing
            .iter()
            .for_each(|file| std::fs::remove_dir(file).unwrap());
        assert!(!snapshot.save(&mut change(100)) && snapshot.mark(&indexes, true));
        assert!(snapshot.problem().is_none() && folder.join("mark.json").exists());
    }
}
