//! The faults in lowering objects that tests must detect, see [`palisade_model::faults!`].

palisade_model::faults! {
    /// A fault in lowering objects; those from `AdminTierLast` on are in cluster-wide policies, those from
    /// `LabelSourceIgnored` on in Cilium's and in what they refer to, those from `NotEqualsNeedsLabel` on in
    /// Calico's.
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
        LabelSourceIgnored,
        NamespaceOfPeersLost,
        NamespaceAlwaysAdded,
        ClusterwideSelectsEverything,
        WorldIsEverything,
        ClusterWithoutNodes,
        ClusterWithoutUnmanaged,
        HostIsEveryNode,
        RemoteNodeIsEveryNode,
        ApiServerOfAnyNamespace,
        LabelsOfNodesIgnored,
        CidrMatchesPods,
        CidrExceptLost,
        CidrGroupOfAnyKind,
        CidrGroupSelectorIgnored,
        ServiceNamespaceIgnored,
        ServiceSelectorIgnored,
        UnreadyEndpointsServe,
        TerminatingEndpointsLost,
        EmptyPeersMatchAll,
        OnlyFirstCiliumPeerRead,
        UnservedPeersOpen,
        UnservedPortsOpen,
        DnsNamesOpen,
        AuthenticationOpen,
        AnyProtocolIsTcp,
        CiliumEndPortIgnored,
        IcmpFamilyIgnored,
        IcmpTypeIgnored,
        DenyAfterAllow,
        DefaultDenyLeaks,
        EnableDefaultDenyIgnored,
        SpecsIgnored,
        EmptyRuleMatchesAll,
        NotEqualsNeedsLabel,
        SelectorMatchesNodes,
        NamespaceOfRuleLost,
        NotSelectorIgnored,
        NotNetsOfOtherFamilyIgnored,
        NotPortsIgnored,
        NotProtocolIgnored,
        NotIcmpIgnored,
        SourcePortsIgnored,
        IpVersionIgnored,
        OwnEndIgnored,
        ServiceAccountsIgnored,
        NamespaceSelectorIgnored,
        ClosedRuleOpens,
        CalicoPassAllows,
        LogDecides,
        CalicoOrderIgnored,
        CalicoAfterKubernetes,
        TierOrderIgnored,
        TierDefaultIgnored,
        BuiltinTierReplaced,
        TypesDefaultBoth,
        HostPolicySelectsWorkloads,
        StagedEnforced,
        StagedActionIgnored,
        LabelsToApplyIgnored,
        ProfileOrderReversed,
        ServicePortsIgnored,
        StoredMetadataIgnored,
    }
}

#[cfg(feature = "faults")]
impl DialectFault {
    /// Whether it is in the kinds of `policy.networking.k8s.io`.
    pub fn is_of_policy_api(self) -> bool {
        (DialectFault::AdminTierLast..DialectFault::LabelSourceIgnored).contains(&self)
    }

    /// Whether it is in Cilium's kinds, or in what only they refer to.
    pub fn is_of_cilium(self) -> bool {
        (DialectFault::LabelSourceIgnored..DialectFault::NotEqualsNeedsLabel).contains(&self)
    }

    /// Whether it is in Calico's kinds.
    pub fn is_of_calico(self) -> bool {
        self >= DialectFault::NotEqualsNeedsLabel
    }
}
