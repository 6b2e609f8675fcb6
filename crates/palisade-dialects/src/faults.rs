//! Faults that can be injected, to prove that the tests that should detect them do.
//!
//! Without the feature `faults`, `is_injected` is a constant `false` and nothing can be set. With it, one
//! fault at a time is active for the whole process.

/// A fault in lowering Kubernetes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DialectFault {
    /// The `except` list of an ipBlock is ignored.
    ExceptIgnored = 1,
    /// A port range is read as its first port only.
    EndPortIgnored,
    /// A peer with only a podSelector matches the pods of every namespace.
    NamespaceScopeLost,
    /// Without policyTypes, egress rules do not make a policy govern egress.
    PolicyTypesEgressDefaultLost,
    /// Without policyTypes, only ingress rules make a policy govern ingress.
    PolicyTypesIngressDefaultLost,
    /// A rule without peers matches no peer.
    EmptyFromMatchesNothing,
    /// A rule without ports matches no traffic.
    EmptyPortsMeansNothing,
    /// The default protocol of a port is UDP.
    ProtocolDefaultUdp,
    /// A UDP port opens the TCP port of its number as well.
    UdpOpensTcp,
    /// NotIn requires the key to exist.
    NotInAbsentFalse,
    /// Exists always matches.
    ExistsAsAlways,
    /// The matchExpressions of a selector are ignored.
    MatchExpressionsIgnored,
    /// The podSelector and namespaceSelector of a peer are alternatives.
    PodAndNamespaceSelectorOred,
    /// All peers of a rule must match.
    PeersAnded,
    /// Egress rules are read as ingress rules and vice versa.
    EgressRulesReadAsIngress,
    /// A named port matches every protocol.
    NamedPortProtocolIgnored,
    /// Named ports of init containers that are not sidecars are included.
    InitContainerPortsCounted,
    /// A completed pod keeps its addresses.
    CompletedPodHoldsAddress,
    /// An IPv6 ipBlock matches nothing.
    Ipv6BlocksIgnored,
    /// Only the first peer of a rule is read.
    OnlyFirstPeerRead,
    /// Only the first port of a rule is read.
    OnlyFirstPortRead,
    /// A policy with an empty podSelector selects no pod.
    EmptyPodSelectorSelectsNothing,
    /// Only the first entry of a selector's matchLabels is read.
    OnlyFirstLabelRead,
    /// A pod on the host network has its node's address.
    HostNetworkPodHoldsAddress,
}

impl DialectFault {
    /// Every fault.
    pub const ALL: [DialectFault; 24] = [
        DialectFault::ExceptIgnored,
        DialectFault::EndPortIgnored,
        DialectFault::NamespaceScopeLost,
        DialectFault::PolicyTypesEgressDefaultLost,
        DialectFault::PolicyTypesIngressDefaultLost,
        DialectFault::EmptyFromMatchesNothing,
        DialectFault::EmptyPortsMeansNothing,
        DialectFault::ProtocolDefaultUdp,
        DialectFault::UdpOpensTcp,
        DialectFault::NotInAbsentFalse,
        DialectFault::ExistsAsAlways,
        DialectFault::MatchExpressionsIgnored,
        DialectFault::PodAndNamespaceSelectorOred,
        DialectFault::PeersAnded,
        DialectFault::EgressRulesReadAsIngress,
        DialectFault::NamedPortProtocolIgnored,
        DialectFault::InitContainerPortsCounted,
        DialectFault::CompletedPodHoldsAddress,
        DialectFault::Ipv6BlocksIgnored,
        DialectFault::OnlyFirstPeerRead,
        DialectFault::OnlyFirstPortRead,
        DialectFault::EmptyPodSelectorSelectsNothing,
        DialectFault::OnlyFirstLabelRead,
        DialectFault::HostNetworkPodHoldsAddress,
    ];
}

#[cfg(feature = "faults")]
static ACTIVE: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Activates one fault, or none.
#[cfg(feature = "faults")]
pub fn set(fault: Option<DialectFault>) {
    let number = fault.map_or(0, |fault| fault as u8);
    ACTIVE.store(number, std::sync::atomic::Ordering::SeqCst);
}

/// Whether this fault is active.
#[cfg(feature = "faults")]
pub(crate) fn is_injected(fault: DialectFault) -> bool {
    ACTIVE.load(std::sync::atomic::Ordering::SeqCst) == fault as u8
}

/// Whether this fault is active: never, in a build without the feature.
#[cfg(not(feature = "faults"))]
pub(crate) const fn is_injected(_: DialectFault) -> bool {
    false
}
