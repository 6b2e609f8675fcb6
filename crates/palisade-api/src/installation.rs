//! `palisade install-cni -o json` and `palisade uninstall-check -o json`.

use crate::cleanup::CleanupKind;
use palisade_model::Str;
use serde::Serialize;

/// The CNI plugin on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CniInstallReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The plugin's path.
    pub path: String,
    /// What was done.
    pub outcome: CniInstallOutcome,
}

/// What `palisade install-cni` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CniInstallOutcome {
    /// There was no plugin.
    Installed,
    /// There was another one.
    Replaced,
    /// There was the same.
    Unchanged,
}

/// What is left of Palisade on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UninstallReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Whether nothing is left.
    pub clean: bool,
    /// What is left.
    pub items: Vec<LeftoverItem>,
}

/// The kind of something that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LeftoverKind {
    /// A running agent.
    Agent,
    /// A CNI configuration that an agent wrote.
    CniConfiguration,
    /// A CNI configuration of others that names the plugin.
    CniReference,
    /// The CNI plugin.
    CniPlugin,
    /// A veth pair.
    Interface,
    /// A route to the pods of another node.
    Route,
    /// A veth pair of another plugin that has policy.
    ChainedInterface,
    /// An nftables table.
    Table,
    /// What the eBPF fast path has pinned.
    Pins,
    /// A sysctl that an agent changed.
    Setting,
    /// The API's socket, or its directory.
    Socket,
    /// A file or directory of the state directory, or the directory itself.
    State,
}

/// Something that is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftoverItem {
    /// Its kind.
    pub kind: LeftoverKind,
    /// Its name.
    pub name: String,
    /// The workload or object it belongs to, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

impl From<CleanupKind> for LeftoverKind {
    fn from(kind: CleanupKind) -> Self {
        match kind {
            CleanupKind::CniConfiguration => LeftoverKind::CniConfiguration,
            CleanupKind::CniPlugin => LeftoverKind::CniPlugin,
            CleanupKind::Interface => LeftoverKind::Interface,
            CleanupKind::Route => LeftoverKind::Route,
            CleanupKind::ChainedInterface => LeftoverKind::ChainedInterface,
            CleanupKind::Table => LeftoverKind::Table,
            CleanupKind::Pins => LeftoverKind::Pins,
            CleanupKind::Setting => LeftoverKind::Setting,
            CleanupKind::Socket => LeftoverKind::Socket,
            CleanupKind::State => LeftoverKind::State,
        }
    }
}
