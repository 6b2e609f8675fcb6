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
