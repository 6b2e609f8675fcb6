//! When the kernel's connections are listed because notifications were lost, and what the list becomes.
//!
//! A list is not of one moment, and notifications from before it may still wait. So it is held back until none waits:
//! those that are read meanwhile are applied to it, and then it is what is open at that point of the stream.
//!
//! Promises: a list for each loss, at most one in [`LIST_INTERVAL`], and none while notifications wait: it is needed
//! least, and costs most, where they are more than can be read. If more are lost before it is complete, it is dropped,
//! and another one is due.
//!
//! Never: reads anything.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::flow_event::{FlowEvent, FlowPhase, FlowSnapshot, OpenFlowKey};

/// The least time between two lists.
const LIST_INTERVAL: Duration = Duration::from_secs(5);

/// The flows of a list by their key; those that are undecided have no event.
#[derive(Debug)]
pub(super) struct ListedFlows {
    flows: BTreeMap<OpenFlowKey, Option<FlowEvent>>,
    is_complete: bool,
}

impl ListedFlows {
    /// The flows of a list.
    pub(super) fn new(
        flows: impl IntoIterator<Item = (OpenFlowKey, Option<FlowEvent>)>,
        is_complete: bool,
    ) -> Self {
        ListedFlows {
            flows: flows.into_iter().collect(),
            is_complete,
        }
    }

    fn apply(&mut self, event: &FlowEvent) {
        match event.phase {
            FlowPhase::Began => {
                self.flows.insert(event.key(), Some(event.clone()));
            }
            FlowPhase::Ended => {
                self.flows.remove(&event.key());
            }
        }
    }

    fn into_snapshot(self) -> FlowSnapshot {
        let mut snapshot = FlowSnapshot {
            is_complete: self.is_complete,
            ..FlowSnapshot::default()
        };
        for (key, event) in self.flows {
            match event {
                Some(event) => snapshot.open.push(event),
                None => snapshot.undecided.push(key),
            }
        }
        snapshot
    }
}

/// What is to be done next.
#[derive(Debug, Default)]
pub(super) struct FlowListing {
    is_due: bool,
    listed_at: Option<Instant>,
    /// A list, held back until no notification waits.
    pending_list: Option<ListedFlows>,
}

impl FlowListing {
    /// Takes in an event that was read.
    pub(super) fn add_event(&mut self, event: &FlowEvent) {
        if let Some(list) = &mut self.pending_list {
            list.apply(event);
        }
    }

    /// Takes in that notifications were lost.
    pub(super) fn add_loss(&mut self) {
        self.pending_list = None;
        self.is_due = true;
    }

    /// How long a notification may be awaited before [`FlowListing::take`] is to be called; `None` without limit.
    pub(super) fn wait_limit(&self, now: Instant) -> Option<Duration> {
        if self.pending_list.is_some() {
            return Some(Duration::ZERO);
        }
        self.is_due.then(|| self.time_to_list(now))
    }

    fn time_to_list(&self, now: Instant) -> Duration {
        let since = |listed: Instant| now.saturating_duration_since(listed);
        let passed = self.listed_at.map_or(LIST_INTERVAL, since);
        LIST_INTERVAL.saturating_sub(passed)
    }

    /// No notification waits: the list that is held, or a call of `list` if one is due. If that has none, it is called
    /// again after the interval.
    pub(super) fn take(
        &mut self,
        now: Instant,
        list: impl FnOnce() -> Option<ListedFlows>,
    ) -> Option<FlowSnapshot> {
        if let Some(list) = self.pending_list.take() {
            return Some(list.into_snapshot());
        }
        if self.is_due && self.time_to_list(now).is_zero() {
            self.listed_at = Some(now);
            self.pending_list = list();
            self.is_due = self.pending_list.is_none();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{L4, Protocol};
    use palisade_tables::Packet;

    fn event(number: u32, phase: FlowPhase) -> FlowEvent {
        FlowEvent {
            number,
            phase,
            first: Packet {
                input_interface: None,
                output_interface: None,
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                pre_dnat: None,
                protocol: Protocol::UDP,
                l4: L4::None,
            },
            translated_source: None,
            began: None,
            ended: None,
            traffic: None,
        }
    }

    fn began(number: u32) -> FlowEvent {
        event(number, FlowPhase::Began)
    }

    fn list(numbers: &[u32]) -> ListedFlows {
        let flows = numbers.iter().map(|number| began(*number));
        ListedFlows::new(flows.map(|flow| (flow.key(), Some(flow))), true)
    }

    fn numbers(snapshot: Option<FlowSnapshot>) -> Option<Vec<u32>> {
        let open = snapshot?.open;
        Some(open.iter().map(|flow| flow.number).collect())
    }

    fn no_list() -> Option<ListedFlows> {
        panic!("no list is due")
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "where the time of the test begins"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn without_a_loss_nothing_is_listed() {
        let (mut listing, now) = (FlowListing::default(), start());
        listing.add_event(&began(1));
        assert_eq!(listing.wait_limit(now), None);
        assert_eq!(listing.take(now, no_list), None);
    }

    #[test]
    fn a_list_becomes_what_is_open_once_no_notification_waits() {
        let (mut listing, now) = (FlowListing::default(), start());
        listing.add_loss();
        assert_eq!(listing.wait_limit(now), Some(Duration::ZERO));
        assert_eq!(listing.take(now, || Some(list(&[1, 2, 3]))), None, "held");
        assert_eq!(listing.wait_limit(now), Some(Duration::ZERO));
        // What waited: a begin that the list has, one that it has not, and two ends.
        for event in [
            began(1),
            began(4),
            event(2, FlowPhase::Ended),
            event(9, FlowPhase::Ended),
        ] {
            listing.add_event(&event);
        }
        assert_eq!(numbers(listing.take(now, no_list)), Some(vec![1, 3, 4]));
        assert_eq!(listing.wait_limit(now), None, "one list for a loss");
        assert_eq!(listing.take(now, no_list), None);
    }

    #[test]
    fn lists_are_apart_and_a_loss_drops_the_one_that_is_held() {
        let (mut listing, now) = (FlowListing::default(), start());
        listing.add_loss();
        assert_eq!(listing.take(now, || Some(list(&[1]))), None);
        listing.add_loss();
        let half = now + LIST_INTERVAL / 2;
        assert_eq!(listing.wait_limit(half), Some(LIST_INTERVAL / 2));
        assert_eq!(listing.take(half, no_list), None);
        let later = now + LIST_INTERVAL;
        assert_eq!(listing.wait_limit(later), Some(Duration::ZERO));
        // The kernel gives none: again after the interval.
        assert_eq!(listing.take(later, || None), None);
        assert_eq!(listing.wait_limit(later), Some(LIST_INTERVAL));
        let latest = later + LIST_INTERVAL;
        assert_eq!(listing.take(latest, || Some(list(&[2]))), None);
        assert_eq!(numbers(listing.take(latest, no_list)), Some(vec![2]));
    }

    #[test]
    fn undecided_flows_are_told_apart_until_an_event_decides() {
        let (mut listing, now) = (FlowListing::default(), start());
        listing.add_loss();
        let flows = [5, 6].map(|number| (began(number).key(), None));
        listing.take(now, || Some(ListedFlows::new(flows, false)));
        listing.add_event(&event(6, FlowPhase::Ended));
        let snapshot = listing.take(now, no_list).unwrap();
        assert_eq!(snapshot.undecided, [began(5).key()]);
        assert!(snapshot.open.is_empty() && !snapshot.is_complete);
    }
}
