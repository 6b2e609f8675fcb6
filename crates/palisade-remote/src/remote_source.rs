//! A source that follows a server, on the thread that runs it.

use crate::follower::Follower;
use crate::progress::{RemoteObjects, RemoteProgress};
use palisade_source::{DeltaSink, SnapshotStore, Source, SourceError, SourceHandle};
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// A kind of server, and how it is followed.
pub trait Remote: Send {
    /// The kind of the source, for status: `kubernetes`.
    const KIND: &'static str;
    /// The server, for messages: `the API server`.
    const SERVER: &'static str;

    /// What the server has.
    type Objects: RemoteObjects + Send;

    /// Where the server is, for status.
    fn location(&self) -> String;

    /// Nothing is received yet.
    fn objects(&self) -> Self::Objects;

    /// Connects and follows the server, after the snapshot was passed on, until nobody receives the changes. It
    /// is dropped when the source is stopped.
    fn follow(
        &mut self,
        follower: Follower<'_, Self::Objects>,
    ) -> impl Future<Output = ControlFlow<()>>;
}

/// A source that follows a server.
pub struct RemoteSource<R: Remote> {
    remote: R,
    progress: RemoteProgress<R::Objects>,
    stop: (watch::Sender<bool>, watch::Receiver<bool>),
    refresh: Arc<Notify>,
}

impl<R: Remote> RemoteSource<R> {
    /// A source that has not connected yet; it begins with the snapshot, and keeps that up to date.
    #[must_use]
    pub fn new(remote: R, snapshot: Option<SnapshotStore>) -> Self {
        RemoteSource {
            progress: RemoteProgress::new(remote.objects(), R::SERVER, snapshot),
            remote,
            stop: watch::channel(false),
            refresh: Arc::default(),
        }
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> SourceHandle {
        let (stop, refresh) = (self.stop.0.clone(), Arc::clone(&self.refresh));
        SourceHandle::new(
            move || _ = stop.send_replace(true),
            move || refresh.notify_one(),
        )
    }
}

impl<R: Remote> Source for RemoteSource<R> {
    fn describe(&self) -> (String, String) {
        (R::KIND.to_owned(), self.remote.location())
    }

    fn run(&mut self, sink: DeltaSink<'_>) -> Result<(), SourceError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|cause| SourceError {
                action: format!("starting the client of {}", R::SERVER),
                cause: Box::new(cause),
            })?;
        let RemoteSource {
            remote,
            progress,
            stop: (_, stop),
            refresh,
        } = self;
        let follow = async {
            progress.restore(sink)?;
            remote.follow(Follower::new(progress, refresh, sink)).await
        };
        let mut stop = stop.clone();
        runtime.block_on(async {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                _ = follow => {}
            }
        });
        Ok(())
    }
}
