//! Named faults that a test build can switch on, each a mistake that the tests must find.
//!
//! Without the feature `faults` no fault can be switched on, and every query is a constant `false`.
//! A fault makes the output wrong, but never malformed.

/// A mistake that the engine makes on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    not(feature = "faults"),
    allow(unreachable_pub, reason = "public only with the feature `faults`")
)]
#[allow(missing_docs, reason = "each variant names its mistake")]
pub enum EngineFault {
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

impl EngineFault {
    /// All faults that change verdicts. `BudgetIgnored` is not one: it changes what policy takes.
    #[cfg(feature = "faults")]
    pub const ALL: [EngineFault; 35] = [
        EngineFault::PassAsAllow,
        EngineFault::PassAsDeny,
        EngineFault::LogDecides,
        EngineFault::TierOrderReversed,
        EngineFault::TierDefaultPassLost,
        EngineFault::DefaultDenyIgnored,
        EngineFault::PolicyOrderIgnored,
        EngineFault::ProfileAllowAlways,
        EngineFault::MissingProfileAllows,
        EngineFault::PassInProfileAllows,
        EngineFault::NotNetsIgnored,
        EngineFault::NotSelectorIgnored,
        EngineFault::NotPortsIgnored,
        EngineFault::NotProtocolIgnored,
        EngineFault::FamiliesMixed,
        EngineFault::EndsSwapped,
        EngineFault::SourcePortsIgnored,
        EngineFault::IcmpCodeIgnored,
        EngineFault::NamedPortAnyProtocol,
        EngineFault::OwnAddressIgnored,
        EngineFault::SecondAddressIgnored,
        EngineFault::OldestClaimWins,
        EngineFault::NetworkSetIgnored,
        EngineFault::NodeIgnored,
        EngineFault::LongestPrefixLost,
        EngineFault::NamespaceLabelsStale,
        EngineFault::DeletedPolicyStays,
        EngineFault::SplitAfterLoosen,
        EngineFault::TightenAfterLoosen,
        EngineFault::MergeBeforeLoosen,
        EngineFault::DeleteFirst,
        EngineFault::IntersectionSkipped,
        EngineFault::RevokeForgotten,
        EngineFault::LogNotReported,
        EngineFault::EncapsulationAllowed,
    ];
}

#[cfg(feature = "faults")]
mod switch {
    use super::EngineFault;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// The active fault plus one; 0 if there is none.
    static ON: AtomicU8 = AtomicU8::new(0);

    /// Switches on one fault, or none, for the whole process.
    pub fn set(fault: Option<EngineFault>) {
        ON.store(fault.map_or(0, |f| f as u8 + 1), Ordering::SeqCst);
    }

    /// Whether a fault is switched on.
    pub fn on(fault: EngineFault) -> bool {
        ON.load(Ordering::Relaxed) == fault as u8 + 1
    }
}

#[cfg(not(feature = "faults"))]
mod switch {
    use super::EngineFault;

    /// Whether a fault is switched on: never in this build.
    #[inline(always)]
    pub(crate) const fn on(_: EngineFault) -> bool {
        false
    }
}

#[cfg(feature = "faults")]
pub use switch::{on, set};

#[cfg(not(feature = "faults"))]
pub(crate) use switch::on;
