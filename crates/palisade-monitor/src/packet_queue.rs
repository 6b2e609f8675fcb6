//! The thread of the packets that the dataplane reports, and their queue.
//!
//! The kernel's reports are read before packets are judged, so that the kernel loses few. Packets are queued up to a
//! limit; beyond it they are dropped and counted. The thread sleeps until the kernel reports something.

use super::{MonitorBatch, SharedMonitor};
use palisade_dataplane::{PacketReport, PacketReportBatch, Subscription};
use palisade_tables::ReportReason;
use palisade_text::error_chain;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The maximum number of queued packets.
const MAX_QUEUED: usize = 4096;
/// The maximum number of packets that are judged before the kernel's reports are read again.
const MAX_BATCH: usize = 256;
/// Packets that wait to be judged.
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

/// Reports the dataplane's packets to a monitor. Ends with the process, or if the kernel's reports end.
pub fn follow_packets(mut watch: Subscription<PacketReportBatch>, monitor: &SharedMonitor) {
    let mut queue = PacketQueue::default();
    loop {
        let timeout = if queue.is_empty() {
            Duration::MAX
        } else {
            Duration::ZERO
        };
        match watch.wait(timeout) {
            Ok(Some(reports)) => queue.add(reports),
            Ok(None) => {}
            Err(error) => {
                return tracing::error!(error = %error_chain(&error), "reading packet reports failed; packets are no longer reported");
            }
        }
        if !queue.is_empty() {
            monitor.report_packets(queue.next_batch());
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
