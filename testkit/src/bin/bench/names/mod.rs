//! What policy by domain name takes: the real agent and the real proxy, between a workload and a server that is fast
//! enough to be no part of the figures.

mod client;
mod latency;
mod learn;
mod memory;
mod responder;
mod site;

use crate::case::BenchCase;

/// Every case, in order; what workloads without names pay is among the cases of the datapath.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![latency::case(), learn::case(), memory::case()]
}
