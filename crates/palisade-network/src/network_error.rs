//! The errors of what the agent reads and changes of this host's network.

use crate::forwarding::sysctls::SettingsError;
use palisade_node::subsystem::SubsystemError;
use palisade_sys::link::LinkError;
use palisade_sys::netns::NetNsError;

/// Why a namespace could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum NetworkDriverError {
    /// The namespace cannot be opened.
    #[error(transparent)]
    Netns(#[from] NetNsError),
    /// An operation on an interface, address or route failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A sysctl could not be changed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Forwarding could not be enabled.
    #[error(transparent)]
    Forwarding(#[from] SubsystemError),
    /// The interface exists already.
    #[error("the namespace {netns} already has an interface {interface}")]
    InterfaceExists {
        /// The namespace.
        netns: String,
        /// The interface.
        interface: String,
    },
    /// The host-side interface does not exist.
    #[error("the interface {0} does not exist")]
    InterfaceMissing(String),
    /// The interface with the host side's name belongs to something else.
    #[error(
        "the interface {0} is not the workload's: it is not a veth whose peer is the interface in that \
         namespace"
    )]
    NotVethPeer(String),
    /// The path now refers to a different namespace than at the attach.
    #[error("the path {0} refers to a different network namespace than when it was attached")]
    NetnsChanged(String),
    /// This host does not forward the interface's packets.
    #[error(
        "the interface {interface} is a port of {master}, which forwards its packets without routing \
         them through this host: chain palisade-cni after a plugin that routes, such as ptp"
    )]
    BridgePort {
        /// The interface.
        interface: String,
        /// The bridge or other master of the interface.
        master: String,
    },
    /// The namespace is the host's own.
    #[error("the namespace {0} is the one this agent runs in")]
    HostNetns(String),
}

impl NetworkDriverError {
    /// Whether what was asked for cannot be done, and asking again does not help: a namespace that does not exist, is
    /// none or is the host's own, or an interface that is missing, exists already or belongs to something else.
    pub fn is_of_request(&self) -> bool {
        match self {
            NetworkDriverError::Netns(error) => matches!(
                error,
                NetNsError::BadName { .. }
                    | NetNsError::Missing { .. }
                    | NetNsError::WrongType { .. }
            ),
            NetworkDriverError::InterfaceExists { .. }
            | NetworkDriverError::InterfaceMissing(_)
            | NetworkDriverError::NotVethPeer(_)
            | NetworkDriverError::NetnsChanged(_)
            | NetworkDriverError::BridgePort { .. }
            | NetworkDriverError::HostNetns(_) => true,
            NetworkDriverError::Link(_)
            | NetworkDriverError::Forwarding(_)
            | NetworkDriverError::Settings(_) => false,
        }
    }
}
