//! The source: the watches of all resources, and what they change together.

use crate::api_client::{ApiServerClient, Credentials};
use crate::api_discovery::ApiDiscovery;
use crate::object_index::{IndexChanges, ObjectIndex};
use crate::resource::RESOURCES;
use crate::resource_event::ResourceEvent;
use crate::resource_watch::ResourceWatch;
use crate::source_snapshot::SourceSnapshot;
use palisade_effective::{DefinitionChange, DiagnosticCollector, SourceDelta, SourceReport};
use palisade_source::{Backoff, DeltaSink, SnapshotStore, Source, SourceError};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// The number of events that wait for the receiver.
const QUEUE: usize = 1_000;
/// Changes are passed on once none arrived for so long.
const SETTLE: Duration = Duration::from_millis(5);
/// And at the latest after so long, or when there are so many.
const MAX_DELAY: Duration = Duration::from_millis(50);
const MAX_CHANGES: usize = 1_000;
/// The shortest delay until an optional resource that the server does not have is asked for again; the longest
/// is half as long again.
const ABSENT_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the snapshot takes note that the server is followed.
const MARK_INTERVAL: Duration = Duration::from_secs(60);

/// A Kubernetes API server; see the module documentation of the crate.
pub struct KubernetesSource {
    credentials: Credentials,
    absent_interval: Duration,
    stop: (watch::Sender<bool>, watch::Receiver<bool>),
    refresh: Arc<Notify>,
    state: SourceProgress,
}

/// Stops a source from another thread.
#[derive(Clone, Debug)]
pub struct SourceStopHandle(watch::Sender<bool>);

impl SourceStopHandle {
    /// Makes [`Source::run`] return soon.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Makes a source report soon, even without a change.
#[derive(Clone, Debug)]
pub struct SourceRefreshHandle(Arc<Notify>);

impl SourceRefreshHandle {
    /// Requests a report.
    pub fn refresh(&self) {
        self.0.notify_one();
    }
}

/// What was received and what was passed on.
struct SourceProgress {
    indexes: Vec<ObjectIndex>,
    snapshot: Option<SourceSnapshot>,
    /// Since when changes may be missing that the snapshot does not have.
    stale_since: Option<u64>,
    /// Why no request was made yet.
    client_problem: Option<String>,
    /// What was passed on last: in sync, stale.
    reported: ReportedState,
}

/// What a source says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
struct ReportedState {
    in_sync: bool,
    stale: Option<String>,
    absent: Vec<String>,
}

impl KubernetesSource {
    /// A source that has not connected yet; it begins with the snapshot, and keeps that up to date.
    #[must_use]
    pub fn new(credentials: Credentials, snapshot: Option<SnapshotStore>) -> Self {
        KubernetesSource {
            credentials,
            absent_interval: ABSENT_INTERVAL,
            stop: watch::channel(false),
            refresh: Arc::default(),
            state: SourceProgress {
                indexes: RESOURCES.into_iter().map(ObjectIndex::new).collect(),
                snapshot: snapshot.map(SourceSnapshot::new),
                stale_since: None,
                client_problem: None,
                reported: ReportedState::default(),
            },
        }
    }

    /// Sets the shortest delay until an optional resource that the server does not have is asked for again.
    #[must_use]
    pub fn with_absent_interval(mut self, interval: Duration) -> Self {
        self.absent_interval = interval;
        self
    }

    /// A handle that stops [`Source::run`] from another thread.
    #[must_use]
    pub fn stop_handle(&self) -> SourceStopHandle {
        SourceStopHandle(self.stop.0.clone())
    }

    /// A handle that makes it report from another thread.
    #[must_use]
    pub fn refresh_handle(&self) -> SourceRefreshHandle {
        SourceRefreshHandle(Arc::clone(&self.refresh))
    }

    async fn follow(&mut self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        self.state.restore(sink)?;
        let mut random = SmallRng::from_rng(&mut rand::rng());
        let mut backoff = Backoff::default();
        let client = loop {
            match ApiServerClient::new(&self.credentials).await {
                Ok(client) => break client,
                Err(error) => {
                    tracing::warn!(%error, "the API server cannot be used; retrying");
                    self.state.client_problem = Some(error.to_string());
                    self.state.pass_on(IndexChanges::default(), None, sink)?;
                }
            }
            tokio::time::sleep(backoff.next_delay(&mut random)).await;
        };
        self.state.client_problem = None;
        tracing::info!(server = client.address(), "following the API server");
        let (events, mut received) = channel(QUEUE);
        let mut watches = JoinSet::new();
        // An answer counts for less than the shortest delay, so that none is late by more than that.
        let discovery = ApiDiscovery::new(client.clone(), self.absent_interval / 2);
        let discovery = Arc::new(discovery);
        for (number, resource) in RESOURCES.into_iter().enumerate() {
            let random = SmallRng::from_rng(&mut random);
            let server = (client.clone(), Arc::clone(&discovery));
            let (events, interval) = (events.clone(), self.absent_interval);
            let watch = ResourceWatch::new(server, resource, number, events, random, interval);
            watches.spawn(watch.run());
        }
        drop(events);
        let mut minutes = tokio::time::interval(MARK_INTERVAL);
        loop {
            tokio::select! {
                first = received.recv() => match first {
                    Some(first) => self.state.take_batch(first, &mut received, sink).await?,
                    None => return ControlFlow::Continue(()),
                },
                // None ends while its events are received.
                ended = watches.join_next() => {
                    tracing::error!(?ended, "a watch of the API server ended");
                    return ControlFlow::Break(());
                }
                _ = minutes.tick() => self.state.keep_mark(),
                () = self.refresh.notified() => self.state.pass_on_unchanged(sink)?,
            }
        }
    }
}

impl Source for KubernetesSource {
    fn describe(&self) -> (String, String) {
        ("kubernetes".to_owned(), self.credentials.location())
    }

    fn run(&mut self, sink: DeltaSink<'_>) -> Result<(), SourceError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|cause| SourceError {
                action: "starting the client of the API server".to_owned(),
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

impl SourceProgress {
    /// Passes on what the snapshot has.
    fn restore(&mut self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let Some(mut snapshot) = self.snapshot.take() else {
            return ControlFlow::Continue(());
        };
        let mut indexes = std::mem::take(&mut self.indexes);
        let pass_on = |changes: IndexChanges| {
            let part = SourceDelta {
                changes: changes.changes.into_values().collect(),
                ..SourceDelta::default()
            };
            sink(part, None)
        };
        let restored = snapshot.restore(&mut indexes, pass_on);
        (self.indexes, self.snapshot) = (indexes, Some(snapshot));
        match restored {
            ControlFlow::Continue(since) => self.stale_since = since,
            ControlFlow::Break(()) => return ControlFlow::Break(()),
        }
        match self.stale_since {
            Some(_) => self.pass_on(IndexChanges::default(), None, sink),
            None => ControlFlow::Continue(()),
        }
    }

    /// Takes note in the snapshot that the server is followed.
    fn keep_mark(&mut self) {
        let is_followed = self.reported.in_sync && self.reported.stale.is_none();
        if let (Some(snapshot), true) = (&mut self.snapshot, is_followed) {
            // A problem is reported with the next change.
            snapshot.mark(&self.indexes, true);
        }
    }

    /// Takes in an event and those that follow at once, and passes on what they change.
    async fn take_batch(
        &mut self,
        first: (usize, ResourceEvent),
        received: &mut Receiver<(usize, ResourceEvent)>,
        sink: DeltaSink<'_>,
    ) -> ControlFlow<()> {
        let detected_at = tokio::time::Instant::now();
        let deadline = detected_at + MAX_DELAY;
        let mut changes = IndexChanges {
            stored: self.snapshot.is_some().then(Vec::new),
            ..IndexChanges::default()
        };
        self.apply(first, &mut changes);
        while changes.changes.len() < MAX_CHANGES {
            let wait = deadline.min(tokio::time::Instant::now() + SETTLE);
            match tokio::time::timeout_at(wait, received.recv()).await {
                Ok(Some(event)) => self.apply(event, &mut changes),
                Ok(None) | Err(_) => break,
            }
        }
        self.pass_on(changes, Some(detected_at.into_std()), sink)
    }

    fn apply(&mut self, (number, event): (usize, ResourceEvent), changes: &mut IndexChanges) {
        if let Some(index) = self.indexes.get_mut(number) {
            index.apply(event, changes);
        }
    }

    fn pass_on(
        &mut self,
        mut changes: IndexChanges,
        detected_at: Option<Instant>,
        sink: DeltaSink<'_>,
    ) -> ControlFlow<()> {
        let in_sync = self.indexes.iter().all(|index| index.is_listed);
        let stale = self.stale_reason();
        let state = ReportedState {
            in_sync,
            stale: stale.clone(),
            absent: self.absent(),
        };
        let is_part = !in_sync && stale.is_none();
        let has_new_state = state != self.reported;
        if changes.changes.is_empty() && !changes.has_new_diagnostics && !has_new_state {
            return ControlFlow::Continue(());
        }
        self.reported = state;
        if stale.is_none() {
            self.stale_since = None;
        }
        if let Some(snapshot) = &mut self.snapshot {
            // Before it is in force, so that a restart never goes back to an earlier state.
            changes.has_new_diagnostics |= snapshot.save(&mut changes);
            changes.has_new_diagnostics |= in_sync && snapshot.mark(&self.indexes, stale.is_none());
        }
        let is_gone = |change: &DefinitionChange| matches!(change, DefinitionChange::Gone(_));
        let all = changes.changes.into_values();
        let (mut gone, others): (Vec<_>, Vec<_>) = all.partition(is_gone);
        gone.extend(others);
        let is_reported = !is_part && (changes.has_new_diagnostics || has_new_state);
        let delta = SourceDelta {
            changes: gone,
            in_sync,
            stale,
            stale_since: self.stale_since,
            report: is_reported.then(|| self.report()),
        };
        sink(delta, detected_at)?;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.compact();
        }
        ControlFlow::Continue(())
    }

    /// Passes on the present state without a change.
    fn pass_on_unchanged(&self, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let delta = SourceDelta {
            in_sync: self.reported.in_sync,
            stale: self.reported.stale.clone(),
            stale_since: self.stale_since,
            ..SourceDelta::default()
        };
        sink(delta, None)
    }

    /// The resources that the server does not have.
    fn absent(&self) -> Vec<String> {
        let absent = self.indexes.iter().filter(|index| index.is_absent);
        absent.map(|index| index.name().to_owned()).collect()
    }

    /// Why changes may be missed, with the resources of each reason.
    fn stale_reason(&self) -> Option<String> {
        if let Some(problem) = &self.client_problem {
            return Some(problem.clone());
        }
        let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for index in &self.indexes {
            if let Some(reason) = &index.interruption {
                reasons.entry(reason).or_default().push(index.name());
            }
        }
        let texts = reasons.into_iter();
        let texts: Vec<String> = texts
            .map(|(reason, names)| format!("{}: {reason}", names.join(", ")))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    fn report(&self) -> SourceReport {
        let mut problems = DiagnosticCollector::default();
        for diagnostic in self.indexes.iter().flat_map(ObjectIndex::diagnostics) {
            problems.add(diagnostic.clone());
        }
        let problem = self.snapshot.as_ref().and_then(SourceSnapshot::problem);
        problem
            .into_iter()
            .for_each(|problem| problems.add(problem.clone()));
        SourceReport {
            files: self.indexes.iter().map(ObjectIndex::len).sum(),
            problems,
            ignored: BTreeMap::new(),
            absent: self.absent(),
        }
    }
}
