//! Talks to the agent's socket.

use crate::exit::{Exit, Failure};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use palisade_api::ApiError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

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
        let body = match method {
            Method::GET => Vec::new(),
            _ => {
                serde_json::to_vec(body).map_err(|e| Failure::usage(format!("the request: {e}")))?
            }
        };
        let runtime = self.runtime()?;
        let (status, text) = runtime.block_on(async {
            let answer = self.request(method, path, body).await?;
            let status = answer.status();
            let text = answer.into_body().collect().await;
            let text = text.map_err(|error| self.broken("reading from", &error))?;
            Ok::<_, Failure>((status, text.to_bytes()))
        })?;
        if status.is_success() {
            return serde_json::from_slice(&text)
                .map_err(|error| self.broken("understanding", &error));
        }
        Err(refused(status, &text))
    }

    /// `GET`s a path and hands over each line of the answer, until there are no more, `each` has
    /// enough, or the user interrupts. True if it was the agent that ended it.
    pub(crate) fn follow(
        &self,
        path: &str,
        mut each: impl FnMut(&[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<bool, Failure> {
        self.runtime()?.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())
                .map_err(|error| self.broken("following", &error))?;
            let answer = self.request(Method::GET, path, Vec::new()).await?;
            let status = answer.status();
            let mut body = answer.into_body();
            if !status.is_success() {
                let text = body.collect().await;
                let text = text.map_err(|error| self.broken("reading from", &error))?;
                return Err(refused(status, &text.to_bytes()));
            }
            let mut waiting: Vec<u8> = Vec::new();
            loop {
                let frame = tokio::select! {
                    _ = interrupt.recv() => return Ok(false),
                    frame = body.frame() => frame,
                };
                let Some(frame) = frame else { return Ok(true) };
                let frame = frame.map_err(|error| self.broken("reading from", &error))?;
                waiting.extend(frame.data_ref().into_iter().flatten());
                while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = waiting.drain(..=end).collect();
                    if each(&line[..end])?.is_break() {
                        return Ok(false);
                    }
                }
            }
        })
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, Failure> {
        let stream = tokio::net::UnixStream::connect(&self.socket)
            .await
            .map_err(|e| self.unreached(&e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken("talking to", &error))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "palisade")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Failure::usage(format!("the request: {error}")))?;
        sender
            .send_request(request)
            .await
            .map_err(|error| self.broken("asking", &error))
    }

    fn runtime(&self) -> Result<tokio::runtime::Runtime, Failure> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.broken("reaching", &error))
    }

    fn broken(&self, what: &str, error: &dyn std::error::Error) -> Failure {
        let socket = self.socket.display();
        Failure::new(
            Exit::NotReached,
            format!("{what} the agent at {socket}: {error}"),
        )
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

/// The failure that a refusal is.
fn refused(status: StatusCode, text: &[u8]) -> Failure {
    let refusal: ApiError = serde_json::from_slice(text)
        .unwrap_or_else(|_| ApiError::new(format!("{status}: {}", String::from_utf8_lossy(text))));
    let mut failure = match status {
        // What was asked cannot be understood: the command line is wrong.
        StatusCode::UNPROCESSABLE_ENTITY => Failure::usage(refusal.error),
        StatusCode::FORBIDDEN => Failure::new(Exit::NotPermitted, refusal.error),
        _ => Failure::found(refusal.error),
    };
    failure.hint = refusal.hint;
    failure
}
