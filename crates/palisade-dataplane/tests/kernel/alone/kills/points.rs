//! The points at which agents of the fast path die, with what must have been before so that they come there.

use super::agent::Mode;

/// A point of `palisade_sys::fault::reach`.
#[derive(Debug)]
pub(super) struct Point {
    pub(super) name: &'static str,
    /// How often an agent may come there before it dies.
    pub(super) times: usize,
    /// What the agent is that dies.
    pub(super) mode: Mode,
    /// What the agent before is.
    pub(super) before: Mode,
}

const fn point(name: &'static str, times: usize, before: Mode, mode: Mode) -> Point {
    Point {
        name,
        times,
        mode,
        before,
    }
}

use Mode::{Fast, Nftables};

/// All points, with what must have been before so that an agent comes there.
pub(super) const POINTS: [Point; 26] = [
    // A flush. What a start writes goes through the first one as well.
    point("flush-ports-written", 4, Fast, Fast),
    point("flush-maps-written", 3, Fast, Fast),
    point("flush-counters-freed", 3, Fast, Fast),
    point("flush-epoch-stored", 3, Fast, Fast),
    // A start takes over what another has attached.
    point("start-maps-written", 1, Fast, Fast),
    point("start-set-pinned", 3, Fast, Fast),
    point("start-link-replaced", 4, Fast, Fast),
    point("start-link-replaced", 4, Fast, Fast),
    point("start-taken-over", 1, Fast, Fast),
    point("start-epoch-stored", 1, Fast, Fast),
    point("start-sets-retired", 1, Fast, Fast),
    // A start attaches, and a flush that adds a pod.
    point("start-shared-map-pinned", 4, Nftables, Fast),
    point("start-set-pinned", 3, Nftables, Fast),
    point("arm-link-not-pinned", 6, Nftables, Fast),
    point("arm-egress-attached", 3, Nftables, Fast),
    point("arm-flows-read", 1, Nftables, Fast),
    point("arm-ingress-attached", 3, Nftables, Fast),
    point("start-armed", 1, Nftables, Fast),
    // A hand-over to nftables.
    point("hand-over-owned-only", 1, Fast, Nftables),
    point("conntrack-entries-created", 4, Fast, Nftables),
    point("hand-over-created", 1, Fast, Nftables),
    point("hand-over-off", 1, Fast, Nftables),
    point("hand-over-cleared", 1, Fast, Nftables),
    point("link-detached", 4, Fast, Nftables),
    point("links-removed", 1, Fast, Nftables),
    point("remove-sets-retired", 1, Fast, Nftables),
];
