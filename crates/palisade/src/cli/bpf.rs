//! The arguments of `palisade bpf`.

use super::FlowProtocol;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum FastPathCommand {
    /// List the addresses of workloads, and why the packets of some go by the stack.
    Endpoints,
    /// List the flows in the table of the fast path, the last seen first.
    ///
    /// Those that the fast path delivers, and those of UDP and ICMP that the stack delivers, whose answers go by it too.
    Flows(BpfFlowsArgs),
    /// Show what the fast path delivers between workloads, and which rules allow it.
    ///
    /// For each pair of addresses: the protocols and ports that are proven allowed at both ends, with the counters of the
    /// rules. What is not listed passes to nftables, which allows, denies and reports it. `palisade bpf check` tells
    /// whether the kernel has these rows.
    Policy(BpfPolicyArgs),
    /// Compare the maps, programs and pins in the kernel with what they should be.
    ///
    /// Changes nothing. The exit code is 1 if something differs.
    Check,
}

#[derive(Debug, Args)]
pub(crate) struct BpfFlowsArgs {
    /// Only flows of this workload, as namespace/name; --pod is the same.
    #[arg(long, alias = "pod", value_name = "X")]
    pub(crate) endpoint: Option<String>,
    /// Only flows of this protocol.
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) protocol: Option<FlowProtocol>,
    /// At most this many, the last seen first [default: 1000].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct BpfPolicyArgs {
    /// Only what this workload, as namespace/name, sends and receives.
    pub(crate) endpoint: Option<String>,
    /// At most this many pairs of addresses [default: 500].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}
