//! The metrics of flows, with the names and labels of Hubble's, so that dashboards made for Hubble show them.
//!
//! Promises: what is counted is what Cilium 1.18 would count of the same flows, but that an ICMP message of IPv6 has the
//! family `IPv6`; a metric has at most 10,000 series, and flows beyond them are counted as refused; series of a pod
//! that is gone go after a minute.
//!
//! Never: counts requests within connections (DNS, HTTP, Kafka), of which this agent has no flows.

mod context;
mod counter;
mod definition;
mod icmp_text;
#[cfg(test)]
mod tests;

use crate::error::HubbleError;
use crate::proto::flow::{Flow, LostEventSource};
use counter::FlowCounter;
#[cfg(test)]
use counter::MAX_SERIES;
use definition::read_definitions;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the series of a pod stay after it has gone, so that a scrape sees their last count.
const GRACE: Duration = Duration::from_secs(60);

/// The most pods that wait for their series to go.
const MAX_GONE: usize = 100_000;

/// The metrics, shared by who counts and who reads.
#[derive(Clone)]
pub struct HubbleMetrics(Arc<Mutex<MetricState>>);

struct MetricState {
    counters: Vec<FlowCounter>,
    lost: BTreeMap<&'static str, u64>,
    /// Pods that have gone, as `namespace/name`, and when their series go.
    gone: VecDeque<(Instant, String)>,
    uncounted: Vec<&'static str>,
}

impl HubbleMetrics {
    /// The metrics that a text asks for, in the words of Cilium's `hubble-metrics`.
    ///
    /// # Errors
    /// What of it is not understood.
    pub fn new(text: &str) -> Result<Self, HubbleError> {
        let (definitions, uncounted) = read_definitions(text).map_err(HubbleError::Metrics)?;
        Ok(HubbleMetrics(Arc::new(Mutex::new(MetricState {
            counters: definitions.into_iter().map(FlowCounter::new).collect(),
            lost: BTreeMap::new(),
            gone: VecDeque::new(),
            uncounted,
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, MetricState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics that were asked for and are never counted.
    #[must_use]
    pub fn uncounted(&self) -> Vec<&'static str> {
        self.lock().uncounted.clone()
    }

    /// Counts flows.
    pub(crate) fn count(&self, flows: &[Flow]) {
        let mut state = self.lock();
        for flow in flows {
            for counter in &mut state.counters {
                counter.count(flow);
            }
        }
    }

    /// Counts events that were lost.
    pub(crate) fn count_lost(&self, source: LostEventSource, count: u64) {
        if count > 0 {
            let mut state = self.lock();
            let sum = state.lost.entry(source.as_str_name()).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// A pod has gone: its series go in a while.
    pub fn forget_pod(&self, namespace: &str, name: &str, now: Instant) {
        let mut state = self.lock();
        if state.gone.len() < MAX_GONE {
            let pod = (now + GRACE, format!("{namespace}/{name}"));
            state.gone.push_back(pod);
        }
    }

    /// How many flows each metric did not count, because it has as many series as it may have.
    #[must_use]
    pub fn refused(&self) -> Vec<(String, u64)> {
        let state = self.lock();
        let counters = state.counters.iter();
        counters
            .map(|counter| (counter.name(), counter.refused()))
            .collect()
    }

    /// All of them in Prometheus' text format.
    #[must_use]
    pub fn text(&self, now: Instant) -> String {
        let mut state = self.lock();
        state.remove_gone(now);
        let mut text = String::new();
        for counter in &state.counters {
            counter.write(&mut text);
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "# HELP hubble_lost_events_total Number of lost events"
        );
        let _ = writeln!(text, "# TYPE hubble_lost_events_total counter");
        for (source, count) in &state.lost {
            let _ = writeln!(
                text,
                "hubble_lost_events_total{{source=\"{source}\"}} {count}"
            );
        }
        text
    }
}

impl MetricState {
    fn remove_gone(&mut self, now: Instant) {
        let due = self.gone.partition_point(|(due, _)| *due <= now);
        let pods: BTreeSet<String> = self.gone.drain(..due).map(|(_, pod)| pod).collect();
        if !pods.is_empty() {
            for counter in &mut self.counters {
                counter.forget_pods(&pods);
            }
        }
    }
}
