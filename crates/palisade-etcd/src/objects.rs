//! What was received from etcd: everything of the source that only etcd has, but the connection.
//!
//! Promises: all events of an answer are taken in, or none; an event that was taken in before changes nothing.
//! Never: waits, or opens a connection.

use crate::error::EtcdError;
use crate::key_index::{AreaKey, DefinitionKey, KeyIndex, NO_REVISION, parse_stored_key};
use crate::key_layout::{KeyArea, KeyLayout, KeyRole};
use crate::messages::{KeyEvent, KeyEventType, KeyValue, WatchResponse};
use crate::reader::ReadPoint;
use palisade_effective::{DiagnosticCollector, SourceReport};
use palisade_remote::{MAX_CHANGES, RemoteChanges, RemoteObjects, RemoteProgress};
use palisade_source::{DeltaSink, SnapshotEntry, SnapshotMark};
use std::ops::ControlFlow;

/// The only part of the snapshot.
const PART: &str = "keys";
/// Why the keys of a snapshot are not followed.
const NO_ANSWER: &str = "etcd has not answered since the agent started";

/// Up to where changes were passed on.
#[derive(Clone, Copy, Debug)]
struct ReadPosition {
    revision: i64,
    cluster: u64,
}

/// What was received, and up to where.
pub struct EtcdObjects {
    pub(crate) layout: KeyLayout,
    index: KeyIndex,
    /// The bundle that counts.
    bundle: Option<String>,
    /// `None` if everything has to be read.
    position: Option<ReadPosition>,
    /// Whether everything was delivered once.
    in_sync: bool,
    /// Why changes may be missed; `None` while etcd is followed.
    interruption: Option<String>,
    /// Whether the last attempt failed.
    has_failed: bool,
}

/// What an answer of a watch leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEffect {
    /// Its events were taken in.
    Applied,
    /// Another bundle counts: everything is read.
    OtherBundle,
}

impl EtcdObjects {
    pub(crate) fn new(prefix: &str) -> Self {
        EtcdObjects {
            layout: KeyLayout::new(prefix),
            index: KeyIndex::new(),
            bundle: None,
            position: None,
            in_sync: false,
            interruption: None,
            has_failed: false,
        }
    }

    /// Takes in a failure; returns whether it is reported. The first in a row is not: most connections that break
    /// can be continued at once.
    pub(crate) fn take_failure(&mut self, error: &EtcdError) -> bool {
        if matches!(error, EtcdError::Compacted(_)) && self.position.take().is_some() {
            // Everything is read at once.
            return false;
        }
        let is_first = !std::mem::replace(&mut self.has_failed, true);
        if is_first && self.in_sync {
            return false;
        }
        self.interruption = Some(error.to_string());
        true
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
        changes: &mut RemoteChanges<DefinitionKey>,
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
                    let pointer = if is_delete {
                        None
                    } else {
                        Some(self.layout.parse_pointer(&kv.value)?.bundle)
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
            if is_delete {
                self.index.delete(key, changes)
            } else {
                self.index.put(key, kv.mod_revision, &kv.value, changes)
            }
        }
        self.position = Some(ReadPosition {
            revision: last,
            ..position
        });
        Ok(AnswerEffect::Applied)
    }
}

impl RemoteObjects for EtcdObjects {
    type Key = DefinitionKey;

    fn restore(&mut self, entry: SnapshotEntry<'_>, changes: &mut RemoteChanges<DefinitionKey>) {
        if let Some(key) = parse_stored_key(entry.key) {
            self.index
                .put(key, NO_REVISION, entry.text.as_bytes(), changes);
        }
    }

    fn restored(&mut self, _: &SnapshotMark) {
        self.in_sync = true;
        self.interruption = Some(NO_ANSWER.to_owned());
    }

    fn in_sync(&self) -> bool {
        self.in_sync
    }

    fn stale(&self) -> Option<String> {
        self.interruption.clone()
    }

    fn parts(&self) -> Vec<&str> {
        vec![PART]
    }

    fn report(&self) -> SourceReport {
        let mut problems = DiagnosticCollector::default();
        for diagnostic in self.index.diagnostics() {
            problems.add(diagnostic.clone());
        }
        SourceReport {
            files: self.index.len(),
            problems,
            ignored: self.index.ignored(),
            absent: Vec::new(),
        }
    }
}

/// Takes in everything that etcd has at a revision. While the source is not in sync parts are passed on;
/// afterwards all changes at once.
pub(crate) fn take_read(
    progress: &mut RemoteProgress<EtcdObjects>,
    point: &ReadPoint,
    values: impl IntoIterator<Item = (AreaKey, KeyValue)>,
    sink: DeltaSink<'_>,
) -> ControlFlow<()> {
    let mut changes = progress.no_changes();
    progress.objects.index.begin_read();
    for (key, kv) in values {
        let index = &mut progress.objects.index;
        index.put(key, kv.mod_revision, &kv.value, &mut changes);
        if !progress.objects.in_sync && changes.len() >= MAX_CHANGES {
            let part = std::mem::replace(&mut changes, progress.no_changes());
            progress.pass_on(part, None, sink)?;
        }
    }
    let objects = &mut progress.objects;
    objects.index.end_read(&mut changes);
    objects.bundle = point.pointer.as_ref().map(|p| p.bundle.clone());
    objects.position = Some(ReadPosition {
        revision: point.revision,
        cluster: point.cluster,
    });
    objects.in_sync = true;
    let detected_at = tokio::time::Instant::now().into_std();
    progress.pass_on(changes, Some(detected_at), sink)
}

#[cfg(test)]
mod tests;
