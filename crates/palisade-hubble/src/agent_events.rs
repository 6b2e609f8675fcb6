//! A stream of events of the agent to one client, as Cilium has them.
//!
//! A policy of another revision is `POLICY_UPDATED`; a workload whose labels, addresses or interface changed is
//! `ENDPOINT_REGENERATE_SUCCESS`. Endpoints have no numbers here: theirs is 0.
//!
//! Promises: events are in the order in which they happened; the stream ends when the client is gone or the service
//! stops. Never: tells how many events were overwritten before they were read; the API has no field for it.

use crate::flow::timestamp;
use crate::identity::endpoint;
use crate::limits::BATCH;
use crate::policy::policy;
use crate::proto::flow::agent_event::Notification;
use crate::proto::flow::{
    self, AgentEventType, EndpointRegenNotification, EndpointUpdateNotification,
    PolicyUpdateNotification, TimeNotification,
};
use crate::proto::observer::GetAgentEventsResponse;
use crate::service::HubbleService;
use palisade_api::{MonitorEndpoint, ObjectRef};
use palisade_flows::agent_event::{AgentEvent, EndpointEvent, PolicyEvent};
use palisade_flows::recent::RecentLine;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// What a request asks for.
pub(crate) struct AgentEventQuery {
    /// How many events; 0 is all of them.
    pub(crate) number: u64,
    /// Whether these are the first ones.
    pub(crate) first: bool,
    /// Whether events to come are asked for.
    pub(crate) follow: bool,
    /// The time of the first event.
    pub(crate) since: Option<Duration>,
    /// The time of the last event.
    pub(crate) until: Option<Duration>,
}

/// One stream.
pub(crate) struct AgentEventStream {
    pub(crate) service: HubbleService,
    pub(crate) query: AgentEventQuery,
    pub(crate) sender: Sender<Result<GetAgentEventsResponse, Status>>,
}

impl AgentEventStream {
    /// Sends what was asked for.
    pub(crate) async fn run(self) {
        tokio::select! {
            () = self.send_events() => {}
            () = self.sender.closed() => {}
            () = self.service.stopped() => {
                let status = Status::unavailable("the agent stops");
                // The client may be gone, or read no more.
                let _ = self.sender.try_send(Err(status));
            }
        }
    }

    async fn send_events(&self) {
        let (events, query) = (&self.service.config().events, &self.query);
        let (oldest, end) = events.bounds();
        let mut place = match (query.first || query.since.is_some(), query.number) {
            (true, _) => oldest,
            (false, 0) if query.follow => end,
            (false, 0) => oldest,
            (false, number) => end.saturating_sub(number).max(oldest),
        };
        let mut sent = 0;
        loop {
            let batch = events.read(place, BATCH);
            for event in &batch.lines {
                let is_beyond = !query.follow && event.number >= end;
                if is_beyond || query.until.is_some_and(|until| event.time > until) {
                    return;
                }
                if query.since.is_some_and(|since| event.time < since) {
                    continue;
                }
                if self.sender.send(Ok(self.response(event))).await.is_err() {
                    return;
                }
                sent += 1;
                if !query.follow && sent == query.number {
                    return;
                }
            }
            place = batch.next;
            if !query.follow && place >= end {
                return;
            }
            if batch.lines.is_empty() {
                events.wait(place).await;
            }
        }
    }

    fn response(&self, event: &RecentLine<AgentEvent>) -> GetAgentEventsResponse {
        let config = self.service.config();
        let time = Some(timestamp(event.time));
        GetAgentEventsResponse {
            agent_event: Some(agent_event(event, &config.node, &config.cluster)),
            node_name: config.absolute_node(),
            time,
        }
    }
}

fn agent_event(event: &RecentLine<AgentEvent>, node: &str, cluster: &str) -> flow::AgentEvent {
    let (kind, notification) = match &event.line {
        AgentEvent::Started => (
            AgentEventType::AgentStarted,
            Notification::AgentStart(TimeNotification {
                time: Some(timestamp(event.time)),
            }),
        ),
        AgentEvent::PolicyUpdated(updated) => (
            AgentEventType::PolicyUpdated,
            Notification::PolicyUpdate(policy_update(updated)),
        ),
        AgentEvent::PolicyDeleted(deleted) => (
            AgentEventType::PolicyDeleted,
            Notification::PolicyUpdate(policy_update(deleted)),
        ),
        AgentEvent::EndpointCreated(created) => (
            AgentEventType::EndpointCreated,
            Notification::EndpointUpdate(endpoint_update(created, node, cluster)),
        ),
        AgentEvent::EndpointDeleted(deleted) => (
            AgentEventType::EndpointDeleted,
            Notification::EndpointUpdate(endpoint_update(deleted, node, cluster)),
        ),
        AgentEvent::EndpointChanged(changed) => {
            let labels = endpoint_update(changed, node, cluster).labels;
            let regenerated = EndpointRegenNotification {
                labels,
                ..EndpointRegenNotification::default()
            };
            (
                AgentEventType::EndpointRegenerateSuccess,
                Notification::EndpointRegenerate(regenerated),
            )
        }
    };
    flow::AgentEvent {
        r#type: kind as i32,
        notification: Some(notification),
    }
}

fn policy_update(event: &PolicyEvent) -> PolicyUpdateNotification {
    PolicyUpdateNotification {
        labels: policy(&ObjectRef::new(&event.object, None), None).labels,
        revision: event.revision,
        rule_count: i64::try_from(event.rules).unwrap_or(i64::MAX),
    }
}

fn endpoint_update(event: &EndpointEvent, node: &str, cluster: &str) -> EndpointUpdateNotification {
    let end = MonitorEndpoint {
        namespace: event.id.namespace.clone(),
        name: Some(event.id.name.clone()),
        labels: Arc::clone(&event.labels),
        ..MonitorEndpoint::default()
    };
    let known = endpoint(&end, node, cluster);
    EndpointUpdateNotification {
        labels: known.labels,
        pod_name: known.pod_name,
        namespace: known.namespace,
        ..EndpointUpdateNotification::default()
    }
}
