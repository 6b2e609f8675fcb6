//! The faults of the engine that tests must detect, see [`palisade_model::faults!`].

palisade_model::faults! {
    /// A fault in compiling policy. Each changes verdicts, but for `BudgetIgnored`, which changes what
    /// policy takes.
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
        LogNotReported,
        EncapsulationAllowed,
        AuditEnforced,
        AuditVerdictEnforced,
        AuditDefaultDenyEnforced,
        EndpointAuditIgnored,
        AuditVerdictLost,
        HairpinModeInverted,
        BudgetIgnored,
    }
}
