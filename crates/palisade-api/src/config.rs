//! The resolved configuration.

use serde::{Deserialize, Serialize};

/// Every parameter with its value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// In the order of the documentation.
    pub parameters: Vec<ParameterReport>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParameterReport {
    /// Its name, as a flag without dashes in front.
    pub name: String,
    /// The value in force.
    pub value: String,
    /// `flag`, `environment`, `file` or `default`.
    pub source: String,
    /// The value where nothing is said.
    pub default: String,
    /// What it is for.
    pub help: String,
}
