//! The source: reads everything at one revision, then follows the changes; again from where it was after a
//! failure, or from the beginning if etcd does not keep the revisions since then.

use crate::client::{EtcdClient, WatchStream};
use crate::error::EtcdError;
use crate::key_layout::KeyArea;
use crate::messages::{KeyValue, WatchResponse};
use crate::objects::{AnswerEffect, EtcdObjects, take_read};
use crate::options::EtcdOptions;
use crate::reader::{ReadPoint, is_kept, prefix_end, read_point, read_prefix};
use palisade_remote::{ChangeBatch, Follower, MAX_CHANGES, Remote};
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;

/// The interval at which etcd is asked whether it still watches.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(20);
/// A watch in which nothing arrives for so long is continued on another connection.
const SILENCE: Duration = Duration::from_secs(60);

/// A prefix of etcd, for [`palisade_remote::RemoteSource`]; see the module documentation of the crate.
pub struct Etcd {
    options: EtcdOptions,
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

impl Etcd {
    /// The prefix that the options name.
    #[must_use]
    pub fn new(options: EtcdOptions) -> Self {
        Etcd { options }
    }
}

impl Remote for Etcd {
    const KIND: &'static str = "etcd";
    const SERVER: &'static str = "etcd";

    type Objects = EtcdObjects;

    fn location(&self) -> String {
        self.options.location()
    }

    fn objects(&self) -> EtcdObjects {
        EtcdObjects::new(&self.options.prefix)
    }

    async fn follow(&mut self, mut follower: Follower<'_, EtcdObjects>) -> ControlFlow<()> {
        let mut client = EtcdClient::new(self.options.clone());
        loop {
            let Err(ended) = session(&mut client, &mut follower).await;
            let error = match ended {
                SessionEnd::Closed => return ControlFlow::Break(()),
                SessionEnd::Failed(error) => error,
            };
            tracing::debug!(%error, "etcd is not followed");
            client.disconnect();
            if follower.progress.objects.take_failure(&error) {
                let nothing = follower.progress.no_changes();
                follower.pass_on(nothing, None)?;
            }
            follower.wait_for_retry().await?;
        }
    }
}

/// Follows etcd over one connection, until it fails.
async fn session(
    client: &mut EtcdClient,
    follower: &mut Follower<'_, EtcdObjects>,
) -> Result<Infallible, SessionEnd> {
    let objects = &mut follower.progress.objects;
    let point = read_point(client, &objects.layout).await?;
    objects.check_position(&point);
    if let Some(revision) = objects.revision()
        && !is_kept(client, &objects.layout, revision).await?
    {
        objects.forget_position();
    }
    let after = match objects.revision() {
        Some(revision) => revision,
        None => {
            read(follower, client, &point).await?;
            point.revision
        }
    };
    let all = follower.progress.objects.layout.all();
    let mut watch = client.watch(&all, prefix_end(&all), after + 1).await?;
    let mut questions = tokio::time::interval(PROGRESS_INTERVAL);
    let silence = tokio::time::sleep(SILENCE);
    tokio::pin!(silence);
    let mut is_followed = false;
    loop {
        let answer = async {
            loop {
                tokio::select! {
                    answer = watch.next() => break Some(answer),
                    () = &mut silence => break None,
                    _ = questions.tick() => watch.request_progress(),
                }
            }
        };
        let Some(answer) = open(follower.next(answer).await)? else {
            return Err(watch
                .ended(&format!("no answer within {} s", SILENCE.as_secs()))
                .into());
        };
        let answer = answer?;
        silence
            .as_mut()
            .reset(tokio::time::Instant::now() + SILENCE);
        if !is_followed && !answer.canceled {
            tracing::info!(endpoint = watch.endpoint(), "following etcd");
            is_followed = true;
            follower.backoff.reset();
        }
        take_answers(follower, client, &mut watch, answer).await?;
    }
}

/// Nobody receives the changes: the connection is not used any more.
fn open<T>(flow: ControlFlow<(), T>) -> Result<T, SessionEnd> {
    match flow {
        ControlFlow::Continue(value) => Ok(value),
        ControlFlow::Break(()) => Err(SessionEnd::Closed),
    }
}

/// Reads everything at the revision of `point`.
async fn read(
    follower: &mut Follower<'_, EtcdObjects>,
    client: &mut EtcdClient,
    point: &ReadPoint,
) -> Result<(), SessionEnd> {
    let layout = &follower.progress.objects.layout;
    let mut prefixes = vec![(KeyArea::Direct, layout.direct())];
    prefixes.extend(point.pointer.iter().map(|pointer| {
        let prefix = layout.bundle(&pointer.bundle);
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
    let (progress, sink) = follower.split();
    open(take_read(progress, point, values, sink))
}

/// Takes in an answer of the watch and those that follow at once, and passes on what they change.
async fn take_answers(
    follower: &mut Follower<'_, EtcdObjects>,
    client: &mut EtcdClient,
    watch: &mut WatchStream,
    first: WatchResponse,
) -> Result<(), SessionEnd> {
    let batch = ChangeBatch::begin();
    let mut changes = follower.progress.no_changes();
    let objects = &mut follower.progress.objects;
    let mut next = Ok(first);
    let ended = loop {
        let endpoint = watch.endpoint();
        match next.and_then(|answer| objects.take_answer(endpoint, answer, &mut changes)) {
            Ok(AnswerEffect::Applied) => {}
            other => break other,
        }
        if changes.is_empty() || changes.len() >= MAX_CHANGES {
            break Ok(AnswerEffect::Applied);
        }
        match batch.next(watch.next()).await {
            Some(answer) => next = answer,
            None => break Ok(AnswerEffect::Applied),
        }
    };
    if ended.is_ok() {
        objects.set_followed();
    }
    // Also before an error: what the answers before it changed was taken in.
    open(follower.pass_on(changes, Some(batch.detected_at())))?;
    if ended? == AnswerEffect::OtherBundle {
        let point = read_point(client, &follower.progress.objects.layout).await?;
        read(follower, client, &point).await?;
    }
    Ok(())
}
