//! Turns what the fast path drops, packets of flows that it delivered before they were revoked, into packet reports.
//!
//! Promises: each packet that is dropped from the start of the reader on is reported, or counted as lost, once. What was
//! dropped before, with or without a reader, is nobody's.
//!
//! Never: has a packet wait; reads a ring that another one has replaced longer than until it is empty.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_bpf::{DenialRing, DeniedPacket};
use palisade_model::{L4, Protocol, Str};
use palisade_sys::link::KernelLinks;
use palisade_sys::netns::NetNs;
use palisade_sys::notify::monotonic_origin;
use palisade_tables::{Packet, ReportReason};

use super::error::FastPathError;
use super::pins::PinFolders;
use crate::error::{DriverError, DriverErrorKind};
use crate::packet_report::{PacketReport, PacketReportBatch};

/// After this time without a packet, the end of a burst is told.
const QUIET_PERIOD: Duration = Duration::from_millis(150);

/// The time between two looks whether the ring is still the pinned one.
const PIN_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of packets in a batch.
const BATCH: usize = 256;

/// A ring, and what is known of it.
struct OpenRing {
    /// The kernel's number of its map.
    id: u32,
    ring: DenialRing,
    /// How many packets it had lost when that was told last.
    lost: u64,
}

/// Turns what the fast path drops into packet reports.
pub(super) struct DenialReader {
    pins: PinFolders,
    links: KernelLinks,
    open: Option<OpenRing>,
    interface_names: BTreeMap<u32, Str>,
    /// Whether there were packets whose end was not told.
    active: bool,
}

impl DenialReader {
    /// A reader of what is pinned there, and of what will be. What is in a ring now was dropped before.
    ///
    /// # Errors
    /// If a ring is pinned and cannot be read.
    pub(super) fn new(pins: PinFolders, netns: &NetNs) -> Result<Self, DriverError> {
        let links = KernelLinks::open(netns).map_err(|error| reading(error.into()))?;
        let mut reader = DenialReader {
            pins,
            links,
            open: None,
            interface_names: BTreeMap::new(),
            active: false,
        };
        reader.open_ring().map_err(reading)?;
        if let Some(open) = &mut reader.open {
            open.ring.skip_all();
            open.lost = open.ring.lost();
        }
        Ok(reader)
    }

    /// The next packets if there are any within the time.
    pub(super) fn next(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<PacketReportBatch>, DriverError> {
        let mut remaining = timeout;
        loop {
            if let Some(batch) = self.take_batch().map_err(reading)? {
                self.active = !batch.packets.is_empty();
                return Ok(Some(batch));
            }
            let limit = if self.active {
                QUIET_PERIOD
            } else {
                PIN_INTERVAL
            };
            let pause = limit.min(remaining);
            if self.wait(pause)? {
                continue;
            }
            if std::mem::take(&mut self.active) {
                // An index may belong to another interface by the next packet.
                self.interface_names.clear();
                return Ok(Some(PacketReportBatch::default()));
            }
            remaining -= pause;
            if remaining.is_zero() {
                return Ok(None);
            }
            self.open_ring().map_err(reading)?;
        }
    }

    /// Waits for a packet; without a ring, for the time in which one may be pinned.
    fn wait(&self, pause: Duration) -> Result<bool, DriverError> {
        if let Some(open) = &self.open {
            let ready = open.ring.wait(pause);
            return ready.map_err(|error| reading(error.into()));
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "the fast path has not started, and nobody announces a pin"
        )]
        std::thread::sleep(pause);
        Ok(false)
    }

    /// What is in the ring, and what was lost since the last time; `None` if nothing is and was.
    fn take_batch(&mut self) -> Result<Option<PacketReportBatch>, FastPathError> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let mut denied = Vec::new();
        while denied.len() < BATCH
            && let Some(packet) = open.ring.take_packet()
        {
            denied.push(packet);
        }
        let mut batch = PacketReportBatch::default();
        let lost = open.ring.lost();
        if lost != open.lost {
            let more = lost.wrapping_sub(open.lost);
            batch.lost.insert(ReportReason::Denied, more);
            open.lost = lost;
        }
        if denied.is_empty() {
            return Ok((!batch.lost.is_empty()).then_some(batch));
        }
        let origin = monotonic_origin().map_err(FastPathError::Clock)?;
        for packet in denied {
            batch.packets.push(self.packet_report(&packet, origin)?);
        }
        Ok(Some(batch))
    }

    fn packet_report(
        &mut self,
        denied: &DeniedPacket,
        origin: Duration,
    ) -> Result<PacketReport, FastPathError> {
        let protocol = Protocol(denied.protocol);
        let l4 = if protocol == Protocol::ICMP || protocol == Protocol::ICMPV6 {
            let [kind, code] = denied.destination_port.to_be_bytes();
            L4::Icmp { kind, code }
        } else {
            L4::Ports {
                source: denied.source_port,
                destination: denied.destination_port,
            }
        };
        let output = denied.output.map(|index| self.interface(index));
        Ok(PacketReport {
            time: Some(origin + denied.time),
            reason: ReportReason::Denied,
            reply: denied.is_answer,
            packet: Packet {
                input_interface: Some(self.interface(denied.input)?),
                output_interface: output.transpose()?,
                source: denied.source,
                destination: denied.destination,
                // No packet of such a flow is translated.
                pre_dnat: None,
                protocol,
                l4,
            },
            is_pre_dnat_known: true,
            length: denied.length.into(),
        })
    }

    fn interface(&mut self, index: u32) -> Result<Str, FastPathError> {
        if let Some(name) = self.interface_names.get(&index) {
            return Ok(name.clone());
        }
        let link = self.links.link_by_index(index)?;
        // An interface that is gone is named by its index.
        let name = link.map_or_else(|| format!("if{index}"), |link| link.name);
        let name: Str = name.as_str().into();
        self.interface_names.insert(index, name.clone());
        Ok(name)
    }

    /// Opens the ring that is pinned, unless it is open. Whoever calls this has read what is in the former one.
    fn open_ring(&mut self) -> Result<(), FastPathError> {
        let found = match self.pins.open_denial_maps()? {
            Some((events, lost)) => Some((events.id()?, events, lost)),
            None => None,
        };
        let id = found.as_ref().map(|(id, ..)| *id);
        if id == self.open.as_ref().map(|open| open.id) {
            return Ok(());
        }
        self.open = None;
        if let Some((id, events, lost)) = found {
            self.open = Some(OpenRing {
                id,
                ring: DenialRing::new(&events, &lost)?,
                lost: 0,
            });
        }
        Ok(())
    }
}

fn reading(error: FastPathError) -> DriverError {
    DriverError::new(
        DriverErrorKind::Retryable,
        "reading",
        "what the fast path drops",
        error,
    )
}
