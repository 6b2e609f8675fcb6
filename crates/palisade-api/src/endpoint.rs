//! Endpoints attached to this host.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where an endpoint stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EndpointState {
    /// Attached, and closed until its first policy is in the kernel.
    Closed,
    /// Its policy is in the kernel.
    Ready,
    /// Its interface is gone, or its namespace: see `reason`.
    Lost,
}

/// All endpoints of this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointList {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// By namespace and name.
    pub endpoints: Vec<EndpointSummary>,
}

/// One endpoint in short.
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
    /// Why it is in that state, where that is not obvious.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The host-side interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether ingress is isolated by some policy.
    pub ingress_isolated: bool,
    /// Whether egress is isolated by some policy.
    pub egress_isolated: bool,
    /// The policy revision that is real in the kernel for it.
    pub revision: u64,
}

/// One endpoint with everything known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointDetail {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// The short form.
    #[serde(flatten)]
    pub summary: EndpointSummary,
    /// The namespace path it was attached from.
    pub netns: String,
    /// Named ports.
    pub ports: Vec<String>,
    /// The policies that apply to what it receives, in the order they are judged.
    pub ingress: Vec<AppliedPolicyReport>,
    /// The policies that apply to what it sends.
    pub egress: Vec<AppliedPolicyReport>,
}

/// A policy that applies to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AppliedPolicyReport {
    /// Its tier.
    pub tier: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; absent for cluster-wide kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}
