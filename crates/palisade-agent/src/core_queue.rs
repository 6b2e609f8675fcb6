//! The queue of the core: ordered, bounded, with merged notifications.
//!
//! Promises: at most one notification of each kind is queued (kernel changes, configuration file);
//! later ones are merged into it. A source blocks on its next batch until the last one is taken. At
//! most [`MAX_WAITING`] client requests of each class are queued, and more are rejected; so the queue
//! is bounded whatever the senders do. Attaches that wait together are taken as one event, at most
//! [`MAX_ATTACH_BATCH`] and no two about the same object; they overtake reads only. The health of the core is
//! kept beside the queue, so probes never
//! wait.
//!
//! Never: reorders events except by merging, or drops anything but client requests.

use crate::attach::AttachRequest;
use crate::core::{AttachAnswer, Core, CoreEvent, CoreRequest, QueuedAttach};
use crate::host::HostChanges;
use crate::http::OperationClass;
use crate::page_cache::PageCaches;
use crate::workload_store::WorkloadRecord;
use crate::workloads::WorkloadError;
use palisade_sys::netns::NetNsOpener;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// The maximum number of queued client requests of each class.
pub const MAX_WAITING: usize = 256;

/// The maximum number of attaches in one event: they are answered together, and other events wait.
pub const MAX_ATTACH_BATCH: usize = 64;

/// Why a client request was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreUnavailable {
    /// The core has stopped.
    Stopped,
    /// Too many requests are queued.
    Busy,
}

/// The health of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreHealth {
    /// When it began to handle the present event; `None`: it is idle.
    pub busy_since: Option<Instant>,
    /// Why the kernel does not hold the policy of the source.
    pub unready: Vec<String>,
    /// Whether it has stopped.
    pub stopped: bool,
}

enum QueuedEvent {
    Event(CoreEvent),
    Request(OperationClass, CoreRequest),
    Attach(OperationClass, QueuedAttach),
    /// At most one of each of these is queued; their data is kept in [`QueueState`].
    HostChanged,
    Tampered,
    ConfigChanged,
}

#[derive(Default)]
struct QueueState {
    queue: VecDeque<QueuedEvent>,
    host_changes: Option<(HostChanges, Instant)>,
    tampered: Option<(String, Instant)>,
    config_changed: bool,
    requests: BTreeMap<OperationClass, usize>,
    batches: usize,
    /// Incremented by every event that may change the core's responses.
    change_counter: u64,
    health: CoreHealth,
    /// All senders are gone.
    senders_gone: bool,
}

#[derive(Default)]
struct SharedQueue {
    state: Mutex<QueueState>,
    /// An event is queued, or all senders are gone.
    not_empty: Condvar,
    /// A batch was taken, or the receiver is gone.
    batch_taken: Condvar,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When the last clone is dropped, the core stops.
struct QueueSender(Arc<SharedQueue>);

impl Drop for QueueSender {
    fn drop(&mut self) {
        self.0.lock().senders_gone = true;
        self.0.not_empty.notify_all();
    }
}

/// The sending end of the queue.
#[derive(Clone)]
pub struct CoreHandle {
    sender: Arc<QueueSender>,
    /// Cached responses.
    pub(crate) page_cache: Arc<PageCaches>,
    /// What opens namespaces, once the core has been asked for it.
    opener: Arc<OnceCell<Option<NetNsOpener>>>,
}

/// The receiving end of the queue, for the core.
pub struct EventReceiver(Arc<SharedQueue>);

impl CoreHandle {
    /// Creates a queue; returns both ends.
    pub fn channel() -> (CoreHandle, EventReceiver) {
        let shared = Arc::new(SharedQueue::default());
        shared.lock().health.unready = vec![crate::report::NOT_IN_SYNC_REASON.to_owned()];
        let handle = CoreHandle {
            sender: Arc::new(QueueSender(Arc::clone(&shared))),
            page_cache: Arc::default(),
            opener: Arc::default(),
        };
        (handle, EventReceiver(shared))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.sender.0.lock()
    }

    /// Queues an event; false if the core has stopped. A batch of the source blocks here until the last
    /// one is taken.
    pub fn send(&self, event: CoreEvent) -> bool {
        let mut state = self.lock();
        if matches!(event, CoreEvent::Source(_)) {
            while state.batches > 0 && !state.health.stopped {
                let woken = self.sender.0.batch_taken.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
            state.batches += 1;
        }
        if state.health.stopped {
            return false;
        }
        state.push(event);
        drop(state);
        self.sender.0.not_empty.notify_one();
        true
    }

    /// Sends a request and waits for the response; `None` if the core has stopped. For the agent's own
    /// use, which is limited to one request at a time.
    pub async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, response) = tokio::sync::oneshot::channel();
        let request: CoreRequest = Box::new(move |core| {
            // The receiver may have stopped waiting.
            let _ = answer.send(request(core));
        });
        if !self.send(CoreEvent::Request(request)) {
            return None;
        }
        response.await.ok()
    }

    /// Sends a client request. A read is skipped if the client disconnects before it runs.
    ///
    /// # Errors
    /// If too many requests of its class are queued, or the core has stopped.
    pub async fn ask_for_client<T: Send + 'static>(
        &self,
        lane: OperationClass,
        request: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, CoreUnavailable> {
        let (answer, response) = tokio::sync::oneshot::channel();
        let request: CoreRequest = Box::new(move |core| {
            if lane == OperationClass::Read && answer.is_closed() {
                return;
            }
            let _ = answer.send(request(core));
        });
        self.enqueue(lane, QueuedEvent::Request(lane, request))?;
        response.await.map_err(|_| CoreUnavailable::Stopped)
    }

    /// Sends a client's request to attach; `respond` runs on the core's thread when the policy of the
    /// workload is in the kernel, or the attach has failed.
    ///
    /// # Errors
    /// If too many requests of its class are queued, or the core has stopped.
    pub async fn attach_for_client<T: Send + 'static>(
        &self,
        lane: OperationClass,
        request: AttachRequest,
        respond: impl FnOnce(&mut Core, Result<WorkloadRecord, WorkloadError>) -> T + Send + 'static,
    ) -> Result<T, CoreUnavailable> {
        let (answer, response) = tokio::sync::oneshot::channel();
        let answer: AttachAnswer = Box::new(move |core, result| {
            // The receiver may have stopped waiting.
            let _ = answer.send(respond(core, result));
        });
        let attach = QueuedAttach { request, answer };
        self.enqueue(lane, QueuedEvent::Attach(lane, attach))?;
        response.await.map_err(|_| CoreUnavailable::Stopped)
    }

    fn enqueue(&self, lane: OperationClass, event: QueuedEvent) -> Result<(), CoreUnavailable> {
        let mut state = self.lock();
        if state.health.stopped {
            return Err(CoreUnavailable::Stopped);
        }
        let count = state.requests.entry(lane).or_default();
        if *count >= MAX_WAITING {
            return Err(CoreUnavailable::Busy);
        }
        *count += 1;
        if lane != OperationClass::Read {
            state.change_counter += 1;
        }
        state.queue.push_back(event);
        drop(state);
        self.sender.0.not_empty.notify_one();
        Ok(())
    }

    /// Opens namespaces outside the core's thread; `None` on a host without namespaces. The core is asked
    /// once.
    ///
    /// # Errors
    /// As [`CoreHandle::ask_for_client`].
    pub async fn opener(
        &self,
        lane: OperationClass,
    ) -> Result<Option<NetNsOpener>, CoreUnavailable> {
        let opener = self
            .opener
            .get_or_try_init(|| self.ask_for_client(lane, |core| core.opener()));
        opener.await.cloned()
    }

    /// The health of the core, read without a request.
    pub fn health(&self) -> CoreHealth {
        self.lock().health.clone()
    }

    /// A counter that changes with every event that may change the core's responses.
    pub fn change_counter(&self) -> u64 {
        self.lock().change_counter
    }

    /// The number of queued events.
    pub fn queue_length(&self) -> usize {
        self.lock().queue.len()
    }
}

impl QueueState {
    fn push(&mut self, event: CoreEvent) {
        // Packets do not appear in any cached response.
        if !matches!(event, CoreEvent::Packets(_)) {
            self.change_counter += 1;
        }
        let entry = match event {
            CoreEvent::HostChanged {
                changes,
                detected_at: seen,
            } => match &mut self.host_changes {
                Some((pending, _)) => return pending.merge(changes),
                slot => {
                    *slot = Some((changes, seen));
                    QueuedEvent::HostChanged
                }
            },
            CoreEvent::Tampered {
                what,
                detected_at: seen,
            } => match &mut self.tampered {
                // Every verification compares all tables, so one is enough.
                Some(_) => return,
                slot => {
                    *slot = Some((what, seen));
                    QueuedEvent::Tampered
                }
            },
            CoreEvent::ConfigChanged if self.config_changed => return,
            CoreEvent::ConfigChanged => {
                self.config_changed = true;
                QueuedEvent::ConfigChanged
            }
            other => QueuedEvent::Event(other),
        };
        self.queue.push_back(entry);
    }

    fn pop(&mut self) -> Option<CoreEvent> {
        let event = match self.queue.pop_front()? {
            QueuedEvent::Event(event) => {
                if matches!(event, CoreEvent::Source(_)) {
                    self.batches = self.batches.saturating_sub(1);
                }
                event
            }
            QueuedEvent::Request(lane, question) => {
                self.release_slot(lane);
                CoreEvent::Request(question)
            }
            QueuedEvent::Attach(lane, attach) => {
                self.release_slot(lane);
                CoreEvent::Attach(self.pop_attaches(attach))
            }
            QueuedEvent::HostChanged => {
                let (changes, seen) = self.host_changes.take()?;
                CoreEvent::HostChanged {
                    changes,
                    detected_at: seen,
                }
            }
            QueuedEvent::Tampered => {
                let (what, seen) = self.tampered.take()?;
                CoreEvent::Tampered {
                    what,
                    detected_at: seen,
                }
            }
            QueuedEvent::ConfigChanged => {
                self.config_changed = false;
                CoreEvent::ConfigChanged
            }
        };
        Some(event)
    }

    fn release_slot(&mut self, lane: OperationClass) {
        if let Some(waiting) = self.requests.get_mut(&lane) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Takes the attaches that can be in one batch with the first.
    fn pop_attaches(&mut self, first: QueuedAttach) -> Vec<QueuedAttach> {
        let mut keys = first.request.keys();
        let mut batch = vec![first];
        let mut later = VecDeque::new();
        while batch.len() < MAX_ATTACH_BATCH {
            match self.queue.pop_front() {
                Some(QueuedEvent::Attach(lane, next)) => {
                    let of_next = next.request.keys();
                    if !of_next.is_disjoint(&keys) {
                        self.queue.push_front(QueuedEvent::Attach(lane, next));
                        break;
                    }
                    self.release_slot(lane);
                    keys.extend(of_next);
                    batch.push(next);
                }
                Some(read @ QueuedEvent::Request(OperationClass::Read, _)) => later.push_back(read),
                Some(other) => {
                    self.queue.push_front(other);
                    break;
                }
                None => break,
            }
        }
        later.append(&mut self.queue);
        self.queue = later;
        batch
    }
}

impl EventReceiver {
    /// The next event; waits at most `timeout`, if given.
    ///
    /// # Errors
    /// If no event arrives in time, or all senders are gone.
    pub fn next(&self, timeout: Option<Duration>) -> Result<CoreEvent, RecvTimeoutError> {
        let idle = |state: &mut QueueState| state.queue.is_empty() && !state.senders_gone;
        let state = self.0.lock();
        let mut state = match timeout {
            None => {
                let woken = self.0.not_empty.wait_while(state, idle);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(patience) => {
                let woken = self.0.not_empty.wait_timeout_while(state, patience, idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let event = state.pop();
        let abandoned = state.senders_gone;
        drop(state);
        match event {
            Some(event) => {
                self.0.batch_taken.notify_one();
                Ok(event)
            }
            None if abandoned => Err(RecvTimeoutError::Disconnected),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    /// The core begins to handle an event.
    pub(crate) fn mark_busy(&self, now: Instant) {
        self.0.lock().health.busy_since = Some(now);
    }

    /// The core has handled an event; sets its health.
    pub(crate) fn mark_idle(&self, unready: Vec<String>) {
        let pulse = &mut self.0.lock().health;
        pulse.busy_since = None;
        pulse.unready = unready;
    }

    /// The core's responses have changed without an event.
    pub(crate) fn mark_changed(&self) {
        self.0.lock().change_counter += 1;
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.health.stopped = true;
        // Dropping the requests notifies their callers; this is done outside the lock.
        let unprocessed = std::mem::take(&mut state.queue);
        drop(state);
        drop(unprocessed);
        self.0.batch_taken.notify_all();
    }
}
