//! `NodePolicyStatus` of `palisade.dev/v1alpha1`: what an agent writes back to its cluster about its node.
//!
//! The schema of the custom resource definition is made from these types. Times and figures are as of the
//! last write: a change of figures alone is not written at once.

use crate::object::named_enum;
use serde::{Deserialize, Serialize};

/// The `status` of a `NodePolicyStatus`, which has the name of its Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodePolicyReport {
    /// The version of the agent.
    pub agent_version: String,
    /// What enforces policy on this node, such as nftables.
    pub driver: String,
    /// When this was written, RFC 3339.
    pub updated: String,
    /// The revision of the last accepted input; each agent counts its own.
    pub revision: u64,
    /// The revision that the kernel enforces.
    pub realised_revision: u64,
    /// Workloads of this node.
    pub endpoints: usize,
    /// Policies in force.
    pub policies: usize,
    /// Groups of addresses that policy tells apart.
    pub identities: usize,
    /// The sources that are not followed, and since when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale_sources: Vec<StaleSource>,
    /// The number of objects that are not enforced as written.
    pub not_enforced_count: usize,
    /// The first hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<NotEnforcedObject>,
    /// The number of policies that are in force with parts held closed.
    #[serde(default)]
    pub partly_closed_count: usize,
    /// The first hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partly_closed: Vec<PartlyClosedPolicy>,
    /// The state in the form that all Kubernetes objects have.
    pub conditions: Vec<NodeCondition>,
}

/// A source that is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StaleSource {
    /// Its name.
    pub name: String,
    /// Since when changes may be missed, RFC 3339.
    pub since: String,
    /// Why.
    pub reason: String,
}

/// A policy, or another object, that is not enforced as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NotEnforcedObject {
    /// Its kind, or that of the first policy of several.
    pub kind: String,
    /// Its name, with its namespace: `namespace/name`.
    pub name: String,
    /// What is in force instead.
    pub enforced: EnforcedInstead,
    /// The field that is not accepted, if it is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Why.
    pub reason: String,
}

/// A policy in force of which parts are held closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PartlyClosedPolicy {
    /// Its kind.
    pub kind: String,
    /// Its name, with its namespace: `namespace/name`.
    pub name: String,
    /// The path of the first part.
    pub field: String,
    /// Why that is held closed.
    pub reason: String,
    /// The number of its parts that are held closed.
    pub parts: usize,
}

named_enum! {
    /// What is in force instead of an object that is not enforced as written.
    EnforcedInstead {
        /// Its last valid version.
        LastValid = "last-valid",
        /// Nothing of it; the pods that it selects are isolated.
        Isolating = "isolating",
        /// All traffic of the workloads that it selects together with other policies is denied.
        Closed = "closed",
        /// Nothing of it: it is no policy, or it is enforced in part.
        Nothing = "nothing",
    }
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// `Ready`: the kernel enforces the policy of all sources. `Stale`: a source is not followed.
    /// `Accepted`: every object is enforced as written.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True` or `False`.
    pub status: String,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the status changed last, RFC 3339.
    pub last_transition_time: String,
}

impl NodePolicyReport {
    /// Without times and figures: what is written at once if it changes.
    #[must_use]
    pub fn without_figures(&self) -> NodePolicyReport {
        let mut fixed = NodePolicyReport {
            updated: String::new(),
            revision: 0,
            realised_revision: 0,
            endpoints: 0,
            policies: 0,
            identities: 0,
            ..self.clone()
        };
        for condition in &mut fixed.conditions {
            condition.last_transition_time.clear();
        }
        fixed
    }

    /// Conditions with the status that they had before have had it since then.
    pub fn keep_transition_times(&mut self, before: &NodePolicyReport) {
        for condition in &mut self.conditions {
            let same = before
                .conditions
                .iter()
                .find(|old| old.kind == condition.kind && old.status == condition.status);
            if let Some(old) = same {
                condition
                    .last_transition_time
                    .clone_from(&old.last_transition_time);
            }
        }
    }
}
