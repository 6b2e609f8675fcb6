//! The faults of the plan that tests must detect, see [`palisade_model::faults!`]: each breaks one promise,
//! and proves that the comparison with [`Tables::judge`](palisade_tables::Tables::judge) detects it.

palisade_model::faults! {
    /// A fault in the nftables plan.
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
        AuditReportForgotten,
        MidstreamJudgedOneWay,
        MidstreamSynAccepted,
        TranslatedNotJudged,
        ForeignSpoofAccepted,
        HairpinJudged,
        BaseIgnored,
        BaseDroppedEarly,
        HostReplyAsOriginal,
        HostPassesSwapped,
        HostForwardJudgedOnce,
        FailsafeIgnored,
    }
}
