//! How much the maps hold, and what did not fit.

/// The numbers of elements of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Of `slots`: addresses of workloads.
    pub slots: u32,
    /// Of `sets`.
    pub sets: u32,
    /// Of `classes`: rows of a set and an identity.
    pub rows: u32,
    /// Of `descriptors`: classes.
    pub classes: u32,
    /// Of `ports`.
    pub ports: u32,
    /// Of `ranges`.
    pub ranges: u32,
    /// Of `counters`.
    pub counters: u32,
    /// Of `prefixes`: those of networks outside of this host.
    pub prefixes: u32,
}

/// What had no room since all was written last: it passes, and nftables judges it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// Addresses of workloads.
    pub slots: usize,
    /// Policy sets, by their number or their rows.
    pub sets: usize,
    /// Classes, by their number, ports, ranges or counters.
    pub classes: usize,
    /// Prefixes of networks outside of this host, or lengths of them: no flow to or from outside is proven.
    pub prefixes: usize,
}

impl Shortage {
    /// Whether all had room.
    pub fn is_empty(&self) -> bool {
        *self == Shortage::default()
    }
}
