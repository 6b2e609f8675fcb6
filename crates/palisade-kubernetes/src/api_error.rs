//! Why a request to the API server failed.

use http::StatusCode;
use std::time::Duration;
use thiserror::Error;

/// Why a request failed.
#[derive(Debug, Error)]
pub(crate) enum ApiServerError {
    /// The credentials cannot be used.
    #[error("reading the credentials for the API server: {0}")]
    Credentials(String),
    /// The server did not answer, or the connection broke.
    #[error("the connection to the API server failed: {0}")]
    Connection(String),
    /// No answer in time.
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The server answered with an error.
    #[error("the API server answered {code}: {message}")]
    Status {
        /// The HTTP status.
        code: StatusCode,
        /// Its message.
        message: String,
        /// The delay that it asks for.
        retry_after: Option<Duration>,
    },
    /// The answer is not what was requested.
    #[error("the API server's answer cannot be read: {0}")]
    Answer(String),
}

impl ApiServerError {
    /// Whether the resource version, or the token of a page, is too old: everything has to be listed again.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self, ApiServerError::Status { code, .. } if *code == StatusCode::GONE)
    }

    /// Whether the server does not have what the path names.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, ApiServerError::Status { code, .. } if *code == StatusCode::NOT_FOUND)
    }

    /// Whether the server failed by its own fault.
    pub(crate) fn is_server_error(&self) -> bool {
        matches!(self, ApiServerError::Status { code, .. } if code.is_server_error())
    }

    /// Whether server-side apply met a field that the definition of the resource does not have. The server has no
    /// code of its own for it: 500 by Kubernetes 1.34.
    pub(crate) fn is_undeclared_field(&self) -> bool {
        let undeclared = "field not declared in schema";
        matches!(self, ApiServerError::Status { message, .. } if message.contains(undeclared))
    }

    /// The HTTP status, if the server answered.
    pub(crate) fn code(&self) -> Option<StatusCode> {
        match self {
            ApiServerError::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The delay that the server asks for.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            ApiServerError::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the server rejects the parameters of the request.
    pub(crate) fn is_invalid(&self) -> bool {
        let invalid = [StatusCode::UNPROCESSABLE_ENTITY, StatusCode::BAD_REQUEST];
        matches!(self, ApiServerError::Status { code, .. } if invalid.contains(code))
    }
}
