//! The service on sockets: what it does with requests of later versions, with sockets of others, and at its end.

use super::*;
use crate::config::HubbleConfig;
use crate::limits::MAX_REQUEST_BYTES;
use crate::proto::observer::GetFlowsResponse;
use palisade_flows::recent::RecentLines;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// A filter of a later version.
#[derive(Clone, PartialEq, prost::Message)]
struct LaterFilter {
    #[prost(string, repeated, tag = "1")]
    source_ip: Vec<String>,
    #[prost(string, tag = "4242")]
    unknown: String,
}

/// A request of a later version.
#[derive(Clone, PartialEq, prost::Message)]
struct LaterRequest {
    #[prost(message, repeated, tag = "6")]
    whitelist: Vec<LaterFilter>,
    #[prost(string, tag = "4242")]
    unknown: String,
}

fn service() -> HubbleService {
    HubbleService::new(HubbleConfig {
        node: "n1".to_owned(),
        node_labels: Vec::new(),
        cluster: "default".to_owned(),
        version: "v".to_owned(),
        lines: RecentLines::new(10),
        events: RecentLines::new(16),
        peers: watch::channel(Vec::new()).1,
        own: None,
        started: Duration::ZERO,
        clock: Arc::new(|| Duration::ZERO),
    })
}

async fn ask(channel: Channel, request: LaterRequest) -> Result<Option<GetFlowsResponse>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/observer.Observer/GetFlows");
    let codec = ProstCodec::<LaterRequest, GetFlowsResponse>::default();
    let answer = client
        .server_streaming(Request::new(request), path, codec)
        .await;
    answer?.into_inner().message().await
}

#[tokio::test]
async fn what_is_not_known_of_a_filter_is_refused() {
    let listener = HubbleListener::tcp("127.0.0.1:0".parse().unwrap(), None)
        .await
        .unwrap();
    let address = listener.local_address().unwrap();
    let (end, ended) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(service(), vec![listener], async {
        drop(ended.await)
    }));
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap();
    let filter = LaterFilter {
        source_ip: vec!["10.0.0.1".to_owned()],
        unknown: String::new(),
    };
    let mut request = LaterRequest {
        whitelist: vec![filter],
        unknown: "an option".to_owned(),
    };
    assert_eq!(ask(channel.clone(), request.clone()).await.unwrap(), None);
    request.whitelist[0].unknown = "x".to_owned();
    let refusal = ask(channel.clone(), request.clone()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(
        refusal.message().contains("field 4242 of flow.FlowFilter"),
        "{refusal}"
    );
    request.unknown = "x".repeat(MAX_REQUEST_BYTES);
    let refusal = ask(channel, request).await.unwrap_err();
    assert_eq!(refusal.code(), Code::OutOfRange);
    drop(end);
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn sockets_of_others_are_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hubble.sock");
    // One of a program that is gone.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = HubbleListener::unix(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert!(matches!(
        HubbleListener::unix(&path),
        Err(HubbleError::Socket { .. })
    ));
    assert!(path.exists());
    serve(service(), vec![listener], async {}).await.unwrap();
    assert!(!path.exists());
    let file = dir.path().join("file");
    std::fs::File::create(&file).unwrap();
    assert!(HubbleListener::unix(&file).is_err());
    assert!(file.exists());
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_an_error() {
    let tls = HubbleTls {
        certificate: b"no certificate".to_vec(),
        key: b"no key".to_vec(),
        client_authority: None,
    };
    let listener = HubbleListener::tcp("127.0.0.1:0".parse().unwrap(), Some(tls))
        .await
        .unwrap();
    let result = serve(service(), vec![listener], std::future::pending()).await;
    assert!(
        matches!(result, Err(HubbleError::Certificates(_))),
        "{result:?}"
    );
}
