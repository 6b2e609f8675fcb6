//! The labels that tell the ends of flows apart in metrics, as Cilium's options name them.
//!
//! Promises: names, order and values are those of Cilium 1.18; an option that is not known is refused.
//!
//! Never: looks at anything but the flow.

use crate::proto::flow::{Endpoint, Flow, TrafficDirection};
use std::collections::BTreeSet;

/// How an end is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndIdentifier {
    Identity,
    Namespace,
    Pod,
    PodName,
    Dns,
    Ip,
    ReservedIdentity,
    Workload,
    WorkloadName,
    App,
}

const IDENTIFIERS: [(&str, EndIdentifier); 10] = [
    ("identity", EndIdentifier::Identity),
    ("namespace", EndIdentifier::Namespace),
    ("pod", EndIdentifier::Pod),
    ("pod-name", EndIdentifier::PodName),
    ("dns", EndIdentifier::Dns),
    ("ip", EndIdentifier::Ip),
    ("reserved-identity", EndIdentifier::ReservedIdentity),
    ("workload", EndIdentifier::Workload),
    ("workload-name", EndIdentifier::WorkloadName),
    ("app", EndIdentifier::App),
];

/// The labels of `labelsContext`, in the order in which metrics have them.
const CONTEXT_LABELS: [&str; 13] = [
    "source_ip",
    "source_pod",
    "source_namespace",
    "source_workload",
    "source_workload_kind",
    "source_app",
    "destination_ip",
    "destination_pod",
    "destination_namespace",
    "destination_workload",
    "destination_workload_kind",
    "destination_app",
    "traffic_direction",
];

/// The labels of a pod that name its application, the first one that it has.
const APP_LABELS: [&str; 3] = ["k8s:app.kubernetes.io/name=", "k8s:k8s-app=", "k8s:app="];

const API_SERVER: &str = "reserved:kube-apiserver";

/// An end of a flow, as metrics see it.
struct MetricEndpoint<'a> {
    endpoint: Option<&'a Endpoint>,
    address: &'a str,
    names: &'a [String],
}

impl<'a> MetricEndpoint<'a> {
    fn source(flow: &'a Flow) -> Self {
        MetricEndpoint {
            endpoint: flow.source.as_ref(),
            address: flow.ip.as_ref().map_or("", |ip| &ip.source),
            names: &flow.source_names,
        }
    }

    fn destination(flow: &'a Flow) -> Self {
        MetricEndpoint {
            endpoint: flow.destination.as_ref(),
            address: flow.ip.as_ref().map_or("", |ip| &ip.destination),
            names: &flow.destination_names,
        }
    }

    fn namespace(&self) -> &'a str {
        self.endpoint.map_or("", |end| &end.namespace)
    }

    fn pod_name(&self) -> &'a str {
        self.endpoint.map_or("", |end| &end.pod_name)
    }

    fn labels(&self) -> &'a [String] {
        self.endpoint.map_or(&[], |end| &end.labels)
    }

    /// Name and kind of its controller.
    fn workload(&self) -> (&'a str, &'a str) {
        let workload = self.endpoint.and_then(|end| end.workloads.first());
        workload.map_or(("", ""), |workload| (&workload.name, &workload.kind))
    }

    fn app(&self) -> &'a str {
        let app = |label: &'a String| {
            let value = APP_LABELS.iter().find_map(|key| label.strip_prefix(key))?;
            (!value.is_empty()).then_some(value)
        };
        self.labels().iter().find_map(app).unwrap_or_default()
    }

    fn reserved_identity(&self) -> &'a str {
        let mut reserved = self
            .labels()
            .iter()
            .filter(|label| label.starts_with("reserved:"));
        let first = reserved.clone().next();
        let label = reserved.find(|label| *label == API_SERVER).or(first);
        label.map_or("", String::as_str)
    }

    /// A name within its namespace, if it has one.
    fn qualified(&self, name: &str) -> String {
        match self.namespace() {
            "" => name.to_owned(),
            namespace => format!("{namespace}/{name}"),
        }
    }

    fn value(&self, identifier: EndIdentifier) -> String {
        match identifier {
            EndIdentifier::Identity => self.labels().join(","),
            EndIdentifier::Namespace => self.namespace().to_owned(),
            EndIdentifier::Pod => self.qualified(self.pod_name()),
            EndIdentifier::PodName => self.pod_name().to_owned(),
            EndIdentifier::Dns => self.names.join(","),
            EndIdentifier::Ip => self.address.to_owned(),
            EndIdentifier::ReservedIdentity => self.reserved_identity().to_owned(),
            EndIdentifier::Workload => match self.workload().0 {
                "" => String::new(),
                name => self.qualified(name),
            },
            EndIdentifier::WorkloadName => self.workload().0.to_owned(),
            EndIdentifier::App => self.app().to_owned(),
        }
    }

    /// The value of a label of `labelsContext`, without its front.
    fn context_value(&self, label: &str) -> &'a str {
        match label {
            "ip" => self.address,
            "pod" => self.pod_name(),
            "namespace" => self.namespace(),
            "workload" => self.workload().0,
            "workload_kind" => self.workload().1,
            _ => self.app(),
        }
    }
}

/// How the ends of one side are named: in all flows, and in those of a direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SideContext {
    both: Vec<EndIdentifier>,
    egress: Vec<EndIdentifier>,
    ingress: Vec<EndIdentifier>,
}

impl SideContext {
    fn is_set(&self) -> bool {
        !(self.both.is_empty() && self.egress.is_empty() && self.ingress.is_empty())
    }

    /// Whether pods may have a name of their own.
    fn names_pods(&self) -> bool {
        [&self.both, &self.egress, &self.ingress]
            .into_iter()
            .any(|identifiers| identifiers.contains(&EndIdentifier::Pod))
    }

    /// The first name that the end has.
    fn value(&self, direction: TrafficDirection, end: &MetricEndpoint<'_>) -> String {
        let own = match direction {
            TrafficDirection::Egress => &self.egress,
            TrafficDirection::Ingress => &self.ingress,
            TrafficDirection::Unknown => &self.both,
        };
        let identifiers = if own.is_empty() { &self.both } else { own };
        let mut values = identifiers.iter().map(|identifier| end.value(*identifier));
        values.find(|value| !value.is_empty()).unwrap_or_default()
    }
}

/// The labels of a metric that tell the ends of flows apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetricContext {
    labels: Vec<&'static str>,
    source: SideContext,
    destination: SideContext,
}

impl MetricContext {
    /// Reads an option; `false` if it is none of these.
    ///
    /// # Errors
    /// A value that is not known.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let name = name.to_ascii_lowercase();
        if name == "labelscontext" {
            self.labels = read_labels(value)?;
            return Ok(true);
        }
        let identifiers = match name.as_str() {
            "sourcecontext" => &mut self.source.both,
            "sourceegresscontext" => &mut self.source.egress,
            "sourceingresscontext" => &mut self.source.ingress,
            "destinationcontext" => &mut self.destination.both,
            "destinationegresscontext" => &mut self.destination.egress,
            "destinationingresscontext" => &mut self.destination.ingress,
            _ => return Ok(false),
        };
        *identifiers = value
            .split('|')
            .map(read_identifier)
            .collect::<Result<_, _>>()?;
        Ok(true)
    }

    /// The names of the labels.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let mut names = self.labels.clone();
        names.extend(self.source.is_set().then_some("source"));
        names.extend(self.destination.is_set().then_some("destination"));
        names
    }

    /// Their values for a flow, in the same order.
    pub(crate) fn values(&self, flow: &Flow) -> Vec<String> {
        let (source, destination) = (
            MetricEndpoint::source(flow),
            MetricEndpoint::destination(flow),
        );
        let direction = flow.traffic_direction();
        let label = |label: &&'static str| match label.split_once('_') {
            Some(("source", rest)) => source.context_value(rest).to_owned(),
            Some(("destination", rest)) => destination.context_value(rest).to_owned(),
            _ => direction_text(direction).to_owned(),
        };
        let mut values: Vec<String> = self.labels.iter().map(label).collect();
        if self.source.is_set() {
            values.push(self.source.value(direction, &source));
        }
        if self.destination.is_set() {
            values.push(self.destination.value(direction, &destination));
        }
        values
    }

    /// Where among the values the names of pods are.
    pub(crate) fn pod_labels(&self) -> Vec<MetricPodLabel> {
        let names = self.names();
        let index = |label: &str| names.iter().position(|name| *name == label);
        let mut found = Vec::new();
        for (label, side) in [("source", &self.source), ("destination", &self.destination)] {
            found.extend(
                index(label)
                    .filter(|_| side.names_pods())
                    .map(MetricPodLabel::Qualified),
            );
            let split = (
                index(&format!("{label}_namespace")),
                index(&format!("{label}_pod")),
            );
            if let (Some(namespace), Some(name)) = split {
                found.push(MetricPodLabel::Split { namespace, name });
            }
        }
        found
    }
}

/// Where the name of a pod is among the values of labels, by index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetricPodLabel {
    /// As `namespace/name`.
    Qualified(usize),
    /// In two labels.
    Split {
        /// The namespace.
        namespace: usize,
        /// The name.
        name: usize,
    },
}

impl MetricPodLabel {
    /// Whether the values are those of one of these pods, as `namespace/name`.
    pub(crate) fn is_of(self, values: &[String], pods: &BTreeSet<String>) -> bool {
        let value = |index: usize| values.get(index).map_or("", String::as_str);
        match self {
            MetricPodLabel::Qualified(index) => pods.contains(value(index)),
            MetricPodLabel::Split { namespace, name } => {
                pods.contains(&format!("{}/{}", value(namespace), value(name)))
            }
        }
    }
}

/// A direction as labels have it.
pub(crate) fn direction_text(direction: TrafficDirection) -> &'static str {
    match direction {
        TrafficDirection::Unknown => "unknown",
        TrafficDirection::Ingress => "ingress",
        TrafficDirection::Egress => "egress",
    }
}

fn read_identifier(text: &str) -> Result<EndIdentifier, String> {
    let known = IDENTIFIERS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    known.map(|(_, identifier)| *identifier).ok_or_else(|| {
        let names = IDENTIFIERS.map(|(name, _)| name).join(", ");
        format!("{text:?} names no end of a flow; there are {names}")
    })
}

fn read_labels(text: &str) -> Result<Vec<&'static str>, String> {
    let wanted: Vec<&str> = text.split(',').map(str::trim).collect();
    if let Some(unknown) = wanted.iter().find(|label| !CONTEXT_LABELS.contains(label)) {
        let labels = CONTEXT_LABELS.join(", ");
        return Err(format!("{unknown:?} is no label; there are {labels}"));
    }
    let labels = CONTEXT_LABELS.iter().copied();
    Ok(labels.filter(|label| wanted.contains(label)).collect())
}
