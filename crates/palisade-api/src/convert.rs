//! `palisade convert -o json`: policies written in another dialect.

use crate::ObjectRef;
use palisade_model::Str;
use serde::Serialize;

/// What became of the policies of manifests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConvertReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// What was written: manifests, ready to be applied.
    pub objects: Vec<serde_json::Value>,
    /// What could not be written; no policy is in both lists.
    pub inexpressible: Vec<InexpressibleReport>,
}

/// A part of a policy that the other dialect cannot say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InexpressibleReport {
    /// The policy.
    pub policy: ObjectRef,
    /// The path of the rule, or of a part of it; absent if it is about the whole policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why, in one sentence.
    pub reason: String,
    /// File and line, or resource and resource version of an object of a server, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}
