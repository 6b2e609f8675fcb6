//! From the dataplane's reports to the core, without ever making the core wait or queue.
//!
//! Promises: at most one batch is on its way; what comes meanwhile waits in a bounded queue, and what
//! that has no room for is counted.

use super::Seen;
use crate::core::{Event, Handle, chain};
use palisade_dataplane::{PacketWatch, Sighting, Sightings, Why};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Packets that wait for the core at most.
const QUEUE: usize = 4096;
/// Packets that the core looks at in one go: a few milliseconds.
const BATCH: usize = 256;
/// How long to wait for packets before looking whether the core has taken the last batch.
const SLICE: Duration = Duration::from_millis(10);

/// A batch for the core. While it lives, no other is sent.
#[derive(Debug)]
pub struct Delivery {
    seen: Seen,
    on_its_way: Arc<AtomicBool>,
}

impl Delivery {
    /// The batch itself.
    pub fn take(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.on_its_way.store(false, Ordering::Release);
    }
}

/// What waits for the core.
#[derive(Default)]
struct Queue {
    packets: VecDeque<Sighting>,
    lost: BTreeMap<Why, u64>,
    left_out: BTreeMap<Why, u64>,
    /// Whether the end of a run of packets has to be told.
    ended: bool,
}

impl Queue {
    fn add(&mut self, seen: Sightings) {
        self.ended |= seen.packets.is_empty();
        for (why, count) in seen.lost {
            *self.lost.entry(why).or_default() += count;
        }
        for packet in seen.packets {
            if self.packets.len() == QUEUE {
                *self.left_out.entry(packet.why).or_default() += 1;
            } else {
                self.packets.push_back(packet);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.lost.is_empty() && self.left_out.is_empty() && !self.ended
    }

    /// The next batch. The end is told alone, after everything else.
    fn batch(&mut self) -> Seen {
        let count = self.packets.len().min(BATCH);
        if count == 0 {
            self.ended = false;
        }
        Seen {
            sightings: Sightings {
                packets: self.packets.drain(..count).collect(),
                lost: std::mem::take(&mut self.lost),
            },
            left_out: std::mem::take(&mut self.left_out),
        }
    }
}

/// Hands in what the dataplane reports. It waits for packets alone, and ends with the process.
pub fn follow(mut watch: PacketWatch, core: &Handle) {
    let on_its_way = Arc::new(AtomicBool::new(false));
    let mut queue = Queue::default();
    loop {
        let slice = if queue.is_empty() {
            Duration::MAX
        } else {
            SLICE
        };
        match watch.wait(slice) {
            Ok(Some(seen)) => queue.add(seen),
            Ok(None) => {}
            Err(error) => {
                return tracing::error!(error = %chain(&error), "listening to reports of packets");
            }
        }
        if queue.is_empty() || on_its_way.swap(true, Ordering::AcqRel) {
            continue;
        }
        let delivery = Delivery {
            seen: queue.batch(),
            on_its_way: on_its_way.clone(),
        };
        if !core.send(Event::Seen(delivery)) {
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
        let sighting = Sighting {
            time: None,
            why: Why::Denied,
            reply: false,
            packet: Packet {
                from: None,
                to: None,
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                protocol: Protocol::TCP,
                l4: L4::None,
            },
            length: 0,
        };
        let mut queue = Queue::default();
        queue.add(Sightings {
            packets: vec![sighting; QUEUE + 7],
            lost: [(Why::Denied, 3)].into(),
        });
        queue.add(Sightings::default());
        let (mut packets, mut lost, mut left_out, mut batches) = (0, 0, 0, 0);
        while !queue.is_empty() {
            let batch = queue.batch();
            assert!(batch.sightings.packets.len() <= BATCH);
            packets += batch.sightings.packets.len();
            lost += batch.sightings.lost.values().sum::<u64>();
            left_out += batch.left_out.values().sum::<u64>();
            batches += 1;
        }
        assert_eq!((packets, lost, left_out), (QUEUE, 3, 7));
        assert_eq!(batches, QUEUE / BATCH + 1);
    }
}
