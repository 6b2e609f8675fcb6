//! Talks to the agent's socket.

use crate::exit::{Exit, Failure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use palisade_api::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};

/// A client of one agent.
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// For the agent behind this socket.
    pub(crate) fn new(socket: &Path) -> Self {
        Client {
            socket: socket.to_path_buf(),
        }
    }

    /// `GET`s a path.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::GET, path, &())
    }

    /// Sends a body to a path.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.call(method, path, body)
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let broken = |what: &str, error: &dyn std::error::Error| {
            let socket = self.socket.display();
            Failure::new(
                Exit::NotReached,
                format!("{what} the agent at {socket}: {error}"),
            )
        };
        let body = match method {
            Method::GET => Vec::new(),
            _ => {
                serde_json::to_vec(body).map_err(|e| Failure::usage(format!("the request: {e}")))?
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| broken("reaching", &error))?;
        let (status, text) = runtime.block_on(async {
            let stream = tokio::net::UnixStream::connect(&self.socket)
                .await
                .map_err(|e| self.unreached(&e))?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| broken("talking to", &error))?;
            tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "palisade")
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| Failure::usage(format!("the request: {error}")))?;
            let answer = sender
                .send_request(request)
                .await
                .map_err(|error| broken("asking", &error))?;
            let status = answer.status();
            let text = answer
                .into_body()
                .collect()
                .await
                .map_err(|error| broken("reading from", &error))?;
            Ok::<_, Failure>((status, text.to_bytes()))
        })?;
        if status.is_success() {
            return serde_json::from_slice(&text).map_err(|error| broken("understanding", &error));
        }
        let refusal: ApiError = serde_json::from_slice(&text).unwrap_or_else(|_| {
            ApiError::new(format!("{status}: {}", String::from_utf8_lossy(&text)))
        });
        let mut failure = match status {
            // What was asked cannot be understood: the command line is wrong.
            StatusCode::UNPROCESSABLE_ENTITY => Failure::usage(refusal.error),
            _ => Failure::found(refusal.error),
        };
        failure.hint = refusal.hint;
        Err(failure)
    }

    fn unreached(&self, error: &io::Error) -> Failure {
        let socket = self.socket.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::new(
                Exit::NotPermitted,
                format!("you may not use the agent's socket {socket}"),
            )
            .hint("sudo, or become a member of the socket's group"),
            _ => Failure::new(
                Exit::NotReached,
                format!("no agent answers at {socket}: {error}"),
            )
            .hint(
                "start one with `palisade agent --directory DIR`, or name its socket with --socket",
            ),
        }
    }
}
