//! The faults in lowering Kubernetes objects that tests must detect, see [`palisade_model::faults!`].

palisade_model::faults! {
    /// A fault in lowering Kubernetes objects.
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
    }
}
