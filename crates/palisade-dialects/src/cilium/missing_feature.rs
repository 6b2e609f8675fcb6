//! What is read and validated, but not served yet: it is held closed, and the report names the missing feature.
//!
//! Promises: nothing is allowed by it, and nothing is taken out of a rule that denies.

use super::rule_context::RuleAction;
use crate::closed_part::ClosedReason;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::Peer;
use std::fmt;

/// A feature of Cilium that a policy asks for and that is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingFeature {
    /// Rules of HTTP.
    HttpRules,
    /// Rules of Kafka.
    KafkaRules,
    /// Rules of DNS in policies of nodes, but for those that allow every name.
    NodeDnsRules,
    /// Empty lists of rules of DNS.
    EmptyDnsRules,
    /// Rules of other protocols above the transport.
    OtherL7Rules,
    /// `terminatingTLS`.
    TerminatingTls,
    /// `originatingTLS`.
    OriginatingTls,
    /// `serverNames`.
    ServerNames,
    /// Listeners of a proxy.
    Listeners,
    /// `fromGroups`.
    IngressGroups,
    /// `toGroups`.
    EgressGroups,
    /// Authentication that needs a handshake.
    MutualAuthentication,
    /// Labels of the source `fqdn`.
    FqdnLabels,
    /// Names of clusters.
    ClusterNames,
    /// Addresses that have to be in several sets at once.
    SeveralSets,
}

impl fmt::Display for MissingFeature {
    /// As a plural noun.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MissingFeature::HttpRules => "HTTP rules",
            MissingFeature::KafkaRules => "Kafka rules",
            MissingFeature::NodeDnsRules => {
                "DNS rules for queries of the host itself, which nobody reads,"
            }
            MissingFeature::EmptyDnsRules => "empty lists of DNS rules",
            MissingFeature::OtherL7Rules => "rules of other L7 protocols",
            MissingFeature::TerminatingTls => "TLS contexts (`terminatingTLS`)",
            MissingFeature::OriginatingTls => "TLS contexts (`originatingTLS`)",
            MissingFeature::ServerNames => "server names (`serverNames`)",
            MissingFeature::Listeners => "listeners",
            MissingFeature::IngressGroups => "groups of cloud providers (`fromGroups`)",
            MissingFeature::EgressGroups => "groups of cloud providers (`toGroups`)",
            MissingFeature::MutualAuthentication => "handshakes of mutual authentication",
            MissingFeature::FqdnLabels => "labels of names (the source `fqdn`)",
            MissingFeature::ClusterNames => "names of clusters",
            MissingFeature::SeveralSets => "addresses that have to be in several sets at once",
        })
    }
}

/// Reports that a part of a rule is held closed because a feature is missing.
pub(super) fn hold_closed(
    at: &Field<'_>,
    feature: MissingFeature,
    action: RuleAction,
    report: &mut ObjectReport,
) {
    let consequence = match action {
        RuleAction::Allow => "allows nothing by them",
        RuleAction::Deny => "denies whatever they may match",
    };
    report.close(
        at,
        ClosedReason::NotServed,
        format!("{feature} are not served yet: the rule is held closed, it {consequence}"),
    );
}

/// The peers of a rule that has a peer held closed.
pub(super) fn closed_peers(action: RuleAction) -> Vec<Peer> {
    match action {
        RuleAction::Allow => Vec::new(),
        RuleAction::Deny => vec![Peer::any()],
    }
}
