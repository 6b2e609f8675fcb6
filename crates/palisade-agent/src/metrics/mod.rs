//! Prometheus metrics: definition, collection and exposition.
//!
//! Every metric is defined once, in [`table`], which also generates the exposition and
//! `docs/metrics.md`. The enforcer counts events in [`CoreMetrics`]; gauges are read for each scrape. No
//! metric names a workload or a policy, because readers of metrics may not be permitted to read those.
//!
//! [`CoreMetrics`]: palisade_enforcer::metrics::CoreMetrics

pub mod exposition;
mod process;
pub mod table;

pub(crate) use process::collect as collect_process;
