//! The arguments of the commands that read recorded flows.

use super::ConvertTarget;
use crate::connection_args::{Hairpin, HostToEndpoint};
use clap::Args;
use std::path::PathBuf;

/// The recorded flows to read.
#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    /// File with the output of `palisade flows -o json`, or - for standard input; may be repeated, one for each node.
    /// Default: the record of the agent on this host.
    #[arg(long = "flows", value_name = "FILE", num_args = 1..)]
    pub(crate) flow_files: Vec<PathBuf>,
    /// Only flows seen since this time, or in this time span until now, as 24h.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PreviewArgs {
    /// The change: a file or directory of manifests, or - for standard input; may be repeated. Objects are added to the
    /// present ones, or replace those of the same kind, namespace and name.
    #[arg(
        short = 'f',
        long = "filename",
        required_unless_present = "delete",
        num_args = 1,
        value_name = "CHANGE"
    )]
    pub(crate) files: Vec<PathBuf>,
    /// The present manifests, with the pods and namespaces: a file or a directory; may be repeated.
    #[arg(long, required = true, num_args = 1, value_name = "PATH")]
    pub(crate) base: Vec<PathBuf>,
    /// An object of the present manifests that the change deletes, as networkpolicy/shop/web, or without a namespace;
    /// may be repeated.
    #[arg(long, num_args = 1, value_name = "KIND/NAMESPACE/NAME")]
    pub(crate) delete: Vec<String>,
    #[command(flatten)]
    pub(crate) flows: FlowArgs,
    /// What the agents do with traffic from a node to its own workloads, as their parameter of this name. Default:
    /// allow.
    #[arg(long, value_enum, value_name = "ACTION")]
    pub(crate) host_to_endpoint: Option<HostToEndpoint>,
    /// Which policies judge traffic of a pod to itself, as the agents' parameter. Default: by-kind.
    #[arg(long, value_enum, value_name = "POLICIES")]
    pub(crate) hairpin: Option<Hairpin>,
}

#[derive(Debug, Args)]
pub(crate) struct SuggestArgs {
    /// The dialect to write.
    #[arg(long, value_enum, value_name = "DIALECT")]
    pub(crate) dialect: ConvertTarget,
    /// The present manifests, with the pods and namespaces: a file or a directory; may be repeated.
    #[arg(long, required = true, num_args = 1, value_name = "PATH")]
    pub(crate) base: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) flows: FlowArgs,
    /// Only for workloads of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Only for this workload, as namespace/name of its controller, or of a pod without one.
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) workload: Option<String>,
    /// Flows that were seen less often are listed, and not allowed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) min_count: u64,
}
