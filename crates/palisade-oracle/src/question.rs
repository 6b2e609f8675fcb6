//! What can be asked: one flow between two ends, with what is known of them.

use core::net::IpAddr;
use palisade_model::{Encapsulations, EndpointId, Family, Flow, FlowOrigin, L4, Protocol};

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowEnd {
    /// An address. Who holds it is decided by the claims in the state.
    Address(IpAddr),
    /// An endpoint whose address is unknown: only it holds that address, no network does.
    Endpoint(EndpointId),
}

/// One flow to be judged: the first packet of a connection, after destination translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Where it comes from.
    pub source: FlowEnd,
    /// Where it goes to.
    pub destination: FlowEnd,
    /// Its family; that of every end whose address is known.
    pub family: Family,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its ports, or its ICMP type and code.
    pub l4: L4,
    /// Who put it on its way.
    pub origin: FlowOrigin,
}

impl From<Flow> for Question {
    fn from(flow: Flow) -> Self {
        Question {
            source: FlowEnd::Address(flow.source),
            destination: FlowEnd::Address(flow.destination),
            family: flow.family(),
            protocol: flow.protocol,
            l4: flow.l4,
            origin: flow.origin,
        }
    }
}

/// Whether packets of a host's own stack may reach the endpoints of that host without being judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostTrafficAction {
    /// They may, for a kubelet's probes.
    #[default]
    Allow,
    /// They are judged like any flow.
    Policy,
}

/// What a flow gets whose two ends are one endpoint: it asked for a Service that led back to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HairpinAction {
    /// It passes. Source: Kubernetes, "Network Policies": a Pod cannot block access to itself.
    #[default]
    Allow,
    /// It is judged like any flow: for whoever asks about two endpoints that no policy tells apart, and
    /// names one of them twice.
    Policy,
}

/// What is configured rather than written as policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OracleOptions {
    /// What packets of the host's own stack get at its endpoints.
    pub host_to_endpoint: HostTrafficAction,
    /// What a flow gets whose two ends are one endpoint.
    pub hairpin: HairpinAction,
    /// The encapsulations that endpoints may send where policy allows it; the others are denied whatever
    /// it says, since policy does not see the packet within.
    pub allowed_encapsulation: Encapsulations,
}
