//! One metric: its series and their counts.
//!
//! Promises: a flow counts as Cilium 1.18 counts it; the number of series is bounded, and what has no series is counted as
//! refused.
//!
//! Never: keeps a flow.

use super::context::direction_text;
use super::definition::{FlowMetric, MetricDefinition};
use super::icmp_text::{icmp_text, icmpv6_text};
use crate::flow::{EVENT_DROP, EVENT_POLICY_VERDICT, EVENT_TRACE};
use crate::identity::{HOST_IDENTITY, WORLD_LABEL};
use crate::policy::match_text;
use crate::proto::flow::layer4::Protocol;
use crate::proto::flow::{DropReason, Flow, IpVersion, TraceObservationPoint, Verdict};
use palisade_text::escape_metric_label;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The most series of one metric.
pub(crate) const MAX_SERIES: usize = 10_000;

/// A metric with its series.
#[derive(Debug)]
pub(super) struct FlowCounter {
    definition: MetricDefinition,
    /// The counts by the values of all labels: its own, and those of the ends.
    series: BTreeMap<Vec<String>, u64>,
    /// Flows that were not counted, for want of a series.
    refused: u64,
}

impl FlowCounter {
    pub(super) fn new(definition: MetricDefinition) -> Self {
        FlowCounter {
            definition,
            series: BTreeMap::new(),
            refused: 0,
        }
    }

    /// The whole name.
    pub(super) fn name(&self) -> String {
        format!("hubble_{}", self.definition.title().0)
    }

    /// How many flows were not counted.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Counts a flow, if it is one of those that this counts.
    pub(super) fn count(&mut self, flow: &Flow) {
        for mut values in self.own_values(flow) {
            values.extend(self.definition.context.values(flow));
            if let Some(count) = self.series.get_mut(&values) {
                *count += 1;
            } else if self.series.len() < MAX_SERIES {
                self.series.insert(values, 1);
            } else {
                self.refused += 1;
            }
        }
    }

    /// Removes the series of pods, as `namespace/name`, in one pass.
    pub(super) fn forget_pods(&mut self, pods: &BTreeSet<String>) {
        let own = self.definition.own_labels().len();
        let labels = self.definition.context.pod_labels();
        if labels.is_empty() {
            return;
        }
        self.series.retain(|values, _| {
            let ends = values.get(own..).unwrap_or_default();
            !labels.iter().any(|label| label.is_of(ends, pods))
        });
    }

    /// Appends it in Prometheus' text format.
    pub(super) fn write(&self, text: &mut String) {
        let name = self.name();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {}", self.definition.title().1);
        let _ = writeln!(text, "# TYPE {name} counter");
        let mut labels = self.definition.own_labels().to_vec();
        labels.extend(self.definition.context.names());
        for (values, count) in &self.series {
            let pairs = labels.iter().zip(values);
            let pairs: Vec<String> = pairs
                .map(|(label, value)| format!("{label}=\"{}\"", escape_metric_label(value)))
                .collect();
            let _ = writeln!(text, "{name}{{{}}} {count}", pairs.join(","));
        }
    }

    /// The values of its own labels for each time that a flow counts.
    fn own_values(&self, flow: &Flow) -> Vec<Vec<String>> {
        let verdict = flow.verdict();
        let values = match self.definition.metric {
            FlowMetric::Drop => (verdict == Verdict::Dropped).then(|| {
                let reason = flow.drop_reason_desc().as_str_name();
                vec![reason.to_owned(), protocol_text(flow).to_owned()]
            }),
            FlowMetric::Flow => Some(flow_values(flow)),
            FlowMetric::FlowsToWorld => self.world_values(flow),
            FlowMetric::Icmp => icmp_values(flow),
            FlowMetric::Policy => policy_values(flow),
            FlowMetric::PortDistribution => port_values(flow),
            FlowMetric::Tcp => return tcp_values(flow),
        };
        values.into_iter().collect()
    }

    fn world_values(&self, flow: &Flow) -> Option<Vec<String>> {
        let destination = flow.destination.as_ref()?;
        let protocol = protocol(flow)?;
        if !destination.labels.iter().any(|label| label == WORLD_LABEL) {
            return None;
        }
        let is_dropped = flow.verdict() == Verdict::Dropped;
        let is_by_policy = flow.drop_reason_desc() == DropReason::PolicyDenied;
        if is_dropped && !self.definition.counts_any_drop && !is_by_policy {
            return None;
        }
        let is_reply = flow.is_reply.unwrap_or_default();
        if is_reply && (!is_dropped || self.definition.counts_syn_only) {
            return None;
        }
        let is_syn =
            matches!(protocol, Protocol::Tcp(tcp) if tcp.flags.is_some_and(|flags| flags.syn));
        if self.definition.counts_syn_only && !is_syn {
            return None;
        }
        let mut values = vec![
            protocol_text(flow).to_owned(),
            flow.verdict().as_str_name().to_owned(),
        ];
        if self.definition.has_port {
            values
                .push(destination_port(protocol).map_or_else(String::new, |port| port.to_string()));
        }
        Some(values)
    }
}

fn protocol(flow: &Flow) -> Option<&Protocol> {
    flow.l4.as_ref()?.protocol.as_ref()
}

fn protocol_text(flow: &Flow) -> &'static str {
    match protocol(flow) {
        Some(Protocol::Tcp(_)) => "TCP",
        Some(Protocol::Udp(_)) => "UDP",
        Some(Protocol::IcmPv4(_)) => "ICMPv4",
        Some(Protocol::IcmPv6(_)) => "ICMPv6",
        Some(Protocol::Sctp(_)) => "SCTP",
        None => "Unknown L4",
    }
}

fn destination_port(protocol: &Protocol) -> Option<u32> {
    match protocol {
        Protocol::Tcp(ports) => Some(ports.destination_port),
        Protocol::Udp(ports) => Some(ports.destination_port),
        Protocol::Sctp(ports) => Some(ports.destination_port),
        _ => None,
    }
}

fn family_text(flow: &Flow) -> &'static str {
    let version = flow
        .ip
        .as_ref()
        .map_or(IpVersion::IpNotUsed, |ip| ip.ip_version());
    version.as_str_name()
}

fn flow_values(flow: &Flow) -> Vec<String> {
    let event = flow.event_type.unwrap_or_default();
    let (kind, detail) = match event.r#type {
        EVENT_DROP => ("Drop", ""),
        EVENT_TRACE => ("Trace", point_text(flow.trace_observation_point())),
        EVENT_POLICY_VERDICT => ("PolicyVerdict", ""),
        _ => ("Unknown", ""),
    };
    let verdict = flow.verdict().as_str_name();
    [protocol_text(flow), kind, detail, verdict]
        .map(str::to_owned)
        .to_vec()
}

/// The points of traces, of which flows of this agent have two.
fn point_text(point: TraceObservationPoint) -> &'static str {
    match point {
        TraceObservationPoint::ToEndpoint => "to-endpoint",
        TraceObservationPoint::ToStack => "to-stack",
        _ => "unknown",
    }
}

fn policy_values(flow: &Flow) -> Option<Vec<String>> {
    let event = flow.event_type?;
    let is_of_host = flow
        .source
        .as_ref()
        .is_some_and(|end| end.identity == HOST_IDENTITY);
    if event.r#type != EVENT_POLICY_VERDICT || is_of_host {
        return None;
    }
    let direction = match direction_text(flow.traffic_direction()) {
        // Cilium has its name in messages here.
        "unknown" => "traffic_direction_unknown",
        direction => direction,
    };
    Some(vec![
        direction.to_owned(),
        match_text(flow.policy_match_type).to_owned(),
        flow.verdict().as_str_name().to_ascii_lowercase(),
    ])
}

fn port_values(flow: &Flow) -> Option<Vec<String>> {
    let is_first = flow.is_reply == Some(false);
    if flow.verdict() != Verdict::Forwarded || !is_first {
        return None;
    }
    let port = match protocol(flow)? {
        Protocol::IcmPv4(_) | Protocol::IcmPv6(_) => 0,
        protocol => destination_port(protocol)?,
    };
    Some(vec![protocol_text(flow).to_owned(), port.to_string()])
}

fn icmp_values(flow: &Flow) -> Option<Vec<String>> {
    let (family, text) = match protocol(flow)? {
        Protocol::IcmPv4(icmp) => ("IPv4", icmp_text(icmp.r#type, icmp.code)),
        Protocol::IcmPv6(icmp) => ("IPv6", icmpv6_text(icmp.r#type, icmp.code)),
        _ => return None,
    };
    Some(vec![family.to_owned(), text])
}

fn tcp_values(flow: &Flow) -> Vec<Vec<String>> {
    let flags = match protocol(flow) {
        Some(Protocol::Tcp(tcp)) if flow.verdict() == Verdict::Forwarded => tcp.flags,
        _ => None,
    };
    let Some(flags) = flags else {
        return Vec::new();
    };
    let family = family_text(flow);
    let set = [
        (flags.fin, "FIN"),
        (flags.syn && flags.ack, "SYN-ACK"),
        (flags.syn && !flags.ack, "SYN"),
        (flags.rst, "RST"),
    ];
    let set = set.iter().filter(|(is_set, _)| *is_set);
    set.map(|(_, flag)| vec![(*flag).to_owned(), family.to_owned()])
        .collect()
}
