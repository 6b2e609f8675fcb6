//! Descriptions of why a rule or a selector did not match.

use palisade_model::{
    IcmpMatch, LabelKey, LabelLookup, LabelScope, PortSpec, Selector, State, reserved,
};
use palisade_oracle::{
    HolderMismatch, HolderName, PeerFailure, PortFailure, Question, RuleMiss, TrafficFailure,
};
use std::fmt::Display;

/// What the descriptions refer to.
#[derive(Clone, Copy)]
pub(super) struct ReasonContext<'a> {
    pub(super) state: &'a State,
    pub(super) question: &'a Question,
    /// The name of the other end in this direction: "the source" or "the destination".
    pub(super) peer: &'static str,
    /// The name of the local end.
    pub(super) local: &'static str,
}

impl ReasonContext<'_> {
    /// One line for each part of a rule that did not match.
    pub(super) fn rule_miss(&self, miss: &RuleMiss) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(failures) = &miss.local {
            let all = failures.iter().map(|f| self.peer_failure(f, self.local));
            lines.push(all.collect::<Vec<_>>().join(", and "));
        }
        if let Some(peers) = &miss.peers {
            if peers.is_empty() {
                lines.push("it lists no peer that can match".to_owned());
            }
            for peer in peers {
                let all = peer
                    .failures
                    .iter()
                    .map(|f| self.peer_failure(f, self.peer));
                let all = all.collect::<Vec<_>>().join(", and ");
                lines.push(with_index("peers", peer.index, peers.len(), &all));
            }
        }
        if let Some(terms) = &miss.traffic {
            if terms.is_empty() {
                lines.push("it lists no traffic that can match".to_owned());
            }
            for term in terms {
                let all = relevant_failures(&term.failures).map(|f| self.traffic_failure(f));
                let all = all.collect::<Vec<_>>().join(", and ");
                lines.push(with_index("ports", term.index, terms.len(), &all));
            }
        }
        if miss.unreadable_queries {
            lines.push(
                "it decides by the name in a DNS query, and this packet is none that the agent can read"
                    .to_owned(),
            );
        }
        lines
    }

    pub(super) fn peer_failure(&self, failure: &PeerFailure, end: &str) -> String {
        match failure {
            PeerFailure::Selector {
                selector: wanted,
                holders,
            } if holders.is_empty() => format!(
                "{end} is not a pod, workload, node or network set; the rule matches only one that is {}",
                describe(wanted)
            ),
            PeerFailure::Selector { holders, .. } => {
                let gaps = holders.iter().map(|gap| self.describe_mismatch(gap));
                gaps.collect::<Vec<_>>().join("; ")
            }
            PeerFailure::NotSelector {
                selector: unwanted,
                holder,
            } => {
                format!(
                    "{holder} is {}, which the rule excludes",
                    describe(unwanted)
                )
            }
            PeerFailure::Nets { nets, address } => match address {
                Some(address) => format!("{end} {address} is not in {}", join_list(nets)),
                None => format!(
                    "the address of {end} is unknown; the rule matches only {}",
                    join_list(nets)
                ),
            },
            PeerFailure::NotNets { net } => format!("{end} is in {net}, which the rule excludes"),
        }
    }

    fn describe_mismatch(&self, gap: &HolderMismatch) -> String {
        let unmet = gap
            .unmet_requirements
            .iter()
            .map(|part| self.describe_unmet(part, &gap.holder));
        format!("{} {}", gap.holder, unmet.collect::<Vec<_>>().join(" and "))
    }

    /// Which requirement a holder does not meet, and the value of its label.
    pub(super) fn describe_unmet(&self, part: &Selector, holder: &HolderName) -> String {
        let is_not = match part {
            Selector::Domain(_, pattern) => format!("an address of a name like {pattern}"),
            Selector::Not(inner) if tested_key(inner).is_some() => {
                format!("is {}", describe(inner))
            }
            _ => format!("is not {}", describe(part)),
        };
        let key = tested_key(part).filter(|key| key.scope != LabelScope::Reserved);
        match key.map(|key| (key, self.holder_label(key, holder))) {
            Some((_, None)) => format!("{is_not} (it has no such label)"),
            Some((key, Some(value))) => format!("{is_not} ({} is {value:?})", key.name),
            None => is_not,
        }
    }

    fn holder_label(&self, key: &LabelKey, holder: &HolderName) -> Option<String> {
        let state = self.state;
        let owned = |value: Option<&str>| value.map(str::to_owned);
        match holder {
            HolderName::Endpoint(id) => {
                let endpoint = state.endpoints.get(id)?;
                owned(state.endpoint_labels(endpoint).label(key))
            }
            HolderName::NetworkSet(id) => {
                let set = state.network_sets.get(id)?;
                owned(state.network_set_labels(set).label(key))
            }
            HolderName::Node(name) => {
                let node = state.nodes.get(name)?;
                owned(state.node_labels(node, None).label(key))
            }
        }
    }

    pub(super) fn traffic_failure(&self, failure: &TrafficFailure) -> String {
        let protocol = self.question.protocol;
        match failure {
            TrafficFailure::Family(wanted) => {
                format!("it matches only {wanted}, not {}", self.question.family)
            }
            TrafficFailure::Protocol(wanted) => {
                format!("it matches only {wanted}, not {protocol}")
            }
            TrafficFailure::NotProtocol(unwanted) => format!("it excludes {unwanted}"),
            TrafficFailure::Destination(failure) => self.port_failure(failure, "destination"),
            TrafficFailure::Source(failure) => self.port_failure(failure, "source"),
            TrafficFailure::Icmp(wanted) => format!("it matches only {}", format_icmp(*wanted)),
            TrafficFailure::NotIcmp(unwanted) => {
                format!("it excludes {}", format_icmp(*unwanted))
            }
        }
    }

    fn port_failure(&self, failure: &PortFailure, end: &str) -> String {
        let protocol = self.question.protocol;
        match failure {
            PortFailure::NoPorts => {
                format!("it tests the {end} port, and {protocol} has no ports")
            }
            PortFailure::NotListed {
                port,
                specs: wanted,
                unresolved,
            } => {
                let mut text = match wanted.as_slice() {
                    [] => format!("its list of {end} ports is empty"),
                    _ => format!(
                        "it matches only {end} port {}, not {port}",
                        join_list(wanted)
                    ),
                };
                for spec in unresolved {
                    let absent = match (spec.service(), spec) {
                        (Some(service), _) => {
                            format!(" (Service {service} has no EndpointSlice with ports)")
                        }
                        (None, PortSpec::Named(name)) => {
                            format!(" (the {end} has no {protocol} port named {name:?})")
                        }
                        (None, PortSpec::Range(_)) => continue,
                    };
                    text.push_str(&absent);
                }
                text
            }
            PortFailure::Excluded {
                port,
                excluded_by: by,
            } => {
                format!("it excludes {end} port {by}; the flow's port is {port}")
            }
        }
    }
}

fn with_index(what: &str, index: usize, count: usize, text: &str) -> String {
    match count {
        1 => text.to_owned(),
        _ => format!("{what}[{index}]: {text}"),
    }
}

fn join_list(items: &[impl Display]) -> String {
    match items {
        [] => "an empty list of networks".to_owned(),
        _ => items
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn format_icmp(message: IcmpMatch) -> String {
    match message.code {
        Some(code) => format!("ICMP type {} code {code}", message.kind),
        None => format!("ICMP type {}", message.kind),
    }
}

/// The key of a test of a single key.
fn tested_key(selector: &Selector) -> Option<&LabelKey> {
    match selector {
        Selector::In(key, _)
        | Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => Some(key),
        Selector::Not(inner) => tested_key(inner),
        Selector::And(_) | Selector::Or(_) => None,
    }
}

/// The failures without redundant ones: if the protocol differs, missing ports are not reported.
fn relevant_failures(failures: &[TrafficFailure]) -> impl Iterator<Item = &TrafficFailure> {
    let other_protocol = failures
        .iter()
        .any(|f| matches!(f, TrafficFailure::Protocol(_)));
    let is_redundant = move |failure: &TrafficFailure| {
        let no_ports = TrafficFailure::Destination(PortFailure::NoPorts);
        let no_source_ports = TrafficFailure::Source(PortFailure::NoPorts);
        other_protocol && [no_ports, no_source_ports].contains(failure)
    };
    failures.iter().filter(move |f| !is_redundant(f))
}

/// Describes the objects that a selector matches, as a phrase to follow "is".
pub(crate) fn describe(selector: &Selector) -> String {
    match selector {
        Selector::And(parts) if parts.len() > 1 => {
            parts.iter().map(describe).collect::<Vec<_>>().join(" and ")
        }
        Selector::In(key, values) => {
            let values: Vec<String> = values.iter().map(|v| format!("{v:?}")).collect();
            describe_values(key, &values)
        }
        Selector::Has(key) => describe_label(key, ""),
        Selector::Contains(key, text) => describe_label(key, &format!(" containing {text:?}")),
        Selector::StartsWith(key, text) => describe_label(key, &format!(" starting with {text:?}")),
        Selector::EndsWith(key, text) => describe_label(key, &format!(" ending with {text:?}")),
        Selector::Domain(_, pattern) => format!("an address of a name like {pattern}"),
        Selector::Not(inner) if tested_key(inner).is_some() => match negated_own_node(inner) {
            Some(is_own) => describe_own_node(is_own),
            None => format!("not {}", describe(inner)),
        },
        _ => format!("matched by {selector}"),
    }
}

fn describe_values(key: &LabelKey, values: &[String]) -> String {
    let any = values.join(" or ");
    if key.scope != LabelScope::Reserved {
        return describe_label(key, &format!(" = {any}"));
    }
    match &*key.name {
        reserved::KIND => {
            let kinds: Vec<&str> = values.iter().map(|value| describe_kind(value)).collect();
            kinds.join(" or ")
        }
        reserved::NAMESPACE => format!("in namespace {any}"),
        reserved::NAME => format!("named {any}"),
        reserved::NODE => format!("on node {any}"),
        reserved::OWN_NODE => describe_own_node(any.trim_matches('"') == reserved::IS_OWN_NODE),
        reserved::SERVICE_ACCOUNT => format!("running as service account {any}"),
        reserved::DOMAIN => format!("an address of {any}"),
        _ => format!("{key} {any}"),
    }
}

fn describe_label(key: &LabelKey, test: &str) -> String {
    let name = &key.name;
    match key.scope {
        LabelScope::Own => format!("labelled {name}{test}"),
        LabelScope::Namespace => format!("in a namespace labelled {name}{test}"),
        LabelScope::ServiceAccount => format!("running as a service account labelled {name}{test}"),
        LabelScope::Node => format!("of a node labelled {name}{test}"),
        LabelScope::Reserved if **name == *reserved::HOST_NODE => {
            "an interface of a node that is known".to_owned()
        }
        LabelScope::Reserved if **name == *reserved::DOMAIN => {
            format!("an address of a name{test}")
        }
        LabelScope::Reserved => format!("an object with {name}{test}"),
    }
}

fn describe_own_node(is_own: bool) -> String {
    let text = if is_own {
        "the node of the pod"
    } else {
        "a node other than that of the pod"
    };
    text.to_owned()
}

/// Whether a selector says that a node does not have a value of the label that tells the own node from others; if
/// so, whether the other value, which it has, is that of the own node.
fn negated_own_node(inner: &Selector) -> Option<bool> {
    let Selector::In(key, values) = inner else {
        return None;
    };
    let is_own_node = *key == LabelKey::reserved(reserved::OWN_NODE);
    let is_other = values
        .iter()
        .any(|value| **value == *reserved::IS_OTHER_NODE);
    is_own_node.then_some(is_other)
}

fn describe_kind(quoted: &str) -> &str {
    match quoted.trim_matches('"') {
        reserved::KIND_WORKLOAD => "a pod or workload",
        reserved::KIND_HOST => "a host endpoint",
        reserved::KIND_NODE_ENDPOINT => "the endpoint of a node",
        reserved::KIND_NODE => "a node",
        reserved::KIND_NETWORK_SET => "a network set",
        reserved::KIND_POD_NETWORK => "an address of the networks of pods",
        reserved::KIND_ENDPOINT_SLICE => "an endpoint of a Service",
        reserved::KIND_CIDR_GROUP => "an address of a CiliumCIDRGroup",
        reserved::KIND_DOMAIN_NAME => "an address of a name",
        other => other,
    }
}
