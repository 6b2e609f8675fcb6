//! Reads flows of Hubble's API, of a relay or of an agent, as lines of the monitor.
//!
//! Promises: lines are as the agents told them, in the order of the relay; losses are told; a request ends when its stream
//! is dropped. Never: reads flows of agents that are not Palisade's, which do not say what decided.

use crate::error::HubbleError;
use crate::observed_line::observed_line;
use crate::proto::flow::LostEventSource;
use crate::proto::observer::get_flows_response::ResponseTypes;
use crate::proto::observer::observer_client::ObserverClient;
use crate::proto::observer::{GetFlowsRequest, GetFlowsResponse, ServerStatusRequest};
use palisade_api::{LossCause, LostEvents, MonitorLine};
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The certificates of a client, as PEM.
#[derive(Clone)]
pub struct HubbleClientTls {
    /// The authority of the server.
    pub authority: Vec<u8>,
    /// The certificate of the client, and its private key, where the server asks for one.
    pub identity: Option<[Vec<u8>; 2]>,
    /// The name in the certificate of the server; that of the address where absent.
    pub server_name: Option<String>,
}

/// What a server says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverStatus {
    /// Its version.
    pub version: String,
    /// The number of nodes that it reaches.
    pub connected_nodes: u32,
    /// The nodes that it does not reach.
    pub unavailable_nodes: Vec<String>,
}

/// A line, and when it happened, since the epoch.
pub type ObservedLine = (Duration, MonitorLine);

/// A client of Hubble's API.
#[derive(Clone, Debug)]
pub struct HubbleClient {
    channel: Channel,
    address: Arc<str>,
}

impl HubbleClient {
    /// A client of the server at `HOST:PORT`, which connects when it is first used.
    ///
    /// # Errors
    /// If the address or the certificates have no meaning.
    pub fn new(address: &str, tls: Option<HubbleClientTls>) -> Result<Self, HubbleError> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let failed = |source| HubbleError::Connect {
            address: address.to_owned(),
            source,
        };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(failed)?;
        let mut endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
        if let Some(tls) = tls {
            let mut config =
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(tls.authority));
            if let Some([certificate, key]) = tls.identity {
                config = config.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = tls.server_name {
                config = config.domain_name(name);
            }
            endpoint = endpoint.tls_config(config).map_err(failed)?;
        }
        Ok(HubbleClient {
            channel: endpoint.connect_lazy(),
            address: address.into(),
        })
    }

    fn observer(&self) -> ObserverClient<Channel> {
        ObserverClient::new(self.channel.clone())
    }

    /// What makes an error of the status of a request.
    fn error(&self) -> impl Fn(Status) -> HubbleError + Send + use<> {
        let address = Arc::clone(&self.address);
        move |status| HubbleError::Request {
            address: address.to_string(),
            status: Box::new(status),
        }
    }

    /// What the server says about itself.
    ///
    /// # Errors
    /// If it does not respond.
    pub async fn status(&self) -> Result<ObserverStatus, HubbleError> {
        let status = self.observer().server_status(ServerStatusRequest {}).await;
        let status = status.map_err(self.error())?.into_inner();
        Ok(ObserverStatus {
            version: status.version,
            connected_nodes: status.num_connected_nodes.unwrap_or(1),
            unavailable_nodes: status.unavailable_nodes,
        })
    }

    /// The last lines, about this many, and those to come if `follow`.
    ///
    /// # Errors
    /// If the server does not respond. The stream ends with an error if the connection does.
    pub async fn lines(
        &self,
        last: u64,
        follow: bool,
    ) -> Result<impl Stream<Item = Result<ObservedLine, HubbleError>> + use<>, HubbleError> {
        let request = GetFlowsRequest {
            number: last,
            follow,
            ..GetFlowsRequest::default()
        };
        let stream = self.observer().get_flows(request).await;
        let stream = stream.map_err(self.error())?.into_inner();
        let failed = self.error();
        Ok(stream.filter_map(move |response| match response {
            Ok(response) => line_of(response).map(Ok),
            Err(status) => Some(Err(failed(status))),
        }))
    }
}

fn line_of(response: GetFlowsResponse) -> Option<ObservedLine> {
    match response.response_types? {
        ResponseTypes::Flow(flow) => observed_line(&flow),
        ResponseTypes::LostEvents(lost) => {
            let time = response.time?;
            let since = Duration::from_secs(u64::try_from(time.seconds).ok()?);
            let cause = match lost.source() {
                LostEventSource::PerfEventRingBuffer => LossCause::Kernel,
                LostEventSource::ObserverEventsQueue => LossCause::Agent,
                _ => LossCause::Client,
            };
            let lost = LostEvents {
                api_version: palisade_api::api_version(),
                time: jiff::Timestamp::from_second(time.seconds).ok()?.to_string(),
                cause,
                count: lost.num_events_lost,
                reason: None,
                rule: None,
                policies: Vec::new(),
            };
            Some((since, MonitorLine::Lost(Box::new(lost))))
        }
        ResponseTypes::NodeStatus(_) => None,
    }
}
