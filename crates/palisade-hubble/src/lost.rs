//! Events that a client does not see, told at most once a second.
//!
//! Promises: every loss is told, with the number, at the end of a stream at the latest.
//!
//! Never: holds up flows.

use crate::proto::flow::{LostEvent, LostEventSource};
use palisade_api::LossCause;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time between two messages about losses.
const PAUSE: Duration = Duration::from_secs(1);

/// Where Hubble would say that events were lost.
pub(crate) fn loss_source(cause: LossCause) -> LostEventSource {
    match cause {
        LossCause::Kernel | LossCause::Flows => LostEventSource::PerfEventRingBuffer,
        LossCause::Agent | LossCause::Rate => LostEventSource::ObserverEventsQueue,
        LossCause::Client => LostEventSource::HubbleRingBuffer,
    }
}

/// The losses that a client has not been told.
#[derive(Debug, Default)]
pub(crate) struct UntoldLosses {
    counts: BTreeMap<i32, u64>,
    last: Option<Instant>,
}

impl UntoldLosses {
    /// Notes a loss.
    pub(crate) fn add(&mut self, source: LostEventSource, count: u64) {
        if count > 0 {
            let sum = self.counts.entry(source as i32).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// When they are due; nothing if there are none.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first = self.counts.first_key_value().map(|_| Instant::now())?;
        Some(self.last.map_or(first, |last| last + PAUSE))
    }

    /// What is to be told now: one message for each source.
    pub(crate) fn take_due(&mut self) -> Vec<LostEvent> {
        match self.due() {
            Some(due) if due <= Instant::now() => self.take(),
            _ => Vec::new(),
        }
    }

    /// All of them.
    pub(crate) fn take(&mut self) -> Vec<LostEvent> {
        let counts = std::mem::take(&mut self.counts);
        if !counts.is_empty() {
            self.last = Some(Instant::now());
        }
        let events = counts.into_iter().map(|(source, count)| LostEvent {
            source,
            num_events_lost: count,
            cpu: None,
        });
        events.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn losses_are_told_once_a_second() {
        let mut losses = UntoldLosses::default();
        assert_eq!((losses.due(), losses.take_due()), (None, Vec::new()));
        losses.add(LostEventSource::HubbleRingBuffer, 0);
        assert_eq!(losses.due(), None);
        losses.add(LostEventSource::HubbleRingBuffer, 3);
        assert_eq!(losses.take_due()[0].num_events_lost, 3);
        losses.add(LostEventSource::HubbleRingBuffer, 4);
        losses.add(LostEventSource::PerfEventRingBuffer, 1);
        losses.add(LostEventSource::HubbleRingBuffer, u64::MAX);
        assert_eq!(losses.take_due(), []);
        tokio::time::sleep_until(losses.due().unwrap()).await;
        let counts: Vec<_> = losses
            .take_due()
            .iter()
            .map(|event| (event.source, event.num_events_lost))
            .collect();
        assert_eq!(counts, [(1, 1), (3, u64::MAX)]);
    }
}
