//! Requests to etcd: endpoints one after the other, TLS, and tokens that are renewed when they expire.
//!
//! Files with credentials are read again for each connection, and the password for each token: they may be
//! replaced while the agent runs.

use crate::error::EtcdError;
use crate::messages::{
    AuthenticateRequest, AuthenticateResponse, RangeRequest, RangeResponse, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchOperation, WatchProgressRequest, WatchRequest,
    WatchResponse,
};
use crate::options::EtcdOptions;
use http::uri::PathAndQuery;
use palisade_text::error_chain;
use prost::Message;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

/// The time within which a connection must be open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time within which a request must be answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval of the pings of a connection in use, and the time within which they must be answered. etcd
/// refuses pings that come more often than every five seconds.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of an answer: a page of objects.
const MAX_ANSWER: usize = 1 << 30;

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const WATCH: &str = "/etcdserverpb.Watch/Watch";
const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// A client of the endpoints of one etcd; connected to one of them at a time.
pub(crate) struct EtcdClient {
    options: EtcdOptions,
    /// The endpoint that is tried first.
    first: usize,
    connection: Option<EtcdConnection>,
}

#[derive(Clone)]
struct EtcdConnection {
    endpoint: String,
    channel: Channel,
    token: Option<AsciiMetadataValue>,
}

/// A watch that was begun.
pub(crate) struct WatchStream {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    endpoint: String,
}

impl EtcdClient {
    /// A client that has not connected yet.
    pub(crate) fn new(options: EtcdOptions) -> Self {
        EtcdClient {
            options,
            first: 0,
            connection: None,
        }
    }

    /// Drops the connection; the next request tries another endpoint first.
    pub(crate) fn disconnect(&mut self) {
        self.connection = None;
        self.first = (self.first + 1) % self.options.endpoints.len().max(1);
    }

    /// Reads keys.
    pub(crate) async fn range(
        &mut self,
        doing: &'static str,
        request: RangeRequest,
    ) -> Result<RangeResponse, EtcdError> {
        let revision = request.revision;
        self.call(RANGE, doing, revision, request).await
    }

    /// Performs a transaction.
    pub(crate) async fn txn(
        &mut self,
        doing: &'static str,
        request: TxnRequest,
    ) -> Result<TxnResponse, EtcdError> {
        self.call(TXN, doing, 0, request).await
    }

    /// Begins a watch of the keys from `key` on, below `range_end`.
    pub(crate) async fn watch(
        &mut self,
        key: &str,
        range_end: Vec<u8>,
        start_revision: i64,
    ) -> Result<WatchStream, EtcdError> {
        let doing = "the watch";
        let connection = self.connection().await?.clone();
        let (requests, receiver) = mpsc::channel(4);
        let create = WatchCreateRequest {
            key: key.as_bytes().to_vec(),
            range_end,
            start_revision,
            progress_notify: true,
        };
        // Not full: it is the first.
        let _ = requests.try_send(WatchRequest {
            request: Some(WatchOperation::Create(create)),
        });
        let mut request = connection.request(ReceiverStream::new(receiver));
        // A member that lost the others ends the watch instead of being silent.
        let leader = AsciiMetadataValue::from_static("true");
        request.metadata_mut().insert("hasleader", leader);
        let mut grpc = Grpc::new(connection.channel.clone()).max_decoding_message_size(MAX_ANSWER);
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = PathAndQuery::from_static(WATCH);
        let answer = async {
            grpc.ready().await.map_err(|error| {
                EtcdError::Connection(format!("{}: {}", connection.endpoint, error_chain(&error)))
            })?;
            let answer = grpc.streaming(request, path, codec).await;
            answer.map_err(|status| {
                EtcdError::of_status(&connection.endpoint, doing, start_revision, &status)
            })
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
        let answer = answer.map_err(|_| connection.timeout(doing))??;
        Ok(WatchStream {
            requests,
            answers: answer.into_inner(),
            endpoint: connection.endpoint,
        })
    }

    /// A request with one answer. A token that expired is replaced once.
    async fn call<Q, A>(
        &mut self,
        path: &'static str,
        doing: &'static str,
        revision: i64,
        request: Q,
    ) -> Result<A, EtcdError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let connection = self.connection().await?;
        match connection
            .unary(path, doing, revision, request.clone())
            .await
        {
            Err(error) if error.is_expired_token() && connection.token.is_some() => {
                let mut renewed = connection.clone();
                renewed.token = None;
                renewed.authenticate(&self.options).await?;
                let answer = renewed.unary(path, doing, revision, request).await;
                self.connection = Some(renewed);
                answer
            }
            answer => answer,
        }
    }

    /// The connection, which is opened if there is none.
    async fn connection(&mut self) -> Result<&EtcdConnection, EtcdError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    async fn connect(&mut self) -> Result<EtcdConnection, EtcdError> {
        let tls = tls_config(&self.options)?;
        let count = self.options.endpoints.len();
        let mut failures = Vec::new();
        for offset in 0..count {
            let number = (self.first + offset) % count;
            let endpoint = &self.options.endpoints[number];
            match open_channel(endpoint, &tls).await {
                Ok(channel) => {
                    let mut connection = EtcdConnection {
                        endpoint: endpoint.clone(),
                        channel,
                        token: None,
                    };
                    match connection.authenticate(&self.options).await {
                        Ok(()) => {
                            self.first = number;
                            return Ok(connection);
                        }
                        Err(error @ (EtcdError::Login { .. } | EtcdError::File { .. })) => {
                            return Err(error);
                        }
                        Err(error) => failures.push(error.to_string()),
                    }
                }
                Err(reason) => failures.push(format!("{endpoint}: {reason}")),
            }
        }
        Err(EtcdError::Connection(failures.join("; ")))
    }
}

impl EtcdConnection {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    fn timeout(&self, doing: &'static str) -> EtcdError {
        EtcdError::Timeout {
            endpoint: self.endpoint.clone(),
            doing,
            timeout: ANSWER_TIMEOUT,
        }
    }

    async fn unary<Q, A>(
        &self,
        path: &'static str,
        doing: &'static str,
        revision: i64,
        request: Q,
    ) -> Result<A, EtcdError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER);
        let request = self.request(request);
        let answer = async {
            grpc.ready().await.map_err(|error| {
                EtcdError::Connection(format!("{}: {}", self.endpoint, error_chain(&error)))
            })?;
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(request, path, ProstCodec::<Q, A>::default());
            answer
                .await
                .map_err(|status| EtcdError::of_status(&self.endpoint, doing, revision, &status))
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await;
        Ok(answer.map_err(|_| self.timeout(doing))??.into_inner())
    }

    /// Gets a token, if there is a user.
    async fn authenticate(&mut self, options: &EtcdOptions) -> Result<(), EtcdError> {
        let Some((user, file)) = &options.user else {
            return Ok(());
        };
        let request = AuthenticateRequest {
            name: user.clone(),
            password: read_password(file)?,
        };
        let answer = self.unary(AUTHENTICATE, "the login", 0, request).await;
        let answer: AuthenticateResponse = match answer {
            Ok(answer) => answer,
            Err(EtcdError::Refused { message, code, .. }) => {
                // Then nothing needs a token.
                if code == Code::FailedPrecondition && message.contains("not enabled") {
                    return Ok(());
                }
                return Err(EtcdError::Login {
                    endpoint: self.endpoint.clone(),
                    user: user.clone(),
                    message,
                });
            }
            Err(error) => return Err(error),
        };
        let token = AsciiMetadataValue::try_from(answer.token);
        self.token = Some(token.map_err(|error| EtcdError::Login {
            endpoint: self.endpoint.clone(),
            user: user.clone(),
            message: format!("its token cannot be used: {error}"),
        })?);
        Ok(())
    }
}

impl WatchStream {
    /// The next answer.
    pub(crate) async fn next(&mut self) -> Result<WatchResponse, EtcdError> {
        match self.answers.message().await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(self.ended("the connection was closed")),
            Err(status) => Err(EtcdError::of_status(
                &self.endpoint,
                "the watch",
                0,
                &status,
            )),
        }
    }

    /// Asks for an answer. One that waits is enough.
    pub(crate) fn request_progress(&self) {
        let _ = self.requests.try_send(WatchRequest {
            request: Some(WatchOperation::Progress(WatchProgressRequest {})),
        });
    }

    /// The endpoint that it is served by.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The error of a watch that ended.
    pub(crate) fn ended(&self, reason: &str) -> EtcdError {
        EtcdError::WatchEnded {
            endpoint: self.endpoint.clone(),
            reason: reason.to_owned(),
        }
    }
}

async fn open_channel(endpoint: &str, tls: &ClientTlsConfig) -> Result<Channel, String> {
    let channel = Endpoint::from_shared(endpoint.to_owned()).map_err(|e| error_chain(&e))?;
    let mut channel = channel
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    if endpoint.starts_with("https:") {
        channel = channel
            .tls_config(tls.clone())
            .map_err(|error| error_chain(&error))?;
    }
    let opened = tokio::time::timeout(CONNECT_TIMEOUT, channel.connect()).await;
    match opened {
        Ok(opened) => opened.map_err(|error| error_chain(&error)),
        Err(_) => Err(format!(
            "no connection within {} s",
            CONNECT_TIMEOUT.as_secs()
        )),
    }
}

fn tls_config(options: &EtcdOptions) -> Result<ClientTlsConfig, EtcdError> {
    let mut tls = ClientTlsConfig::new();
    tls = match &options.ca_file {
        Some(file) => tls.ca_certificate(Certificate::from_pem(read_file(
            "certificates of authorities",
            file,
        )?)),
        None => tls.with_native_roots(),
    };
    if let Some((certificate, key)) = &options.identity {
        let certificate = read_file("client certificate", certificate)?;
        tls = tls.identity(Identity::from_pem(
            certificate,
            read_file("client key", key)?,
        ));
    }
    Ok(tls)
}

fn read_file(what: &'static str, path: &Path) -> Result<String, EtcdError> {
    let text = palisade_sys::plain_file::read(path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))
    });
    text.map_err(|error| EtcdError::File {
        what,
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// The password in a file: its first line.
fn read_password(path: &Path) -> Result<String, EtcdError> {
    let text = read_file("password", path)?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(EtcdError::File {
            what: "password",
            path: path.to_owned(),
            reason: "its first line is empty".to_owned(),
        }),
    }
}
