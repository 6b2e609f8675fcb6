//! The service `observer.Observer`: flows, events of the agent, status, nodes and namespaces.
//!
//! An entry of the recent lines is one flow in the status, also if it is told for both of its ends.
//!
//! Promises: a request that cannot be answered as it is meant is refused with `INVALID_ARGUMENT` and the reason.
//!
//! Never: has events of debugging; their stream is empty.

use crate::agent_events::{AgentEventQuery, AgentEventStream};
use crate::field_mask::FieldMask;
use crate::filter::FlowFilters;
use crate::history::FlowQuery;
use crate::limits::QUEUE;
use crate::proto::observer::observer_server::Observer;
use crate::proto::observer::{
    GetAgentEventsRequest, GetAgentEventsResponse, GetDebugEventsRequest, GetDebugEventsResponse,
    GetFlowsRequest, GetFlowsResponse, GetNamespacesRequest, GetNamespacesResponse,
    GetNodesRequest, GetNodesResponse, Namespace, Node, ServerStatusRequest, ServerStatusResponse,
    Tls,
};
use crate::proto::relay::NodeState;
use crate::service::HubbleService;
use crate::stream::FlowStream;
use palisade_flows::recent::RecentLines;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// The time that the rate of flows is of.
const RATE_PERIOD: Duration = Duration::from_secs(60);

#[tonic::async_trait]
impl Observer for HubbleService {
    type GetFlowsStream = ReceiverStream<Result<GetFlowsResponse, Status>>;
    type GetAgentEventsStream = ReceiverStream<Result<GetAgentEventsResponse, Status>>;
    type GetDebugEventsStream = ReceiverStream<Result<GetDebugEventsResponse, Status>>;

    async fn get_flows(
        &self,
        request: Request<GetFlowsRequest>,
    ) -> Result<Response<Self::GetFlowsStream>, Status> {
        let (query, mask) = read_request(&request.into_inner())?;
        self.start_stream(|sender| {
            let stream = FlowStream {
                service: self.clone(),
                maker: self.maker(),
                query,
                mask,
                sender,
            };
            stream.run()
        })
    }

    async fn get_agent_events(
        &self,
        request: Request<GetAgentEventsRequest>,
    ) -> Result<Response<Self::GetAgentEventsStream>, Status> {
        let request = request.into_inner();
        check_order(request.first, request.follow)?;
        let query = AgentEventQuery {
            number: request.number,
            first: request.first,
            follow: request.follow,
            since: request.since.as_ref().map(since_epoch).transpose()?,
            until: request.until.as_ref().map(since_epoch).transpose()?,
        };
        self.start_stream(|sender| {
            let stream = AgentEventStream {
                service: self.clone(),
                query,
                sender,
            };
            stream.run()
        })
    }

    async fn get_debug_events(
        &self,
        request: Request<GetDebugEventsRequest>,
    ) -> Result<Response<Self::GetDebugEventsStream>, Status> {
        let request = request.into_inner();
        self.empty_stream(request.first, request.follow)
    }

    async fn get_nodes(
        &self,
        _: Request<GetNodesRequest>,
    ) -> Result<Response<GetNodesResponse>, Status> {
        let config = self.config();
        let counts = FlowCounts::of(self.lines());
        let own = config.own.as_ref();
        let node = Node {
            name: config.peer_name(&config.node),
            version: config.version.clone(),
            address: own.map_or_else(String::new, |own| own.address.clone()),
            state: NodeState::NodeConnected as i32,
            tls: own.map(|own| Tls {
                enabled: own.tls,
                server_name: if own.tls {
                    config.tls_name(&own.node)
                } else {
                    String::new()
                },
            }),
            uptime_ns: nanoseconds(self.uptime()),
            num_flows: counts.stored,
            max_flows: counts.capacity,
            seen_flows: counts.seen,
        };
        Ok(Response::new(GetNodesResponse { nodes: vec![node] }))
    }

    async fn get_namespaces(
        &self,
        _: Request<GetNamespacesRequest>,
    ) -> Result<Response<GetNamespacesResponse>, Status> {
        let names = self.namespaces().list(self.now()).await;
        let namespaces = names.into_iter().map(|namespace| Namespace {
            cluster: self.config().cluster.clone(),
            namespace,
        });
        Ok(Response::new(GetNamespacesResponse {
            namespaces: namespaces.collect(),
        }))
    }

    async fn server_status(
        &self,
        _: Request<ServerStatusRequest>,
    ) -> Result<Response<ServerStatusResponse>, Status> {
        let counts = FlowCounts::of(self.lines());
        Ok(Response::new(ServerStatusResponse {
            num_flows: counts.stored,
            max_flows: counts.capacity,
            seen_flows: counts.seen,
            uptime_ns: nanoseconds(self.uptime()),
            num_connected_nodes: Some(1),
            num_unavailable_nodes: Some(0),
            unavailable_nodes: Vec::new(),
            version: self.config().version.clone(),
            flows_rate: flows_rate(self.lines(), self.now()),
        }))
    }
}

impl HubbleService {
    /// A stream of what `run` sends, as long as there is a place for one.
    fn start_stream<T, F>(
        &self,
        run: impl FnOnce(mpsc::Sender<Result<T, Status>>) -> F,
    ) -> Result<Response<ReceiverStream<Result<T, Status>>>, Status>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let permit = self.stream_permit()?;
        let (sender, receiver) = mpsc::channel(QUEUE);
        let running = run(sender);
        tokio::spawn(async move {
            running.await;
            drop(permit);
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    /// A stream without events: it ends at once, or with the service if events to come are asked for.
    fn empty_stream<T: Send + 'static>(
        &self,
        first: bool,
        follow: bool,
    ) -> Result<Response<ReceiverStream<Result<T, Status>>>, Status> {
        check_order(first, follow)?;
        let (sender, receiver) = mpsc::channel(1);
        if follow {
            let (service, permit) = (self.clone(), self.stream_permit()?);
            tokio::spawn(async move {
                tokio::select! {
                    () = service.stopped() => {}
                    () = sender.closed() => {}
                }
                drop(permit);
            });
        }
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

fn check_order(first: bool, follow: bool) -> Result<(), Status> {
    if first && follow {
        return Err(Status::invalid_argument(
            "first cannot be specified with follow",
        ));
    }
    Ok(())
}

fn read_request(request: &GetFlowsRequest) -> Result<(FlowQuery, Option<FieldMask>), Status> {
    check_order(request.first, request.follow)?;
    let filters = FlowFilters::new(&request.whitelist, &request.blacklist);
    let own_mask = request
        .field_mask
        .as_ref()
        .filter(|mask| !mask.paths.is_empty());
    #[allow(deprecated, reason = "clients of 1.16 set this one")]
    let older_mask = || request.experimental.as_ref()?.field_mask.as_ref();
    let paths = own_mask
        .or_else(older_mask)
        .map_or(&[][..], |mask| mask.paths.as_slice());
    let query = FlowQuery {
        number: request.number,
        first: request.first,
        follow: request.follow,
        since: request.since.as_ref().map(since_epoch).transpose()?,
        until: request.until.as_ref().map(since_epoch).transpose()?,
        filters: filters.map_err(Status::invalid_argument)?,
    };
    let mask = FieldMask::new(paths).map_err(Status::invalid_argument)?;
    Ok((query, mask))
}

/// A time of a request; one before the epoch is the epoch.
fn since_epoch(time: &prost_types::Timestamp) -> Result<Duration, Status> {
    let nanos = u32::try_from(time.nanos)
        .ok()
        .filter(|nanos| *nanos < 1_000_000_000);
    let nanos = nanos.ok_or_else(|| Status::invalid_argument("a time has invalid nanoseconds"))?;
    Ok(match u64::try_from(time.seconds) {
        Ok(seconds) => Duration::new(seconds, nanos),
        Err(_) => Duration::ZERO,
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How many flows there are.
struct FlowCounts {
    stored: u64,
    capacity: u64,
    seen: u64,
}

impl FlowCounts {
    fn of(lines: &RecentLines) -> Self {
        let (oldest, next) = lines.bounds();
        FlowCounts {
            stored: next - oldest,
            capacity: lines.capacity() as u64,
            seen: next,
        }
    }
}

/// Flows a second in the last minute, or since the oldest line if that is later.
fn flows_rate(lines: &RecentLines, now: Duration) -> f64 {
    let time = |number| lines.read(number, 1).lines.first().map(|line| line.time);
    let (oldest, next) = lines.bounds();
    let since = now.saturating_sub(RATE_PERIOD);
    // The first line of the period: lines are in the order of their times, nearly.
    let (mut low, mut high) = (oldest, next);
    while low < high {
        let middle = low + (high - low) / 2;
        if time(middle).is_some_and(|time| time < since) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let period = match time(oldest) {
        Some(first) if low == oldest => now.saturating_sub(first),
        _ => RATE_PERIOD,
    };
    // A moment is no period.
    (next - low) as f64 / period.as_secs_f64().max(1.0)
}

#[cfg(test)]
mod tests;
