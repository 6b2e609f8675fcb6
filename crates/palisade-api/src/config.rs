//! The resolved configuration.

use serde::{Deserialize, Serialize};

/// Every parameter with its value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigReport {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// In the order of the documentation.
    pub parameters: Vec<ParameterReport>,
    /// The configuration file, where the agent looks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ConfigFileReport>,
}

/// The configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigFileReport {
    /// Where it is.
    pub path: String,
    /// Whether it is there.
    pub found: bool,
    /// Why it is refused as it is now; what was in force before it was written stays in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Its chapter of the documentation.
    #[serde(default)]
    pub section: String,
    /// What values it takes, in words.
    #[serde(default)]
    pub values: String,
    /// Who said the value: the flag, the variable, or file, line and column.
    #[serde(default)]
    pub said_by: String,
    /// Whether a new value in the file counts at once; otherwise it waits for the next start.
    #[serde(default)]
    pub changeable: bool,
    /// Whether its value is not shown.
    #[serde(default)]
    pub secret: bool,
    /// The value that the next start will take, where that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}
