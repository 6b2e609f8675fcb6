//! Client of the agent's socket.

use crate::exit::{CommandError, ExitStatus};
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

/// A client of one agent, connected to its socket.
pub(crate) struct ApiClient {
    socket: PathBuf,
}

impl ApiClient {
    /// A client for the agent at this socket.
    pub(crate) fn new(socket: &Path) -> Self {
        ApiClient {
            socket: socket.to_path_buf(),
        }
    }

    /// `GET`s a path.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CommandError> {
        self.send(Method::GET, path, &())
    }

    /// Sends a request, with a body unless it is a `GET`.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        let body = match method {
            Method::GET => Vec::new(),
            _ => serde_json::to_vec(body)
                .map_err(|e| CommandError::usage(format!("encoding the request: {e}")))?,
        };
        let runtime = self.runtime()?;
        let (status, text) = runtime.block_on(async {
            let answer = self.request(method, path, body).await?;
            let status = answer.status();
            let text = answer.into_body().collect().await;
            let text = text.map_err(|error| self.transport_error("reading from", &error))?;
            Ok::<_, CommandError>((status, text.to_bytes()))
        })?;
        if status.is_success() {
            return serde_json::from_slice(&text)
                .map_err(|error| self.transport_error("decoding the response of", &error));
        }
        Err(response_error(status, &text))
    }

    /// `GET`s a path and passes each line of the response to `each`, until the response ends, `each` stops,
    /// or the user interrupts. True if the agent ended the response.
    pub(crate) fn follow(
        &self,
        path: &str,
        mut on_line: impl FnMut(&[u8]) -> Result<ControlFlow<()>, CommandError>,
    ) -> Result<bool, CommandError> {
        self.runtime()?.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())
                .map_err(|error| self.transport_error("following", &error))?;
            let answer = self.request(Method::GET, path, Vec::new()).await?;
            let status = answer.status();
            let mut body = answer.into_body();
            if !status.is_success() {
                let text = body.collect().await;
                let text = text.map_err(|error| self.transport_error("reading from", &error))?;
                return Err(response_error(status, &text.to_bytes()));
            }
            let mut buffer: Vec<u8> = Vec::new();
            loop {
                let frame = tokio::select! {
                    _ = interrupt.recv() => return Ok(false),
                    frame = body.frame() => frame,
                };
                let Some(frame) = frame else { return Ok(true) };
                let frame = frame.map_err(|error| self.transport_error("reading from", &error))?;
                buffer.extend(frame.data_ref().into_iter().flatten());
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    if on_line(&line[..end])?.is_break() {
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
    ) -> Result<Response<Incoming>, CommandError> {
        let stream = tokio::net::UnixStream::connect(&self.socket)
            .await
            .map_err(|e| self.connect_error(&e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.transport_error("sending a request to", &error))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "palisade")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| CommandError::usage(format!("building the request: {error}")))?;
        sender
            .send_request(request)
            .await
            .map_err(|error| self.transport_error("asking", &error))
    }

    fn runtime(&self) -> Result<tokio::runtime::Runtime, CommandError> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| self.transport_error("reaching", &error))
    }

    fn transport_error(&self, what: &str, error: &dyn std::error::Error) -> CommandError {
        let socket = self.socket.display();
        CommandError::new(
            ExitStatus::NotReached,
            format!("{what} the agent at {socket}: {error}"),
        )
    }

    fn connect_error(&self, error: &io::Error) -> CommandError {
        let socket = self.socket.display();
        match error.kind() {
            io::ErrorKind::PermissionDenied => CommandError::new(
                ExitStatus::NotPermitted,
                format!("no permission to use the agent's socket {socket}"),
            )
            .with_hint("sudo, or join the socket's group"),
            _ => CommandError::new(
                ExitStatus::NotReached,
                format!("cannot connect to the agent's socket {socket}: {error}"),
            )
            .with_hint(
                "start an agent with `palisade agent --directory DIR`, or give its socket with --socket",
            ),
        }
    }
}

/// The error for an error response.
fn response_error(status: StatusCode, text: &[u8]) -> CommandError {
    let refusal: ApiError = serde_json::from_slice(text)
        .unwrap_or_else(|_| ApiError::new(format!("{status}: {}", String::from_utf8_lossy(text))));
    let mut failure = match status {
        // The request is not valid: the command line is wrong.
        StatusCode::UNPROCESSABLE_ENTITY => CommandError::usage(refusal.error),
        StatusCode::FORBIDDEN => CommandError::new(ExitStatus::NotPermitted, refusal.error),
        _ => CommandError::problem(refusal.error),
    };
    failure.hint = refusal.hint;
    failure
}
