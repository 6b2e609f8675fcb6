//! What was received from a server and what was passed on. Never waits, or opens a connection.

use crate::change_batch::MAX_CHANGES;
use crate::remote_changes::{RemoteChanges, StoredChange};
use palisade_effective::{SourceDelta, SourceReport};
use palisade_source::{DeltaSink, SnapshotEntry, SnapshotKeeper, SnapshotMark, SnapshotStore};
use std::ops::ControlFlow;
use std::time::Instant;

/// What a server has, as far as it was received.
pub trait RemoteObjects {
    /// What identifies a definition.
    type Key: Ord;

    /// Takes in an entry of the snapshot, as if the server had sent it. An unknown one is ignored.
    fn restore(&mut self, entry: SnapshotEntry<'_>, changes: &mut RemoteChanges<Self::Key>);

    /// The whole snapshot was taken in: what it has completely is in sync, and not followed.
    fn restored(&mut self, mark: &SnapshotMark);

    /// Whether everything was received once.
    fn in_sync(&self) -> bool;

    /// Why changes may be missed; `None` while the server is followed.
    fn stale(&self) -> Option<String>;

    /// The parts of the snapshot.
    fn parts(&self) -> Vec<&str>;

    /// What the source reports, without the problem of its snapshot.
    fn report(&self) -> SourceReport;

    /// The resources that the server does not have.
    fn absent(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What a source says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReportedState {
    in_sync: bool,
    stale: Option<String>,
    absent: Vec<String>,
}

/// What was received and what was passed on.
#[derive(Debug)]
pub struct RemoteProgress<O> {
    /// What the server has.
    pub objects: O,
    /// The server, for messages: `the API server`.
    server: &'static str,
    snapshot: Option<SnapshotKeeper>,
    /// Since when changes may be missing that the snapshot does not have.
    stale_since: Option<u64>,
    /// What was passed on last.
    reported: ReportedState,
}

impl<O: RemoteObjects> RemoteProgress<O> {
    /// Nothing is received yet of `server`, which is its name in messages.
    #[must_use]
    pub fn new(objects: O, server: &'static str, snapshot: Option<SnapshotStore>) -> Self {
        RemoteProgress {
            objects,
            server,
            snapshot: snapshot.map(|store| SnapshotKeeper::new(store, server)),
            stale_since: None,
            reported: ReportedState::default(),
        }
    }

    /// No changes yet.
    #[must_use]
    pub fn no_changes(&self) -> RemoteChanges<O::Key> {
        RemoteChanges::new(self.snapshot.is_some())
    }

    /// Passes on what the snapshot has.
    pub fn restore(&mut self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let Some(snapshot) = &mut self.snapshot else {
            return ControlFlow::Continue(());
        };
        let objects = &mut self.objects;
        let mut pass_on = |changes: RemoteChanges<O::Key>| {
            let part = SourceDelta {
                changes: changes.into_definitions(),
                ..SourceDelta::default()
            };
            sink(part, None)
        };
        // What the snapshot has is not stored again.
        let mut changes = RemoteChanges::default();
        let mut flow = ControlFlow::Continue(());
        let mut count = 0_usize;
        let mark = snapshot.restore(|entry| {
            if flow.is_break() {
                return;
            }
            objects.restore(entry, &mut changes);
            count += 1;
            if changes.len() >= MAX_CHANGES {
                flow = pass_on(std::mem::take(&mut changes));
            }
        });
        flow?;
        let Some(mark) = mark else {
            return ControlFlow::Continue(());
        };
        objects.restored(&mark);
        tracing::info!(
            entries = count,
            "started from the snapshot of {}",
            self.server
        );
        pass_on(changes)?;
        self.stale_since = Some(mark.since());
        self.pass_on(RemoteChanges::default(), None, sink)
    }

    /// Takes note in the snapshot that the server is followed.
    pub fn keep_mark(&mut self) {
        let is_followed = self.reported.in_sync && self.reported.stale.is_none();
        if let Some(snapshot) = self.snapshot.as_mut().filter(|_| is_followed) {
            // A problem is reported with the next change.
            snapshot.mark(&self.objects.parts(), true);
        }
    }

    /// Stores the changes, and passes them on.
    pub fn pass_on(
        &mut self,
        mut changes: RemoteChanges<O::Key>,
        detected_at: Option<Instant>,
        sink: DeltaSink<'_>,
    ) -> ControlFlow<()> {
        let state = ReportedState {
            in_sync: self.objects.in_sync(),
            stale: self.objects.stale(),
            absent: self.objects.absent(),
        };
        let is_part = !state.in_sync && state.stale.is_none();
        let has_new_state = state != self.reported;
        if changes.is_empty() && !changes.has_new_diagnostics && !has_new_state {
            // Text that changed without changing an object.
            if let (Some(snapshot), Some(stored)) = (&mut self.snapshot, changes.stored)
                && !stored.is_empty()
            {
                save(snapshot, stored);
            }
            return ControlFlow::Continue(());
        }
        if state.stale.is_none() {
            self.stale_since = None;
        }
        if let Some(snapshot) = &mut self.snapshot {
            // Before it is in force, so that a restart never goes back to an earlier state.
            let stored = changes.stored.take().unwrap_or_default();
            changes.has_new_diagnostics |= save(snapshot, stored);
            changes.has_new_diagnostics |=
                state.in_sync && snapshot.mark(&self.objects.parts(), state.stale.is_none());
        }
        let is_reported = !is_part && (changes.has_new_diagnostics || has_new_state);
        let delta = SourceDelta {
            report: is_reported.then(|| self.report()),
            changes: changes.into_definitions(),
            in_sync: state.in_sync,
            stale: state.stale.clone(),
            stale_since: self.stale_since,
        };
        self.reported = state;
        sink(delta, detected_at)?;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.compact();
        }
        ControlFlow::Continue(())
    }

    /// Passes on the present state without a change.
    pub fn pass_on_unchanged(&self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let delta = SourceDelta {
            in_sync: self.reported.in_sync,
            stale: self.reported.stale.clone(),
            stale_since: self.stale_since,
            ..SourceDelta::default()
        };
        sink(delta, None)
    }

    /// What the source reports.
    #[must_use]
    pub fn report(&self) -> SourceReport {
        let mut report = self.objects.report();
        let problem = self.snapshot.as_ref().and_then(SnapshotKeeper::problem);
        if let Some(problem) = problem {
            report.problems.add(problem.clone());
        }
        report
    }
}

/// Writes what changed; returns whether there is another problem than before.
fn save(snapshot: &mut SnapshotKeeper, stored: Vec<StoredChange>) -> bool {
    for StoredChange { key, value } in stored {
        match value {
            Some((version, text)) => snapshot.put(SnapshotEntry {
                key: &key,
                version: &version,
                text: &text,
            }),
            None => snapshot.remove(&key),
        }
    }
    snapshot.save()
}
