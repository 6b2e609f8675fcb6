//! Declared gaps, in which an allowed packet may be lost or a denied one may pass: each kind with its bound
//! and its reason. Outside of them neither may happen.

/// Kind of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gap {
    /// The agent ends and another starts.
    Restart,
    /// The agent replaces its table.
    Replaced,
    /// Another program deleted the rules, and the agent restores them.
    RulesGone,
    /// The policy of the flow itself is edited.
    OwnPolicy,
}

/// Limits for the packets of one pair in one gap, however long it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Packets from the first denied one that passes to the last, including all between; for an edited
    /// policy, the packets that still get the old verdict.
    pub(crate) passed: u64,
    /// Allowed packets that are lost.
    pub(crate) lost: u64,
    /// Lost segments of all connections together.
    pub(crate) segments: u64,
    pub(crate) why: &'static str,
}

/// The timeout of a test that waits for an agent (20 s), plus the time until it starts to wait: for busy
/// machines. On an idle one it takes some tenths of a second, as the printed account shows.
const WHILE_AN_AGENT_WORKS: u64 = 25_000 / super::traffic::PACE.as_millis() as u64;

impl Gap {
    pub(crate) const ALL: [Gap; 4] = [Gap::Restart, Gap::Replaced, Gap::RulesGone, Gap::OwnPolicy];

    pub(crate) fn bound(self) -> Bound {
        match self {
            Gap::Restart => Bound {
                passed: 0,
                lost: 0,
                segments: 0,
                why: "the kernel keeps the rules while no agent runs",
            },
            Gap::Replaced => Bound {
                passed: 0,
                lost: 16,
                segments: 6,
                why: "a packet that is between two lookups of the old table is dropped, and what ranges allow, \
                      until the kernel has put them in: with the chains of host endpoints up to some tenths of \
                      a second on a busy machine",
            },
            Gap::RulesGone => Bound {
                passed: WHILE_AN_AGENT_WORKS,
                lost: 16,
                segments: 12,
                why: "no policy is evaluated until the rules are restored; a flow not tracked then is cut",
            },
            Gap::OwnPolicy => Bound {
                passed: WHILE_AN_AGENT_WORKS,
                lost: 0,
                segments: 0,
                why: "the old verdict holds until the edit is in the kernel, and never again after it",
            },
        }
    }
}
