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
    /// The order in which tiers and policies are judged.
    pub policies: Vec<PolicySummary>,
}

/// One policy in short.
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
    /// Whom it selects.
    pub subject: String,
    /// How many endpoints of this host it selects.
    pub endpoints: usize,
    /// Its number of rules, both directions.
    pub rules: usize,
    /// File and line it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What it, or a policy set that it is part of, would take of the kernel, where that is more than
    /// it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<BudgetExcess>,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PacketCount {
    /// Packets that were judged; established flows are judged once.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One policy with its rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyDetail {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// The short form.
    #[serde(flatten)]
    pub summary: PolicySummary,
    /// The endpoints of this host that it selects, as `namespace/name`.
    pub selects: Vec<String>,
    /// Its rules in order, then what its isolation denied by default.
    pub rule_counters: Vec<RuleCounterReport>,
}

/// One rule of a policy and what it was credited with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleCounterReport {
    /// `ingress` or `egress`.
    pub direction: String,
    /// Its index in the object's list; absent for what is not one rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// `allow`, `deny`, `pass`, `log`, `default-deny`, or `retired`: what rules counted that the
    /// policy does not have any more.
    pub action: String,
    /// File and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What it was credited with.
    pub count: PacketCount,
}
