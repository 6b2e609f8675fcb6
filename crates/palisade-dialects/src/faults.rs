//! The faults in lowering objects that prove a stage of the differential, see [`palisade_model::faults!`]. They do not
//! test each branch of a dialect: golden tests and tables of cases do, and `make mutants` tells what they miss.

palisade_model::faults! {
    /// A fault in lowering objects. Each dialect has one of every form: a wrong meaning, a dropped term, a wrong
    /// default, and something that fails open (Kubernetes: an object that is read wrongly). Those from
    /// `PassReadAsAllow` on are in cluster-wide policies, those from `DenyAfterAllow` on in Cilium's, those from
    /// `NotEqualsNeedsLabel` on in Calico's.
    pub enum DialectFault {
        ExceptIgnored,
        NotInAbsentFalse,
        PolicyTypesEgressDefaultLost,
        CompletedPodHoldsAddress,
        PassReadAsAllow,
        NamespaceOfPodsIgnored,
        ImplicitIsolation,
        UnknownPeerOpen,
        WildcardMatchesBareName,
        WildcardIsOneLabel,
        DenyAfterAllow,
        CidrExceptLost,
        DefaultDenyLeaks,
        UnservedPeersOpen,
        StarCrossesDots,
        SubdomainsAreOneLabel,
        CaseOfNamesKept,
        DnsRuleAllowsAll,
        NamesSelectInside,
        NotEqualsNeedsLabel,
        NotPortsIgnored,
        TierDefaultIgnored,
        ClosedRuleOpens,
        DomainWildcardIsOneLabel,
    }
}

#[cfg(feature = "faults")]
impl DialectFault {
    /// Whether it is in the kinds of `policy.networking.k8s.io`.
    pub fn is_of_policy_api(self) -> bool {
        (DialectFault::PassReadAsAllow..DialectFault::DenyAfterAllow).contains(&self)
    }

    /// Whether it is in Cilium's kinds, or in what only they refer to.
    pub fn is_of_cilium(self) -> bool {
        (DialectFault::DenyAfterAllow..DialectFault::NotEqualsNeedsLabel).contains(&self)
    }

    /// Whether it is in Calico's kinds.
    pub fn is_of_calico(self) -> bool {
        self >= DialectFault::NotEqualsNeedsLabel
    }
}
