//! The queue of the core: ordered, bounded, with merged notifications; and the loop that empties it.
//!
//! Promises: at most one notification of each kind is queued (kernel changes, configuration file);
//! later ones are merged into it. A source blocks on its next batch until the last one is taken. At
//! most [`MAX_WAITING`] client requests of each class are queued (of container runtimes, those for the pods of a
//! whole node), and more are rejected; so the queue is bounded whatever the senders do. Attaches that wait together are taken as one event, and so are CNI
//! DELs: at most [`MAX_OPERATION_BATCH`], and no two about the same object; they overtake reads only. The
//! health of the core is kept beside the queue, so probes never wait.
//!
//! Never: reorders events except by merging, or drops anything but client requests.

use crate::core::{
    Core, CoreEvent, CoreRequest, OperationAnswer, QueuedAttach, QueuedDetach, QueuedOperation,
};
use crate::page_cache::PageCaches;
use palisade_api::{CniAttachment, CniResponse, Status};
use palisade_dataplane::Counters;
use palisade_enforcer::enforcer::NOT_IN_SYNC_REASON;
use palisade_name_manager::answer_link::OfferedAnswer;
use palisade_node::host_changes::HostChanges;
use palisade_node::workload_store::WorkloadRecord;
use palisade_sys::netns::NetNsOpener;
use palisade_views::metrics::collect_metrics;
use palisade_views::metrics::exposition::Exposition;
use palisade_views::status::status;
use palisade_workloads::access::OperationClass;
use palisade_workloads::workloads::WorkloadError;
use palisade_workloads::workloads::attach::{AttachRequest, OperationKey, container_key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

/// The maximum number of queued client requests of each class but that of container runtimes.
pub const MAX_WAITING: usize = 256;

/// The maximum number of queued requests of container runtimes: a starting node adds all of its pods at once, and asks
/// twice for each at most. Kubernetes runs up to 500 pods on a node.
const MAX_WAITING_OF_RUNTIMES: usize = 1_024;

/// The maximum number of attaches or detaches in one event: they are answered together, and other events
/// wait.
pub const MAX_OPERATION_BATCH: usize = 64;

/// The maximum number of flows that are explained at once: each takes a copy of all objects.
const MAX_EXPLANATIONS: usize = 2;

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
    Detach(OperationClass, QueuedDetach),
    /// At most one of each of these is queued; their data is kept in [`QueueState`].
    HostChanged,
    Tampered,
    ConfigChanged,
    Answers,
}

type EventQueue = VecDeque<QueuedEvent>;
/// Takes the next event if it is an operation of one kind.
type PopOperation<R, T> = fn(&mut EventQueue) -> Option<(OperationClass, QueuedOperation<R, T>)>;

#[derive(Default)]
struct QueueState {
    queue: EventQueue,
    host_changes: Option<(HostChanges, Instant)>,
    tampered: Option<(String, Instant)>,
    config_changed: bool,
    answers: Vec<OfferedAnswer>,
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
    page_cache: Arc<PageCaches>,
    /// What opens namespaces, once the core has been asked for it.
    opener: Arc<OnceCell<Option<NetNsOpener>>>,
    /// How many flows can be explained at once.
    explanations: Arc<Semaphore>,
}

/// The receiving end of the queue, for the core.
pub struct EventReceiver(Arc<SharedQueue>);

impl CoreHandle {
    /// Creates a queue; returns both ends.
    pub fn channel() -> (CoreHandle, EventReceiver) {
        let shared = Arc::new(SharedQueue::default());
        shared.lock().health.unready = vec![NOT_IN_SYNC_REASON.to_owned()];
        let handle = CoreHandle {
            sender: Arc::new(QueueSender(Arc::clone(&shared))),
            page_cache: Arc::default(),
            opener: Arc::default(),
            explanations: Arc::new(Semaphore::new(MAX_EXPLANATIONS)),
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
        class: OperationClass,
        request: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, CoreUnavailable> {
        let (answer, response) = tokio::sync::oneshot::channel();
        let request: CoreRequest = Box::new(move |core| {
            if class == OperationClass::Read && answer.is_closed() {
                return;
            }
            let _ = answer.send(request(core));
        });
        self.enqueue(class, QueuedEvent::Request(class, request))?;
        response.await.map_err(|_| CoreUnavailable::Stopped)
    }

    /// Sends a client's request to attach; `respond` runs on the core's thread when the policy of the
    /// workload is in the kernel, or the attach has failed.
    ///
    /// # Errors
    /// If too many requests of its class are queued, or the core has stopped.
    pub async fn attach_for_client<T: Send + 'static>(
        &self,
        class: OperationClass,
        request: AttachRequest,
        respond: impl FnOnce(&mut Core, Result<WorkloadRecord, WorkloadError>) -> T + Send + 'static,
    ) -> Result<T, CoreUnavailable> {
        let queued = |attach| QueuedEvent::Attach(class, attach);
        self.run_for_client(class, request, queued, respond).await
    }

    /// Sends a container runtime's request to detach; `respond` runs on the core's thread when the workload
    /// is gone, or the detach has failed.
    ///
    /// # Errors
    /// If too many requests of its class are queued, or the core has stopped.
    pub async fn detach_for_client<T: Send + 'static>(
        &self,
        attachment: CniAttachment,
        respond: impl FnOnce(&mut Core, Result<CniResponse, WorkloadError>) -> T + Send + 'static,
    ) -> Result<T, CoreUnavailable> {
        let class = OperationClass::Runtime;
        let queued = |detach| QueuedEvent::Detach(class, detach);
        self.run_for_client(class, attachment, queued, respond)
            .await
    }

    async fn run_for_client<R, T, A: Send + 'static>(
        &self,
        class: OperationClass,
        request: R,
        queued: impl FnOnce(QueuedOperation<R, T>) -> QueuedEvent,
        respond: impl FnOnce(&mut Core, Result<T, WorkloadError>) -> A + Send + 'static,
    ) -> Result<A, CoreUnavailable> {
        let (answer, response) = tokio::sync::oneshot::channel();
        let answer: OperationAnswer<T> = Box::new(move |core, result| {
            // The receiver may have stopped waiting.
            let _ = answer.send(respond(core, result));
        });
        self.enqueue(class, queued(QueuedOperation { request, answer }))?;
        response.await.map_err(|_| CoreUnavailable::Stopped)
    }

    fn enqueue(&self, class: OperationClass, event: QueuedEvent) -> Result<(), CoreUnavailable> {
        let mut state = self.lock();
        if state.health.stopped {
            return Err(CoreUnavailable::Stopped);
        }
        let count = state.requests.entry(class).or_default();
        let limit = match class {
            OperationClass::Runtime => MAX_WAITING_OF_RUNTIMES,
            _ => MAX_WAITING,
        };
        if *count >= limit {
            return Err(CoreUnavailable::Busy);
        }
        *count += 1;
        if class != OperationClass::Read {
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
        class: OperationClass,
    ) -> Result<Option<NetNsOpener>, CoreUnavailable> {
        let opener = self
            .opener
            .get_or_try_init(|| self.ask_for_client(class, |core| core.parts().0.network.opener()));
        opener.await.cloned()
    }

    /// A permit to explain a flow, which is held until it is explained; `None` if the agent ends.
    pub(crate) async fn explanation_permit(&self) -> Option<OwnedSemaphorePermit> {
        let permits = Arc::clone(&self.explanations);
        permits.acquire_owned().await.ok()
    }

    /// `GET /v1/status`, at most one second old.
    ///
    /// # Errors
    /// As [`CoreHandle::ask_for_client`].
    pub async fn status(&self) -> Result<Arc<Status>, CoreUnavailable> {
        let build = self.ask_for_page(|core, counters| {
            let mut status = status(&core.snapshot(), counters);
            let conditions = core.flow_outputs().conditions();
            status.dataplane.conditions.extend(conditions);
            status
        });
        let changes = || self.change_counter();
        self.page_cache.status.get(changes, build).await
    }

    /// `GET /metrics`, without the API's own metrics, at most one second old.
    ///
    /// # Errors
    /// As [`CoreHandle::ask_for_client`].
    pub async fn metrics(&self) -> Result<Arc<Exposition>, CoreUnavailable> {
        let build = async {
            let asked = self.ask_for_page(|core, counters| {
                let page = collect_metrics(&core.snapshot(), counters);
                (page, core.flow_outputs().clone(), core.clock().monotonic())
            });
            let ((mut page, outputs, now), took) = asked.await?;
            // There may be very many series of flows: neither the core nor other clients wait for their text.
            let added = tokio::task::spawn_blocking(move || {
                outputs.add_metrics(&mut page, now);
                page
            });
            let page = added.await.map_err(|_| CoreUnavailable::Stopped)?;
            Ok((page, took))
        };
        let changes = || self.change_counter();
        self.page_cache.metrics.get(changes, build).await
    }

    /// Builds a page, and measures how long that takes.
    async fn ask_for_page<T: Send + 'static>(
        &self,
        build: fn(&Core, Option<&Counters>) -> T,
    ) -> Result<(T, Duration), CoreUnavailable> {
        let timed = move |core: &mut Core| {
            let began = core.clock().monotonic();
            let counters = core.parts().1.enforcer.recent_counters();
            let page = build(core, counters.as_deref());
            (page, core.clock().monotonic() - began)
        };
        self.ask_for_client(OperationClass::Read, timed).await
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
        self.change_counter += 1;
        let entry = match event {
            CoreEvent::HostChanged {
                changes,
                detected_at,
            } => match &mut self.host_changes {
                Some((pending, _)) => return pending.merge(changes),
                slot => {
                    *slot = Some((changes, detected_at));
                    QueuedEvent::HostChanged
                }
            },
            CoreEvent::Tampered { what, detected_at } => match &mut self.tampered {
                // Every verification compares all tables, so one is enough.
                Some(_) => return,
                slot => {
                    *slot = Some((what, detected_at));
                    QueuedEvent::Tampered
                }
            },
            CoreEvent::Answers(answers) => {
                let is_first = self.answers.is_empty();
                self.answers.extend(answers);
                if !is_first {
                    return;
                }
                QueuedEvent::Answers
            }
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
            QueuedEvent::Request(class, request) => {
                self.release_slot(class);
                CoreEvent::Request(request)
            }
            QueuedEvent::Attach(class, attach) => {
                self.release_slot(class);
                CoreEvent::Attach(self.pop_batch(attach, AttachRequest::keys, pop_attach))
            }
            QueuedEvent::Detach(class, detach) => {
                self.release_slot(class);
                CoreEvent::Detach(self.pop_batch(detach, detach_keys, pop_detach))
            }
            QueuedEvent::HostChanged => {
                let (changes, detected_at) = self.host_changes.take()?;
                CoreEvent::HostChanged {
                    changes,
                    detected_at,
                }
            }
            QueuedEvent::Tampered => {
                let (what, detected_at) = self.tampered.take()?;
                CoreEvent::Tampered { what, detected_at }
            }
            QueuedEvent::Answers => CoreEvent::Answers(std::mem::take(&mut self.answers)),
            QueuedEvent::ConfigChanged => {
                self.config_changed = false;
                CoreEvent::ConfigChanged
            }
        };
        Some(event)
    }

    fn release_slot(&mut self, class: OperationClass) {
        if let Some(waiting) = self.requests.get_mut(&class) {
            *waiting = waiting.saturating_sub(1);
        }
    }

    /// Takes the operations that can be in one batch with the first; `pop` takes the next event if it is of
    /// its kind.
    fn pop_batch<R, T>(
        &mut self,
        first: QueuedOperation<R, T>,
        keys: fn(&R) -> BTreeSet<OperationKey>,
        pop: PopOperation<R, T>,
    ) -> Vec<QueuedOperation<R, T>> {
        let mut batch_keys = keys(&first.request);
        let mut batch = vec![first];
        let mut reads = VecDeque::new();
        while batch.len() < MAX_OPERATION_BATCH {
            // An operation about an object of the batch waits for it, and so does everything behind it.
            let next_keys = match self.queue.front() {
                Some(QueuedEvent::Attach(_, attach)) => attach.request.keys(),
                Some(QueuedEvent::Detach(_, detach)) => detach_keys(&detach.request),
                _ => BTreeSet::new(),
            };
            if !next_keys.is_disjoint(&batch_keys) {
                break;
            }
            if let Some((class, operation)) = pop(&mut self.queue) {
                self.release_slot(class);
                batch_keys.extend(next_keys);
                batch.push(operation);
                continue;
            }
            match self.queue.front() {
                Some(QueuedEvent::Request(OperationClass::Read, _)) => {
                    reads.extend(self.queue.pop_front());
                }
                _ => break,
            }
        }
        reads.append(&mut self.queue);
        self.queue = reads;
        batch
    }
}

/// Takes the next event if it is an attach.
fn pop_attach(queue: &mut EventQueue) -> Option<(OperationClass, QueuedAttach)> {
    match queue.pop_front()? {
        QueuedEvent::Attach(class, attach) => Some((class, attach)),
        other => {
            queue.push_front(other);
            None
        }
    }
}

/// Takes the next event if it is a CNI DEL.
fn pop_detach(queue: &mut EventQueue) -> Option<(OperationClass, QueuedDetach)> {
    match queue.pop_front()? {
        QueuedEvent::Detach(class, detach) => Some((class, detach)),
        other => {
            queue.push_front(other);
            None
        }
    }
}

/// What a CNI DEL is about: see [`AttachRequest::keys`].
fn detach_keys(attachment: &CniAttachment) -> BTreeSet<OperationKey> {
    [container_key(attachment)].into()
}

/// Handles events until a stop event arrives or all senders are gone.
pub fn run_core(mut core: Core, events: &EventReceiver) {
    loop {
        events.mark_idle(core.unready_reasons());
        let now = core.clock().monotonic();
        let due = core.retry_due();
        let timeout = due.map(|at| at.saturating_duration_since(now));
        // What is due is not put off by events that keep arriving.
        let event = match timeout {
            Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
            _ => events.next(timeout),
        };
        events.mark_busy(core.clock().monotonic());
        match event {
            Ok(CoreEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(event) => core.handle_event(event),
            Err(RecvTimeoutError::Timeout) => {
                events.mark_changed();
                core.retry_failed();
            }
        }
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
    fn mark_busy(&self, now: Instant) {
        self.0.lock().health.busy_since = Some(now);
    }

    /// The core has handled an event; sets its health.
    fn mark_idle(&self, unready: Vec<String>) {
        let health = &mut self.0.lock().health;
        health.busy_since = None;
        health.unready = unready;
    }

    /// The core's responses have changed without an event.
    fn mark_changed(&self) {
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
