//! Turns the fast path's table of flows into flow events.
//!
//! The programs send nothing: the table is in memory that both sides see, and is looked at in intervals. A bucket whose
//! sequence is that of the last look is not read again, so the cost follows the flows that have packets.
//!
//! Promises: one event of the begin and one of the end of each flow that is in the table for longer than an interval, as
//! every flow is that has room; a flow that the stack delivers is connection tracking's to tell. Flows that the table has
//! when the reader first sees it began before, and only their ends are told.
//!
//! Never: tells times or traffic, which the table does not have; keeps a table that another one has replaced.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use palisade_bpf::{FlowTable, FlowTableEnd, FlowTableEntry};
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

/// Every so many looks, flows whose time is over are sought, and whether the table is still the pinned one. An entry lives
/// at least ten seconds.
const LOOKS_PER_SWEEP: u32 = 8;

/// Maximum number of events of a batch.
const BATCH: usize = 256;

/// The ways of a bucket, with room to grow: the number of a flow is that of its bucket and its way.
const WAYS_PER_BUCKET: u32 = 8;

/// The flow of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownFlow {
    protocol: u8,
    source: FlowTableEnd,
    destination: FlowTableEnd,
}

/// A table, and what is known of it.
struct OpenTable {
    /// The kernel's number of its map.
    id: u32,
    table: FlowTable,
    /// The sequence of each bucket when it was read.
    sequences: Vec<u64>,
    /// By the number of bucket and way.
    flows: BTreeMap<u32, KnownFlow>,
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
            open.look(true, now()?, &mut VecDeque::new());
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
        let sweeps = self.looks.is_multiple_of(LOOKS_PER_SWEEP);
        self.looks = self.looks.wrapping_add(1);
        if sweeps {
            self.open_table().map_err(reading)?;
        }
        if let Some(open) = &mut self.open {
            open.look(sweeps, now()?, &mut self.pending);
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
        let ended = self.open.take().into_iter().flat_map(|open| open.flows);
        let ended = ended.map(|(number, flow)| flow_event(FlowPhase::Ended, number, &flow));
        self.pending.extend(ended);
        if let Some((id, config, flows)) = found {
            let table = FlowTable::new(&config, &flows)?;
            self.open = Some(OpenTable {
                id,
                sequences: vec![u64::MAX; table.bucket_count()],
                table,
                flows: BTreeMap::new(),
            });
        }
        Ok(())
    }
}

impl OpenTable {
    /// Compares the buckets that were written with what is known of them; with a sweep those as well that have flows.
    fn look(&mut self, sweeps: bool, now: Duration, events: &mut VecDeque<FlowEvent>) {
        if sweeps {
            let known: Vec<u32> = self.flows.keys().copied().collect();
            for number in known {
                if let Some(sequence) = self.sequences.get_mut((number / WAYS_PER_BUCKET) as usize)
                {
                    *sequence = u64::MAX;
                }
            }
        }
        for bucket in 0..self.sequences.len() {
            let sequence = self.table.sequence(bucket);
            // While it is written it is looked at the next time.
            let Some(last) = self.sequences.get_mut(bucket) else {
                continue;
            };
            if sequence == *last || sequence & 1 == 1 {
                continue;
            }
            *last = sequence;
            self.compare(bucket, now, events);
        }
    }

    fn compare(&mut self, bucket: usize, now: Duration, events: &mut VecDeque<FlowEvent>) {
        let first = bucket as u32 * WAYS_PER_BUCKET;
        let mut present: BTreeMap<u32, KnownFlow> = BTreeMap::new();
        for (way, entry) in self.table.flows_of(bucket, now) {
            if !entry.is_via_stack {
                present.insert(first + way as u32, KnownFlow::from(&entry));
            }
        }
        for number in first..first + WAYS_PER_BUCKET {
            let flow = present.remove(&number);
            let known = self.flows.get(&number).copied();
            if flow == known {
                continue;
            }
            if let Some(known) = known {
                self.flows.remove(&number);
                if fault::is_injected("fast-path-flow-ends-untold") {
                    continue;
                }
                events.push_back(flow_event(FlowPhase::Ended, number, &known));
            }
            if let Some(flow) = flow {
                self.flows.insert(number, flow);
                events.push_back(flow_event(FlowPhase::Began, number, &flow));
            }
        }
    }
}

impl From<&FlowTableEntry> for KnownFlow {
    fn from(entry: &FlowTableEntry) -> Self {
        // Slots are of the last packet, and do not make another flow.
        let end = |end: FlowTableEnd| FlowTableEnd {
            slot: 0,
            incarnation: 0,
            ..end
        };
        KnownFlow {
            protocol: entry.protocol,
            source: end(entry.source),
            destination: end(entry.destination),
        }
    }
}

fn flow_event(phase: FlowPhase, number: u32, flow: &KnownFlow) -> FlowEvent {
    let protocol = Protocol(flow.protocol);
    // Of ICMP a request began it, whose type stands for the port of who was asked.
    let l4 = if protocol == Protocol::ICMP || protocol == Protocol::ICMPV6 {
        L4::Icmp {
            kind: flow.destination.port as u8,
            code: 0,
        }
    } else {
        L4::Ports {
            source: flow.source.port,
            destination: flow.destination.port,
        }
    };
    FlowEvent {
        number,
        phase,
        first: Packet {
            input_interface: None,
            output_interface: None,
            source: flow.source.address,
            destination: flow.destination.address,
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
