//! Arguments of commands that list connections: their scope, and what the agents do that manifests do not tell.

use clap::Args;

/// Filter of connections.
#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// Only connections from this workload or pod, as namespace/name.
    #[arg(long, value_name = "X")]
    pub(crate) from: Option<String>,
    /// Only connections to this workload or pod, as namespace/name.
    #[arg(long, value_name = "Y")]
    pub(crate) to: Option<String>,
    /// Only connections from or to workloads of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// List the workloads of every group.
    #[arg(long)]
    pub(crate) members: bool,
}

/// The header of the first packet of a connection, but for its ends.
#[derive(Debug, Args)]
pub(crate) struct PacketArgs {
    /// Destination port and protocol, as 80/TCP; the default protocol is TCP.
    #[arg(
        long,
        value_name = "PORT[/PROTOCOL]",
        required_unless_present = "protocol",
        conflicts_with = "protocol"
    )]
    pub(crate) port: Option<String>,
    /// Protocol without ports: ICMP, ICMPv6, or a number.
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// ICMP type and code; default: echo request.
    #[arg(long, value_name = "TYPE[/CODE]", requires = "protocol")]
    pub(crate) icmp_type: Option<String>,
    /// Source port; default: 49152.
    #[arg(long, value_name = "PORT", requires = "port")]
    pub(crate) source_port: Option<u16>,
    /// Where the packet was sent before destination NAT; default: the destination.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub(crate) original_destination: Option<String>,
}

/// The interfaces of hosts that a packet passes.
#[derive(Debug, Args)]
pub(crate) struct HostPathArgs {
    /// Interface by which the packet arrives at the host of the destination, or at the host that forwards it.
    /// Default: every interface with a host endpoint.
    #[arg(long, value_name = "NAME")]
    pub(crate) input_interface: Option<String>,
    /// Interface by which the packet leaves the host of the source, or that forwards it; default: as above.
    #[arg(long, value_name = "NAME")]
    pub(crate) output_interface: Option<String>,
    /// Node of these interfaces, where neither end tells it.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
}

/// What the agents do that manifests do not tell.
#[derive(Debug, Args)]
pub(crate) struct AgentActionArgs {
    /// With -f: what the agents do with traffic from a node to its own workloads, as their parameter of this name.
    /// Default: allow.
    #[arg(long, value_enum, value_name = "ACTION", requires = "files")]
    pub(crate) host_to_endpoint: Option<HostToEndpoint>,
    /// With -f: which policies judge traffic of a pod to itself, as the agents' parameter. Default: by-kind.
    #[arg(long, value_enum, value_name = "POLICIES", requires = "files")]
    pub(crate) hairpin: Option<Hairpin>,
    /// With -f: what the agents do with what is denied, as their parameter of this name. Default: drop.
    #[arg(long, value_enum, value_name = "ACTION", requires = "files")]
    pub(crate) deny_action: Option<DenialAction>,
}

/// What is done with traffic from a node to its own workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HostToEndpoint {
    /// It is allowed, whatever policies say.
    #[default]
    Allow,
    /// Policy applies to it.
    Policy,
}

impl HostToEndpoint {
    /// The action.
    pub(crate) fn action(self) -> palisade_model::HostTrafficAction {
        match self {
            HostToEndpoint::Allow => palisade_model::HostTrafficAction::Allow,
            HostToEndpoint::Policy => palisade_model::HostTrafficAction::Policy,
        }
    }
}

/// What is done with denied packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DenialAction {
    /// They are dropped.
    #[default]
    Drop,
    /// They are dropped and answered.
    Reject,
}

/// Which policies judge traffic from a pod to itself, through a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Hairpin {
    /// Those whose kind does by its standard.
    #[default]
    ByKind,
    /// None.
    Allow,
    /// All.
    Judge,
}

impl Hairpin {
    /// The action.
    pub(crate) fn action(self) -> palisade_model::HairpinAction {
        match self {
            Hairpin::ByKind => palisade_model::HairpinAction::ByKind,
            Hairpin::Allow => palisade_model::HairpinAction::Allow,
            Hairpin::Judge => palisade_model::HairpinAction::Policy,
        }
    }
}
