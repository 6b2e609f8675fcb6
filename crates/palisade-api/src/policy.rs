//! Policies in force, and their counters.

use crate::object::named_enum;
use crate::{BudgetExcess, ObjectRef, PolicyStatus};
use palisade_model::{Action, Direction, PolicyMode, Str};
use serde::{Deserialize, Serialize};

/// Every policy that the agent has read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// In the evaluation order of tiers and policies; then those of which nothing is in force, by name.
    pub policies: Vec<PolicySummary>,
}

/// Summary of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicySummary {
    /// Its tier; empty if nothing of it is in force.
    pub tier: String,
    /// The order of the tier among the tiers, ascending; absent where it has none or does not exist, and stands
    /// after those that have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_order: Option<f64>,
    /// Its order in the tier, ascending; a NetworkPolicy stands at 1000. Absent where it has none: what Cilium's
    /// policies deny stands first, a policy of Calico without `order` last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// The policy, with the line of its definition.
    #[serde(flatten)]
    pub policy: ObjectRef,
    /// Its selector; empty if nothing of it is in force.
    pub subject: String,
    /// What is in force of it, and why.
    #[serde(default)]
    pub status: PolicyStatus,
    /// Whether it is enforced.
    #[serde(default)]
    pub mode: PolicyModeName,
    /// Number of endpoints of this host that it selects.
    pub endpoints: usize,
    /// Number of these that are in audit, so that it is not enforced for them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub endpoints_in_audit: usize,
    /// Number of rules in both directions.
    pub rules: usize,
    /// The revision that brought its present version into the kernel; 0: it is not in the kernel yet.
    #[serde(default)]
    pub revision: u64,
    /// Since when the kernel enforces its present version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The excess, if this policy or a policy set it belongs to is over the element budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_budget: Option<BudgetExcess>,
}

named_enum! {
    /// Whether a policy is enforced.
    PolicyModeName {
        /// It is enforced.
        Enforce = "enforce",
        /// It decides nothing; what it would decide is counted.
        Audit = "audit",
    }
}

#[allow(
    clippy::derivable_impls,
    reason = "the macro takes no attribute of a variant"
)]
impl Default for PolicyModeName {
    fn default() -> Self {
        PolicyModeName::Enforce
    }
}

impl From<PolicyMode> for PolicyModeName {
    fn from(mode: PolicyMode) -> Self {
        match mode {
            PolicyMode::Enforce => PolicyModeName::Enforce,
            PolicyMode::Audit => PolicyModeName::Audit,
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde requires a reference"
)]
fn is_zero(number: &usize) -> bool {
    *number == 0
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyDetail {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The summary.
    #[serde(flatten)]
    pub summary: PolicySummary,
    /// The endpoints of this host that it selects, as `namespace/name`.
    pub selects: Vec<String>,
    /// Counters of its rules in order, then of its default deny.
    pub rule_counters: Vec<RuleCounterReport>,
}

/// The query parameters of `GET /v1/manifest`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ManifestQuery {
    /// `KIND/NAMESPACE/NAME`, `KIND/NAME`, `NAMESPACE/NAME` or `NAME`.
    pub policy: String,
}

/// A policy as it was written, and where its rules are in the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ManifestReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The policy.
    #[serde(flatten)]
    pub policy: ObjectRef,
    /// The text of the object in its file, or of an object of a server those of its fields that policy needs, as YAML.
    pub text: String,
    /// The number of the first line in the file; 1 of an object of a server.
    pub first_line: u32,
    /// Whether the text says what is in force; `false` if the file was changed since, or the object is not valid.
    pub in_force: bool,
    /// Its rules.
    pub rules: Vec<RuleExcerpt>,
}

/// The lines of a rule, counted as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleExcerpt {
    /// The direction.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::DirectionSchema"))]
    pub direction: Direction,
    /// Index in the object's list.
    pub index: u32,
    /// The first line.
    pub first: u32,
    /// The last line.
    pub last: u32,
}

named_enum! {
    /// What a counter of a policy counts.
    CountedAction {
        /// A rule with this action.
        Allow = "allow",
        /// A rule with this action.
        Deny = "deny",
        /// A rule with this action.
        Pass = "pass",
        /// A rule with this action.
        Log = "log",
        /// The policy's default deny.
        DefaultDeny = "default-deny",
        /// All rules that the policy no longer has.
        Retired = "retired",
    }
}

impl From<Action> for CountedAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Allow => CountedAction::Allow,
            Action::Deny => CountedAction::Deny,
            Action::Pass => CountedAction::Pass,
            Action::Log => CountedAction::Log,
        }
    }
}

/// Counters of one rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RuleCounterReport {
    /// The direction.
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::DirectionSchema"))]
    pub direction: Direction,
    /// Index in the object's list; absent if it is not a single rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// What is counted.
    pub action: CountedAction,
    /// File and line, or resource, resource version and path in an object of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Packets and bytes.
    pub count: PacketCount,
    /// Packets that it would have a part in allowing if nothing were in audit; only where something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_allow: Option<PacketCount>,
    /// Packets that it would have a part in denying if nothing were in audit; only where something is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_deny: Option<PacketCount>,
}
