//! Parts of a policy that are held closed: valid, and not enforced as written, because this build does not
//! understand or does not serve them.
//!
//! Promises: a part that is held closed never opens anything; each has its path and its reason. Never: decides what
//! becomes of the rest of the policy.

use palisade_manifest::Problem;

/// Why a part of a policy is held closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClosedReason {
    /// Domain names, which are not served: nothing is matched by them.
    NamesNotServed,
    /// A part that is read and validated, and needs what this build does not serve.
    NotServed,
    /// A peer of a kind that is not known: its rule fails closed.
    UnknownPeer,
    /// A peer without a field, which may have been one of a newer API: its rule fails closed.
    EmptyPeer,
    /// A field that is not known, inside a rule: the rule fails closed.
    UnknownField,
}

impl ClosedReason {
    /// Every reason.
    pub const ALL: &[ClosedReason] = &[
        ClosedReason::NamesNotServed,
        ClosedReason::NotServed,
        ClosedReason::UnknownPeer,
        ClosedReason::EmptyPeer,
        ClosedReason::UnknownField,
    ];

    /// Its name in files and in messages of programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ClosedReason::NamesNotServed => "names-not-served",
            ClosedReason::NotServed => "not-served",
            ClosedReason::UnknownPeer => "unknown-peer",
            ClosedReason::EmptyPeer => "empty-peer",
            ClosedReason::UnknownField => "unknown-field",
        }
    }
}

/// A part of a policy that is held closed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClosedPart {
    /// Its place and its path, and a sentence that says what becomes of it.
    pub problem: Problem,
    /// Why.
    pub reason: ClosedReason,
}
