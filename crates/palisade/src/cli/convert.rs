//! The arguments of `palisade convert`.

use super::ManifestArgs;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// The dialect to write.
    #[arg(long, value_enum, value_name = "DIALECT")]
    pub(crate) to: ConvertTarget,
    #[command(flatten)]
    pub(crate) files: ManifestArgs,
    /// Only the policy of this kind, with the name that follows; default: every policy.
    #[arg(value_name = "KIND", requires = "name")]
    pub(crate) kind: Option<String>,
    /// The name of the policy.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The namespace of the policy; without KIND and NAME, only policies of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

/// A dialect that policies can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConvertTarget {
    /// NetworkPolicy of Kubernetes.
    Kubernetes,
    /// ClusterNetworkPolicy of the Network Policy API.
    ClusterNetworkPolicy,
    /// CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy.
    Cilium,
    /// NetworkPolicy and GlobalNetworkPolicy of Calico.
    Calico,
}
