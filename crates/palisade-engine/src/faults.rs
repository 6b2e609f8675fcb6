//! Named faults that a test build can switch on, each a mistake the proofs must find.
//!
//! Without the feature `faults` nothing here can be switched on and every question is answered "no"
//! at compile time. A fault never changes the shape of the output, only its truth.

/// A mistake the engine makes on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    not(feature = "faults"),
    allow(
        unreachable_pub,
        reason = "public only where faults can be switched on"
    )
)]
#[allow(missing_docs, reason = "each variant is named after its mistake")]
pub enum Fault {
    PassAsAllow,
    PassAsDeny,
    LogDecides,
    TierOrderReversed,
    TierDefaultPassLost,
    DefaultDenyIgnored,
    PolicyOrderIgnored,
    ProfileAllowAlways,
    MissingProfileAllows,
    PassInProfileAllows,
    NotNetsIgnored,
    NotSelectorIgnored,
    NotPortsIgnored,
    NotProtocolIgnored,
    FamiliesMixed,
    EndsSwapped,
    SourcePortsIgnored,
    IcmpCodeIgnored,
    NamedPortAnyProtocol,
    OwnAddressIgnored,
    SecondAddressIgnored,
    OldestClaimWins,
    NetworkSetIgnored,
    NodeIgnored,
    LongestPrefixLost,
    NamespaceLabelsStale,
    DeletedPolicyStays,
    SplitAfterLoosen,
    TightenAfterLoosen,
    MergeBeforeLoosen,
    DeleteFirst,
    IntersectionSkipped,
    RevokeForgotten,
    LogNotReported,
    EncapsulationAllowed,
    BudgetIgnored,
}

impl Fault {
    /// Every fault that verdicts show. That a budget is ignored shows in what policy takes.
    #[cfg(feature = "faults")]
    pub const ALL: [Fault; 35] = [
        Fault::PassAsAllow,
        Fault::PassAsDeny,
        Fault::LogDecides,
        Fault::TierOrderReversed,
        Fault::TierDefaultPassLost,
        Fault::DefaultDenyIgnored,
        Fault::PolicyOrderIgnored,
        Fault::ProfileAllowAlways,
        Fault::MissingProfileAllows,
        Fault::PassInProfileAllows,
        Fault::NotNetsIgnored,
        Fault::NotSelectorIgnored,
        Fault::NotPortsIgnored,
        Fault::NotProtocolIgnored,
        Fault::FamiliesMixed,
        Fault::EndsSwapped,
        Fault::SourcePortsIgnored,
        Fault::IcmpCodeIgnored,
        Fault::NamedPortAnyProtocol,
        Fault::OwnAddressIgnored,
        Fault::SecondAddressIgnored,
        Fault::OldestClaimWins,
        Fault::NetworkSetIgnored,
        Fault::NodeIgnored,
        Fault::LongestPrefixLost,
        Fault::NamespaceLabelsStale,
        Fault::DeletedPolicyStays,
        Fault::SplitAfterLoosen,
        Fault::TightenAfterLoosen,
        Fault::MergeBeforeLoosen,
        Fault::DeleteFirst,
        Fault::IntersectionSkipped,
        Fault::RevokeForgotten,
        Fault::LogNotReported,
        Fault::EncapsulationAllowed,
    ];
}

#[cfg(feature = "faults")]
mod switch {
    use super::Fault;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// The fault that is on, plus one; 0 where none is.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Switches one fault on, or all off, for the whole process.
    pub fn set(fault: Option<Fault>) {
        ON.store(fault.map_or(0, |f| f as u8 + 1), Ordering::SeqCst);
    }

    /// Whether a fault is on.
    pub fn on(fault: Fault) -> bool {
        ON.load(Ordering::Relaxed) == fault as u8 + 1
    }
}

#[cfg(not(feature = "faults"))]
mod switch {
    use super::Fault;

    /// Whether a fault is on: never in this build.
    #[inline(always)]
    pub(crate) const fn on(_: Fault) -> bool {
        false
    }
}

#[cfg(feature = "faults")]
pub use switch::{on, set};

#[cfg(not(feature = "faults"))]
pub(crate) use switch::on;
