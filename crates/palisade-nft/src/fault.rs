//! Named faults that test builds can inject, one at a time: each breaks one promise of the plan, and proves
//! that the comparison with [`Tables::judge`](palisade_tables::Tables::judge) detects it.
//!
//! Without the feature `faults` no fault can be injected.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each name says what goes wrong")]
pub enum NftFault {
    ReplyNotTranslated,
    ReplyPortsNotSwapped,
    ReplyEndsSwapped,
    IntervalEndOffByOne,
    RangeExpandedShort,
    IcmpCodeLost,
    DefaultClassMissed,
    ExactFallsToNet,
    ProtoDefaultLost,
    GenerationNotBumped,
    RelatedAccepted,
    InvalidAccepted,
    SpoofCheckSkipped,
    UnknownInterfaceOpen,
    SourcePortOrderReversed,
    HostTrafficJudged,
    LogRuleForgotten,
    MidstreamJudgedOneWay,
    MidstreamSynAccepted,
    TranslatedNotJudged,
    ForeignSpoofAccepted,
    HairpinJudged,
    BaseIgnored,
    BaseDroppedEarly,
}

impl NftFault {
    /// All faults.
    pub const ALL: [NftFault; 24] = [
        NftFault::ReplyNotTranslated,
        NftFault::ReplyPortsNotSwapped,
        NftFault::ReplyEndsSwapped,
        NftFault::IntervalEndOffByOne,
        NftFault::RangeExpandedShort,
        NftFault::IcmpCodeLost,
        NftFault::DefaultClassMissed,
        NftFault::ExactFallsToNet,
        NftFault::ProtoDefaultLost,
        NftFault::GenerationNotBumped,
        NftFault::RelatedAccepted,
        NftFault::InvalidAccepted,
        NftFault::SpoofCheckSkipped,
        NftFault::UnknownInterfaceOpen,
        NftFault::SourcePortOrderReversed,
        NftFault::HostTrafficJudged,
        NftFault::LogRuleForgotten,
        NftFault::MidstreamJudgedOneWay,
        NftFault::MidstreamSynAccepted,
        NftFault::TranslatedNotJudged,
        NftFault::ForeignSpoofAccepted,
        NftFault::HairpinJudged,
        NftFault::BaseIgnored,
        NftFault::BaseDroppedEarly,
    ];

    /// Whether the fault is injected.
    #[cfg(not(feature = "faults"))]
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        false
    }
}

#[cfg(feature = "faults")]
mod switch {
    use super::NftFault;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// 0, or the fault's number plus one. The only global state of this crate, and only in test builds.
    static ON: AtomicU8 = AtomicU8::new(0);

    impl NftFault {
        /// Injects this fault instead of any other.
        pub fn set(fault: Option<NftFault>) {
            let value = fault.map_or(0, |fault| fault as u8 + 1);
            ON.store(value, Ordering::SeqCst);
        }

        /// Whether the fault is injected.
        pub(crate) fn is_on(self) -> bool {
            ON.load(Ordering::Relaxed) == self as u8 + 1
        }
    }
}
