//! When a packet may be lost, or one pass that is denied: each kind of gap with its bound, and why it
//! is there. Outside of these nothing may.

/// What happens in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gap {
    /// The agent ends and another starts.
    Restart,
    /// The agent puts another table in the place of its own.
    Replaced,
    /// Somebody else deleted the rules, and the agent makes them again.
    RulesGone,
    /// The policy of the flow itself is edited.
    OwnPolicy,
}

/// What may happen in one gap, whatever it takes, to the packets of one pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// From the first denied packet that passes to the last, with all between; of an edited policy, the
    /// packets that still get the old verdict.
    pub(crate) passed: u64,
    /// Allowed packets that are lost.
    pub(crate) lost: u64,
    /// Segments lost of all connections together.
    pub(crate) segments: u64,
    pub(crate) why: &'static str,
}

/// As long as a test waits for an agent (20 s), and the time until it begins to wait: for machines that
/// do much else. It takes some tenths of a second on one that does not, which the account shows.
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
                lost: 1,
                segments: 6,
                why: "a packet that is between two lookups of the old table is dropped, and what ranges allow, \
                      until the kernel has put them in",
            },
            Gap::RulesGone => Bound {
                passed: WHILE_AN_AGENT_WORKS,
                lost: 6,
                segments: 12,
                why: "nothing judges until the rules are back; a flow that nobody tracked then is cut",
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
