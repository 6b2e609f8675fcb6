//! `palisade lint -o json`: what is valid in policies and surely not meant.

use crate::object::named_enum;
use crate::{ObjectRef, RuleRef};
use palisade_model::{Direction, Str};
use serde::Serialize;
use std::collections::BTreeMap;

named_enum! {
    /// What is surely not meant.
    LintCode {
        /// The policy's subject selects no endpoint.
        SubjectSelectsNothing = "subject-selects-nothing",
        /// A peer's selector matches no endpoint, network set or node.
        PeerSelectsNothing = "peer-selects-nothing",
        /// Earlier rules decide every flow that the rule matches.
        RuleNeverReached = "rule-never-reached",
        /// Without the rule, later rules of its policy do the same.
        RuleAddsNothing = "rule-adds-nothing",
        /// Without the policy, every connection is the same.
        PolicyChangesNothing = "policy-changes-nothing",
        /// Two policies of one order decide a flow differently, so that their names decide.
        OrderDecidedByName = "order-decided-by-name",
        /// A rule passes to later tiers, and none of them has a policy.
        PassIntoNothing = "pass-into-nothing",
        /// The policy's tier does not exist.
        TierMissing = "tier-missing",
        /// A Service of a rule has no EndpointSlice with ports.
        ServiceMissing = "service-missing",
        /// A profile of a workload does not exist.
        ProfileMissing = "profile-missing",
        /// A rule has the port of a Service whose pods listen on another port.
        ServicePort = "service-port",
        /// A peer is the cluster IP of a Service, which no packet has when policy is evaluated.
        ClusterIpPeer = "cluster-ip-peer",
        /// A rule allows what is known by name, and nothing allows the workloads to send DNS.
        NamesWithoutDns = "names-without-dns",
        /// A rule allows what is known by name, and nobody reads the DNS answers that the workloads get.
        NamesNeverLearned = "names-never-learned",
        /// A rule allows a name that no rule allows the workloads to ask for.
        NameNeverAsked = "name-never-asked",
    }
}

/// What was found in the policies of manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LintReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The number of policies that were looked at.
    pub policies: usize,
    /// The findings, by file and line.
    pub findings: Vec<LintFinding>,
    /// Policies of other software, which Palisade does not enforce, by kind.
    pub not_enforced: BTreeMap<String, usize>,
    /// What was not looked at, and why. Where it is not empty, there may be more findings.
    pub unchecked: Vec<String>,
}

/// One thing that is surely not meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LintFinding {
    /// What it is.
    pub code: LintCode,
    /// The policy, with the line where it is defined; for a missing profile the first workload that names it.
    pub policy: ObjectRef,
    /// The direction, where the finding is about rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// The rule: its index in the object's list for the direction, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// The rule's own name, in dialects that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_name: Option<String>,
    /// File and line of the rule, or of the policy, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    pub suggestion: String,
    /// The rules that decide instead, or differently; at most [`MAX_RELATED_RULES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related: Vec<RuleRef>,
}

/// The most rules that a finding names; its message has the number of the others.
pub const MAX_RELATED_RULES: usize = 8;
