//! `palisade cleanup -o json`.

use palisade_model::Str;
use serde::Serialize;

/// What Palisade created on this host, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanupReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Whether the items are only listed.
    pub dry_run: bool,
    /// The items, in the order of removal.
    pub items: Vec<CleanupItem>,
}

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CleanupKind {
    /// The CNI configuration that makes runtimes use Palisade.
    CniConfiguration,
    /// The CNI plugin that `palisade install-cni` copied.
    CniPlugin,
    /// A veth pair, with its routes and neighbours.
    Interface,
    /// A veth pair of another plugin that had policy: it is set down.
    ChainedInterface,
    /// A route to the pods of another node.
    Route,
    /// The nftables table, with everything in it.
    Table,
    /// What the eBPF fast path has pinned: its programs are detached with it.
    Pins,
    /// A sysctl that the agent changed; it is restored.
    Setting,
    /// The API's socket, or its directory.
    Socket,
    /// A file or directory of the state directory, or the directory itself.
    State,
}

/// One item to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanupItem {
    /// Its kind.
    pub kind: CleanupKind,
    /// Its name.
    pub name: String,
    /// The workload or object it belongs to, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Whether it was removed.
    pub removed: bool,
    /// Why it was not removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CleanupItem {
    /// An item that is not removed yet.
    pub fn new(kind: CleanupKind, name: impl Into<String>, about: Option<String>) -> Self {
        CleanupItem {
            kind,
            name: name.into(),
            about,
            removed: false,
            error: None,
        }
    }
}
