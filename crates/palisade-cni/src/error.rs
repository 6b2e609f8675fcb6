//! Errors of the plugin: the codes of the CNI specification, with a message and a next step.

use serde::Serialize;

/// An error with a code of the CNI specification (section "Error").
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// Code 1.
    #[error("the CNI version {asked:?} is not supported; supported versions: {known}")]
    Version {
        /// The version in the configuration.
        asked: String,
        /// The supported versions.
        known: String,
    },
    /// Code 3: the container is unknown.
    #[error("{0}")]
    UnknownContainer(String),
    /// Code 4: an environment variable is missing or invalid.
    #[error("{name}: {reason}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Code 5: reading or writing failed.
    #[error("{doing}: {source}")]
    Io {
        /// The failed action.
        doing: String,
        /// The error.
        source: std::io::Error,
    },
    /// Code 6: the configuration is not valid JSON of the expected structure.
    #[error("decoding the network configuration: {0}")]
    Decode(serde_json::Error),
    /// Code 7: the configuration has an invalid value.
    #[error("network configuration, {field}: {reason}")]
    Configuration {
        /// The field.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Code 11: retrying may succeed.
    #[error("{0}")]
    TryAgainLater(String),
    /// Code 50, of STATUS: the plugin cannot serve ADD now.
    #[error("{0}")]
    NotAvailable(String),
    /// Code 100, the first plugin-specific code: the agent rejected the request.
    #[error("{message}")]
    Refused {
        /// The agent's error message.
        message: String,
        /// The agent's hint.
        hint: Option<String>,
    },
}

/// The JSON form of an error.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CniErrorResult<'a> {
    cni_version: &'a str,
    code: u32,
    msg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<String>,
}

impl CniError {
    /// The error code.
    pub fn code(&self) -> u32 {
        match self {
            CniError::Version { .. } => 1,
            CniError::UnknownContainer(_) => 3,
            CniError::Environment { .. } => 4,
            CniError::Io { .. } => 5,
            CniError::Decode(_) => 6,
            CniError::Configuration { .. } => 7,
            CniError::TryAgainLater(_) => 11,
            CniError::NotAvailable(_) => 50,
            CniError::Refused { .. } => 100,
        }
    }

    /// The JSON form, for a configuration of this version.
    pub(crate) fn to_error_result<'a>(&self, version: &'a str) -> CniErrorResult<'a> {
        let details = match self {
            CniError::Refused { hint, .. } => hint.clone(),
            CniError::TryAgainLater(_) | CniError::NotAvailable(_) => {
                Some("start the agent, or wait until `palisade status` is healthy".to_owned())
            }
            _ => None,
        };
        CniErrorResult {
            cni_version: version,
            code: self.code(),
            msg: self.to_string(),
            details,
        }
    }
}
