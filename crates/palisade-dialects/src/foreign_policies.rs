//! The policies of other software: kinds that decide about traffic, and that Palisade does not enforce.
//!
//! Promises: such a kind is ignored with a warning, and counted apart from what does not concern policy. Never: makes
//! a kind that a dialect reads one of these; a typo in a kind of these API groups is not found.

/// API groups of other software that has network policies, and the kinds there that are policies or parts of them
/// and whose name does not end with `Policy`, as words. Every kind of these groups is left to that software.
const GROUPS: [(&str, &str); 23] = [
    // OVN-Kubernetes and OpenShift.
    ("k8s.ovn.org", "EgressFirewall"),
    ("network.openshift.io", ""),
    // Antrea, also under its former names.
    (
        "crd.antrea.io",
        "ClusterGroup ClusterNetworkPolicy Group Tier",
    ),
    ("security.antrea.tanzu.vmware.com", "Tier"),
    ("core.antrea.tanzu.vmware.com", "ClusterGroup Group"),
    // Networks beside the cluster's: Multus, Kube-OVN, NSX, the clouds.
    ("k8s.cni.cncf.io", ""),
    ("kubeovn.io", "SecurityGroup"),
    ("nsx.vmware.com", ""),
    ("crd.nsx.vmware.com", ""),
    ("networking.k8s.aws", "ClusterPolicyEndpoint PolicyEndpoint"),
    ("vpcresources.k8s.aws", ""),
    ("networking.gke.io", ""),
    ("isovalent.com", ""),
    // Service meshes.
    (
        "security.istio.io",
        "PeerAuthentication RequestAuthentication",
    ),
    (
        "policy.linkerd.io",
        "HTTPRoute MeshTLSAuthentication NetworkAuthentication Server ServerAuthorization",
    ),
    ("kuma.io", "MeshTrafficPermission TrafficPermission"),
    ("consul.hashicorp.com", "ServiceIntentions"),
    ("gateway.envoyproxy.io", ""),
    // Policy on the host.
    ("security.kubearmor.com", ""),
    ("security.kubearmor.io", ""),
    // Groups in which some kinds are read.
    (
        "cilium.io",
        "CiliumClusterwideEnvoyConfig CiliumEnvoyConfig",
    ),
    ("projectcalico.org", ""),
    ("crd.projectcalico.org", ""),
];

/// Whether an API group is that of other software with network policies, none of whose kinds is read.
pub(crate) fn is_foreign_group(group: &str) -> bool {
    let is_read = crate::ignored_kinds::ignored_kinds(group).is_some();
    !is_read && GROUPS.iter().any(|(known, _)| *known == group)
}

/// Whether a kind that no dialect reads is named as network policies are.
pub(crate) fn is_named_as_policy(kind: &str) -> bool {
    kind.ends_with("NetworkPolicy")
}

/// Whether a kind that is ignored is a network policy, or a part of one.
pub(crate) fn is_foreign_policy(group: &str, kind: &str) -> bool {
    let of_group = GROUPS.iter().find(|(known, _)| *known == group);
    // What announces routes decides nothing about traffic.
    let is_routing = ["PeeringPolicy", "AnnouncementPolicy"]
        .iter()
        .any(|end| kind.ends_with(end));
    let is_named = |words: &str| {
        kind.ends_with("Policy") && !is_routing || words.split(' ').any(|word| word == kind)
    };
    is_named_as_policy(kind) || of_group.is_some_and(|(_, words)| is_named(words))
}

/// Whether an ignored kind, as it is counted (`k8s.ovn.org/v1 EgressFirewall`), is a network policy of other software.
#[must_use]
pub fn is_unenforced_policy(counted: &str) -> bool {
    let Some((version, kind)) = counted.split_once(' ') else {
        return false;
    };
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    is_foreign_policy(group, kind)
}
