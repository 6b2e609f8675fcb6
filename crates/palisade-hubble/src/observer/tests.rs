//! Answers of the service without a socket: ranges, slow readers, bounds, counts.

use super::*;
use crate::config::HubbleConfig;
use crate::limits::MAX_STREAMS;
use crate::proto::flow::agent_event::Notification;
use crate::proto::flow::{FlowFilter, LostEventSource};
use crate::proto::observer::get_flows_response::ResponseTypes;
use palisade_api::{
    FlowRecord, FlowState, LossCause, LostEvents, MonitorEndpoint, MonitorLine, ProtocolName,
};
use palisade_flows::agent_event::{AgentEvent, PolicyEvent};
use palisade_model::{ObjectId, ObjectKind};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tonic::Code;

const NOW: Duration = Duration::from_secs(10_000);

fn service(capacity: usize) -> HubbleService {
    HubbleService::new(HubbleConfig {
        node: "n1".to_owned(),
        node_labels: Vec::new(),
        cluster: "default".to_owned(),
        version: "v".to_owned(),
        lines: RecentLines::new(capacity),
        events: RecentLines::new(16),
        peers: watch::channel(Vec::new()).1,
        own: None,
        started: NOW,
        clock: Arc::new(|| NOW),
    })
}

/// A line with one flow, to a port.
fn line(port: u16, namespace: &str) -> MonitorLine {
    let end = |port| MonitorEndpoint {
        address: "10.0.0.1".into(),
        port: Some(port),
        namespace: Some(namespace.into()),
        name: Some("web".into()),
        ..MonitorEndpoint::default()
    };
    MonitorLine::Flow(Arc::new(FlowRecord {
        api_version: palisade_api::api_version(),
        state: FlowState::Ended,
        began: None,
        ended: None,
        source: end(1),
        destination: end(port),
        translation: None,
        protocol: ProtocolName::Udp,
        icmp: None,
        egress: None,
        ingress: None,
        traffic: None,
    }))
}

fn push(service: &HubbleService, ports: std::ops::Range<u16>) {
    for port in ports {
        let time = NOW - Duration::from_secs(100) + Duration::from_secs(port.into());
        service.lines().push(time, line(port, "shop"));
    }
}

/// What a stream has: ports of flows, and counts of losses as negative numbers.
fn number(response: Result<GetFlowsResponse, Status>) -> i64 {
    match response.unwrap().response_types.unwrap() {
        ResponseTypes::Flow(flow) => match flow.l4.unwrap().protocol.unwrap() {
            crate::proto::flow::layer4::Protocol::Udp(udp) => udp.destination_port.into(),
            other => panic!("{other:?}"),
        },
        ResponseTypes::LostEvents(lost) => -(lost.num_events_lost as i64),
        ResponseTypes::NodeStatus(status) => panic!("{status:?}"),
    }
}

async fn open(
    service: &HubbleService,
    request: GetFlowsRequest,
) -> Result<ReceiverStream<Result<GetFlowsResponse, Status>>, Status> {
    Ok(service.get_flows(Request::new(request)).await?.into_inner())
}

async fn all(service: &HubbleService, request: GetFlowsRequest) -> Vec<i64> {
    let stream = open(service, request).await.unwrap();
    stream.map(number).collect().await
}

#[tokio::test]
async fn ranges_select_flows_in_order() {
    let service = service(1000);
    assert!(all(&service, GetFlowsRequest::default()).await.is_empty());
    push(&service, 0..700);
    let numbers = |range: std::ops::Range<i64>| range.collect::<Vec<_>>();
    assert_eq!(
        all(&service, GetFlowsRequest::default()).await,
        numbers(0..700)
    );
    let last = GetFlowsRequest {
        number: 600,
        ..GetFlowsRequest::default()
    };
    assert_eq!(all(&service, last.clone()).await, numbers(100..700));
    let first = GetFlowsRequest {
        first: true,
        ..last
    };
    assert_eq!(all(&service, first).await, numbers(0..600));
    let time = |port: i64| {
        let seconds = NOW.as_secs() as i64 - 100 + port;
        Some(prost_types::Timestamp { seconds, nanos: 0 })
    };
    let range = GetFlowsRequest {
        since: time(50),
        until: time(60),
        ..GetFlowsRequest::default()
    };
    assert_eq!(all(&service, range.clone()).await, numbers(50..61));
    let some = GetFlowsRequest { number: 3, ..range };
    assert_eq!(all(&service, some).await, numbers(50..53));
    // Of the last matching flows, wherever they are.
    let filter = FlowFilter {
        destination_port: vec!["5".to_owned(), "600".to_owned(), "9".to_owned()],
        ..FlowFilter::default()
    };
    let matching = GetFlowsRequest {
        number: 2,
        whitelist: vec![filter],
        ..GetFlowsRequest::default()
    };
    assert_eq!(all(&service, matching).await, [9, 600]);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let service = service(10);
    let mask = |path: &str| prost_types::FieldMask {
        paths: vec![path.to_owned()],
    };
    let nanos = prost_types::Timestamp {
        seconds: 0,
        nanos: -1,
    };
    for request in [
        GetFlowsRequest {
            first: true,
            follow: true,
            ..GetFlowsRequest::default()
        },
        GetFlowsRequest {
            field_mask: Some(mask("source.nothing")),
            ..GetFlowsRequest::default()
        },
        GetFlowsRequest {
            since: Some(nanos),
            ..GetFlowsRequest::default()
        },
    ] {
        let refusal = open(&service, request).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_field_mask_leaves_fields_out() {
    let service = service(10);
    push(&service, 0..1);
    let mask = prost_types::FieldMask {
        paths: vec!["source.namespace".to_owned()],
    };
    let request = GetFlowsRequest {
        field_mask: Some(mask),
        ..GetFlowsRequest::default()
    };
    let response = open(&service, request)
        .await
        .unwrap()
        .next()
        .await
        .unwrap()
        .unwrap();
    assert!(response.time.is_some());
    assert_eq!(response.node_name, "default/n1");
    let Some(ResponseTypes::Flow(flow)) = response.response_types else {
        panic!("no flow");
    };
    assert_eq!(flow.source.unwrap().namespace, "shop");
    assert!(flow.uuid.is_empty() && flow.time.is_none() && flow.extensions.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_learns_what_it_missed() {
    let service = service(100);
    let follow = GetFlowsRequest {
        follow: true,
        ..GetFlowsRequest::default()
    };
    push(&service, 0..1);
    let mut slow = open(&service, follow.clone()).await.unwrap();
    let mut quick = open(&service, follow).await.unwrap();
    tokio::task::yield_now().await;
    let mut seen = 0;
    for port in 1..=1000 {
        push(&service, port..port + 1);
        while quick.next().await.map(number) != Some(port.into()) {}
    }
    let mut missed = 0;
    while seen + missed < 1000 {
        match number(slow.next().await.unwrap()) {
            lost if lost < 0 => missed -= lost,
            _ => seen += 1,
        }
    }
    assert_eq!(seen + missed, 1000);
    assert!(missed > 500, "{missed}");
    // A loss of the monitor is passed on even if no flow comes, a second later.
    let lost = |count| {
        MonitorLine::Lost(Box::new(LostEvents {
            api_version: palisade_api::api_version(),
            time: String::new(),
            cause: LossCause::Agent,
            count,
            reason: None,
            rule: None,
            policies: Vec::new(),
        }))
    };
    for count in [1, 2, 3] {
        service.lines().push(NOW, lost(count));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut counts = Vec::new();
    while counts.iter().sum::<i64>() > -6 {
        let response = quick.next().await.unwrap();
        if let Some(ResponseTypes::LostEvents(event)) = &response.as_ref().unwrap().response_types {
            assert_eq!(event.source, LostEventSource::ObserverEventsQueue as i32);
            counts.push(number(response));
        }
    }
    assert_eq!(counts, [-1, -5]);
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_service() {
    let service = service(10);
    let follow = GetFlowsRequest {
        follow: true,
        ..GetFlowsRequest::default()
    };
    let mut streams = Vec::new();
    for _ in 0..MAX_STREAMS {
        streams.push(open(&service, follow.clone()).await.unwrap());
    }
    let refusal = open(&service, follow.clone()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    drop(streams.pop());
    let mut again = open(&service, follow.clone()).await;
    while again.is_err() {
        tokio::task::yield_now().await;
        again = open(&service, follow.clone()).await;
    }
    service.stop();
    let end = streams[0].next().await.unwrap().unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
    assert!(streams[0].next().await.is_none());
}

#[tokio::test]
async fn namespaces_are_listed_for_an_hour() {
    let service = service(2);
    let list = async || {
        let answer = service
            .get_namespaces(Request::new(GetNamespacesRequest {}))
            .await;
        let namespaces = answer.unwrap().into_inner().namespaces.into_iter();
        namespaces
            .map(|one| format!("{}/{}", one.cluster, one.namespace))
            .collect::<Vec<_>>()
    };
    let at = |seconds: u64, namespace: &str| {
        service
            .lines()
            .push(NOW - Duration::from_secs(seconds), line(1, namespace));
    };
    at(3601, "old");
    at(3600, "shop");
    assert_eq!(list().await, ["default/shop"]);
    // Lines that are no longer kept were read.
    at(5, "a");
    at(5, "b");
    assert_eq!(list().await, ["default/a", "default/b", "default/shop"]);
}

#[tokio::test]
async fn the_status_has_counts() {
    let service = service(200);
    let status = async || {
        let answer = service
            .server_status(Request::new(ServerStatusRequest {}))
            .await;
        answer.unwrap().into_inner()
    };
    assert_eq!(status().await.flows_rate, 0.0);
    push(&service, 0..100);
    // Those of the last minute alone.
    assert_eq!(status().await.flows_rate, 1.0);
    push(&service, 0..300);
    let status = status().await;
    assert_eq!(
        (status.num_flows, status.max_flows, status.seen_flows),
        (200, 200, 400)
    );
    assert_eq!(status.num_connected_nodes, Some(1));
    let nodes = service
        .get_nodes(Request::new(GetNodesRequest {}))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (nodes.nodes[0].name.as_str(), nodes.nodes[0].seen_flows),
        ("n1", 400)
    );
}

/// The names of the policies of events that a stream has.
async fn policy_names(service: &HubbleService, request: GetAgentEventsRequest) -> Vec<String> {
    let stream = service.get_agent_events(Request::new(request)).await;
    let stream = stream.unwrap().into_inner();
    let name = |response: Result<GetAgentEventsResponse, Status>| {
        let event = response.unwrap().agent_event.unwrap();
        match event.notification.unwrap() {
            Notification::PolicyUpdate(update) => update.labels[1].clone(),
            other => panic!("{other:?}"),
        }
    };
    let names = stream.map(name).collect::<Vec<_>>().await;
    let prefix = "k8s:io.cilium.k8s.policy.name=";
    let names = names.iter().map(|name| name.strip_prefix(prefix).unwrap());
    names.map(str::to_owned).collect()
}

fn push_policy_event(service: &HubbleService, number: u64) {
    let object = ObjectId {
        namespace: Some("shop".into()),
        name: number.to_string().into(),
        kind: ObjectKind::new("networking.k8s.io", "NetworkPolicy"),
    };
    let event = AgentEvent::PolicyUpdated(PolicyEvent {
        object,
        revision: number,
        rules: 1,
    });
    let events = &service.config().events;
    events.push(Duration::from_secs(number), event);
}

#[tokio::test]
async fn ranges_select_agent_events_in_order() {
    let service = service(1);
    (0..20).for_each(|number| push_policy_event(&service, number));
    // The first four are overwritten.
    let none = GetAgentEventsRequest::default;
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    for (request, expected) in [
        (none(), 4..20),
        (
            GetAgentEventsRequest {
                number: 3,
                ..none()
            },
            17..20,
        ),
        (
            GetAgentEventsRequest {
                number: 3,
                first: true,
                ..none()
            },
            4..7,
        ),
        (
            GetAgentEventsRequest {
                number: 99,
                ..none()
            },
            4..20,
        ),
        (
            GetAgentEventsRequest {
                since: time(10),
                until: time(12),
                ..none()
            },
            10..13,
        ),
        (
            GetAgentEventsRequest {
                until: time(5),
                ..none()
            },
            4..6,
        ),
        (
            GetAgentEventsRequest {
                since: time(30),
                ..none()
            },
            0..0,
        ),
    ] {
        let expected: Vec<String> = expected.map(|number: u64| number.to_string()).collect();
        assert_eq!(
            policy_names(&service, request).await,
            expected,
            "{request:?}"
        );
    }
    let order = GetAgentEventsRequest {
        first: true,
        follow: true,
        ..none()
    };
    let refused = service.get_agent_events(Request::new(order)).await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    // Two that were, and those to come until the service stops.
    let follow = GetAgentEventsRequest {
        number: 2,
        follow: true,
        ..none()
    };
    let stream = service.get_agent_events(Request::new(follow)).await;
    let mut stream = stream.unwrap().into_inner();
    for number in [18, 19, 20, 21] {
        if number >= 20 {
            push_policy_event(&service, number);
        }
        let event = stream.next().await.unwrap().unwrap();
        assert_eq!(event.time.unwrap().seconds, i64::try_from(number).unwrap());
    }
    service.stop();
    assert_eq!(
        stream.next().await.unwrap().unwrap_err().code(),
        Code::Unavailable
    );
    assert!(stream.next().await.is_none());
}
