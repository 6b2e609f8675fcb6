//! Flows that a dataplane let pass, when they begin and when they end.
//!
//! Promises: of each flow that policy judged and that begins or ends while somebody listens there is one event of each,
//! or a loss that is told. After a loss the flows that are open are told as a whole ([`FlowSnapshot`]). Where the dataplane
//! cannot count or time, the value is absent, never zero.
//!
//! Never: judges. The rules that let a flow pass are found by judging its first packet again.

use std::net::IpAddr;
use std::time::Duration;

use palisade_model::{L4, Protocol};
use palisade_tables::{CounterValue, Packet};

/// A flow at its begin or at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEvent {
    /// The dataplane's number of the flow. Two flows that exist at the same time and have the same first packet differ
    /// in it; another flow may have it later.
    pub number: u32,
    /// What happened.
    pub phase: FlowPhase,
    /// Its first packet, as policy judged it. The interfaces are not known.
    pub first: Packet,
    /// The source that the destination sees, where source NAT gives the flow another one: the address, and the port
    /// where the protocol has ports.
    pub translated_source: Option<(IpAddr, u16)>,
    /// When it began, since the Unix epoch.
    pub began: Option<Duration>,
    /// When it ended, since the Unix epoch.
    pub ended: Option<Duration>,
    /// What each direction carried until now, that of the first packet first.
    pub traffic: Option<[CounterValue; 2]>,
}

impl FlowEvent {
    /// What distinguishes its flow from all others that exist at the same time.
    #[must_use]
    pub fn key(&self) -> OpenFlowKey {
        let Packet {
            source,
            destination,
            protocol,
            l4,
            ..
        } = self.first;
        OpenFlowKey {
            number: self.number,
            source,
            destination,
            protocol,
            l4,
        }
    }
}

/// What distinguishes a flow from all others that exist at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenFlowKey {
    /// As [`FlowEvent::number`].
    pub number: u32,
    /// The source of its first packet.
    pub source: IpAddr,
    /// The destination of its first packet, as policy judged it.
    pub destination: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The ports, or type and code.
    pub l4: L4,
}

/// What happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowPhase {
    /// Its first packet passed.
    Began,
    /// It has ended, or no packet came for so long that it is known no longer.
    Ended,
}

/// The events since the last call, at most a few hundred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowEventBatch {
    /// The events, in order.
    pub events: Vec<FlowEvent>,
    /// How many events were lost since the last batch because the reader was too slow. Events of flows that policy does
    /// not judge are among them, if the dataplane cannot tell them apart.
    pub lost: u64,
    /// The flows that are open after the events, if events were lost before.
    pub snapshot: Option<FlowSnapshot>,
}

/// The flows that are open at a point of the stream of events of one subscription. Of a flow that begins after that
/// point, the event comes later; rarely also of one that is here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSnapshot {
    /// The open flows that policy judged and let pass, as if they began now.
    pub open: Vec<FlowEvent>,
    /// Flows that exist and may be open or not, or judged or not: nothing follows for them.
    pub undecided: Vec<OpenFlowKey>,
    /// Whether every flow that exists is here. If not, nothing follows for a flow that is not.
    pub is_complete: bool,
}
