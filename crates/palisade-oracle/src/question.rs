//! The input of the oracle: one flow between two ends, and the options that apply.

use alloc::vec::Vec;
use core::net::IpAddr;
use palisade_model::{
    Direction, Encapsulations, EndpointId, Family, Flow, FlowOrigin, HairpinAction,
    HostTrafficAction, L4, PolicyStage, PolicyView, PreDnat, Protocol, Str, UnreadDnsAction,
};

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowEnd {
    /// An address. Its endpoint is resolved from the address claims in the state.
    Address(IpAddr),
    /// An endpoint whose address is unknown. No network set or node holds that address.
    Endpoint(EndpointId),
}

/// The interfaces of this host that a packet crosses. Those of workloads are not named: what is judged there is
/// known by the ends of the flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPath {
    /// The interface of the host by which it arrives; `None` if it comes from a workload of this host or from the
    /// host's own stack.
    pub input: Option<Str>,
    /// The interface of the host by which it leaves; `None` if it goes to a workload of this host or to the host.
    pub output: Option<Str>,
    /// Whether the host forwards it, so that neither end is the host.
    pub is_forwarded: bool,
    /// Its destination before destination NAT, where this host translates it to another one.
    pub pre_dnat: Option<PreDnat>,
}

impl HostPath {
    /// The stages at which a direction of the packet is judged, in order: the early ones where it arrives and where the
    /// host's own stack sends it, and then one of the others. Source: Calico, "Host endpoints": untracked policies are
    /// for what arrives and what the host sends, those before DNAT for what arrives.
    pub fn stages(&self, direction: Direction) -> Vec<PolicyStage> {
        let is_leaving_through = self.is_forwarded && direction == Direction::Egress;
        let has_part = |stage: &PolicyStage| match stage {
            PolicyStage::Untracked | PolicyStage::PreDnat => {
                !is_leaving_through && stage.has_direction(direction)
            }
            PolicyStage::Forward => self.is_forwarded,
            PolicyStage::Normal => !self.is_forwarded,
        };
        PolicyStage::ALL.into_iter().filter(has_part).collect()
    }

    /// The interface at which a direction is judged: ingress where the packet arrives, egress where it leaves.
    pub fn interface(&self, direction: Direction) -> Option<&Str> {
        match direction {
            Direction::Ingress => self.input.as_ref(),
            Direction::Egress => self.output.as_ref(),
        }
    }
}

/// One flow to be judged: the first packet of a connection, after destination NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its source.
    pub source: FlowEnd,
    /// Its destination.
    pub destination: FlowEnd,
    /// Its family. It must equal the family of each end with a known address.
    pub family: Family,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its ports, or its ICMP type and code.
    pub l4: L4,
    /// Which network stack emitted it.
    pub origin: FlowOrigin,
    /// The interfaces of this host that it crosses.
    pub path: HostPath,
}

impl Question {
    /// The same packet before destination NAT.
    pub(crate) fn before_dnat(&self) -> Question {
        let Some(before) = self.path.pre_dnat else {
            return self.clone();
        };
        Question {
            destination: FlowEnd::Address(before.destination),
            l4: before.header(self.l4),
            ..self.clone()
        }
    }
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
            path: HostPath::default(),
        }
    }
}

/// The parts of the agent's configuration that change verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OracleOptions {
    /// The action for packets of the host's own stack to its endpoints.
    pub host_to_endpoint: HostTrafficAction,
    /// The action for a flow whose source and destination are the same endpoint.
    pub hairpin: HairpinAction,
    /// The encapsulations that endpoints may send where policy allows it. The others are always denied,
    /// since policy does not see the inner packet.
    pub allowed_encapsulation: Encapsulations,
    /// The action for DNS that rules with names judge and nobody reads.
    pub unread_dns: UnreadDnsAction,
    /// Whether every endpoint is in audit.
    pub audit: bool,
    /// The policies that decide.
    pub view: PolicyView,
}
