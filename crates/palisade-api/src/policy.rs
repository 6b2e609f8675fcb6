//! Policies in force, and their counters.

use crate::BudgetExcess;
use serde::{Deserialize, Serialize};

/// Every policy known to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyList {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// In the evaluation order of tiers and policies.
    pub policies: Vec<PolicySummary>,
}

/// Summary of one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicySummary {
    /// Its tier.
    pub tier: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; absent for cluster-wide kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its selector.
    pub subject: String,
    /// Number of endpoints of this host that it selects.
    pub endpoints: usize,
    /// Number of rules in both directions.
    pub rules: usize,
    /// File and line of its definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The excess, if this policy or a policy set it belongs to is over the element budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<BudgetExcess>,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PacketCount {
    /// Evaluated packets; of an established connection, only the first packet is evaluated.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// One policy with its rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyDetail {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// The summary.
    #[serde(flatten)]
    pub summary: PolicySummary,
    /// The endpoints of this host that it selects, as `namespace/name`.
    pub selects: Vec<String>,
    /// Counters of its rules in order, then of its default deny.
    pub rule_counters: Vec<RuleCounterReport>,
}

/// Counters of one rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleCounterReport {
    /// `ingress` or `egress`.
    pub direction: String,
    /// Index in the object's list; absent if it is not a single rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `allow`, `deny`, `pass`, `log`, `default-deny`, or `retired`: the sum of rules that the policy no
    /// longer has.
    pub action: String,
    /// File and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Packets and bytes.
    pub count: PacketCount,
}
