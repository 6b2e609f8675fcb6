//! The element budget: the kernel elements that policies use, and policies over the limit.

use crate::object::named_enum;
use palisade_model::Direction;
use serde::{Deserialize, Serialize};

/// Number of kernel elements (map entries) that policies use, and the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ElementBudgetReport {
    /// Elements that all policy sets of this host use.
    pub elements: usize,
    /// Limit for this host: `host-max-elements`.
    pub host: usize,
    /// Limit for one policy set: `policy-set-max-elements`.
    pub policy_set: usize,
}

named_enum! {
    /// What is enforced instead of a policy that is over budget.
    BudgetFallback {
        /// The policy's last valid version.
        LastValid = "last-valid",
        /// The policy without its rules: the pods it selects are isolated. There is no valid version.
        Isolating = "isolating",
        /// Deny-all instead of several policies: all traffic of the endpoints that all of them select is denied.
        Closed = "closed",
    }
}

/// A policy, or several policies that share endpoints, over the element budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetExcess {
    /// The policies, as `Kind namespace/name`.
    pub policies: Vec<String>,
    /// The direction, for a policy set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(with = "Option<crate::schema::DirectionSchema>")
    )]
    pub direction: Option<Direction>,
    /// File and line of the policy, or resource and resource version, if it is a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What is enforced instead.
    pub enforced: BudgetFallback,
    /// Approximate number of kernel elements needed.
    pub elements: usize,
    /// The limit.
    pub budget: usize,
    /// The configuration parameter that sets the limit.
    pub parameter: String,
    /// The most expensive rules, highest first.
    pub rules: Vec<RuleCostReport>,
}

/// A rule and its number of kernel elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleCostReport {
    /// Its policy, as `Kind namespace/name`.
    pub policy: String,
    /// The direction.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::DirectionSchema"))]
    pub direction: Direction,
    /// Its index in the object's list, from 0.
    pub index: u32,
    /// File and line, or the path of the rule in an object of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Approximate number of kernel elements.
    pub elements: usize,
}
