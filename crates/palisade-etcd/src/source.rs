//! The source: reads everything at one revision, then follows the changes; again from where it was after a
//! failure, or from the beginning if etcd does not keep the revisions since then.

use crate::client::{EtcdClient, WatchStream};
use crate::error::EtcdError;
use crate::key_index::{KeyChanges, KeyIndex};
use crate::key_layout::{KeyArea, KeyLayout, KeyRole};
use crate::messages::{KeyValue, WatchEvent, WatchEventType, WatchResponse};
use crate::options::EtcdOptions;
use crate::reader::{ReadPoint, prefix_end, read_point, read_prefix};
use crate::snapshot::EtcdSnapshot;
use palisade_effective::{DiagnosticCollector, SourceDelta, SourceReport};
use palisade_source::{Backoff, DeltaSink, SnapshotStore, Source, SourceError};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Changes are passed on once none arrived for so long, at the latest after so long, or when there are so many.
const SETTLE: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_millis(50);
const MAX_CHANGES: usize = 1_000;
/// The interval at which etcd is asked whether it still watches.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(20);
/// A watch in which nothing arrives for so long is continued on another connection.
const SILENCE: Duration = Duration::from_secs(60);
/// The interval at which the snapshot takes note that etcd is followed.
const MARK_INTERVAL: Duration = Duration::from_secs(60);
/// Why the keys of a snapshot are not followed.
const NO_ANSWER: &str = "etcd has not answered since the agent started";

/// A prefix of etcd; see the module documentation of the crate.
pub struct EtcdSource {
    options: EtcdOptions,
    stop: (watch::Sender<bool>, watch::Receiver<bool>),
    refresh: Arc<Notify>,
    progress: EtcdProgress,
}

/// Stops a source, or makes it report, from another thread.
#[derive(Clone, Debug)]
pub struct EtcdSourceHandle {
    stop: watch::Sender<bool>,
    refresh: Arc<Notify>,
}

impl EtcdSourceHandle {
    /// Makes [`Source::run`] return soon.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Makes the source report soon, even without a change.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }
}

/// Up to where changes were passed on.
#[derive(Clone, Copy, Debug)]
struct ReadPosition {
    revision: i64,
    cluster: u64,
}

/// What was received and what was passed on.
struct EtcdProgress {
    layout: KeyLayout,
    index: KeyIndex,
    /// The generation that counts.
    generation: Option<String>,
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

/// Why a connection is not used any more.
enum SessionEnd {
    /// Nobody receives the changes.
    Closed,
    Failed(EtcdError),
}

impl From<EtcdError> for SessionEnd {
    fn from(error: EtcdError) -> Self {
        SessionEnd::Failed(error)
    }
}

impl EtcdSource {
    /// A source that has not connected yet; it begins with the snapshot, and keeps that up to date.
    #[must_use]
    pub fn new(options: EtcdOptions, snapshot: Option<SnapshotStore>) -> Self {
        EtcdSource {
            stop: watch::channel(false),
            refresh: Arc::default(),
            progress: EtcdProgress {
                layout: KeyLayout::new(&options.prefix),
                index: KeyIndex::new(),
                generation: None,
                position: None,
                snapshot: snapshot.map(EtcdSnapshot::new),
                in_sync: false,
                interruption: None,
                stale_since: None,
                has_failed: false,
                reported: (false, None),
            },
            options,
        }
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> EtcdSourceHandle {
        EtcdSourceHandle {
            stop: self.stop.0.clone(),
            refresh: Arc::clone(&self.refresh),
        }
    }

    async fn follow(&mut self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        self.progress.restore(sink)?;
        let mut random = SmallRng::from_rng(&mut rand::rng());
        let mut client = EtcdClient::new(self.options.clone());
        let mut backoff = Backoff::default();
        loop {
            let error = match self.session(&mut client, &mut backoff, sink).await {
                SessionEnd::Closed => return ControlFlow::Break(()),
                SessionEnd::Failed(error) => error,
            };
            tracing::debug!(%error, "etcd is not followed");
            client.disconnect();
            self.progress.take_failure(&error, sink)?;
            let delay = tokio::time::sleep(backoff.next_delay(&mut random));
            tokio::pin!(delay);
            loop {
                tokio::select! {
                    () = &mut delay => break,
                    () = self.refresh.notified() => self.progress.pass_on_unchanged(sink)?,
                }
            }
        }
    }

    /// Follows etcd over one connection.
    async fn session(
        &mut self,
        client: &mut EtcdClient,
        backoff: &mut Backoff,
        sink: DeltaSink<'_>,
    ) -> SessionEnd {
        match self.try_session(client, backoff, sink).await {
            Ok(ended) | Err(ended) => ended,
        }
    }

    async fn try_session(
        &mut self,
        client: &mut EtcdClient,
        backoff: &mut Backoff,
        sink: DeltaSink<'_>,
    ) -> Result<SessionEnd, SessionEnd> {
        let progress = &mut self.progress;
        let point = read_point(client, &progress.layout).await?;
        progress.check_position(&point);
        if progress.position.is_none() {
            progress.read(client, &point, sink).await?;
        }
        let mut watch = progress.watch(client).await?;
        let endpoint = client.endpoint().to_owned();
        let mut marks = tokio::time::interval(MARK_INTERVAL);
        let mut questions = tokio::time::interval(PROGRESS_INTERVAL);
        let silence = tokio::time::sleep(SILENCE);
        tokio::pin!(silence);
        let mut is_followed = false;
        loop {
            tokio::select! {
                answer = watch.next() => {
                    let answer = answer?;
                    silence.as_mut().reset(tokio::time::Instant::now() + SILENCE);
                    if !is_followed && !answer.canceled {
                        tracing::info!(endpoint, "following etcd");
                        is_followed = true;
                        backoff.reset();
                    }
                    progress.take_answers(client, &mut watch, answer, sink).await?;
                }
                () = &mut silence => {
                    return Err(watch.ended(&format!("no answer within {} s", SILENCE.as_secs())).into());
                }
                _ = questions.tick() => watch.request_progress(),
                _ = marks.tick() => progress.keep_mark(),
                () = self.refresh.notified() => closed(progress.pass_on_unchanged(sink))?,
            }
        }
    }
}

impl Source for EtcdSource {
    fn describe(&self) -> (String, String) {
        ("etcd".to_owned(), self.options.location())
    }

    fn run(&mut self, sink: DeltaSink<'_>) -> Result<(), SourceError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|cause| SourceError {
                action: "starting the client of etcd".to_owned(),
                cause: Box::new(cause),
            })?;
        let mut stop = self.stop.1.clone();
        runtime.block_on(async {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                _ = self.follow(sink) => {}
            }
        });
        Ok(())
    }
}

fn closed(flow: ControlFlow<()>) -> Result<(), SessionEnd> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(SessionEnd::Closed),
    }
}

impl EtcdProgress {
    /// Passes on what the snapshot has.
    fn restore(&mut self, sink: DeltaSink<'_>) -> ControlFlow<()> {
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
    fn take_failure(&mut self, error: &EtcdError, sink: DeltaSink<'_>) -> ControlFlow<()> {
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
    fn check_position(&mut self, point: &ReadPoint) {
        let is_other = |position: &ReadPosition| {
            position.cluster != point.cluster || point.revision < position.revision
        };
        if self.position.as_ref().is_some_and(is_other) {
            tracing::warn!("etcd does not have the history it had; everything is read again");
            self.position = None;
            self.index.forget_revisions();
        }
    }

    async fn watch(&self, client: &mut EtcdClient) -> Result<WatchStream, EtcdError> {
        let after = self.position.map_or(0, |position| position.revision) + 1;
        let all = self.layout.all();
        client.watch(&all, prefix_end(&all), after).await
    }

    /// Reads everything at the revision of `point`. While the source is not in sync parts are passed on as they
    /// arrive; afterwards all changes at once.
    async fn read(
        &mut self,
        client: &mut EtcdClient,
        point: &ReadPoint,
        sink: DeltaSink<'_>,
    ) -> Result<(), SessionEnd> {
        let generation = point.pointer.as_ref().map(|p| p.generation.clone());
        let mut prefixes = vec![(KeyArea::Direct, self.layout.direct())];
        prefixes.extend(generation.iter().map(|generation| {
            let prefix = self.layout.generation(generation);
            (KeyArea::Pushed, prefix)
        }));
        let mut values: Vec<(KeyArea, usize, KeyValue)> = Vec::new();
        for (area, prefix) in &prefixes {
            let take = |page: Vec<KeyValue>| {
                values.extend(page.into_iter().map(|kv| (*area, prefix.len(), kv)));
            };
            read_prefix(client, prefix, point.revision, take).await?;
        }
        let mut changes = KeyChanges::default();
        self.index.begin_read();
        for (area, skipped, kv) in values {
            let path = String::from_utf8_lossy(&kv.key);
            let path = path.get(skipped..).unwrap_or_default();
            let key = (area, path.into());
            self.index
                .put(key, kv.mod_revision, &kv.value, &mut changes);
            if !self.in_sync && changes.len() >= MAX_CHANGES {
                closed(self.pass_on(std::mem::take(&mut changes), None, sink))?;
            }
        }
        self.index.end_read(&mut changes);
        self.generation = generation;
        self.position = Some(ReadPosition {
            revision: point.revision,
            cluster: point.cluster,
        });
        self.in_sync = true;
        let detected_at = tokio::time::Instant::now().into_std();
        closed(self.pass_on(changes, Some(detected_at), sink))
    }

    /// Takes in an answer of the watch and those that follow at once, and passes on what they change.
    async fn take_answers(
        &mut self,
        client: &mut EtcdClient,
        watch: &mut WatchStream,
        first: WatchResponse,
        sink: DeltaSink<'_>,
    ) -> Result<(), SessionEnd> {
        let detected_at = tokio::time::Instant::now();
        let deadline = detected_at + MAX_DELAY;
        let mut changes = KeyChanges::default();
        let mut next = Ok(first);
        let ended = loop {
            let taken = match next {
                Ok(answer) => self.take_answer(watch, answer, &mut changes),
                Err(error) => Err(error),
            };
            match taken {
                Ok(AnswerEffect::Applied) => {}
                other => break other,
            }
            if changes.is_empty() || changes.len() >= MAX_CHANGES {
                break Ok(AnswerEffect::Applied);
            }
            let wait = deadline.min(tokio::time::Instant::now() + SETTLE);
            match tokio::time::timeout_at(wait, watch.next()).await {
                Ok(answer) => next = answer,
                Err(_) => break Ok(AnswerEffect::Applied),
            }
        };
        if ended.is_ok() {
            self.interruption = None;
            self.has_failed = false;
        }
        // Also before an error: the index has these changes.
        closed(self.pass_on(changes, Some(detected_at.into_std()), sink))?;
        if let AnswerEffect::OtherGeneration = ended? {
            let point = read_point(client, &self.layout).await?;
            self.read(client, &point, sink).await?;
        }
        Ok(())
    }

    /// Takes in an answer: all of its events, or none.
    fn take_answer(
        &mut self,
        watch: &WatchStream,
        answer: WatchResponse,
        changes: &mut KeyChanges,
    ) -> Result<AnswerEffect, EtcdError> {
        if answer.canceled {
            return Err(match answer.compact_revision {
                0 if answer.cancel_reason.is_empty() => watch.ended("without a reason"),
                0 => watch.ended(&answer.cancel_reason),
                revision => EtcdError::Compacted(revision),
            });
        }
        let Some(position) = self.position else {
            return Ok(AnswerEffect::Applied);
        };
        let is_new = |event: &&WatchEvent| {
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
            let is_delete = event.kind == i32::from(WatchEventType::Delete);
            last = last.max(kv.mod_revision);
            let key = match self.layout.role(&key) {
                KeyRole::Pointer => {
                    let pointer = match is_delete {
                        true => None,
                        false => Some(self.layout.parse_pointer(&kv.value)?.generation),
                    };
                    if pointer != self.generation {
                        return Ok(AnswerEffect::OtherGeneration);
                    }
                    continue;
                }
                KeyRole::Direct(path) => (KeyArea::Direct, path.into()),
                KeyRole::Generation(of, path) if Some(of) == self.generation.as_deref() => {
                    (KeyArea::Pushed, path.into())
                }
                KeyRole::Generation(..) | KeyRole::Other => continue,
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
    fn keep_mark(&mut self) {
        if let (Some(snapshot), (true, None)) = (&mut self.snapshot, &self.reported) {
            // A problem is reported with the next change.
            snapshot.mark(true);
        }
    }

    fn pass_on(
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
    fn pass_on_unchanged(&self, sink: DeltaSink<'_>) -> ControlFlow<()> {
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
        }
    }
}

/// What an answer of a watch leads to.
enum AnswerEffect {
    /// Its events were taken in.
    Applied,
    /// Another generation counts: everything is read.
    OtherGeneration,
}
