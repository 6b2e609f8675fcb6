//! Named faults that test builds can switch on, one at a time: each breaks one promise of the plan,
//! and proves that the comparison with [`Tables::judge`](palisade_tables::Tables::judge) sees it.
//!
//! Without the feature `faults` nothing can be switched on and every question is answered no.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each name says what goes wrong")]
pub enum Fault {
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
    ResidueOrderReversed,
    HostTrafficJudged,
    LogRuleForgotten,
    OlderJudgedOneWay,
    OlderSynAccepted,
    TranslatedNotJudged,
    ElsewhereSpoofed,
    ItselfJudged,
    BaseIgnored,
    BaseDroppedEarly,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 24] = [
        Fault::ReplyNotTranslated,
        Fault::ReplyPortsNotSwapped,
        Fault::ReplyEndsSwapped,
        Fault::IntervalEndOffByOne,
        Fault::RangeExpandedShort,
        Fault::IcmpCodeLost,
        Fault::DefaultClassMissed,
        Fault::ExactFallsToNet,
        Fault::ProtoDefaultLost,
        Fault::GenerationNotBumped,
        Fault::RelatedAccepted,
        Fault::InvalidAccepted,
        Fault::SpoofCheckSkipped,
        Fault::UnknownInterfaceOpen,
        Fault::ResidueOrderReversed,
        Fault::HostTrafficJudged,
        Fault::LogRuleForgotten,
        Fault::OlderJudgedOneWay,
        Fault::OlderSynAccepted,
        Fault::TranslatedNotJudged,
        Fault::ElsewhereSpoofed,
        Fault::ItselfJudged,
        Fault::BaseIgnored,
        Fault::BaseDroppedEarly,
    ];

    /// Whether it is switched on.
    #[cfg(not(feature = "faults"))]
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        false
    }
}

#[cfg(feature = "faults")]
mod switch {
    use super::Fault;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// 0, or the fault's number plus one. The only state outside values in this crate, and only in
    /// test builds.
    static ON: AtomicU8 = AtomicU8::new(0);

    impl Fault {
        /// Switches this fault on, and any other off.
        pub fn set(fault: Option<Fault>) {
            let value = fault.map_or(0, |fault| fault as u8 + 1);
            ON.store(value, Ordering::SeqCst);
        }

        /// Whether it is switched on.
        pub(crate) fn is_on(self) -> bool {
            ON.load(Ordering::Relaxed) == self as u8 + 1
        }
    }
}
