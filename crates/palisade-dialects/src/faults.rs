//! Mistakes that can be switched on, to prove that the tests which should notice them do.
//!
//! Without the feature `faults` the question whether one is on is a constant `false` and nothing can be set.
//! With it, one fault at a time is on for the whole process.

/// A mistake in the reading of Kubernetes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DialectFault {
    /// An ipBlock's `except` is read as if it were not there.
    ExceptIgnored = 1,
    /// A range of ports is its first port only.
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
    /// A port without a protocol is a UDP port.
    ProtocolDefaultUdp,
    /// A UDP port opens the TCP port of its number as well.
    UdpOpensTcp,
    /// NotIn asks for the key to be there.
    NotInAbsentFalse,
    /// Exists holds always.
    ExistsAsAlways,
    /// A selector's matchExpressions are not read.
    MatchExpressionsIgnored,
    /// A peer's podSelector and namespaceSelector are alternatives.
    PodAndNamespaceSelectorOred,
    /// The peers of a rule must all match.
    PeersAnded,
    /// Egress rules stand for ingress and the other way round.
    EgressRulesReadAsIngress,
    /// A named port stands for every protocol.
    NamedPortProtocolIgnored,
    /// Named ports of init containers that end before the pod starts count.
    InitContainerPortsCounted,
    /// A completed pod keeps its addresses.
    CompletedPodHoldsAddress,
    /// An ipBlock of IPv6 matches nothing.
    Ipv6BlocksIgnored,
    /// Of a rule's peers only the first is read.
    OnlyFirstPeerRead,
    /// Of a rule's ports only the first is read.
    OnlyFirstPortRead,
    /// A policy whose podSelector is empty is about no pod.
    EmptyPodSelectorSelectsNothing,
    /// Of a selector's matchLabels only the first is read.
    OnlyFirstLabelRead,
    /// A pod on the host's network holds its node's address.
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

/// Switches one fault on, or all off.
#[cfg(feature = "faults")]
pub fn set(fault: Option<DialectFault>) {
    let number = fault.map_or(0, |fault| fault as u8);
    ACTIVE.store(number, std::sync::atomic::Ordering::SeqCst);
}

/// Whether this fault is on.
#[cfg(feature = "faults")]
pub(crate) fn is_injected(fault: DialectFault) -> bool {
    ACTIVE.load(std::sync::atomic::Ordering::SeqCst) == fault as u8
}

/// Whether this fault is on: never, in a build without the feature.
#[cfg(not(feature = "faults"))]
pub(crate) const fn is_injected(_: DialectFault) -> bool {
    false
}
