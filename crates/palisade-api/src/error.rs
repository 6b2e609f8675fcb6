//! Error responses of the agent.

use palisade_model::Str;
use serde::{Deserialize, Serialize};

/// Machine-readable class of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ErrorCode {
    /// The request is malformed.
    BadRequest,
    /// The user may not change anything.
    Forbidden,
    /// No such path or object.
    NotFound,
    /// The path does not support this method.
    MethodNotAllowed,
    /// The request did not arrive in time.
    Timeout,
    /// The request conflicts with the present state.
    Conflict,
    /// The request body is too large.
    TooLarge,
    /// The request is well-formed but has invalid values.
    Invalid,
    /// Too many requests: `Retry-After` says when to retry.
    RateLimited,
    /// The agent failed to execute the request.
    #[default]
    Failed,
    /// The agent is starting or stopping, or has too many connections.
    Unavailable,
}

/// An error response: the failed action, the reason, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The action, its object, and what failed.
    pub error: String,
    /// The next step, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Machine-readable class of the error.
    #[serde(default)]
    pub code: ErrorCode,
}

impl ApiError {
    /// An error without a hint.
    pub fn new(error: impl Into<String>) -> Self {
        ApiError {
            api_version: crate::api_version(),
            error: error.into(),
            hint: None,
            code: ErrorCode::default(),
        }
    }

    /// Adds a hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
