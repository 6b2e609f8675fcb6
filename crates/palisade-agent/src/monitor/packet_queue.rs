//! The queue of packet reports from the dataplane to the core.
//!
//! At most one batch is in flight, so packets neither block nor flood the core. Further packets are
//! queued up to a limit; beyond it they are dropped and counted.

use super::MonitorBatch;
use palisade_dataplane::{PacketReport, PacketReportBatch, Subscription};
use palisade_source::error_chain;
use palisade_tables::ReportReason;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The maximum number of queued packets.
const MAX_QUEUED: usize = 4096;
/// The maximum number of packets of a batch, which takes the core a few milliseconds.
const MAX_BATCH: usize = 256;
/// How long to wait for packets before checking whether the core has handled the last batch.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A batch for the core. No other batch is sent until it is dropped.
#[derive(Debug)]
pub struct PacketDelivery {
    batch: MonitorBatch,
    in_flight: Arc<AtomicBool>,
}

impl PacketDelivery {
    /// Takes the batch.
    pub fn take_batch(&mut self) -> MonitorBatch {
        std::mem::take(&mut self.batch)
    }
}

impl Drop for PacketDelivery {
    fn drop(&mut self) {
        self.in_flight.store(false, Ordering::Release);
    }
}

/// Packets waiting for the core.
#[derive(Default)]
struct PacketQueue {
    packets: VecDeque<PacketReport>,
    lost: BTreeMap<ReportReason, u64>,
    dropped: BTreeMap<ReportReason, u64>,
    /// Whether the end of a burst has to be reported.
    idle_reported: bool,
}

impl PacketQueue {
    fn add(&mut self, reports: PacketReportBatch) {
        self.idle_reported |= reports.packets.is_empty();
        for (why, count) in reports.lost {
            *self.lost.entry(why).or_default() += count;
        }
        for packet in reports.packets {
            if self.packets.len() == MAX_QUEUED {
                *self.dropped.entry(packet.reason).or_default() += 1;
            } else {
                self.packets.push_back(packet);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty()
            && self.lost.is_empty()
            && self.dropped.is_empty()
            && !self.idle_reported
    }

    /// The next batch. The end of a burst is reported in an empty batch, after all packets.
    fn next_batch(&mut self) -> MonitorBatch {
        let count = self.packets.len().min(MAX_BATCH);
        if count == 0 {
            self.idle_reported = false;
        }
        MonitorBatch {
            reports: PacketReportBatch {
                packets: self.packets.drain(..count).collect(),
                lost: std::mem::take(&mut self.lost),
            },
            dropped: std::mem::take(&mut self.dropped),
        }
    }
}

/// Forwards the dataplane's packets to the core, until `send` returns false. It blocks only on packets,
/// and ends with the process.
pub fn forward_packets(
    mut watch: Subscription<PacketReportBatch>,
    send: impl Fn(PacketDelivery) -> bool,
) {
    let in_flight = Arc::new(AtomicBool::new(false));
    let mut queue = PacketQueue::default();
    loop {
        let timeout = if queue.is_empty() {
            Duration::MAX
        } else {
            POLL_INTERVAL
        };
        match watch.wait(timeout) {
            Ok(Some(seen)) => queue.add(seen),
            Ok(None) => {}
            Err(error) => {
                return tracing::error!(error = %error_chain(&error), "reading packet reports failed; packets are no longer reported");
            }
        }
        if queue.is_empty() || in_flight.swap(true, Ordering::AcqRel) {
            continue;
        }
        let delivery = PacketDelivery {
            batch: queue.next_batch(),
            in_flight: in_flight.clone(),
        };
        if !send(delivery) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{L4, Protocol};
    use palisade_tables::Packet;

    #[test]
    fn the_queue_is_bounded_and_nothing_leaves_it_uncounted() {
        let sighting = PacketReport {
            time: None,
            reason: ReportReason::Denied,
            reply: false,
            packet: Packet {
                input_interface: None,
                output_interface: None,
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                protocol: Protocol::TCP,
                l4: L4::None,
                pre_dnat: None,
            },
            is_pre_dnat_known: true,
            length: 0,
        };
        let mut queue = PacketQueue::default();
        queue.add(PacketReportBatch {
            packets: vec![sighting; MAX_QUEUED + 7],
            lost: [(ReportReason::Denied, 3)].into(),
        });
        queue.add(PacketReportBatch::default());
        let (mut packets, mut lost, mut left_out, mut batches) = (0, 0, 0, 0);
        while !queue.is_empty() {
            let batch = queue.next_batch();
            assert!(batch.reports.packets.len() <= MAX_BATCH);
            packets += batch.reports.packets.len();
            lost += batch.reports.lost.values().sum::<u64>();
            left_out += batch.dropped.values().sum::<u64>();
            batches += 1;
        }
        assert_eq!((packets, lost, left_out), (MAX_QUEUED, 3, 7));
        assert_eq!(batches, MAX_QUEUED / MAX_BATCH + 1);
    }
}
