//! Reads every flow once, for metrics and for logs.
//!
//! Promises: what was overwritten before it was read is counted and told as lost; what was read is written before the end.
//!
//! Never: holds up who records flows.

use crate::flow::{FlowMaker, LineEvents};
use crate::flow_log::FlowLogs;
use crate::limits::BATCH;
use crate::metrics::HubbleMetrics;
use crate::proto::flow::LostEventSource;
use crate::{FlowLogStatus, HubbleConfig};
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// How often the definitions of logs are read again, and files that could not be written are tried again.
const REREAD: Duration = Duration::from_secs(2);

/// Who reads every flow.
pub struct FlowConsumer {
    config: HubbleConfig,
    maker: FlowMaker,
    metrics: Option<HubbleMetrics>,
    logs: Option<FlowLogs>,
}

impl FlowConsumer {
    /// Counts flows in metrics, and writes them to the logs that a file defines.
    #[must_use]
    pub fn new(
        config: HubbleConfig,
        metrics: Option<HubbleMetrics>,
        logs: Option<(PathBuf, FlowLogStatus)>,
    ) -> Self {
        let node = config.absolute_node();
        FlowConsumer {
            maker: FlowMaker::of_node(&config),
            metrics,
            logs: logs.map(|(path, status)| FlowLogs::new(path, node, status)),
            config,
        }
    }

    /// Reads until told to stop.
    pub async fn run(mut self, stopped: impl Future<Output = ()>) {
        tokio::pin!(stopped);
        let lines = self.config.lines.clone();
        let mut place = 0;
        let mut reread = Instant::now();
        // The number of the line to end before, once this is to end.
        let mut end: Option<u64> = None;
        while end.is_none_or(|end| place < end) {
            if reread <= Instant::now() {
                reread = Instant::now() + REREAD;
                if let Some(logs) = &mut self.logs {
                    logs.reread();
                }
            }
            let batch = lines.read(place, BATCH);
            self.consume_lost(LostEventSource::HubbleRingBuffer, batch.missed);
            for line in &batch.lines {
                match self.maker.events(line) {
                    LineEvents::Lost(source, count) => self.consume_lost(source, count),
                    LineEvents::Flows(flows) => {
                        if let Some(metrics) = &self.metrics {
                            metrics.count(&flows);
                        }
                        if let Some(logs) = &mut self.logs {
                            logs.write(line, &flows, (self.config.clock)());
                        }
                    }
                }
            }
            place = batch.next;
            let is_idle = batch.lines.is_empty();
            if is_idle && let Some(logs) = &mut self.logs {
                logs.flush();
            }
            let more = async {
                if is_idle {
                    lines.wait(place).await;
                } else {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = &mut stopped, if end.is_none() => end = Some(lines.bounds().1),
                () = more => {}
                () = tokio::time::sleep_until(reread) => {}
            }
        }
        if let Some(logs) = &mut self.logs {
            logs.flush();
        }
    }

    fn consume_lost(&mut self, source: LostEventSource, count: u64) {
        if count == 0 {
            return;
        }
        if let Some(metrics) = &self.metrics {
            metrics.count_lost(source, count);
        }
        if let Some(logs) = &mut self.logs {
            logs.write_lost(source, count, (self.config.clock)());
        }
    }
}
