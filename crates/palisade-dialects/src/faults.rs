//! The faults in lowering objects that tests must detect, see [`palisade_model::faults!`].

palisade_model::faults! {
    /// A fault in lowering objects; those from `AdminTierLast` on are in cluster-wide policies.
    pub enum DialectFault {
        ExceptIgnored,
        EndPortIgnored,
        NamespaceScopeLost,
        PolicyTypesEgressDefaultLost,
        PolicyTypesIngressDefaultLost,
        EmptyFromMatchesNothing,
        EmptyPortsMeansNothing,
        ProtocolDefaultUdp,
        UdpOpensTcp,
        NotInAbsentFalse,
        ExistsAsAlways,
        MatchExpressionsIgnored,
        PodAndNamespaceSelectorOred,
        PeersAnded,
        EgressRulesReadAsIngress,
        NamedPortProtocolIgnored,
        InitContainerPortsCounted,
        CompletedPodHoldsAddress,
        Ipv6BlocksIgnored,
        OnlyFirstPeerRead,
        OnlyFirstPortRead,
        EmptyPodSelectorSelectsNothing,
        OnlyFirstLabelRead,
        HostNetworkPodHoldsAddress,
        AuditAnnotationIgnored,
        NamespaceAuditIgnored,
        AdminTierLast,
        BaselineReadAsAdmin,
        BaselineBeforeIsolation,
        PriorityIgnored,
        PriorityHighestFirst,
        AdminNetworkPolicyBeforeEqual,
        BaselineAdminNetworkPolicyFirst,
        PassReadAsAllow,
        PassReadAsDeny,
        ImplicitIsolation,
        OnlyFirstRuleRead,
        UnknownPeerOpen,
        UnknownPeerOfDenyIgnored,
        UnknownPeerOfPassPasses,
        NamespaceOfPodsIgnored,
        NodesMatchNothing,
        NodeLabelsIgnored,
        NetworksNotPods,
        OnlyFirstNetworkRead,
        DomainNamesOpen,
        NamedPortOpen,
        PortRangeEndIgnored,
    }
}

#[cfg(feature = "faults")]
impl DialectFault {
    /// Whether it is in the kinds of `policy.networking.k8s.io`.
    pub fn is_of_policy_api(self) -> bool {
        self >= DialectFault::AdminTierLast
    }
}
