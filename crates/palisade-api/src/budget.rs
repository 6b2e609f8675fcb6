//! What policy takes of the kernel, and what would take too much.

use serde::{Deserialize, Serialize};

/// How much policy takes and may take, in kernel elements: entries of maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElementBudgetReport {
    /// What all policy sets of this host take.
    pub elements: usize,
    /// What they may take: `host-max-elements`.
    pub host: usize,
    /// What one policy set may take: `policy-set-max-elements`.
    pub policy_set: usize,
}

/// What is enforced in the place of what would take too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BudgetFallback {
    /// The policy's last valid version.
    LastValid,
    /// The policy without its rules: what it selects is isolated. It was never valid.
    Isolating,
    /// Nothing of several policies: what all of them select is denied everything.
    Closed,
}

/// A policy, or several that share endpoints, that would take more than the budget allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetExcess {
    /// The policies, as `Kind namespace/name`.
    pub policies: Vec<String>,
    /// The direction, where it is one of a policy set: `ingress` or `egress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// File and line of the policy, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What is enforced instead.
    pub enforced: BudgetFallback,
    /// The kernel elements it would take, about.
    pub elements: usize,
    /// How many it may.
    pub budget: usize,
    /// The parameter that says so.
    pub parameter: String,
    /// The rules that take the most, the dearest first.
    pub rules: Vec<RuleCostReport>,
}

/// A rule and what it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleCostReport {
    /// Its policy, as `Kind namespace/name`.
    pub policy: String,
    /// `ingress` or `egress`.
    pub direction: String,
    /// Its index in the object's list, from 0.
    pub index: u32,
    /// File and line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The kernel elements that say it, about.
    pub elements: usize,
}
