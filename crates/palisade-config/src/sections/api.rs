//! The API: its listeners, and what its callers may do.

use crate::section::section;
use crate::value_parser::{group, namespaces, number, one_of, path, socket_address};
use std::net::SocketAddr;
use std::path::PathBuf;

section! {
    /// The API: its listeners, and what its callers may do.
    pub struct ApiConfig: "API";

    /// The unix socket of the API.
    socket: PathBuf = "socket", path(), "/run/palisade/palisade.sock", "PATH", Restart, set_by_chart;

    /// The address where metrics and health are served by HTTP in addition to the socket, such as 127.0.0.1:9245.
    health_address: Option<SocketAddr> =
        "health-address", socket_address(), "", "ADDRESS:PORT", Restart, set_by_chart;

    /// The group whose members may read, and attach and detach their own workloads; root may do everything; empty:
    /// root only.
    group: Option<String> = "api-group", group(), "palisade", "GROUP", Restart;

    /// Which labels and named ports a member of api-group may set for a workload: only those of the Pod with its
    /// name (it stays closed without that Pod), or any.
    group_sets_labels: bool = "api-group-labels", one_of(&["pod", "any"], &[false, true]), "pod", "pod|any", Live;

    /// Which network namespaces a member of api-group may attach: those of their own user namespaces, or also named
    /// ones (/run/netns) without interfaces.
    group_attaches_named_netns: bool =
        "api-group-netns", one_of(&["own", "named"], &[false, true]), "named", "own|named", Live;

    /// The Kubernetes namespaces in which a member of api-group may attach workloads; empty: all.
    group_namespaces: Vec<String> = "api-group-namespaces", namespaces(), "", "NAMESPACE,…", Live;

    /// The maximum number of attached workloads of each member of api-group.
    group_workloads: u32 = "api-group-workloads", number(0, 100_000), "64", "N", Live;
}
