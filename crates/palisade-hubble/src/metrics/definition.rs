//! Which metrics are wanted: the words of Cilium's `hubble-metrics`.
//!
//! `NAME[:OPTION=VALUE[;OPTION=VALUE…]]`, with blanks between metrics.
//!
//! Promises: every fault is told with the metric that has it.
//!
//! Never: counts.

use super::context::MetricContext;

/// What a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowMetric {
    Drop,
    Flow,
    FlowsToWorld,
    Icmp,
    Policy,
    PortDistribution,
    Tcp,
}

const METRIC_NAMES: [(&str, FlowMetric); 7] = [
    ("drop", FlowMetric::Drop),
    ("flow", FlowMetric::Flow),
    ("flows-to-world", FlowMetric::FlowsToWorld),
    ("icmp", FlowMetric::Icmp),
    ("policy", FlowMetric::Policy),
    ("port-distribution", FlowMetric::PortDistribution),
    ("tcp", FlowMetric::Tcp),
];

/// Cilium's metrics of requests within connections, of which this agent sees none.
const OF_REQUESTS: [&str; 4] = ["dns", "http", "httpV2", "kafka"];

/// A metric that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MetricDefinition {
    /// What it counts.
    pub(crate) metric: FlowMetric,
    /// The labels of the ends.
    pub(crate) context: MetricContext,
    /// Of flows to the world: whether drops by other reasons than policy count.
    pub(crate) counts_any_drop: bool,
    /// Of flows to the world: whether the port is a label.
    pub(crate) has_port: bool,
    /// Of flows to the world: whether of TCP only begins count.
    pub(crate) counts_syn_only: bool,
}

impl MetricDefinition {
    /// The name and the help, without the front that all have.
    pub(crate) fn title(&self) -> (&'static str, &'static str) {
        match self.metric {
            FlowMetric::Drop => ("drop_total", "Number of drops"),
            FlowMetric::Flow => ("flows_processed_total", "Total number of flows processed"),
            FlowMetric::FlowsToWorld => (
                "flows_to_world_total",
                "Total number of flows to reserved:world",
            ),
            FlowMetric::Icmp => ("icmp_total", "Number of ICMP messages"),
            FlowMetric::Policy => (
                "policy_verdicts_total",
                "Total number of network policy verdicts",
            ),
            FlowMetric::PortDistribution => (
                "port_distribution_total",
                "Numbers of packets distributed by destination port",
            ),
            FlowMetric::Tcp => ("tcp_flags_total", "TCP flag occurrences"),
        }
    }

    /// The names of its own labels, before those of the ends.
    pub(crate) fn own_labels(&self) -> &'static [&'static str] {
        match self.metric {
            FlowMetric::Drop => &["reason", "protocol"],
            FlowMetric::Flow => &["protocol", "type", "subtype", "verdict"],
            FlowMetric::FlowsToWorld if self.has_port => &["protocol", "verdict", "port"],
            FlowMetric::FlowsToWorld => &["protocol", "verdict"],
            FlowMetric::Icmp => &["family", "type"],
            FlowMetric::Policy => &["direction", "match", "action"],
            FlowMetric::PortDistribution => &["protocol", "port"],
            FlowMetric::Tcp => &["flag", "family"],
        }
    }
}

/// Reads a list of metrics; those of requests, which are never counted, are returned as the second list.
///
/// # Errors
/// A metric or option that is not known, or a metric that is named twice.
pub(crate) fn read_definitions(
    text: &str,
) -> Result<(Vec<MetricDefinition>, Vec<&'static str>), String> {
    let mut definitions: Vec<MetricDefinition> = Vec::new();
    let mut uncounted = Vec::new();
    for word in text.split_ascii_whitespace() {
        let (name, options) = word.split_once(':').unwrap_or((word, ""));
        if let Some(name) = OF_REQUESTS.iter().find(|known| **known == name) {
            uncounted.push(*name);
            continue;
        }
        let failed = |reason: String| format!("metric {name:?}: {reason}");
        let known = METRIC_NAMES.iter().find(|(known, _)| *known == name);
        let Some((_, metric)) = known else {
            let names = METRIC_NAMES.map(|(name, _)| name).join(", ");
            return Err(failed(format!(
                "there is none of this name; there are {names}"
            )));
        };
        if definitions.iter().any(|other| other.metric == *metric) {
            return Err(failed("it is named twice".to_owned()));
        }
        let mut definition = MetricDefinition {
            metric: *metric,
            context: MetricContext::default(),
            counts_any_drop: false,
            has_port: false,
            counts_syn_only: false,
        };
        for option in options.split(';').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            set_option(&mut definition, name, value).map_err(failed)?;
        }
        definitions.push(definition);
    }
    Ok((definitions, uncounted))
}

fn set_option(definition: &mut MetricDefinition, name: &str, value: &str) -> Result<(), String> {
    if definition.context.set(name, value)? {
        return Ok(());
    }
    let is_of_world = definition.metric == FlowMetric::FlowsToWorld;
    match name.to_ascii_lowercase().as_str() {
        "any-drop" if is_of_world => definition.counts_any_drop = true,
        "port" if is_of_world => definition.has_port = true,
        "syn-only" if is_of_world => definition.counts_syn_only = true,
        _ => return Err(format!("{name:?} is no option of it")),
    }
    Ok(())
}
