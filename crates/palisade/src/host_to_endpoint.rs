//! The agents' parameter `host-to-endpoint` for commands that read manifests.

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
