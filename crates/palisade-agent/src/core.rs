//! The agent's core: one thread that owns the engine, the dataplane and the workloads.
//!
//! Everything that happens reaches it as an [`Event`] on one bounded queue ([`crate::queue`]), so there
//! is no shared state: sources hand in batches, the API asks with closures, watchers say that the kernel
//! changed. It takes them one after the other: a source's batch becomes one delta, which is executed
//! before the next event is looked at. It never waits for a source or for a client.

use crate::attach::Attach;
use crate::clock::Clock;
use crate::config::Config;
use crate::counts::CountsFile;
use crate::host::Changes;
use crate::ipam::Ipam;
use crate::metrics::Tally;
use crate::monitor::Monitor;
pub use crate::queue::{Events, Handle};
use crate::record::{Record, Records};
use crate::registry::Registry;
use crate::settings::SettingsFile;
use crate::steps::StepHook;
use palisade_api::{Flush, Repair, Stage};
use palisade_dataplane::{Counters, Dataplane};
use palisade_engine::Engine;
use palisade_model::{EndpointId, ObjectKey, Update};
use palisade_source::{Batch, Flaw, Report};
use palisade_sys::fault;
use palisade_tables::{Credit, Delta};
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How long to wait before the dataplane is tried again, first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// A batch of so many updates leaves enough freed memory behind to be given back to the kernel.
const BIG: usize = 2_000;
/// How many new problems of one batch are logged one by one.
const LOGGED: usize = 100;

/// A question for the core thread.
pub type Question = Box<dyn FnOnce(&mut Core) + Send>;

/// What happens to the core.
pub enum Event {
    /// A source said something.
    Source(Batch),
    /// A source ended; it should not.
    SourceEnded(String),
    /// Somebody asks.
    Ask(Question),
    /// Somebody else changed what is ours in the kernel's packet filter.
    Tampered {
        /// What, for people.
        what: String,
        /// When that was noticed.
        seen: Instant,
    },
    /// Interfaces, routes, neighbours or settings of this host changed.
    HostChanged {
        /// Which.
        changes: Changes,
        /// When that was noticed.
        seen: Instant,
    },
    /// The configuration file changed.
    ConfigChanged,
    /// Packets were denied, dropped, or asked for by a Log rule.
    Seen(crate::monitor::feed::Delivery),
    /// Stop; enforcement stays in the kernel.
    Stop,
}

/// The parts the core is made of.
pub struct Parts {
    /// The configuration.
    pub config: Config,
    /// The kernel side.
    pub dataplane: Box<dyn Dataplane>,
    /// What joins namespaces to this host.
    pub attach: Box<dyn Attach>,
    /// The clock.
    pub clock: Box<dyn Clock>,
    /// What the source is, and where.
    pub source: (String, String),
}

/// The core. See the module's description.
pub struct Core {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    pub(crate) dataplane: Box<dyn Dataplane>,
    pub(crate) attach: Box<dyn Attach>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) records: Records,
    /// What was changed of this host's settings.
    pub(crate) settings: SettingsFile,
    /// Whether this host has to forward: from its first workload on.
    pub(crate) forwards: bool,
    pub(crate) registry: Registry,
    pub(crate) ipam: Ipam,
    pub(crate) monitor: Monitor,
    pub(crate) tally: Tally,
    pub(crate) source: (String, String),
    pub(crate) source_ended: Option<String>,
    pub(crate) report: Report,
    pub(crate) in_sync: bool,
    pub(crate) realised: u64,
    pub(crate) generation: u32,
    pub(crate) started: Duration,
    pub(crate) start: Option<Flush>,
    pub(crate) last: Option<Flush>,
    pub(crate) repairs: VecDeque<Repair>,
    pub(crate) repaired: u64,
    pub(crate) failure: Option<String>,
    pub(crate) bootstrap: Vec<Stage>,
    /// What could not be removed when attaching it failed; remembered as pending.
    pub(crate) leftovers: Vec<Record>,
    /// Whether a deletion that waits could not be carried out.
    pub(crate) deletions_failed: bool,
    /// Why runtimes are not told of this agent.
    pub(crate) unannounced: Option<String>,
    /// Why the kernel does not translate what it should.
    pub(crate) untranslated: Option<String>,
    /// The one that is being attached: whoever does that opens it.
    pub(crate) attaching: Option<EndpointId>,
    pub(crate) waiting_for_open: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)>,
    pub(crate) on_step: Option<StepHook>,
    pub(crate) config_listeners: Vec<crate::reload::Listener>,
    /// The kernel's counts, and when they were read.
    counted: Option<(Instant, Counters)>,
    waiting_for_sync: Vec<tokio::sync::oneshot::Sender<()>>,
    retry: Option<(Instant, Duration)>,
}

impl Core {
    /// A core of these parts, with nothing known yet.
    pub fn new(parts: Parts) -> Self {
        let judge_host_traffic =
            parts.config.host_to_endpoint == crate::config::HostToEndpoint::Policy;
        let started = parts.clock.wall();
        Core {
            engine: Engine::new(palisade_engine::Options {
                judge_host_traffic,
                allowed_encapsulation: parts.config.allowed_encapsulation,
                budget: parts.config.budget,
            }),
            records: match parts.config.dry_run {
                true => Records::peek(&parts.config.state_dir),
                false => Records::within(&parts.config.state_dir),
            },
            settings: SettingsFile::within(&parts.config.state_dir),
            forwards: false,
            registry: Registry::default(),
            ipam: Ipam::new(&parts.config.pools, &parts.config.reserved),
            monitor: Monitor::new(parts.config.monitor_rate, parts.clock.monotonic()),
            tally: Tally::default(),
            config: parts.config,
            dataplane: parts.dataplane,
            attach: parts.attach,
            clock: parts.clock,
            source: parts.source,
            source_ended: None,
            report: Report::default(),
            in_sync: false,
            realised: 0,
            generation: 0,
            started,
            start: None,
            last: None,
            repairs: VecDeque::new(),
            repaired: 0,
            failure: None,
            bootstrap: Vec::new(),
            leftovers: Vec::new(),
            deletions_failed: false,
            unannounced: None,
            untranslated: None,
            attaching: None,
            waiting_for_open: Vec::new(),
            on_step: None,
            config_listeners: Vec::new(),
            counted: None,
            waiting_for_sync: Vec::new(),
            retry: None,
        }
    }

    /// Runs until it is told to stop, or nobody is left who could tell it anything.
    pub fn run(mut self, events: &Events) {
        loop {
            events.done(self.unready());
            let now = self.clock.monotonic();
            let patience = self.retry.map(|(at, _)| at.saturating_duration_since(now));
            let event = events.next(patience);
            events.began(self.clock.monotonic());
            match event {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {
                    events.changed();
                    self.try_again();
                }
            }
        }
    }

    /// Takes in one event.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Source(batch) => self.take_batch(batch),
            Event::SourceEnded(reason) => {
                tracing::error!(%reason, "the source ended; what is in force stays");
                self.source_ended = Some(reason);
            }
            Event::Ask(question) => question(self),
            Event::Tampered { what, seen } => self.verify(&what, seen),
            Event::ConfigChanged => self.reread_config(),
            Event::HostChanged { changes, seen } => self.check_host(&changes, seen),
            Event::Seen(mut delivery) => {
                let seen = delivery.take();
                self.see(seen);
            }
            Event::Stop => {}
        }
    }

    fn take_batch(&mut self, batch: Batch) {
        self.tally.taken();
        let known: BTreeSet<&Flaw> = self.report.problems.iter().collect();
        let mut new = (batch.report.problems.iter()).filter(|flaw| !known.contains(flaw));
        for flaw in new.by_ref().take(LOGGED) {
            tracing::warn!(object = flaw.problem.object.as_deref(), "{}", flaw.problem);
        }
        let more: usize = new.map(Flaw::count).sum();
        if more > 0 {
            tracing::warn!(
                more,
                "more problems of the source: `palisade status` shows them"
            );
        }
        self.report = batch.report;
        let overlaid = batch.updates.into_iter();
        let mut updates: Vec<Update> = overlaid.map(|u| self.registry.overlay(u)).collect();
        updates.extend(self.registry.complete(&self.report.completed));
        let big = updates.len() >= BIG;
        let first_sync = batch.in_sync && !self.in_sync;
        self.in_sync |= batch.in_sync;
        self.apply(updates);
        if first_sync {
            let began = self.clock.monotonic();
            self.realise();
            let millis = crate::clock::millis(self.clock.monotonic() - began);
            self.bootstrap.push(Stage {
                name: "kernel in line".to_owned(),
                millis,
            });
            for waiting in self.waiting_for_sync.drain(..) {
                // Whoever stopped waiting needs no answer.
                let _ = waiting.send(());
            }
        }
        if big {
            palisade_sys::heap::give_back();
        }
    }

    /// Tells `waiting` once the source is in sync and the kernel was brought in line.
    pub fn when_in_sync(&mut self, waiting: tokio::sync::oneshot::Sender<()>) {
        if self.in_sync || fault::is_on("told-before-in-line") {
            let _ = waiting.send(());
        } else {
            self.waiting_for_sync.push(waiting);
        }
    }

    /// Lets the engine compute what these updates change, and executes it.
    pub(crate) fn apply(&mut self, updates: Vec<Update>) {
        let began = self.clock.monotonic();
        let is_policy = |update: &Update| matches!(update, Update::Delete(ObjectKey::Policy(_)));
        let forgets = updates.iter().any(is_policy);
        self.retire(&updates);
        let delta = self.engine.apply(updates);
        if !self.in_sync {
            return;
        }
        self.execute(&delta, began);
        if forgets {
            self.forget_counts();
        }
    }

    fn execute(&mut self, delta: &Delta, began: Instant) {
        if self.failure.is_some() {
            return self.realise();
        }
        if delta.is_empty() {
            let nothing = palisade_dataplane::Outcome {
                generation: self.generation,
                ..Default::default()
            };
            return self.realised_by(nothing, began);
        }
        let (from, undo) = (self.clock.wall(), self.dataplane.undo(delta));
        match self.dataplane.apply(delta, self.engine.tables()) {
            Ok(outcome) => {
                let times = (from, self.clock.wall());
                self.monitor.flushed(times, self.realised, undo);
                self.realised_by(outcome, began);
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "writing to the kernel failed; reading it back to try again");
                self.tally.failed();
                self.realise();
            }
        }
    }

    /// Makes the kernel hold the tables, from whatever state it is in.
    pub(crate) fn realise(&mut self) {
        let began = self.clock.monotonic();
        if self.failure.is_some() {
            self.tally.retried();
        }
        // From whatever the kernel holds now: what it would have said is not known.
        self.monitor.forget();
        match self.dataplane.start(self.engine.tables()) {
            Ok(outcome) => {
                if self.failure.take().is_some() {
                    tracing::info!("the kernel holds the policy again");
                }
                self.translate();
                if !self.has_failed() {
                    self.retry = None;
                }
                let first = self.start.is_none();
                self.realised_by(outcome, began);
                if first {
                    self.start = self.last.clone();
                    let writes = self.last.as_ref().map_or(0, |last| last.writes);
                    tracing::info!(
                        writes,
                        revision = self.realised,
                        "in sync: {writes} kernel writes"
                    );
                }
            }
            Err(error) => {
                let text = chain(&error);
                let wait = self.retry_later();
                tracing::error!(error = %text, retry_ms = wait.as_millis() as u64, "the kernel refused the policy");
                self.tally.failed();
                self.failure = Some(text);
            }
        }
    }

    fn realised_by(&mut self, outcome: palisade_dataplane::Outcome, began: Instant) {
        self.realised = self.engine.revision();
        self.generation = outcome.generation;
        let took = self.clock.monotonic() - began;
        self.tally.flushed(&outcome, took);
        let flush = Flush {
            revision: self.realised,
            writes: outcome.writes,
            millis: crate::clock::millis(took),
        };
        tracing::debug!(
            revision = flush.revision,
            writes = flush.writes,
            millis = flush.millis,
            steps = ?outcome.steps,
            "flushed"
        );
        self.last = Some(flush);
        self.open_waiting();
        self.check_ledger();
    }

    /// Takes over the counts kept from before a restart, and keeps them from now on.
    pub(crate) fn restore_counts(&mut self) {
        let file = CountsFile::within(&self.config.state_dir);
        let (mut entries, error) = file.read();
        if fault::is_on("counts-not-restored") {
            entries.clear();
        }
        if let Some(error) = error {
            tracing::warn!(error = %chain(&error), "counts from before the restart are lost");
        }
        self.dataplane.keep_counts(Box::new(file), entries);
    }

    /// The kernel's counts as of the last second: pages that many ask for have it read no oftener.
    pub(crate) fn recent_counts(&mut self) -> Option<&Counters> {
        let now = self.clock.monotonic();
        let is_recent = |(at, _): &(Instant, Counters)| now - *at < crate::snapshots::LONGEST;
        if !self.counted.as_ref().is_some_and(is_recent) {
            match self.dataplane.counters() {
                Ok(counters) => self.counted = Some((now, counters)),
                Err(error) => {
                    tracing::warn!(%error, "reading counters");
                    self.counted = None;
                }
            }
        }
        self.counted.as_ref().map(|(_, counters)| counters)
    }

    /// Forgets the counts of policies that are gone themselves, or memory and disk would only grow.
    fn forget_counts(&mut self) {
        let engine = &self.engine;
        self.dataplane.retain_counts(&|credit| match credit {
            Credit::Rule { policy, .. } => engine.has_policy(policy),
            Credit::TierDefault { policies: of, .. } => of.iter().any(|p| engine.has_policy(p)),
            _ => true,
        });
    }

    /// Says what went wrong with keeping counts.
    fn check_ledger(&mut self) {
        if let Some(error) = self.dataplane.ledger_failure() {
            tracing::warn!(error = %chain(&error), "a restart would lose counts");
        }
    }

    /// Brings the table that translates in line; returns how much was written. What fails is tried
    /// again.
    fn translate(&mut self) -> usize {
        self.masquerade().unwrap_or_else(|error| {
            tracing::error!(error = %chain(&error), "translating workloads' addresses");
            self.retry_later();
            0
        })
    }

    /// Tries again what failed: the kernel's state, what could not be removed, deletions that wait. Comes
    /// by itself, later each time, until nothing is left to try.
    pub fn try_again(&mut self) {
        if self.failure.is_some() || self.untranslated.is_some() {
            self.realise();
        }
        if !self.leftovers.is_empty()
            && let Err(error) = self.clear_leftovers(None)
        {
            tracing::warn!(error = %chain(&error), "removing what is left of failed workloads");
        }
        if self.deletions_failed
            && let Err(error) = self.carry_out_deletions()
        {
            tracing::warn!(%error, "carrying out the deletions that wait");
        }
        if !self.leftovers.is_empty() || self.deletions_failed {
            self.retry_later();
        } else if !self.has_failed() {
            self.retry = None;
        }
    }

    /// Whether anything is left to be tried again.
    fn has_failed(&self) -> bool {
        let kernel = self.failure.is_some() || self.untranslated.is_some();
        kernel || self.deletions_failed || !self.leftovers.is_empty()
    }

    /// Has what is left be tried again, unless that is planned already.
    pub(crate) fn plan_retry(&mut self) {
        if self.retry.is_none() {
            self.retry_later();
        }
    }

    /// Has what failed be tried again, later each time; says in how long.
    fn retry_later(&mut self) -> Duration {
        let longer = |(_, wait): (Instant, Duration)| (wait * 2).min(RETRY.1);
        let wait = self.retry.map_or(RETRY.0, longer);
        self.retry = Some((self.clock.monotonic() + wait, wait));
        wait
    }

    /// Compares the kernel with what was written, and repairs it.
    fn verify(&mut self, what: &str, seen: Instant) {
        if !self.in_sync {
            return;
        }
        match self.dataplane.verify(self.engine.tables()) {
            Ok(outcome) => {
                let translated = match fault::is_on("masquerade-not-repaired") {
                    true => 0,
                    false => self.translate(),
                };
                let writes = outcome.writes + translated;
                if writes > 0 {
                    self.tally.written(&outcome);
                    self.generation = outcome.generation;
                    self.check_ledger();
                    self.repaired(&[what.to_owned()], writes, seen);
                }
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "checking the kernel failed");
                self.tally.failed();
                self.realise();
            }
        }
    }
}

/// An error with all its causes, each once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
