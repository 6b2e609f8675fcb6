//! The packet monitor: reports packets that were denied, dropped or matched by a Log rule.
//!
//! The dataplane reports packets; the monitor evaluates each with the tables that were in force,
//! attributes it to a rule, resolves names, and publishes it to the subscribers. Packets that are not
//! published are counted, with their rule where it is known; a flood takes a bounded share of the
//! core's time, and no subscriber can block the core.

pub mod attribution;
mod event;
pub mod hub;
pub mod packet_queue;

use crate::clock::{Clock, rfc3339_micros};
use crate::rate_limit::{RateLimit, RateLimiter};
use attribution::{AttributionError, PacketAttribution, ReportedPacket};
pub(crate) use event::PacketContext;
use hub::MonitorHub;
use palisade_api::{LossCause, LostEvents, MonitorQuery};
use palisade_dataplane::{PacketReport, PacketReportBatch};
use palisade_model::Direction;
use palisade_tables::{Credit, ReportReason};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The minimum interval between loss reports.
const LOSS_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// The key of the rate limit `monitor-rate`: reason, direction, rule.
type MonitorKey = (ReportReason, Option<Direction>, Option<Arc<Credit>>);

/// The monitor's state in the core.
pub(crate) struct Monitor {
    clock: Arc<dyn Clock>,
    limiter: RateLimiter<MonitorKey>,
    rate: RateLimit,
    hub: MonitorHub,
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
    pub(crate) fn new(rate: u32, clock: Arc<dyn Clock>) -> Self {
        Monitor {
            started_at: clock.monotonic(),
            clock,
            limiter: RateLimiter::default(),
            rate: packet_rate(rate),
            hub: MonitorHub::default(),
            losses: BTreeMap::new(),
            over_rate: BTreeMap::new(),
            losses_reported_at: Duration::ZERO,
        }
    }

    /// Sets the rate limit of each rule.
    pub(crate) fn set_rate(&mut self, rate: u32) {
        self.rate = packet_rate(rate);
    }

    /// Adds a subscriber of the stream.
    pub(crate) fn subscribe(
        &mut self,
        query: MonitorQuery,
    ) -> tokio::sync::mpsc::Receiver<axum::body::Bytes> {
        self.hub.subscribe(query)
    }

    /// Reports packets from the dataplane.
    pub(crate) fn report_packets(&mut self, batch: MonitorBatch, context: &PacketContext<'_>) {
        let is_idle = batch.reports.packets.is_empty();
        let mut add_losses = |cause, lost: BTreeMap<ReportReason, u64>| {
            for (reason, count) in lost {
                *self.losses.entry((cause, reason)).or_default() += count;
            }
        };
        add_losses(LossCause::Kernel, batch.reports.lost);
        add_losses(LossCause::Agent, batch.dropped);
        for report in batch.reports.packets {
            self.report_packet(&report, context);
        }
        let now = self.monitor_time();
        if is_idle || now.saturating_sub(self.losses_reported_at) >= LOSS_REPORT_INTERVAL {
            self.losses_reported_at = now;
            self.report_losses(context);
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
        for (tables, revision, past) in context.states_at(at) {
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
        self.hub.publish_packet(event);
    }

    fn report_losses(&mut self, context: &PacketContext<'_>) {
        let time = rfc3339_micros(self.clock.wall());
        for ((cause, reason), count) in std::mem::take(&mut self.losses) {
            self.hub.publish_loss(LostEvents {
                api_version: palisade_api::api_version(),
                time: time.clone(),
                cause,
                count,
                reason: Some(event::packet_reason(reason)),
                rule: None,
                policies: Vec::new(),
            });
        }
        for ((reason, _, credit), count) in std::mem::take(&mut self.over_rate) {
            let decided = context.packet_cause(reason, credit.as_deref());
            self.hub.publish_loss(LostEvents {
                api_version: palisade_api::api_version(),
                time: time.clone(),
                cause: LossCause::Rate,
                count,
                reason: Some(decided.reason),
                rule: decided.rule,
                policies: decided.policies,
            });
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
    let Some(of) = judgement else {
        return (reason, None, None);
    };
    let hits = match (&of.audit, reason) {
        (Some(audit), ReportReason::Audited(_)) => &audit.hits,
        _ => &of.hits,
    };
    (reason, Some(of.direction), hits.last().cloned())
}
