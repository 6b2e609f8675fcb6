//! What the agent answers when it cannot do what was asked.

use serde::{Deserialize, Serialize};

/// A refusal: what was being done, why it failed, and what to try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// What was being done to which object, and what went wrong.
    pub error: String,
    /// What to try next, where there is something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ApiError {
    /// A refusal without a hint.
    pub fn new(error: impl Into<String>) -> Self {
        ApiError {
            api_version: crate::api_version(),
            error: error.into(),
            hint: None,
        }
    }

    /// The same with a next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
