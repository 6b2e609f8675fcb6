//! The resolved configuration.

use crate::object::named_enum;
use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// Every parameter with its value and the origin of the value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// In documentation order.
    pub parameters: Vec<ParameterReport>,
    /// The configuration file, if the agent uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ConfigFileReport>,
}

/// The configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigFileReport {
    /// Path.
    pub path: String,
    /// Whether the file exists.
    pub found: bool,
    /// Why the present file is invalid; the previous configuration stays active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

named_enum! {
    /// The origin of a parameter's value.
    ParameterOrigin {
        /// A command-line flag.
        Flag = "flag",
        /// An environment variable.
        Environment = "environment",
        /// The configuration file.
        File = "file",
        /// The default.
        Default = "default",
    }
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ParameterReport {
    /// Name, as a flag without leading dashes.
    pub name: String,
    /// Active value.
    pub value: String,
    /// Origin of the value.
    pub source: ParameterOrigin,
    /// Default value.
    pub default: String,
    /// Description.
    pub help: String,
    /// Section of the documentation.
    #[serde(default)]
    pub section: String,
    /// Description of the accepted values.
    #[serde(default)]
    pub values: String,
    /// Exact origin of the value: the flag, the variable, or file, line and column.
    #[serde(default, alias = "saidBy")]
    pub origin: String,
    /// Whether a new value in the file takes effect at once; otherwise it needs a restart.
    #[serde(default)]
    pub changeable: bool,
    /// Whether the value is hidden.
    #[serde(default)]
    pub secret: bool,
    /// The value that takes effect at the next start, if it is different.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}
