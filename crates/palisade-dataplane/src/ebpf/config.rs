//! What a fast path is to be: the mark of proven packets, and the networks and interfaces of other hosts.
//!
//! Never: holds anything of the kernel.

use palisade_model::{Prefix, Str};

/// What the fast path is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastPathConfig {
    /// The bit of the packet mark for proven packets that the stack has to deliver.
    pub proof_bit: u32,
    /// Networks of other hosts to and from which the addresses of workloads are never translated: flows there are proven
    /// as well.
    pub networks: Vec<Prefix>,
    /// The interfaces by which they are reached, and by which answers come.
    pub uplinks: Vec<Str>,
}
