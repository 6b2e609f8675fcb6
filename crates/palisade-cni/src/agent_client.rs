//! A blocking client of the agent's socket.
//!
//! One request and one response per connection: HTTP/1.0, so that the end of the connection ends the response
//! body.

use crate::error::CniError;
use palisade_api::{ApiError, ProbeResult, path};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;
/// Maximum number of response headers.
const MAX_HEADERS: usize = 32;

/// Why a call to the agent did not succeed.
#[derive(Debug)]
pub(crate) enum AgentCallError {
    /// Nothing listens on the socket.
    NotListening(io::Error),
    /// The agent ended, or closed the connection, before its response was complete.
    ConnectionClosed(String),
    /// The agent did not respond in time, or its response is invalid.
    InvalidResponse(String),
    /// The agent rejected the request.
    Refused {
        /// HTTP status.
        status: u16,
        /// Error response.
        error: ApiError,
    },
}

impl AgentCallError {
    /// Converts to an error for the runtime.
    pub(crate) fn into_cni_error(self, socket: &Path) -> CniError {
        let socket = socket.display();
        match self {
            AgentCallError::NotListening(error) => CniError::TryAgainLater(format!(
                "cannot connect to the agent's socket {socket}: {error}"
            )),
            AgentCallError::ConnectionClosed(what) | AgentCallError::InvalidResponse(what) => {
                CniError::TryAgainLater(format!("the agent at {socket}: {what}"))
            }
            // It has not finished reading its source.
            AgentCallError::Refused { status: 503, error } => CniError::TryAgainLater(error.error),
            AgentCallError::Refused { status: 404, error } => {
                CniError::UnknownContainer(error.error)
            }
            AgentCallError::Refused { error, .. } => CniError::Refused {
                message: error.error,
                hint: error.hint,
            },
        }
    }
}

/// The agent at a socket.
#[derive(Clone, Debug)]
pub(crate) struct AgentClient {
    socket: PathBuf,
    timeout: Duration,
}

impl AgentClient {
    pub(crate) fn new(socket: &Path, wait: Duration) -> Self {
        AgentClient {
            socket: socket.to_path_buf(),
            timeout: wait,
        }
    }

    /// Whether a process listens on the socket.
    pub(crate) fn is_listening(&self) -> bool {
        UnixStream::connect(&self.socket).is_ok()
    }

    /// Whether the agent is ready, and the reasons if not; has no side effect.
    pub(crate) fn readiness(&self) -> Result<ProbeResult, AgentCallError> {
        let (status, body) = self.exchange("GET", path::READYZ, &[])?;
        serde_json::from_slice(&body).map_err(|_| rejection(status, &body))
    }

    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, AgentCallError> {
        let body =
            serde_json::to_vec(body).map_err(|e| invalid_response("writing the request", &e))?;
        self.call(method, path, &body)
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<T, AgentCallError> {
        let (status, body) = self.exchange(method, path, body)?;
        if (200..300).contains(&status) {
            serde_json::from_slice(&body).map_err(|e| invalid_response("decoding the response", &e))
        } else {
            Err(rejection(status, &body))
        }
    }

    /// Sends a request; returns status and body of the response.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Result<(u16, Vec<u8>), AgentCallError> {
        let mut stream = UnixStream::connect(&self.socket).map_err(AgentCallError::NotListening)?;
        let mut transfer = || -> io::Result<Vec<u8>> {
            stream.set_read_timeout(Some(self.timeout))?;
            stream.set_write_timeout(Some(self.timeout))?;
            let head = format!(
                "{method} {path} HTTP/1.0\r\nHost: palisade\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            // The agent may reject a request by its header and close before the body is written: the response
            // can then still be read, before the error of the kernel.
            let sent = stream.write_all(&[head.as_bytes(), body].concat());
            let mut answer = Vec::new();
            let read = (&stream).take(MAX_RESPONSE_BYTES).read_to_end(&mut answer);
            if answer.is_empty() {
                sent.and(read).map(|_| answer)
            } else {
                Ok(answer)
            }
        };
        let answer = transfer().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AgentCallError::InvalidResponse(
                format!("no response within {} s", self.timeout.as_secs()),
            ),
            _ => AgentCallError::ConnectionClosed(format!("sending a request: {error}")),
        })?;
        let (status, body) = parse_response(&answer)?;
        Ok((status, body.to_vec()))
    }
}

fn rejection(status: u16, body: &[u8]) -> AgentCallError {
    let error = serde_json::from_slice(body)
        .unwrap_or_else(|_| ApiError::new(format!("{status}: {}", String::from_utf8_lossy(body))));
    AgentCallError::Refused { status, error }
}

fn invalid_response(doing: &str, error: &dyn std::error::Error) -> AgentCallError {
    AgentCallError::InvalidResponse(format!("{doing}: {error}"))
}

/// Status and body of a response. A body shorter than its Content-Length is an error.
fn parse_response(answer: &[u8]) -> Result<(u16, &[u8]), AgentCallError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let cut = || AgentCallError::ConnectionClosed("the response is incomplete".to_owned());
    let parsed = response
        .parse(answer)
        .map_err(|error| invalid_response("decoding the response", &error))?;
    let httparse::Status::Complete(body_offset) = parsed else {
        return Err(cut());
    };
    let body = answer.get(body_offset..).unwrap_or_default();
    let announced = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok());
    let body = match announced {
        Some(length) => body.get(..length).ok_or_else(cut)?,
        None => body,
    };
    Ok((response.code.unwrap_or(0), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_by_their_length() {
        let whole = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(parse_response(whole).unwrap(), (200, b"{}".as_slice()));
        let open = b"HTTP/1.1 404 Not Found\r\n\r\n{}";
        assert_eq!(parse_response(open).unwrap(), (404, b"{}".as_slice()));
        for cut in [
            b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n{}".as_slice(),
            b"HTTP/1.0 200 OK\r\nConte",
            b"",
        ] {
            assert!(matches!(
                parse_response(cut),
                Err(AgentCallError::ConnectionClosed(_))
            ));
        }
        assert!(matches!(
            parse_response(b"nonsense\r\n\r\n"),
            Err(AgentCallError::InvalidResponse(_))
        ));
    }

    /// A server that rejects by the header closes with the body unread.
    #[test]
    fn a_refusal_that_comes_before_the_body_is_read_is_understood() {
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut some = [0; 16];
                stream.read_exact(&mut some).unwrap();
                let body = r#"{"error":"user 7 may not"}"#;
                let length = body.len();
                let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\n\r\n");
                stream.write_all((head + body).as_bytes()).unwrap();
            });
            // Larger than a socket's buffer, so that it is still being written.
            let body = vec![b' '; 4 << 20];
            let agent = AgentClient::new(&socket, Duration::from_secs(20));
            let (status, answer) = agent.exchange("POST", "/v1/cni/add", &body).unwrap();
            assert_eq!(status, 403);
            assert!(answer.ends_with(b"may not\"}"));
        });
    }

    #[test]
    fn readiness_is_all_that_is_asked_for() {
        use std::io::{BufRead, BufReader};
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let ready = |status: &str, body: &str| {
            let answer = format!("HTTP/1.1 {status}\r\n\r\n{body}");
            let asked = std::thread::scope(|scope| {
                let listener = &listener;
                let answering = scope.spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                    let first = lines.next().unwrap().unwrap();
                    while !lines.next().unwrap().unwrap().is_empty() {}
                    stream.write_all(answer.as_bytes()).unwrap();
                    first
                });
                let ready = AgentClient::new(&socket, Duration::from_secs(20)).readiness();
                (answering.join().unwrap(), ready)
            });
            assert_eq!(asked.0, "GET /readyz HTTP/1.0");
            asked.1
        };
        let probe = r#"{"apiVersion":"palisade.io/v1","ok":false,"reasons":["not yet"]}"#;
        let probe_result = ready("503 Service Unavailable", probe).unwrap();
        assert_eq!(
            (probe_result.ok, probe_result.reasons),
            (false, vec!["not yet".to_owned()])
        );
        let probe = r#"{"apiVersion":"palisade.io/v1","ok":true,"reasons":[]}"#;
        assert!(ready("200 OK", probe).unwrap().ok);
        let refused = ready("503 Service Unavailable", r#"{"error":"too many"}"#);
        assert!(matches!(
            refused,
            Err(AgentCallError::Refused { status: 503, .. })
        ));
    }
}
