//! A stream of flows to one client.
//!
//! Promises: flows are in the order in which they were recorded; what was overwritten before it was read is told as lost;
//! the reader lets others run after each batch; it ends when the client is gone or the service stops.
//!
//! Never: buffers more than a few messages.

use crate::field_mask::FieldMask;
use crate::flow::{FlowMaker, LineEvents, timestamp};
use crate::history::FlowQuery;
use crate::limits::BATCH;
use crate::lost::UntoldLosses;
use crate::proto::flow::{Flow, LostEventSource};
use crate::proto::observer::GetFlowsResponse;
use crate::proto::observer::get_flows_response::ResponseTypes;
use crate::service::HubbleService;
use palisade_flows::recent::RecentLine;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// The stream has no receiver any more, or the service stops.
struct Stopped;

/// One stream.
pub(crate) struct FlowStream {
    pub(crate) service: HubbleService,
    pub(crate) maker: Arc<FlowMaker>,
    pub(crate) query: FlowQuery,
    pub(crate) mask: Option<FieldMask>,
    pub(crate) sender: Sender<Result<GetFlowsResponse, Status>>,
}

impl FlowStream {
    /// Sends what was asked for.
    pub(crate) async fn run(self) {
        let mut losses = UntoldLosses::default();
        let stopped = tokio::select! {
            result = self.send_flows(&mut losses) => result.is_err(),
            () = self.service.stopped() => true,
            () = self.sender.closed() => return,
        };
        if stopped {
            let status = Status::unavailable("the agent stops");
            // The client may be gone, or read no more.
            let _ = self.sender.try_send(Err(status));
        } else if self.send_losses(&mut losses, true).await.is_err() {
            // Nobody is told.
        }
    }

    async fn send_flows(&self, losses: &mut UntoldLosses) -> Result<(), Stopped> {
        let lines = self.service.lines();
        let mut place = self.query.place(&self.maker, lines).await;
        let mut sent = 0;
        loop {
            let batch = lines.read(place.line, BATCH);
            losses.add(LostEventSource::HubbleRingBuffer, batch.missed);
            for line in &batch.lines {
                let is_beyond = place.end.is_some_and(|end| line.number >= end);
                if is_beyond || self.query.is_after(line) {
                    return Ok(());
                }
                if self.query.is_before(line) {
                    continue;
                }
                let mut flows = match self.maker.events(line) {
                    LineEvents::Flows(flows) => flows,
                    LineEvents::Lost(source, count) => {
                        losses.add(source, count);
                        continue;
                    }
                };
                flows.retain(|flow| self.query.filters.select(flow));
                for flow in flows {
                    if place.skip > 0 {
                        place.skip -= 1;
                        continue;
                    }
                    self.send_losses(losses, false).await?;
                    self.send_flow(line, flow).await?;
                    sent += 1;
                    if !self.query.follow && sent == self.query.number {
                        return Ok(());
                    }
                }
                place.skip = 0;
            }
            place.line = batch.next;
            if place.end.is_some_and(|end| place.line >= end) {
                return Ok(());
            }
            if batch.lines.is_empty() {
                self.wait(place.line, losses).await?;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits for a line, and tells meanwhile what was lost.
    async fn wait(&self, line: u64, losses: &mut UntoldLosses) -> Result<(), Stopped> {
        self.send_losses(losses, false).await?;
        let wait = self.service.lines().wait(line);
        let Some(due) = losses.due() else {
            wait.await;
            return Ok(());
        };
        tokio::select! {
            () = wait => {}
            () = tokio::time::sleep_until(due) => {}
        }
        Ok(())
    }

    async fn send_flow(&self, line: &RecentLine, mut flow: Flow) -> Result<(), Stopped> {
        if self.mask.as_ref().is_none_or(|mask| mask.has("extensions")) {
            FlowMaker::extend(line, &mut flow);
        }
        let (time, node_name) = (flow.time, flow.node_name.clone());
        if let Some(mask) = &self.mask {
            flow = mask.apply(&flow);
        }
        self.send(ResponseTypes::Flow(flow), time, node_name).await
    }

    async fn send_losses(&self, losses: &mut UntoldLosses, all: bool) -> Result<(), Stopped> {
        let events = if all {
            losses.take()
        } else {
            losses.take_due()
        };
        for event in events {
            let time = Some(timestamp(self.service.now()));
            let node = self.service.config().absolute_node();
            self.send(ResponseTypes::LostEvents(event), time, node)
                .await?;
        }
        Ok(())
    }

    async fn send(
        &self,
        event: ResponseTypes,
        time: Option<prost_types::Timestamp>,
        node_name: String,
    ) -> Result<(), Stopped> {
        let response = GetFlowsResponse {
            node_name,
            time,
            response_types: Some(event),
        };
        self.sender.send(Ok(response)).await.map_err(|_| Stopped)
    }
}
