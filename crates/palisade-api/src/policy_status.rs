//! The status of one policy: what is in force of it, why its present definition is not, and what is held closed.

use crate::object::named_enum;
use serde::{Deserialize, Serialize};

named_enum! {
    /// What is in force of a policy.
    PolicyState {
        /// Its present definition, as written.
        Accepted = "accepted",
        /// Its present definition; some parts of it are held closed.
        PartlyClosed = "partly-closed",
        /// Its present definition, in a policy set that is over the element budget: all traffic of the endpoints
        /// that it selects together with other policies is denied.
        OverBudget = "over-budget",
        /// Its last valid version: the present definition is not accepted.
        LastValid = "last-valid",
        /// Nothing of it; the pods that it selects are isolated: no version of it was ever valid.
        Isolating = "isolating",
        /// Nothing: no version of it was ever valid, and its subject cannot be read, or its kind is not enforced.
        NotEnforced = "not-enforced",
    }
}

impl Default for PolicyState {
    /// What an agent that does not say it means.
    fn default() -> Self {
        PolicyState::Accepted
    }
}

named_enum! {
    /// Why a part of a policy is held closed.
    ClosedCause {
        /// Domain names, which are not served: nothing is matched by them.
        NamesNotServed = "names-not-served",
        /// What it needs is not served.
        NotServed = "not-served",
        /// A peer of a kind that is not known: its rule fails closed.
        UnknownPeer = "unknown-peer",
        /// A peer without a field: its rule fails closed.
        EmptyPeer = "empty-peer",
        /// A field that is not known, inside a rule: the rule fails closed.
        UnknownField = "unknown-field",
    }
}

/// The status of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// What is in force.
    pub state: PolicyState,
    /// Of a last valid version: when it was first read, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_since: Option<String>,
    /// Why the present definition is not in force as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<PolicyFinding>,
    /// The number of further errors.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_errors: usize,
    /// The parts of what is in force that are held closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedPartReport>,
    /// The number of further parts that are held closed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_closed: usize,
    /// What is valid, but likely not intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<PolicyFinding>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What is to be said about a field of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyFinding {
    /// The field; empty if it is the whole policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong.
    pub reason: String,
    /// File, line and column, or the resource and its version.
    pub at: String,
}

/// A part of a policy that is held closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClosedPartReport {
    /// Why.
    pub cause: ClosedCause,
    /// Its path, why in a sentence, and its place.
    #[serde(flatten)]
    pub part: PolicyFinding,
}
