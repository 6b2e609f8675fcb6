//! What waits for the core: in order, bounded, and merged where once is enough.
//!
//! Promises: of notices of the kernel, and of the configuration file, one of each kind waits, however
//! many came; a source waits with its next batch until the last is taken; of clients' questions at
//! most [`MAX_WAITING`] of each kind wait, and more are refused; so what waits never grows with what
//! others do. Beside the queue stands how the core is, for probes, which wait for nobody.
//!
//! Never: reorders what it does not merge, or drops what is not a client's question.

use crate::core::{Core, CoreEvent, CoreRequest};
use crate::host::HostChanges;
use crate::http::OperationClass;
use crate::page_cache::PageCaches;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many questions of clients wait at most, of each kind.
pub const MAX_WAITING: usize = 256;

/// Why a client's question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreUnavailable {
    /// The core has ended.
    Stopped,
    /// Too many wait already.
    Busy,
}

/// How the core is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreHealth {
    /// When it began what it is at; `None`: it waits for something to do.
    pub busy_since: Option<Instant>,
    /// Why the kernel does not hold what the source says.
    pub unready: Vec<String>,
    /// Whether it has ended.
    pub stopped: bool,
}

enum QueuedEvent {
    Event(CoreEvent),
    Request(OperationClass, CoreRequest),
    /// One of each of these at most; what they carry is beside the queue.
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
    /// Rises with everything that may change what the core would answer.
    change_counter: u64,
    health: CoreHealth,
    /// Nobody can hand in anything any more.
    senders_gone: bool,
}

#[derive(Default)]
struct SharedQueue {
    state: Mutex<QueueState>,
    /// Something is there to be taken, or will never be.
    not_empty: Condvar,
    /// A batch was taken, or none will ever be.
    batch_taken: Condvar,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last of them to go tells the core.
struct QueueSender(Arc<SharedQueue>);

impl Drop for QueueSender {
    fn drop(&mut self) {
        self.0.lock().senders_gone = true;
        self.0.not_empty.notify_all();
    }
}

/// Hands events to the core.
#[derive(Clone)]
pub struct CoreHandle {
    sender: Arc<QueueSender>,
    /// Pages that many ask for.
    pub(crate) page_cache: Arc<PageCaches>,
}

/// The end of the queue that the core reads.
pub struct EventReceiver(Arc<SharedQueue>);

impl CoreHandle {
    /// A handle and the end the core reads.
    pub fn channel() -> (CoreHandle, EventReceiver) {
        let shared = Arc::new(SharedQueue::default());
        shared.lock().health.unready = vec![crate::report::NOT_IN_SYNC_REASON.to_owned()];
        let handle = CoreHandle {
            sender: Arc::new(QueueSender(Arc::clone(&shared))),
            page_cache: Arc::default(),
        };
        (handle, EventReceiver(shared))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.sender.0.lock()
    }

    /// Hands in an event; false if the core has stopped. A source's batch waits here until the last
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

    /// Asks the core and waits for its answer; `None` if it has stopped. For the agent itself, which
    /// asks one thing at a time.
    pub async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, response) = tokio::sync::oneshot::channel();
        let request: CoreRequest = Box::new(move |core| {
            // Whoever went away does not want its answer any more.
            let _ = answer.send(request(core));
        });
        if !self.send(CoreEvent::Request(request)) {
            return None;
        }
        response.await.ok()
    }

    /// Asks for a client. What only reads is left out if the client goes away before.
    ///
    /// # Errors
    /// If too many of its kind wait already, or the core has stopped.
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
        self.enqueue(lane, request)?;
        response.await.map_err(|_| CoreUnavailable::Stopped)
    }

    fn enqueue(&self, lane: OperationClass, request: CoreRequest) -> Result<(), CoreUnavailable> {
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
        state.queue.push_back(QueuedEvent::Request(lane, request));
        drop(state);
        self.sender.0.not_empty.notify_one();
        Ok(())
    }

    /// How the core is, without asking it.
    pub fn health(&self) -> CoreHealth {
        self.lock().health.clone()
    }

    /// A number that is another one after anything that may change what the core would answer.
    pub fn change_counter(&self) -> u64 {
        self.lock().change_counter
    }

    /// How much waits.
    pub fn queue_length(&self) -> usize {
        self.lock().queue.len()
    }
}

impl QueueState {
    fn push(&mut self, event: CoreEvent) {
        // What packets were seen is on no page.
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
                // Everything is compared each time: once is enough.
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
                if let Some(waiting) = self.requests.get_mut(&lane) {
                    *waiting = waiting.saturating_sub(1);
                }
                CoreEvent::Request(question)
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
}

impl EventReceiver {
    /// The next event, at most `patience` from now where that is given.
    ///
    /// # Errors
    /// If there is none in time, or nobody is left who could hand one in.
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

    /// The core begins something.
    pub(crate) fn mark_busy(&self, now: Instant) {
        self.0.lock().health.busy_since = Some(now);
    }

    /// The core is done with what it was at, and is so.
    pub(crate) fn mark_idle(&self, unready: Vec<String>) {
        let pulse = &mut self.0.lock().health;
        pulse.busy_since = None;
        pulse.unready = unready;
    }

    /// What the core answers is another thing, though nobody handed anything in.
    pub(crate) fn mark_changed(&self) {
        self.0.lock().change_counter += 1;
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.health.stopped = true;
        // Whoever waits for an answer hears that there is none, outside the lock.
        let unprocessed = std::mem::take(&mut state.queue);
        drop(state);
        drop(unprocessed);
        self.0.batch_taken.notify_all();
    }
}
