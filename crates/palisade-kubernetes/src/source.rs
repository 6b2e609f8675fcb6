//! The source: the watches of all resources, and what they change together.

use crate::api_client::{ApiServerClient, Credentials};
use crate::api_discovery::ApiDiscovery;
use crate::list::ObjectIdentity;
use crate::object_index::ObjectIndex;
use crate::resource::RESOURCES;
use crate::resource_event::ResourceEvent;
use crate::resource_watch::ResourceWatch;
use palisade_effective::{DiagnosticCollector, SharedId, SourceReport};
use palisade_remote::{ChangeBatch, Follower, MAX_CHANGES, Remote, RemoteChanges, RemoteObjects};
use palisade_source::{SnapshotEntry, SnapshotMark};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;

/// The number of events that wait for the receiver.
const QUEUE: usize = 1_000;
/// The shortest delay until an optional resource that the server does not have is asked for again; the longest
/// is half as long again.
const ABSENT_INTERVAL: Duration = Duration::from_secs(60);
/// Why the resources of a snapshot are not followed.
const NO_ANSWER: &str = "the API server has not answered since the agent started";

/// A Kubernetes API server, for [`palisade_remote::RemoteSource`]; see the module documentation of the crate.
pub struct ApiServer {
    credentials: Credentials,
    absent_interval: Duration,
}

/// What was received of all resources.
pub struct ApiServerObjects {
    indexes: Vec<ObjectIndex>,
    /// Why no request was made yet.
    client_problem: Option<String>,
}

impl ApiServer {
    /// The server that the credentials are for.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        ApiServer {
            credentials,
            absent_interval: ABSENT_INTERVAL,
        }
    }

    /// Sets the shortest delay until an optional resource that the server does not have is asked for again.
    #[must_use]
    pub fn with_absent_interval(mut self, interval: Duration) -> Self {
        self.absent_interval = interval;
        self
    }

    /// The client, once there is one.
    async fn client(
        &self,
        follower: &mut Follower<'_, ApiServerObjects>,
    ) -> ControlFlow<(), ApiServerClient> {
        loop {
            match ApiServerClient::new(&self.credentials).await {
                Ok(client) => return ControlFlow::Continue(client),
                Err(error) => {
                    tracing::warn!(%error, "the API server cannot be used; retrying");
                    follower.progress.objects.client_problem = Some(error.to_string());
                    let nothing = follower.progress.no_changes();
                    follower.pass_on(nothing, None)?;
                }
            }
            follower.wait_for_retry().await?;
        }
    }
}

impl Remote for ApiServer {
    const KIND: &'static str = "kubernetes";
    const SERVER: &'static str = "the API server";

    type Objects = ApiServerObjects;

    fn location(&self) -> String {
        self.credentials.location()
    }

    fn objects(&self) -> ApiServerObjects {
        ApiServerObjects {
            indexes: RESOURCES.into_iter().map(ObjectIndex::new).collect(),
            client_problem: None,
        }
    }

    async fn follow(&mut self, mut follower: Follower<'_, ApiServerObjects>) -> ControlFlow<()> {
        let client = self.client(&mut follower).await?;
        follower.progress.objects.client_problem = None;
        tracing::info!(server = client.address(), "following the API server");
        let (events, mut received) = channel(QUEUE);
        let mut watches = JoinSet::new();
        // An answer counts for less than the shortest delay, so that none is late by more than that.
        let discovery = ApiDiscovery::new(client.clone(), self.absent_interval / 2);
        let discovery = Arc::new(discovery);
        for (number, resource) in RESOURCES.into_iter().enumerate() {
            let random = SmallRng::from_rng(&mut follower.random);
            let server = (client.clone(), Arc::clone(&discovery));
            let (events, interval) = (events.clone(), self.absent_interval);
            let watch = ResourceWatch::new(server, resource, number, events, random, interval);
            watches.spawn(watch.run());
        }
        drop(events);
        loop {
            let next = async {
                tokio::select! {
                    event = received.recv() => Ok(event),
                    ended = watches.join_next() => Err(ended),
                }
            };
            match follower.next(next).await? {
                Ok(Some(first)) => take_batch(&mut follower, first, &mut received).await?,
                Ok(None) => return ControlFlow::Continue(()),
                // None ends while its events are received.
                Err(ended) => {
                    tracing::error!(?ended, "a watch of the API server ended");
                    return ControlFlow::Break(());
                }
            }
        }
    }
}

/// Takes in an event and those that follow at once, and passes on what they change.
async fn take_batch(
    follower: &mut Follower<'_, ApiServerObjects>,
    first: (usize, ResourceEvent),
    received: &mut Receiver<(usize, ResourceEvent)>,
) -> ControlFlow<()> {
    let batch = ChangeBatch::begin();
    let mut changes = follower.progress.no_changes();
    let objects = &mut follower.progress.objects;
    objects.apply(first, &mut changes);
    while changes.len() < MAX_CHANGES {
        match batch.next(received.recv()).await {
            Some(Some(event)) => objects.apply(event, &mut changes),
            Some(None) | None => break,
        }
    }
    follower.pass_on(changes, Some(batch.detected_at()))
}

impl ApiServerObjects {
    fn apply(
        &mut self,
        (number, event): (usize, ResourceEvent),
        changes: &mut RemoteChanges<SharedId>,
    ) {
        if let Some(index) = self.indexes.get_mut(number) {
            index.apply(event, changes);
        }
    }
}

impl RemoteObjects for ApiServerObjects {
    type Key = SharedId;

    // As if it were listed: an object that the server still has is no change afterwards, and one that it has no
    // more goes with the first complete list.
    fn restore(&mut self, entry: SnapshotEntry<'_>, changes: &mut RemoteChanges<SharedId>) {
        let resource = entry.key.split('/').next().unwrap_or_default();
        let mut indexes = self.indexes.iter_mut();
        let Some(index) = indexes.find(|index| index.name() == resource) else {
            return;
        };
        let identity = ObjectIdentity {
            resource_version: entry.version.to_owned(),
            ..ObjectIdentity::of(entry.text)
        };
        index.apply(ResourceEvent::Object(identity, entry.text.into()), changes);
    }

    fn restored(&mut self, mark: &SnapshotMark) {
        for index in &mut self.indexes {
            if mark.complete.iter().any(|part| part == index.name()) {
                index.is_listed = true;
                index.interruption = Some(NO_ANSWER.to_owned());
            }
        }
    }

    fn in_sync(&self) -> bool {
        self.indexes.iter().all(|index| index.is_listed)
    }

    // With the resources of each reason.
    fn stale(&self) -> Option<String> {
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

    fn parts(&self) -> Vec<&str> {
        self.indexes.iter().map(ObjectIndex::name).collect()
    }

    fn absent(&self) -> Vec<String> {
        let absent = self.indexes.iter().filter(|index| index.is_absent);
        absent.map(|index| index.name().to_owned()).collect()
    }

    fn report(&self) -> SourceReport {
        let mut problems = DiagnosticCollector::default();
        for diagnostic in self.indexes.iter().flat_map(ObjectIndex::diagnostics) {
            problems.add(diagnostic.clone());
        }
        SourceReport {
            files: self.indexes.iter().map(ObjectIndex::len).sum(),
            problems,
            ignored: BTreeMap::new(),
            absent: self.absent(),
        }
    }
}
