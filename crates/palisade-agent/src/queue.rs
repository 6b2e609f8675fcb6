//! What waits for the core: in order, bounded, and merged where once is enough.
//!
//! Promises: of notices of the kernel, and of the configuration file, one of each kind waits, however
//! many came; a source waits with its next batch until the last is taken; of clients' questions at
//! most [`WAITING`] of each kind wait, and more are refused; so what waits never grows with what
//! others do. Beside the queue stands how the core is, for probes, which wait for nobody.
//!
//! Never: reorders what it does not merge, or drops what is not a client's question.

use crate::core::{Core, Event, Question};
use crate::host::Changes;
use crate::http::Lane;
use crate::snapshots::Snapshots;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many questions of clients wait at most, of each kind.
pub const WAITING: usize = 256;

/// Why a client's question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The core has ended.
    Stopped,
    /// Too many wait already.
    Busy,
}

/// How the core is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// When it began what it is at; `None`: it waits for something to do.
    pub busy_since: Option<Instant>,
    /// Why the kernel does not hold what the source says.
    pub unready: Vec<String>,
    /// Whether it has ended.
    pub stopped: bool,
}

enum Waiting {
    Event(Event),
    Question(Lane, Question),
    /// One of each of these at most; what they carry is beside the queue.
    Host,
    Tampered,
    Reread,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Waiting>,
    host: Option<(Changes, Instant)>,
    tampered: Option<(String, Instant)>,
    reread: bool,
    questions: BTreeMap<Lane, usize>,
    batches: usize,
    /// Rises with everything that may change what the core would answer.
    changes: u64,
    pulse: Pulse,
    /// Nobody can hand in anything any more.
    abandoned: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is there to be taken, or will never be.
    filled: Condvar,
    /// A batch was taken, or none will ever be.
    taken: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last of them to go tells the core.
struct Sender(Arc<Shared>);

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().abandoned = true;
        self.0.filled.notify_all();
    }
}

/// Hands events to the core.
#[derive(Clone)]
pub struct Handle {
    sender: Arc<Sender>,
    /// Pages that many ask for.
    pub(crate) snapshots: Arc<Snapshots>,
}

/// The end of the queue that the core reads.
pub struct Events(Arc<Shared>);

impl Handle {
    /// A handle and the end the core reads.
    pub fn channel() -> (Handle, Events) {
        let shared = Arc::new(Shared::default());
        shared.lock().pulse.unready = vec![crate::report::UNSYNCED.to_owned()];
        let handle = Handle {
            sender: Arc::new(Sender(Arc::clone(&shared))),
            snapshots: Arc::default(),
        };
        (handle, Events(shared))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.sender.0.lock()
    }

    /// Hands in an event; false if the core has stopped. A source's batch waits here until the last
    /// one is taken.
    pub fn send(&self, event: Event) -> bool {
        let mut state = self.lock();
        if matches!(event, Event::Source(_)) {
            while state.batches > 0 && !state.pulse.stopped {
                let woken = self.sender.0.taken.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            }
            state.batches += 1;
        }
        if state.pulse.stopped {
            return false;
        }
        state.add(event);
        drop(state);
        self.sender.0.filled.notify_one();
        true
    }

    /// Asks the core and waits for its answer; `None` if it has stopped. For the agent itself, which
    /// asks one thing at a time.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let question: Question = Box::new(move |core| {
            // Whoever went away does not want its answer any more.
            let _ = answer.send(question(core));
        });
        if !self.send(Event::Ask(question)) {
            return None;
        }
        answered.await.ok()
    }

    /// Asks for a client. What only reads is left out if the client goes away before.
    ///
    /// # Errors
    /// If too many of its kind wait already, or the core has stopped.
    pub async fn ask_for<T: Send + 'static>(
        &self,
        lane: Lane,
        question: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let question: Question = Box::new(move |core| {
            if lane == Lane::Read && answer.is_closed() {
                return;
            }
            let _ = answer.send(question(core));
        });
        self.add(lane, question)?;
        answered.await.map_err(|_| Unanswered::Stopped)
    }

    fn add(&self, lane: Lane, question: Question) -> Result<(), Unanswered> {
        let mut state = self.lock();
        if state.pulse.stopped {
            return Err(Unanswered::Stopped);
        }
        let waiting = state.questions.entry(lane).or_default();
        if *waiting >= WAITING {
            return Err(Unanswered::Busy);
        }
        *waiting += 1;
        if lane != Lane::Read {
            state.changes += 1;
        }
        state.queue.push_back(Waiting::Question(lane, question));
        drop(state);
        self.sender.0.filled.notify_one();
        Ok(())
    }

    /// How the core is, without asking it.
    pub fn pulse(&self) -> Pulse {
        self.lock().pulse.clone()
    }

    /// A number that is another one after anything that may change what the core would answer.
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// How much waits.
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }
}

impl State {
    fn add(&mut self, event: Event) {
        // What packets were seen is on no page.
        if !matches!(event, Event::Seen(_)) {
            self.changes += 1;
        }
        let waiting = match event {
            Event::HostChanged { changes, seen } => match &mut self.host {
                Some((waiting, _)) => return waiting.merge(changes),
                none => {
                    *none = Some((changes, seen));
                    Waiting::Host
                }
            },
            Event::Tampered { what, seen } => match &mut self.tampered {
                // Everything is compared each time: once is enough.
                Some(_) => return,
                none => {
                    *none = Some((what, seen));
                    Waiting::Tampered
                }
            },
            Event::ConfigChanged if self.reread => return,
            Event::ConfigChanged => {
                self.reread = true;
                Waiting::Reread
            }
            other => Waiting::Event(other),
        };
        self.queue.push_back(waiting);
    }

    fn next(&mut self) -> Option<Event> {
        let event = match self.queue.pop_front()? {
            Waiting::Event(event) => {
                if matches!(event, Event::Source(_)) {
                    self.batches = self.batches.saturating_sub(1);
                }
                event
            }
            Waiting::Question(lane, question) => {
                if let Some(waiting) = self.questions.get_mut(&lane) {
                    *waiting = waiting.saturating_sub(1);
                }
                Event::Ask(question)
            }
            Waiting::Host => {
                let (changes, seen) = self.host.take()?;
                Event::HostChanged { changes, seen }
            }
            Waiting::Tampered => {
                let (what, seen) = self.tampered.take()?;
                Event::Tampered { what, seen }
            }
            Waiting::Reread => {
                self.reread = false;
                Event::ConfigChanged
            }
        };
        Some(event)
    }
}

impl Events {
    /// The next event, at most `patience` from now where that is given.
    ///
    /// # Errors
    /// If there is none in time, or nobody is left who could hand one in.
    pub fn next(&self, patience: Option<Duration>) -> Result<Event, RecvTimeoutError> {
        let idle = |state: &mut State| state.queue.is_empty() && !state.abandoned;
        let state = self.0.lock();
        let mut state = match patience {
            None => {
                let woken = self.0.filled.wait_while(state, idle);
                woken.unwrap_or_else(PoisonError::into_inner)
            }
            Some(patience) => {
                let woken = self.0.filled.wait_timeout_while(state, patience, idle);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        let event = state.next();
        let abandoned = state.abandoned;
        drop(state);
        match event {
            Some(event) => {
                self.0.taken.notify_one();
                Ok(event)
            }
            None if abandoned => Err(RecvTimeoutError::Disconnected),
            None => Err(RecvTimeoutError::Timeout),
        }
    }

    /// The core begins something.
    pub(crate) fn began(&self, now: Instant) {
        self.0.lock().pulse.busy_since = Some(now);
    }

    /// The core is done with what it was at, and is so.
    pub(crate) fn done(&self, unready: Vec<String>) {
        let pulse = &mut self.0.lock().pulse;
        pulse.busy_since = None;
        pulse.unready = unready;
    }

    /// What the core answers is another thing, though nobody handed anything in.
    pub(crate) fn changed(&self) {
        self.0.lock().changes += 1;
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.pulse.stopped = true;
        // Whoever waits for an answer hears that there is none, outside the lock.
        let left = std::mem::take(&mut state.queue);
        drop(state);
        drop(left);
        self.0.taken.notify_all();
    }
}
