//! Endpoints attached to this host.

use crate::ObjectRef;
use crate::object::named_enum;
use palisade_model::Str;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

named_enum! {
    /// Life cycle state of an endpoint.
    EndpointState {
        /// Attached; all traffic is denied until its first policy is in the kernel.
        Closed = "closed",
        /// Its policy is in the kernel.
        Ready = "ready",
        /// Its interface or its network namespace no longer exists: see `reason`.
        Lost = "lost",
    }
}

/// All endpoints of this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointList {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Ordered by namespace and name.
    pub endpoints: Vec<EndpointSummary>,
}

/// Summary of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointSummary {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: EndpointState,
    /// Reason for the state, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The host-side interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is in audit: no policy is enforced for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub audit: bool,
    /// Whether a policy isolates it for ingress.
    pub ingress_isolated: bool,
    /// Whether a policy isolates it for egress.
    pub egress_isolated: bool,
    /// The policy revision that the kernel enforces for this endpoint; 0: it is not open.
    pub revision: u64,
}

/// All details of one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointDetail {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The summary.
    #[serde(flatten)]
    pub summary: EndpointSummary,
    /// Path of the network namespace from which it was attached.
    pub netns: String,
    /// Named ports.
    pub ports: Vec<String>,
    /// Policies that apply to ingress, in evaluation order.
    pub ingress: Vec<AppliedPolicyReport>,
    /// Policies that apply to egress, in evaluation order.
    pub egress: Vec<AppliedPolicyReport>,
}

/// A policy that applies to an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AppliedPolicyReport {
    /// Its tier.
    pub tier: String,
    /// The order of the tier; absent where it has none or does not exist, and stands after those that have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_order: Option<f64>,
    /// Its order in the tier; see [`crate::PolicySummary::order`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// The policy.
    #[serde(flatten)]
    pub policy: ObjectRef,
}
