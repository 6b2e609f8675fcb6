//! Why a request to etcd failed.

use palisade_text::error_chain;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;
use tonic::{Code, Status};

/// Why a request failed.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// A file with credentials cannot be used.
    #[error("reading the {what} {path}: {reason}")]
    File {
        /// What it holds.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No endpoint could be connected.
    #[error("no endpoint of etcd can be reached: {0}")]
    Connection(String),
    /// No answer in time.
    #[error("etcd at {endpoint} did not answer within {} s: {doing}", .timeout.as_secs())]
    Timeout {
        /// The endpoint.
        endpoint: String,
        /// The operation.
        doing: &'static str,
        /// The time.
        timeout: Duration,
    },
    /// The user or its password was refused.
    #[error("etcd at {endpoint} does not accept the password of the user {user}: {message}")]
    Login {
        /// The endpoint.
        endpoint: String,
        /// The user.
        user: String,
        /// What etcd answered.
        message: String,
    },
    /// etcd answered with an error.
    #[error("etcd at {endpoint} refused {doing}: {message}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// The operation.
        doing: &'static str,
        /// What it answered.
        message: String,
        /// The code of the answer.
        code: Code,
    },
    /// The revisions that were asked for are not kept any more.
    #[error("etcd does not keep revision {0} any more")]
    Compacted(i64),
    /// A watch ended.
    #[error("etcd at {endpoint} ended the watch: {reason}")]
    WatchEnded {
        /// The endpoint.
        endpoint: String,
        /// What it said.
        reason: String,
    },
    /// The pointer to the pushed objects cannot be read.
    #[error("the key {key} is not what `palisade push` writes: {reason}")]
    Pointer {
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
}

impl EtcdError {
    /// The error in an answer.
    pub(crate) fn of_status(
        endpoint: &str,
        doing: &'static str,
        revision: i64,
        status: &Status,
    ) -> Self {
        let message = status.message();
        if message.contains("required revision has been compacted") {
            return EtcdError::Compacted(revision);
        }
        let cause = std::error::Error::source(status).map(error_chain);
        let message = message.strip_prefix("etcdserver: ").unwrap_or(message);
        let message = match cause {
            Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
            _ => message.to_owned(),
        };
        EtcdError::Refused {
            endpoint: endpoint.to_owned(),
            doing,
            message,
            code: status.code(),
        }
    }

    /// Whether the token was not accepted: it expired, or users were changed since.
    pub(crate) fn is_expired_token(&self) -> bool {
        match self {
            EtcdError::Refused { message, code, .. } => {
                *code == Code::Unauthenticated || message.contains("revision of auth store is old")
            }
            _ => false,
        }
    }
}
