//! The packet monitor: reports packets that were denied, dropped or matched by a Log rule, and flows that policy let pass.
//!
//! The dataplane reports packets; the monitor evaluates each with the tables that were in force,
//! attributes it to a rule, resolves names, and publishes it to the subscribers. It does so on a thread of its own
//! ([`packet_queue`]), which reads the policy from its view. Packets that are not published are counted, with their
//! rule where it is known.
//!
//! Promises: no packet and no subscriber holds up the core for longer than a few packets take; a packet is judged by
//! the policy of its time; what a subscriber loses is counted.
//!
//! Never: judges a packet otherwise than the tables, or keeps one.

pub mod attribution;
mod decision_cache;
mod end_cache;
mod event;
mod flow;
mod flow_decision;
pub mod flow_watch;
mod hub;
mod known_addresses;
mod open_flows;
pub mod packet_queue;

use attribution::{AttributionError, PacketAttribution, ReportedPacket};
use decision_cache::DecisionCache;
use end_cache::EndCache;
use event::{PacketCause, PacketContext};
use hub::MonitorHub;
use known_addresses::KnownAddresses;
use open_flows::OpenFlows;
use palisade_api::{FlowRecord, LossCause, LostEvents, MonitorLine, MonitorQuery};
use palisade_dataplane::{FlowEventBatch, FlowSnapshot, PacketReport, PacketReportBatch};
use palisade_enforcer::packet_reason::packet_reason;
use palisade_enforcer::policy_state::{PolicyState, SharedPolicy};
use palisade_flows::recent::RecentLines;
use palisade_model::{Direction, Str, Update};
use palisade_node::clock::{Clock, rfc3339_micros};
use palisade_node::rate_limit::{RateLimit, RateLimiter};
use palisade_tables::{ReportReason, VerdictCause};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// The minimum interval between loss reports.
const LOSS_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The key of the rate limit `monitor-rate`: reason, direction, rule.
type MonitorKey = (ReportReason, Option<Direction>, Option<Arc<VerdictCause>>);

/// The packets that are judged before the core may change the policy again.
const PACKETS_PER_READ: usize = 32;

/// The monitor, shared by the thread of the packets and those that subscribe.
#[derive(Clone)]
pub struct SharedMonitor {
    view: SharedPolicy,
    own_node: Str,
    addresses: Arc<RwLock<KnownAddresses>>,
    decisions: Arc<DecisionCache>,
    ends: Arc<EndCache>,
    monitor: Arc<Mutex<Monitor>>,
}

impl SharedMonitor {
    /// A monitor of this policy without subscribers, with this rate limit of each rule. `recent` gets every packet and
    /// every flow as well.
    pub fn new(
        rate: u32,
        view: SharedPolicy,
        own_node: Str,
        clock: Arc<dyn Clock>,
        recent: Option<RecentLines>,
    ) -> Self {
        SharedMonitor {
            view,
            own_node,
            addresses: Arc::default(),
            decisions: Arc::default(),
            ends: Arc::default(),
            monitor: Arc::new(Mutex::new(Monitor::new(rate, clock, recent))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in changed objects: the Services, of which flows have the names.
    pub fn observe(&self, updates: &[Update]) {
        let addresses = self.addresses.write();
        (addresses.unwrap_or_else(PoisonError::into_inner)).observe(updates);
    }

    /// Sets the addresses of this host.
    pub fn set_host_addresses(&self, host: BTreeSet<IpAddr>) {
        let addresses = self.addresses.write();
        (addresses.unwrap_or_else(PoisonError::into_inner)).set_host(host);
    }

    fn addresses(&self) -> RwLockReadGuard<'_, KnownAddresses> {
        (self.addresses.read()).unwrap_or_else(PoisonError::into_inner)
    }

    fn context<'a>(
        &'a self,
        state: &'a PolicyState,
        addresses: &'a KnownAddresses,
    ) -> PacketContext<'a> {
        PacketContext {
            state,
            addresses,
            own_node: &self.own_node,
            decisions: &self.decisions,
            ends: &self.ends,
        }
    }

    /// Sets the rate limit of each rule.
    pub fn set_rate(&self, rate: u32) {
        self.lock().rate = packet_rate(rate);
    }

    /// The most recent packets and flows, if they are kept.
    pub fn recent(&self) -> Option<RecentLines> {
        self.lock().recent.clone()
    }

    /// Adds a subscriber of the stream.
    pub fn subscribe(&self, query: MonitorQuery) -> tokio::sync::mpsc::Receiver<bytes::Bytes> {
        self.lock().hub.subscribe(query)
    }

    /// Reports packets from the dataplane.
    pub fn report_packets(&self, mut batch: MonitorBatch) {
        let packets = std::mem::take(&mut batch.reports.packets);
        let is_idle = packets.is_empty();
        for packets in packets.chunks(PACKETS_PER_READ) {
            let (state, addresses) = (self.view.read(), self.addresses());
            let context = self.context(&state, &addresses);
            let mut monitor = self.lock();
            for report in packets {
                monitor.report_packet(report, &context);
            }
        }
        let (state, addresses) = (self.view.read(), self.addresses());
        let context = self.context(&state, &addresses);
        self.lock().report_batch_losses(batch, is_idle, &context);
    }
}

impl SharedMonitor {
    /// Reports flows of a subscription, if somebody asks for them.
    fn report_flows(&self, batch: &FlowEventBatch, open: &mut OpenFlows) {
        let mut monitor = self.lock();
        if monitor.recent.is_none() && !monitor.hub.wants_flows() {
            *open = OpenFlows::default();
            return;
        }
        drop(monitor);
        for events in batch.events.chunks(PACKETS_PER_READ) {
            self.report_records(|context, now| {
                let records = events.iter().filter_map(|event| {
                    open.record(event, now, || context.flow_record(event, now))
                });
                records.collect()
            });
        }
        if batch.lost > 0 {
            self.lock().report_flow_loss(batch.lost);
        }
        if let Some(snapshot) = &batch.snapshot {
            self.report_snapshot(snapshot, open);
        }
    }

    /// Reports the flows whose end or begin was lost, as the list of those that are open shows.
    fn report_snapshot(&self, snapshot: &FlowSnapshot, open: &mut OpenFlows) {
        let now = self.lock().clock.wall();
        // Without the policy, which the core may want to change.
        let mut gone = open.take_gone(snapshot, now).into_iter();
        loop {
            let records: Vec<Arc<FlowRecord>> = gone.by_ref().take(PACKETS_PER_READ).collect();
            if records.is_empty() {
                break;
            }
            self.lock().publish_flows(records, now);
        }
        let missed = open.missed(snapshot);
        for events in missed.chunks(PACKETS_PER_READ) {
            self.report_records(|context, now| {
                let records = events.iter().filter_map(|event| {
                    open.record(event, now, || context.found_record(event, now))
                });
                records.collect()
            });
        }
    }

    /// Judges the flows that are open again, and reports those whose verdict or rules have changed; how long it took.
    fn judge_open_flows(&self, open: &Mutex<OpenFlows>) -> Duration {
        let started_at = self.lock().monitor_time();
        let lock = || open.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = lock().keys();
        for keys in keys.chunks(PACKETS_PER_READ) {
            let mut open = lock();
            self.report_records(|context, now| {
                let records = keys.iter().flat_map(|key| {
                    open.judge(key, now, |first, record| {
                        context.judge_again(first, record, now)
                    })
                });
                records.collect()
            });
        }
        self.lock().monitor_time().saturating_sub(started_at)
    }

    /// Publishes records of flows, which are made with the policy of now.
    fn report_records(
        &self,
        records: impl FnOnce(&PacketContext<'_>, Duration) -> Vec<Arc<FlowRecord>>,
    ) {
        let (state, addresses) = (self.view.read(), self.addresses());
        let context = self.context(&state, &addresses);
        let mut monitor = self.lock();
        let now = monitor.clock.wall();
        monitor.publish_flows(records(&context, now), now);
    }
}

/// The limits, the losses and the subscribers.
struct Monitor {
    clock: Arc<dyn Clock>,
    limiter: RateLimiter<MonitorKey>,
    rate: RateLimit,
    hub: MonitorHub,
    recent: Option<RecentLines>,
    /// Unreported packets by the place of the loss; published together periodically.
    losses: BTreeMap<(LossCause, ReportReason), u64>,
    /// Packets over the rate limit, published with the losses.
    over_rate: BTreeMap<MonitorKey, u64>,
    /// The origin of the monitor's time, and the time of the last loss report.
    started_at: Instant,
    losses_reported_at: Duration,
}

/// A batch of packets from the dataplane, with the losses of the queue.
#[derive(Debug, Default)]
pub struct MonitorBatch {
    /// The reports of the dataplane.
    pub reports: PacketReportBatch,
    /// Packets dropped by the queue.
    pub dropped: BTreeMap<ReportReason, u64>,
}

impl Monitor {
    /// A monitor without subscribers, with this rate limit of each rule.
    pub(crate) fn new(rate: u32, clock: Arc<dyn Clock>, recent: Option<RecentLines>) -> Self {
        Monitor {
            started_at: clock.monotonic(),
            clock,
            limiter: RateLimiter::default(),
            rate: packet_rate(rate),
            hub: MonitorHub::default(),
            recent,
            losses: BTreeMap::new(),
            over_rate: BTreeMap::new(),
            losses_reported_at: Duration::ZERO,
        }
    }

    /// Counts the losses of a batch, and publishes losses: periodically, and at the end of a burst.
    fn report_batch_losses(
        &mut self,
        batch: MonitorBatch,
        is_idle: bool,
        context: &PacketContext<'_>,
    ) {
        let mut add_losses = |cause, lost: BTreeMap<ReportReason, u64>| {
            for (reason, count) in lost {
                *self.losses.entry((cause, reason)).or_default() += count;
            }
        };
        add_losses(LossCause::Kernel, batch.reports.lost);
        add_losses(LossCause::Agent, batch.dropped);
        let now = self.monitor_time();
        if is_idle || now.saturating_sub(self.losses_reported_at) >= LOSS_REPORT_INTERVAL {
            self.losses_reported_at = now;
            self.report_losses(context);
        }
    }

    fn publish_flows(&mut self, records: Vec<Arc<FlowRecord>>, now: Duration) {
        for record in &records {
            self.hub.publish_flow(record);
        }
        if let Some(recent) = &self.recent {
            recent.extend(now, records.into_iter().map(MonitorLine::Flow));
        }
    }

    /// Publishes that events of flows were lost.
    fn report_flow_loss(&mut self, count: u64) {
        let now = self.clock.wall();
        let lost = LostEvents {
            api_version: palisade_api::api_version(),
            time: rfc3339_micros(now),
            cause: LossCause::Flows,
            count,
            reason: None,
            rule: None,
            policies: Vec::new(),
        };
        self.hub.publish_flow_loss(lost.clone());
        self.keep(now, || MonitorLine::Lost(Box::new(lost)));
    }

    /// Keeps a line for the readers of recent lines, if there may be any.
    fn keep(&self, time: Duration, line: impl FnOnce() -> MonitorLine) {
        if let Some(recent) = &self.recent {
            recent.push(time, line());
        }
    }

    /// Time since the start, for rate limits.
    fn monitor_time(&self) -> Duration {
        let now = self.clock.monotonic();
        now.saturating_duration_since(self.started_at)
    }

    fn report_packet(&mut self, report: &PacketReport, context: &PacketContext<'_>) {
        let at = report.time.unwrap_or_else(|| self.clock.wall());
        let reported = ReportedPacket::from(report);
        let mut attribution = None;
        for (tables, revision, past) in context.state.states_at(at) {
            match attribution::attribute(&tables, &reported) {
                Ok(judgement) => attribution = Some((judgement, revision, past)),
                Err(AttributionError::Contradiction) => continue,
                // Another state may tell, but not that it decided.
                Err(AttributionError::UnknownDestination) => {}
            }
            break;
        }
        let key = rate_key(
            report.reason,
            attribution.as_ref().map(|(judgement, ..)| judgement),
        );
        let (now, rate) = (self.clock.monotonic(), self.rate);
        let admitted = self.limiter.try_acquire(key.clone(), rate, now);
        if admitted.is_err() {
            *self.over_rate.entry(key).or_default() += 1;
            return;
        }
        let event = context.packet_event(report, &reported.first, attribution, at);
        self.keep(at, || MonitorLine::Packet(Box::new(event.clone())));
        self.hub.publish_packet(event);
    }

    fn report_losses(&mut self, context: &PacketContext<'_>) {
        let now = self.clock.wall();
        let lost = |cause, count, decided: PacketCause| LostEvents {
            api_version: palisade_api::api_version(),
            time: rfc3339_micros(now),
            cause,
            count,
            reason: Some(decided.reason),
            rule: decided.rule,
            policies: decided.policies,
        };
        let mut losses = Vec::new();
        for ((cause, reason), count) in std::mem::take(&mut self.losses) {
            let without_rule = PacketCause::without_rule(packet_reason(reason));
            losses.push(lost(cause, count, without_rule));
        }
        for ((reason, _, cause), count) in std::mem::take(&mut self.over_rate) {
            let decided = context.packet_cause(reason, cause.as_deref());
            losses.push(lost(LossCause::Rate, count, decided));
        }
        for lost in losses {
            self.keep(now, || MonitorLine::Lost(Box::new(lost.clone())));
            self.hub.publish_loss(lost);
        }
    }
}

/// A burst is as large as the packets of a second.
fn packet_rate(per_second: u32) -> RateLimit {
    RateLimit {
        per_second,
        burst: per_second,
    }
}

/// The rate-limit key of a packet: for denied, logged and audited packets it has the deciding rule.
fn rate_key(reason: ReportReason, judgement: Option<&PacketAttribution>) -> MonitorKey {
    let Some(attribution) = judgement else {
        return (reason, None, None);
    };
    let causes = match (&attribution.audit, reason) {
        (Some(audit), ReportReason::Audited(_)) => &audit.causes,
        _ => &attribution.causes,
    };
    (reason, Some(attribution.direction), causes.last().cloned())
}
