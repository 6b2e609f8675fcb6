//! The arguments of `palisade flows`.

use super::VerdictFilter;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct FlowsArgs {
    /// Only flows seen since this time (2026-11-21T07:32:05Z), or in this time span until now (90m, 24h, 7d).
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only flows seen before this time, or this time span ago.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only flows from or to workloads of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Only flows from or to this workload or controller, as namespace/name.
    #[arg(long, value_name = "X")]
    pub(crate) endpoint: Option<String>,
    /// Only flows from this workload or controller, address, network or domain name.
    #[arg(long, value_name = "X")]
    pub(crate) from: Option<String>,
    /// Only flows to this workload or controller, address, network or domain name.
    #[arg(long, value_name = "Y")]
    pub(crate) to: Option<String>,
    /// Only flows with this verdict.
    #[arg(long, value_enum)]
    pub(crate) verdict: Option<VerdictFilter>,
    /// Only flows of this protocol.
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) protocol: Option<FlowProtocol>,
    /// Only flows to this port.
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// At most this many, the last seen first [default: 1000; with --export 100000].
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Write them to this file, or to standard output for -, each as a line of JSON that Hubble reads.
    ///
    /// The lines are those of Hubble's exporter: `hubble observe --input-file FILE` prints them.
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,
}

/// A protocol to filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FlowProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP for IPv4.
    Icmp,
    /// ICMP for IPv6.
    Icmpv6,
}
