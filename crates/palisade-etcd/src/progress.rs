//! What was received from etcd and what was passed on: everything of the source but the connection.
//!
//! Promises: all events of an answer are taken in, or none; an event that was taken in before changes nothing.
//! Never: waits, or opens a connection.

use crate::error::EtcdError;
use crate::key_index::{AreaKey, KeyChanges, KeyIndex};
use crate::key_layout::{KeyArea, KeyLayout, KeyRole};
use crate::messages::{KeyEvent, KeyEventType, KeyValue, WatchResponse};
use crate::reader::ReadPoint;
use crate::snapshot::EtcdSnapshot;
use palisade_effective::{DiagnosticCollector, SourceDelta, SourceReport};
use palisade_source::{DeltaSink, SnapshotStore};
use std::ops::ControlFlow;
use std::time::Instant;

/// Changes are passed on when there are so many.
pub(crate) const MAX_CHANGES: usize = 1_000;
/// Why the keys of a snapshot are not followed.
const NO_ANSWER: &str = "etcd has not answered since the agent started";

/// Up to where changes were passed on.
#[derive(Clone, Copy, Debug)]
struct ReadPosition {
    revision: i64,
    cluster: u64,
}

/// What was received and what was passed on.
pub(crate) struct EtcdProgress {
    pub(crate) layout: KeyLayout,
    index: KeyIndex,
    /// The bundle that counts.
    bundle: Option<String>,
    /// `None` if everything has to be read.
    position: Option<ReadPosition>,
    snapshot: Option<EtcdSnapshot>,
    /// Whether everything was delivered once.
    in_sync: bool,
    /// Why changes may be missed; `None` while etcd is followed.
    interruption: Option<String>,
    /// Since when changes may be missing that the snapshot does not have.
    stale_since: Option<u64>,
    /// Whether the last attempt failed.
    has_failed: bool,
    /// What was passed on last: in sync, stale.
    reported: (bool, Option<String>),
}

/// What an answer of a watch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEffect {
    /// Its events were taken in.
    Applied,
    /// Another bundle counts: everything is read.
    OtherBundle,
}

impl EtcdProgress {
    pub(crate) fn new(prefix: &str, snapshot: Option<SnapshotStore>) -> Self {
        EtcdProgress {
            layout: KeyLayout::new(prefix),
            index: KeyIndex::new(),
            bundle: None,
            position: None,
            snapshot: snapshot.map(EtcdSnapshot::new),
            in_sync: false,
            interruption: None,
            stale_since: None,
            has_failed: false,
            reported: (false, None),
        }
    }

    /// Passes on what the snapshot has.
    pub(crate) fn restore(&mut self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let Some(mut snapshot) = self.snapshot.take() else {
            return ControlFlow::Continue(());
        };
        let pass_on = |changes: KeyChanges| {
            let part = SourceDelta {
                changes: changes.into_changes(),
                ..SourceDelta::default()
            };
            sink(part, None)
        };
        let restored = snapshot.restore(&mut self.index, pass_on);
        self.snapshot = Some(snapshot);
        match restored {
            ControlFlow::Continue(since) => self.stale_since = since,
            ControlFlow::Break(()) => return ControlFlow::Break(()),
        }
        if self.stale_since.is_none() {
            return ControlFlow::Continue(());
        }
        self.in_sync = true;
        self.interruption = Some(NO_ANSWER.to_owned());
        self.pass_on(KeyChanges::default(), None, sink)
    }

    /// A failure. The first in a row is not reported: most connections that break can be continued at once.
    pub(crate) fn take_failure(
        &mut self,
        error: &EtcdError,
        sink: DeltaSink<'_>,
    ) -> ControlFlow<()> {
        if matches!(error, EtcdError::Compacted(_)) && self.position.take().is_some() {
            // Everything is read at once.
            return ControlFlow::Continue(());
        }
        let is_first = !std::mem::replace(&mut self.has_failed, true);
        if is_first && self.in_sync {
            return ControlFlow::Continue(());
        }
        self.interruption = Some(error.to_string());
        self.pass_on(KeyChanges::default(), None, sink)
    }

    /// An etcd that was replaced or restored has other revisions.
    pub(crate) fn check_position(&mut self, point: &ReadPoint) {
        let is_other = |position: &ReadPosition| {
            position.cluster != point.cluster || point.revision < position.revision
        };
        if self.position.as_ref().is_some_and(is_other) {
            tracing::warn!("etcd does not have the history it had; everything is read again");
            self.position = None;
            self.index.forget_revisions();
        }
    }

    /// Takes in everything that etcd has at a revision. While the source is not in sync parts are passed on;
    /// afterwards all changes at once.
    pub(crate) fn take_read(
        &mut self,
        point: &ReadPoint,
        values: impl IntoIterator<Item = (AreaKey, KeyValue)>,
        sink: DeltaSink<'_>,
    ) -> ControlFlow<()> {
        let mut changes = KeyChanges::default();
        self.index.begin_read();
        for (key, kv) in values {
            self.index
                .put(key, kv.mod_revision, &kv.value, &mut changes);
            if !self.in_sync && changes.len() >= MAX_CHANGES {
                self.pass_on(std::mem::take(&mut changes), None, sink)?;
            }
        }
        self.index.end_read(&mut changes);
        self.bundle = point.pointer.as_ref().map(|p| p.bundle.clone());
        self.position = Some(ReadPosition {
            revision: point.revision,
            cluster: point.cluster,
        });
        self.in_sync = true;
        let detected_at = tokio::time::Instant::now().into_std();
        self.pass_on(changes, Some(detected_at), sink)
    }

    /// Everything has to be read: etcd does not keep what follows the position.
    pub(crate) fn forget_position(&mut self) {
        self.position = None;
    }

    /// The revision up to which everything was passed on; `None` if everything has to be read.
    pub(crate) fn revision(&self) -> Option<i64> {
        self.position.map(|position| position.revision)
    }

    /// etcd answers: changes are not missed any more.
    pub(crate) fn set_followed(&mut self) {
        self.interruption = None;
        self.has_failed = false;
    }

    /// Takes in an answer: all of its events, or none.
    pub(crate) fn take_answer(
        &mut self,
        endpoint: &str,
        answer: WatchResponse,
        changes: &mut KeyChanges,
    ) -> Result<AnswerEffect, EtcdError> {
        if answer.canceled {
            return Err(match answer.compact_revision {
                0 => EtcdError::WatchEnded {
                    endpoint: endpoint.to_owned(),
                    reason: answer.cancel_reason,
                },
                revision => EtcdError::Compacted(revision),
            });
        }
        let Some(position) = self.position else {
            return Ok(AnswerEffect::Applied);
        };
        let is_new = |event: &&KeyEvent| {
            let revision = event.kv.as_ref().map(|kv| kv.mod_revision);
            revision.is_some_and(|revision| revision > position.revision)
        };
        let mut last = position.revision;
        // The number of the watch is 0; an answer to a question has none, and older versions of etcd send it
        // ahead of events.
        if answer.events.is_empty() && !answer.created && answer.watch_id == 0 {
            last = last.max(answer.header.as_ref().map_or(0, |header| header.revision));
        }
        let mut puts_and_deletes = Vec::new();
        for event in answer.events.iter().filter(is_new) {
            let Some(kv) = &event.kv else { continue };
            let key = String::from_utf8_lossy(&kv.key);
            let is_delete = event.kind == i32::from(KeyEventType::Delete);
            last = last.max(kv.mod_revision);
            let key = match self.layout.role(&key) {
                KeyRole::Pointer => {
                    let pointer = match is_delete {
                        true => None,
                        false => Some(self.layout.parse_pointer(&kv.value)?.bundle),
                    };
                    if pointer != self.bundle {
                        return Ok(AnswerEffect::OtherBundle);
                    }
                    continue;
                }
                KeyRole::Direct(path) => (KeyArea::Direct, path.into()),
                KeyRole::Bundle(of, path) if Some(of) == self.bundle.as_deref() => {
                    (KeyArea::Pushed, path.into())
                }
                KeyRole::Bundle(..) | KeyRole::Other => continue,
            };
            puts_and_deletes.push((key, is_delete, kv));
        }
        for (key, is_delete, kv) in puts_and_deletes {
            match is_delete {
                true => self.index.delete(key, changes),
                false => self.index.put(key, kv.mod_revision, &kv.value, changes),
            }
        }
        self.position = Some(ReadPosition {
            revision: last,
            ..position
        });
        Ok(AnswerEffect::Applied)
    }

    /// Takes note in the snapshot that etcd is followed.
    pub(crate) fn keep_mark(&mut self) {
        if let (Some(snapshot), (true, None)) = (&mut self.snapshot, &self.reported) {
            // A problem is reported with the next change.
            snapshot.mark(true);
        }
    }

    pub(crate) fn pass_on(
        &mut self,
        mut changes: KeyChanges,
        detected_at: Option<Instant>,
        sink: DeltaSink<'_>,
    ) -> ControlFlow<()> {
        let state = (self.in_sync, self.interruption.clone());
        let is_part = !self.in_sync && self.interruption.is_none();
        let has_new_state = state != self.reported;
        if changes.is_empty() && !changes.has_new_diagnostics && !has_new_state {
            if let (Some(snapshot), false) = (&mut self.snapshot, changes.stored.is_empty()) {
                snapshot.save(&mut changes);
            }
            return ControlFlow::Continue(());
        }
        let (in_sync, stale) = state.clone();
        self.reported = state;
        if stale.is_none() && in_sync {
            self.stale_since = None;
        }
        if let Some(snapshot) = &mut self.snapshot {
            // Before it is in force, so that a restart never goes back to an earlier state.
            changes.has_new_diagnostics |= snapshot.save(&mut changes);
            changes.has_new_diagnostics |= in_sync && snapshot.mark(stale.is_none());
        }
        let is_reported = !is_part && (changes.has_new_diagnostics || has_new_state);
        let delta = SourceDelta {
            report: is_reported.then(|| self.report()),
            changes: changes.into_changes(),
            in_sync,
            stale,
            stale_since: self.stale_since,
        };
        sink(delta, detected_at)?;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.compact();
        }
        ControlFlow::Continue(())
    }

    /// Passes on the present state without a change.
    pub(crate) fn pass_on_unchanged(&self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let (in_sync, stale) = self.reported.clone();
        let delta = SourceDelta {
            in_sync,
            stale,
            stale_since: self.stale_since,
            ..SourceDelta::default()
        };
        sink(delta, None)
    }

    fn report(&self) -> SourceReport {
        let mut problems = DiagnosticCollector::default();
        for diagnostic in self.index.diagnostics() {
            problems.add(diagnostic.clone());
        }
        let problem = self.snapshot.as_ref().and_then(EtcdSnapshot::problem);
        problem
            .into_iter()
            .for_each(|problem| problems.add(problem.clone()));
        SourceReport {
            files: self.index.len(),
            problems,
            ignored: self.index.ignored(),
            absent: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
