//! What a plugin may fail with: the codes of the CNI specification, with a message and a next step.

use serde::Serialize;

/// A failure as the CNI specification numbers it (its section "Error").
#[derive(Debug, thiserror::Error)]
pub enum CniError {
    /// Code 1.
    #[error("the CNI version {asked:?} is not supported; this plugin knows {known}")]
    Version {
        /// What the configuration names.
        asked: String,
        /// What this plugin knows.
        known: String,
    },
    /// Code 3: there is no such container.
    #[error("{0}")]
    UnknownContainer(String),
    /// Code 4: an environment variable is missing or makes no sense.
    #[error("{name}: {reason}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// Code 5: reading or writing failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What went wrong.
        source: std::io::Error,
    },
    /// Code 6: the configuration is no JSON of the right shape.
    #[error("decoding the network configuration: {0}")]
    Decode(serde_json::Error),
    /// Code 7: the configuration makes no sense.
    #[error("network configuration, {field}: {reason}")]
    Configuration {
        /// The field.
        field: &'static str,
        /// Why.
        reason: String,
    },
    /// Code 11: the same may succeed later.
    #[error("{0}")]
    TryAgainLater(String),
    /// Code 50, of STATUS: the plugin cannot serve ADD now.
    #[error("{0}")]
    NotAvailable(String),
    /// Code 100, the first that is a plugin's own: the agent refused.
    #[error("{message}")]
    Refused {
        /// What the agent said.
        message: String,
        /// Its next step.
        hint: Option<String>,
    },
}

/// The wire form of a failure.
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
    /// Its number.
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

    /// The wire form, for a configuration of this version.
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
