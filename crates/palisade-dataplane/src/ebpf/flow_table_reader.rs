//! Turns the fast path's table of flows into flow events.
//!
//! The programs send nothing: the table is in memory that both sides see, and is looked at in intervals. A bucket is read
//! again if its sequence is not that of the last look, or if the first of its flows is over, which was known when it was
//! read: so the cost follows the flows that have packets. Each bucket is read again once in half a minute all the same.
//!
//! Promises: one event of the begin and one of the end of each flow that is in the table for longer than an interval, as
//! every flow is that has room; a flow that the stack delivers is connection tracking's to tell. Flows that the table has
//! when the reader first sees it began before, and only their ends are told.
//!
//! Never: tells times or traffic, which the table does not have; keeps a table that another one has replaced.

use std::collections::VecDeque;
use std::time::Duration;

use palisade_bpf::{FlowIdentity, FlowTable};
use palisade_model::{L4, Protocol};
use palisade_sys::fault;
use palisade_sys::notify::monotonic_micros;
use palisade_tables::Packet;

use super::error::FastPathError;
use super::pins::PinFolders;
use crate::error::{DriverError, DriverErrorKind};
use crate::flow_event::{FlowEvent, FlowEventBatch, FlowPhase};

/// The time between two looks at the table.
const INTERVAL: Duration = Duration::from_millis(250);

/// Every so many looks it is tested whether the table is still the pinned one.
const LOOKS_PER_TABLE: u32 = 8;

/// In so many looks each bucket is read once whatever its sequence is.
const LOOKS_PER_SWEEP: u32 = 128;

/// Maximum number of events of a batch.
const BATCH: usize = 256;

/// The ways of a bucket, with room to grow: the number of a flow is that of its bucket and its way.
const WAYS_PER_BUCKET: u32 = 8;

/// A table, and what is known of it, by the number of the bucket.
struct OpenTable {
    /// The kernel's number of its map.
    id: u32,
    table: FlowTable,
    /// The sequence when it was read. One that was never written has 0.
    sequences: Vec<u64>,
    /// When the first of its flows is over, in nanoseconds since the machine started.
    ends: Vec<u64>,
    /// The flows that it had.
    flows: Vec<Box<[FlowIdentity]>>,
}

/// Turns the fast path's table of flows into flow events.
pub(super) struct FlowTableReader {
    pins: PinFolders,
    open: Option<OpenTable>,
    looks: u32,
    pending: VecDeque<FlowEvent>,
}

impl FlowTableReader {
    /// A reader of what is pinned there. Flows that are in the table now began before.
    ///
    /// # Errors
    /// If a table is pinned and cannot be read.
    pub(super) fn new(pins: PinFolders) -> Result<Self, DriverError> {
        let mut reader = FlowTableReader {
            pins,
            open: None,
            looks: 0,
            pending: VecDeque::new(),
        };
        reader.open_table().map_err(reading)?;
        if let Some(open) = &mut reader.open {
            open.look(0, now()?, &mut VecDeque::new());
        }
        Ok(reader)
    }

    /// The next events if there are any within the time.
    pub(super) fn next(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<FlowEventBatch>, DriverError> {
        let mut remaining = timeout;
        loop {
            if self.pending.is_empty() {
                self.look()?;
            }
            if !self.pending.is_empty() {
                let count = self.pending.len().min(BATCH);
                return Ok(Some(FlowEventBatch {
                    events: self.pending.drain(..count).collect(),
                    ..FlowEventBatch::default()
                }));
            }
            if remaining.is_zero() {
                return Ok(None);
            }
            let pause = INTERVAL.min(remaining);
            #[allow(
                clippy::disallowed_methods,
                reason = "the table is memory, which nobody announces changes of"
            )]
            std::thread::sleep(pause);
            remaining -= pause;
        }
    }

    /// Looks at the table once.
    fn look(&mut self) -> Result<(), DriverError> {
        let number = self.looks;
        self.looks = self.looks.wrapping_add(1);
        if number.is_multiple_of(LOOKS_PER_TABLE) {
            self.open_table().map_err(reading)?;
        }
        if let Some(open) = &mut self.open {
            open.look(number, now()?, &mut self.pending);
        }
        Ok(())
    }

    /// Opens the table that is pinned, unless it is open. Flows of one that is pinned no longer have ended.
    fn open_table(&mut self) -> Result<(), FastPathError> {
        let found = match self.pins.open_flow_maps()? {
            Some((config, flows)) => Some((flows.id()?, config, flows)),
            None => None,
        };
        let id = found.as_ref().map(|(id, ..)| *id);
        if id == self.open.as_ref().map(|open| open.id) {
            return Ok(());
        }
        if let Some(open) = self.open.take() {
            for (bucket, flows) in open.flows.iter().enumerate() {
                let ended = flows.iter();
                let ended = ended.map(|flow| flow_event(FlowPhase::Ended, bucket, flow));
                self.pending.extend(ended);
            }
        }
        if let Some((id, config, flows)) = found {
            let table = FlowTable::new(&config, &flows)?;
            let count = table.bucket_count();
            self.open = Some(OpenTable {
                id,
                sequences: vec![0; count],
                ends: vec![u64::MAX; count],
                flows: vec![Box::default(); count],
                table,
            });
        }
        Ok(())
    }
}

impl OpenTable {
    /// Compares the buckets that were written or whose flows are over with what is known of them, and those whose turn it is.
    fn look(&mut self, number: u32, now: Duration, events: &mut VecDeque<FlowEvent>) {
        let time = nanoseconds(now);
        let mut due = Vec::new();
        let known = self.sequences.iter_mut().zip(&self.ends);
        for (bucket, (sequence, (last, end))) in self.table.sequences().zip(known).enumerate() {
            // While it is written it is looked at the next time.
            let is_written = sequence != *last && sequence & 1 == 0;
            if is_written {
                *last = sequence;
            }
            if is_written || *end <= time {
                due.push(bucket);
            }
        }
        let turn = (number % LOOKS_PER_SWEEP) as usize;
        let sweep = (turn..self.flows.len()).step_by(LOOKS_PER_SWEEP as usize);
        for bucket in due.into_iter().chain(sweep) {
            self.compare(bucket, now, events);
        }
    }

    fn compare(&mut self, bucket: usize, now: Duration, events: &mut VecDeque<FlowEvent>) {
        let found = self.table.owned_flows_of(bucket, now);
        let (Some(known), Some(end)) = (self.flows.get_mut(bucket), self.ends.get_mut(bucket))
        else {
            return;
        };
        let remaining = found.remaining();
        *end = remaining.map_or(u64::MAX, |remaining| nanoseconds(now + remaining));
        let found = found.flows();
        if **known == *found {
            return;
        }
        let ended = known.iter().filter(|flow| !found.contains(flow));
        if !fault::is_injected("fast-path-flow-ends-untold") {
            events.extend(ended.map(|flow| flow_event(FlowPhase::Ended, bucket, flow)));
        }
        let began = found.iter().filter(|flow| !known.contains(flow));
        events.extend(began.map(|flow| flow_event(FlowPhase::Began, bucket, flow)));
        *known = found.into();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn flow_event(phase: FlowPhase, bucket: usize, flow: &FlowIdentity) -> FlowEvent {
    let protocol = Protocol(flow.protocol());
    let [source, destination] = flow.ends();
    // Of ICMP a request began it, whose type stands for the port of who was asked.
    let l4 = if protocol == Protocol::ICMP || protocol == Protocol::ICMPV6 {
        L4::Icmp {
            kind: destination.1 as u8,
            code: 0,
        }
    } else {
        L4::Ports {
            source: source.1,
            destination: destination.1,
        }
    };
    FlowEvent {
        number: bucket as u32 * WAYS_PER_BUCKET + u32::from(flow.way()),
        phase,
        first: Packet {
            input_interface: None,
            output_interface: None,
            source: source.0,
            destination: destination.0,
            pre_dnat: None,
            protocol,
            l4,
        },
        translated_source: None,
        began: None,
        ended: None,
        traffic: None,
    }
}

/// The time since the machine started.
fn now() -> Result<Duration, DriverError> {
    let now = monotonic_micros().map_err(|error| reading(FastPathError::Clock(error)))?;
    Ok(Duration::from_micros(now))
}

fn reading(error: FastPathError) -> DriverError {
    DriverError::new(
        DriverErrorKind::Retryable,
        "reading",
        "the flows of the fast path",
        error,
    )
}
