//! The snapshot of what etcd held: written as its keys change, read when the source starts.
//!
//! The values are stored as etcd has them, without their revisions: an etcd that was restored meanwhile may
//! have used the same ones again. A file that cannot be written or read is reported, and costs only the snapshot.

use crate::key_index::{AreaKey, KeyChanges, KeyIndex, NO_REVISION};
use crate::key_layout::KeyArea;
use palisade_effective::Diagnostic;
use palisade_source::{SnapshotEntry, SnapshotKeeper, SnapshotStore};
use std::ops::ControlFlow;

/// Changes are passed on when there are so many.
const CHUNK: usize = 1_000;
/// The only part of the snapshot.
const PARTS: [&str; 1] = ["keys"];

/// The snapshot of all keys.
#[derive(Debug)]
pub(crate) struct EtcdSnapshot(SnapshotKeeper);

impl EtcdSnapshot {
    pub(crate) fn new(store: SnapshotStore) -> Self {
        EtcdSnapshot(SnapshotKeeper::new(store, "etcd"))
    }

    /// Passes on what is stored. Returns since when changes may be missing; `None` if there is nothing.
    pub(crate) fn restore(
        &mut self,
        index: &mut KeyIndex,
        mut pass_on: impl FnMut(KeyChanges) -> ControlFlow<()>,
    ) -> ControlFlow<(), Option<u64>> {
        let mut changes = KeyChanges::default();
        let mut flow = ControlFlow::Continue(());
        let mark = self.0.restore(|entry| {
            let Some(key) = key_of(entry.key).filter(|_| flow.is_continue()) else {
                return;
            };
            index.put(key, NO_REVISION, entry.text.as_bytes(), &mut changes);
            if changes.len() >= CHUNK {
                flow = pass_on(std::mem::take(&mut changes));
            }
        });
        flow?;
        let Some(mark) = mark else {
            return ControlFlow::Continue(None);
        };
        tracing::info!(objects = index.len(), "started from the snapshot of etcd");
        pass_on(changes)?;
        ControlFlow::Continue(Some(mark.since()))
    }

    /// Writes what changed; returns whether there is another problem than before.
    pub(crate) fn save(&mut self, changes: &mut KeyChanges) -> bool {
        for (key, value) in std::mem::take(&mut changes.stored) {
            let key = stored_key(&key);
            match value {
                Some(text) => self.0.put(SnapshotEntry {
                    key: &key,
                    version: "",
                    text: &text,
                }),
                None => self.0.remove(&key),
            }
        }
        self.0.save()
    }

    /// Says that everything is stored, and whether etcd is followed. Returns whether there is another problem
    /// than before.
    pub(crate) fn mark(&mut self, is_followed: bool) -> bool {
        self.0.mark(&PARTS, is_followed)
    }

    /// Makes room, after the changes were passed on.
    pub(crate) fn compact(&mut self) {
        self.0.compact();
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<&Diagnostic> {
        self.0.problem()
    }
}

fn stored_key((area, path): &AreaKey) -> String {
    format!("{}/{path}", area.name())
}

fn key_of(stored: &str) -> Option<AreaKey> {
    let (area, path) = stored.split_once('/')?;
    let areas = [KeyArea::Direct, KeyArea::Pushed];
    let area = areas.into_iter().find(|known| known.name() == area)?;
    Some((area, path.into()))
}
