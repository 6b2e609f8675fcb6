//! What workloads read of the configuration.
//!
//! Never: knows how the whole configuration is made or read again; the agent passes these sections, and passes them
//! again when the file changes.

use palisade_config::{
    ApiConfig, CniConfig, IpamConfig, MasqueradeConfig, StateConfig, WorkloadsConfig,
};

/// The sections of the configuration that workloads read. See the module's description.
#[derive(Clone, Debug)]
pub struct WorkloadSections {
    /// Their interfaces.
    pub workloads: WorkloadsConfig,
    /// Their addresses.
    pub ipam: IpamConfig,
    /// Pods that container runtimes attach.
    pub cni: CniConfig,
    /// What the group of the API may attach.
    pub api: ApiConfig,
    /// The source addresses of their traffic.
    pub masquerade: MasqueradeConfig,
    /// Where records and queued CNI DELs are.
    pub state: StateConfig,
}
