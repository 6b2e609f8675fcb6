//! Requests to the API server. Addresses, credentials, their rotation and TLS are kube's.

use crate::api_error::ApiServerError;
use crate::line_reader::LineReader;
use crate::list::ApiServerStatus;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use palisade_text::error_chain;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The time within which a connection must be open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time within which the server must begin to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Who owns the fields that are written.
const FIELD_MANAGER: &str = "palisade-agent";
/// The content type of an object.
pub(crate) const JSON: &str = "application/json";
/// The content type of a server-side apply.
const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// The maximum length of an answer that is read at once: a page of a list.
const MAX_ANSWER: usize = 512 << 20;
/// The maximum length of an error's text that is read.
const MAX_ERROR: usize = 64 << 10;

/// Where the address and the credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// The service account of the pod that the agent runs in.
    InCluster,
    /// The current context of a kubeconfig file.
    Kubeconfig(PathBuf),
}

impl Credentials {
    /// Where they come from, for messages.
    #[must_use]
    pub fn location(&self) -> String {
        match self {
            Credentials::InCluster => "in-cluster".to_owned(),
            Credentials::Kubeconfig(path) => path.display().to_string(),
        }
    }
}

/// The shortest time between two readings of the credentials.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// A client of one API server. Credentials are read again after a request that they may have failed: files are
/// replaced when certificates are rotated. (Tokens in files are read again by kube.)
#[derive(Clone)]
pub(crate) struct ApiServerClient(Arc<ClientState>);

struct ClientState {
    credentials: Credentials,
    address: String,
    /// The namespace that the credentials belong to.
    namespace: String,
    present: Mutex<PresentClient>,
}

/// The client with the credentials that were read last.
struct PresentClient {
    client: Client,
    read_at: Instant,
    may_be_outdated: bool,
}

impl ApiServerClient {
    /// A client; connects at the first request.
    ///
    /// # Errors
    /// If the credentials cannot be read.
    pub(crate) async fn new(credentials: &Credentials) -> Result<Self, ApiServerError> {
        let (client, address, namespace) = open_client(credentials).await?;
        Ok(ApiServerClient(Arc::new(ClientState {
            credentials: credentials.clone(),
            address,
            namespace,
            present: Mutex::new(PresentClient {
                client,
                read_at: Instant::now(),
                may_be_outdated: false,
            }),
        })))
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// The namespace that the credentials belong to: that of the agent's pod, or of the kubeconfig's context.
    pub(crate) fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// The client; with credentials that were read again if they may be outdated.
    async fn present(&self) -> Client {
        let client = {
            let mut present = self.lock();
            if !present.may_be_outdated || present.read_at.elapsed() < RELOAD_INTERVAL {
                return present.client.clone();
            }
            (present.may_be_outdated, present.read_at) = (false, Instant::now());
            present.client.clone()
        };
        match open_client(&self.0.credentials).await {
            Ok((client, ..)) => {
                self.lock().client = client.clone();
                client
            }
            Err(error) => {
                tracing::warn!(%error, "the credentials cannot be read again");
                client
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, PresentClient> {
        let present = self.0.present.lock();
        present.unwrap_or_else(PoisonError::into_inner)
    }

    /// The text of an answer.
    pub(crate) async fn text(&self, path: &str) -> Result<String, ApiServerError> {
        self.text_of(get(path)?).await
    }

    /// Writes an object by server-side apply, as the owner of the fields that it has.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Result<(), ApiServerError> {
        let path = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
        self.write(Method::PATCH, &path, APPLY_PATCH, object).await
    }

    /// Writes an object in another way.
    pub(crate) async fn write(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        object: &Value,
    ) -> Result<(), ApiServerError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(Body::from(object.to_string().into_bytes()))
            .map_err(|error| ApiServerError::Answer(error.to_string()))?;
        self.text_of(request).await.map(drop)
    }

    /// The text of the answer to any request.
    async fn text_of(&self, request: Request<Body>) -> Result<String, ApiServerError> {
        let body = self.send(request).await?;
        let bytes = Limited::new(body, MAX_ANSWER).collect().await;
        let bytes = bytes.map_err(|error| ApiServerError::Connection(error.to_string()))?;
        String::from_utf8(bytes.to_bytes().into())
            .map_err(|error| ApiServerError::Answer(error.to_string()))
    }

    /// The lines of an answer as they arrive.
    pub(crate) async fn lines(&self, path: &str) -> Result<LineReader, ApiServerError> {
        Ok(LineReader::new(self.send(get(path)?).await?))
    }

    async fn send(&self, request: Request<Body>) -> Result<Body, ApiServerError> {
        let client = self.present().await;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.send(request)).await;
        let answer = answer.map_err(|_| ApiServerError::Timeout(ANSWER_TIMEOUT))?;
        let answer = answer.map_err(|error| {
            self.lock().may_be_outdated = true;
            ApiServerError::Connection(error_chain(&error))
        })?;
        let code = answer.status();
        if code == StatusCode::UNAUTHORIZED {
            self.lock().may_be_outdated = true;
        }
        if code.is_success() {
            return Ok(answer.into_body());
        }
        let retry_after = answer.headers().get(http::header::RETRY_AFTER);
        let seconds = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let text = Limited::new(answer.into_body(), MAX_ERROR).collect().await;
        let text = text
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        Err(ApiServerError::Status {
            code,
            message: status_message(&text),
            retry_after: seconds.map(Duration::from_secs),
        })
    }
}

fn get(path: &str) -> Result<Request<Body>, ApiServerError> {
    let request = Request::get(path).body(Body::empty());
    request.map_err(|error| ApiServerError::Answer(error.to_string()))
}

/// A client with the present content of the credentials' files, the server's address, and the namespace.
async fn open_client(
    credentials: &Credentials,
) -> Result<(Client, String, String), ApiServerError> {
    let unreadable =
        |error: &dyn std::error::Error| ApiServerError::Credentials(error_chain(error));
    let mut config = match credentials {
        Credentials::InCluster => kube::Config::incluster().map_err(|error| unreadable(&error))?,
        Credentials::Kubeconfig(path) => {
            let file = Kubeconfig::read_from(path).map_err(|error| unreadable(&error))?;
            let options = KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|error| unreadable(&error))?
        }
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Failures are delayed and reported where the request is made; the library would hide them for a while.
    config.default_retry = false;
    let address = config.cluster_url.to_string();
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| unreadable(&error))?;
    Ok((client, address, namespace))
}

/// The message of a `Status` object, or the beginning of the text itself.
fn status_message(text: &[u8]) -> String {
    let status: ApiServerStatus = serde_json::from_slice(text).unwrap_or_default();
    if !status.message.is_empty() {
        return status.message;
    }
    let text = String::from_utf8_lossy(text);
    text.trim().chars().take(200).collect()
}
