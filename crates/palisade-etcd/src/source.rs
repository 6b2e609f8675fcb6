//! The source: reads everything at one revision, then follows the changes; again from where it was after a
//! failure, or from the beginning if etcd does not keep the revisions since then.

use crate::client::{EtcdClient, WatchStream};
use crate::error::EtcdError;
use crate::key_index::KeyChanges;
use crate::key_layout::KeyArea;
use crate::messages::{KeyValue, WatchResponse};
use crate::options::EtcdOptions;
use crate::progress::{AnswerEffect, EtcdProgress, MAX_CHANGES};
use crate::reader::{ReadPoint, is_kept, prefix_end, read_point, read_prefix};
use palisade_source::{Backoff, DeltaSink, SnapshotStore, Source, SourceError};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Changes are passed on once none arrived for so long, and at the latest after so long.
const SETTLE: Duration = Duration::from_millis(5);
const MAX_DELAY: Duration = Duration::from_millis(50);
/// The interval at which etcd is asked whether it still watches.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(20);
/// A watch in which nothing arrives for so long is continued on another connection.
const SILENCE: Duration = Duration::from_secs(60);
/// The interval at which the snapshot takes note that etcd is followed.
const MARK_INTERVAL: Duration = Duration::from_secs(60);

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
            progress: EtcdProgress::new(&options.prefix, snapshot),
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
            let Err(ended) = self.session(&mut client, &mut backoff, sink).await;
            let error = match ended {
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

    /// Follows etcd over one connection, until it fails.
    async fn session(
        &mut self,
        client: &mut EtcdClient,
        backoff: &mut Backoff,
        sink: DeltaSink<'_>,
    ) -> Result<Infallible, SessionEnd> {
        let progress = &mut self.progress;
        let point = read_point(client, &progress.layout).await?;
        progress.check_position(&point);
        if let Some(revision) = progress.revision()
            && !is_kept(client, &progress.layout, revision).await?
        {
            progress.forget_position();
        }
        let after = match progress.revision() {
            Some(revision) => revision,
            None => {
                read(progress, client, &point, sink).await?;
                point.revision
            }
        };
        let all = progress.layout.all();
        let mut watch = client.watch(&all, prefix_end(&all), after + 1).await?;
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
                        tracing::info!(endpoint = watch.endpoint(), "following etcd");
                        is_followed = true;
                        backoff.reset();
                    }
                    take_answers(progress, client, &mut watch, answer, sink).await?;
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

/// Reads everything at the revision of `point`.
async fn read(
    progress: &mut EtcdProgress,
    client: &mut EtcdClient,
    point: &ReadPoint,
    sink: DeltaSink<'_>,
) -> Result<(), SessionEnd> {
    let mut prefixes = vec![(KeyArea::Direct, progress.layout.direct())];
    prefixes.extend(point.pointer.iter().map(|pointer| {
        let prefix = progress.layout.bundle(&pointer.bundle);
        (KeyArea::Pushed, prefix)
    }));
    let mut values = Vec::new();
    for (area, prefix) in &prefixes {
        let take = |page: Vec<KeyValue>| {
            for kv in page {
                let key = String::from_utf8_lossy(&kv.key);
                let path = key.get(prefix.len()..).unwrap_or_default();
                values.push(((*area, path.into()), kv));
            }
        };
        read_prefix(client, prefix, point.revision, take).await?;
    }
    closed(progress.take_read(point, values, sink))
}

/// Takes in an answer of the watch and those that follow at once, and passes on what they change.
async fn take_answers(
    progress: &mut EtcdProgress,
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
        let endpoint = watch.endpoint();
        match next.and_then(|answer| progress.take_answer(endpoint, answer, &mut changes)) {
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
        progress.set_followed();
    }
    // Also before an error: what the answers before it changed was taken in.
    closed(progress.pass_on(changes, Some(detected_at.into_std()), sink))?;
    if ended? == AnswerEffect::OtherBundle {
        let point = read_point(client, &progress.layout).await?;
        read(progress, client, &point, sink).await?;
    }
    Ok(())
}
