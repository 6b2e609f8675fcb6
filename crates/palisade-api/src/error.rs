//! What the agent answers when it cannot do what was asked.

use serde::{Deserialize, Serialize};

/// What kind of refusal it is, for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The request is no request of this API.
    BadRequest,
    /// The peer may not change anything.
    Forbidden,
    /// There is no such path, or no such object.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The request did not arrive in time.
    Timeout,
    /// It contradicts what is there.
    Conflict,
    /// The body is too large.
    TooLarge,
    /// The request is understood and makes no sense.
    Invalid,
    /// Too many requests: `Retry-After` says when the next one is taken.
    RateLimited,
    /// The agent could not do it.
    #[default]
    Failed,
    /// The agent is starting, stopping, or has too many connections.
    Unavailable,
}

/// A refusal: what was being done, why it failed, and what to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// What was being done to which object, and what went wrong.
    pub error: String,
    /// What to try next, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What kind of refusal it is.
    #[serde(default)]
    pub code: ErrorCode,
}

impl ApiError {
    /// A refusal without a hint.
    pub fn new(error: impl Into<String>) -> Self {
        ApiError {
            api_version: crate::api_version(),
            error: error.into(),
            hint: None,
            code: ErrorCode::default(),
        }
    }

    /// The same with a next step.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
