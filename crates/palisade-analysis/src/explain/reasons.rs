//! Why something did not match, in words.

use palisade_model::{
    IcmpMatch, LabelKey, LabelLookup, PortSpec, Scope, Selector, State, reserved,
};
use palisade_oracle::{
    HolderGap, HolderName, PeerFailure, PortFailure, Question, RuleMiss, TrafficFailure,
};
use std::fmt::Display;

/// What reasons refer to.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) state: &'a State,
    pub(super) question: &'a Question,
    /// What the other end is in this direction: "the source" or "the destination".
    pub(super) peer: &'static str,
    /// What the endpoint's own end is.
    pub(super) own: &'static str,
}

impl Told<'_> {
    /// Every part of a rule that did not match, one line each.
    pub(super) fn rule_miss(&self, miss: &RuleMiss) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(failures) = &miss.own {
            let all = failures.iter().map(|f| self.peer_failure(f, self.own));
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
                lines.push(numbered("peer", peer.index, peers.len(), &all));
            }
        }
        if let Some(terms) = &miss.traffic {
            if terms.is_empty() {
                lines.push("it lists no traffic that can match".to_owned());
            }
            for term in terms {
                let all = term.failures.iter().map(|f| self.traffic_failure(f));
                let all = all.collect::<Vec<_>>().join(", and ");
                lines.push(numbered("port", term.index, terms.len(), &all));
            }
        }
        lines
    }

    pub(super) fn peer_failure(&self, failure: &PeerFailure, end: &str) -> String {
        match failure {
            PeerFailure::Selector { wanted, holders } if holders.is_empty() => format!(
                "{end} is no pod or other labelled thing, and the rule is for {}",
                described(wanted)
            ),
            PeerFailure::Selector { holders, .. } => {
                let gaps = holders.iter().map(|gap| self.gap(gap));
                gaps.collect::<Vec<_>>().join("; ")
            }
            PeerFailure::NotSelector { unwanted, holder } => {
                format!(
                    "{holder} is what the rule leaves out: {}",
                    described(unwanted)
                )
            }
            PeerFailure::Nets { nets, address } => match address {
                Some(address) => format!("{end} {address} is not in {}", listed(nets)),
                None => format!(
                    "the address of {end} is unknown, and the rule is for {}",
                    listed(nets)
                ),
            },
            PeerFailure::NotNets { net } => format!("{end} is in {net}, which the rule leaves out"),
        }
    }

    fn gap(&self, gap: &HolderGap) -> String {
        let unmet = gap.unmet.iter().map(|part| self.unmet(part, &gap.holder));
        format!("{} {}", gap.holder, unmet.collect::<Vec<_>>().join(" and "))
    }

    /// What a holder would have to be, and what it is.
    pub(super) fn unmet(&self, part: &Selector, holder: &HolderName) -> String {
        let wanted = described(part);
        match tested_key(part) {
            Some(key) if key.scope != Scope::Reserved => {
                let is = match self.label(key, holder) {
                    Some(value) => format!("it is {value:?}"),
                    None => "it has none".to_owned(),
                };
                format!("does not match {wanted} ({is})")
            }
            _ => format!("does not match {wanted}"),
        }
    }

    fn label(&self, key: &LabelKey, holder: &HolderName) -> Option<String> {
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
                owned(state.node_labels(node).label(key))
            }
        }
    }

    pub(super) fn traffic_failure(&self, failure: &TrafficFailure) -> String {
        let protocol = self.question.protocol;
        match failure {
            TrafficFailure::Family(wanted) => {
                format!("it is for {wanted}, and this is {}", self.question.family)
            }
            TrafficFailure::Protocol(wanted) => {
                format!("it is for {wanted}, and this is {protocol}")
            }
            TrafficFailure::NotProtocol(unwanted) => format!("it is for anything but {unwanted}"),
            TrafficFailure::Destination(failure) => self.port_failure(failure, "destination"),
            TrafficFailure::Source(failure) => self.port_failure(failure, "source"),
            TrafficFailure::Icmp(wanted) => format!("it is for {}", icmp(*wanted)),
            TrafficFailure::NotIcmp(unwanted) => {
                format!("it is for anything but {}", icmp(*unwanted))
            }
        }
    }

    fn port_failure(&self, failure: &PortFailure, end: &str) -> String {
        let protocol = self.question.protocol;
        match failure {
            PortFailure::NoPorts => {
                format!("it tests the {end} port, and {protocol} has none")
            }
            PortFailure::NotListed {
                port,
                wanted,
                unresolved,
            } => {
                let mut text = match wanted.as_slice() {
                    [] => format!("it names no {end} port that can match"),
                    _ => format!("it is for {end} port {}, not {port}", listed(wanted)),
                };
                for name in unresolved
                    .iter()
                    .filter(|s| matches!(s, PortSpec::Named(_)))
                {
                    text.push_str(&format!(
                        " (the {end} has no {protocol} port named \"{name}\")"
                    ));
                }
                text
            }
            PortFailure::Excluded { port, by } => {
                format!("it leaves out {end} port {by}, and this is {port}")
            }
        }
    }
}

fn numbered(what: &str, index: usize, of: usize, text: &str) -> String {
    match of {
        1 => text.to_owned(),
        _ => format!("{what} {index}: {text}"),
    }
}

fn listed(items: &[impl Display]) -> String {
    match items {
        [] => "no network at all".to_owned(),
        _ => items
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn icmp(message: IcmpMatch) -> String {
    match message.code {
        Some(code) => format!("ICMP type {} code {code}", message.kind),
        None => format!("ICMP type {}", message.kind),
    }
}

/// The one key that a simple test looks at.
fn tested_key(selector: &Selector) -> Option<&LabelKey> {
    match selector {
        Selector::In(key, _)
        | Selector::Has(key)
        | Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _) => Some(key),
        Selector::Not(inner) => tested_key(inner),
        Selector::And(_) | Selector::Or(_) => None,
    }
}

/// A selector in words where there are better ones than its own text.
pub(super) fn described(selector: &Selector) -> String {
    if let Selector::And(parts) = selector
        && parts.len() > 1
    {
        return parts
            .iter()
            .map(described)
            .collect::<Vec<_>>()
            .join(" and ");
    }
    let quoted = |values: &std::collections::BTreeSet<palisade_model::Str>| {
        let all = values.iter().map(|v| format!("{v:?}"));
        all.collect::<Vec<_>>().join(" or ")
    };
    match selector {
        Selector::In(key, values) if key.scope == Scope::Reserved => match &*key.name {
            reserved::KIND => format!(
                "being a {}",
                values
                    .iter()
                    .map(|v| kind(v))
                    .collect::<Vec<_>>()
                    .join(" or a ")
            ),
            reserved::NAMESPACE => format!("being in namespace {}", quoted(values)),
            reserved::NAME => format!("being named {}", quoted(values)),
            reserved::SERVICE_ACCOUNT => format!("running as service account {}", quoted(values)),
            _ => selector.to_string(),
        },
        Selector::In(key, values) if key.scope == Scope::Namespace => {
            format!("namespace label {} = {}", key.name, quoted(values))
        }
        Selector::In(key, values) if key.scope == Scope::Own => {
            format!("label {} = {}", key.name, quoted(values))
        }
        Selector::Has(key) if key.scope == Scope::Own => format!("having a label {}", key.name),
        Selector::Not(inner) if tested_key(inner).is_some() => format!("not {}", described(inner)),
        _ => selector.to_string(),
    }
}

fn kind(value: &str) -> &str {
    match value {
        reserved::KIND_WORKLOAD => "pod or workload",
        reserved::KIND_HOST => "host endpoint",
        reserved::KIND_NODE => "node",
        reserved::KIND_NETWORK_SET => "network set",
        other => other,
    }
}
