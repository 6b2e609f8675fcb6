//! The kinds of the API groups in which there is something to read.
//!
//! In such a group a kind that nobody knows is likely a slip, and to pass over it would take a policy
//! out of force. So the kinds that are of no concern there are listed, those of Kubernetes 1.35 and
//! the ones that it served before. Groups that are not here belong to others.

/// API group, and its kinds that policy does not depend on.
const IGNORED_KINDS: [(&str, &[&str]); 9] = [
    (
        "",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "DeleteOptions",
            "Endpoints",
            "Event",
            "LimitRange",
            "NodeProxyOptions",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "PodAttachOptions",
            "PodExecOptions",
            "PodLogOptions",
            "PodPortForwardOptions",
            "PodProxyOptions",
            "PodStatusResult",
            "PodTemplate",
            "RangeAllocation",
            "ResourceQuota",
            "Secret",
            "SerializedReference",
            "ServiceProxyOptions",
            "Status",
        ],
    ),
    (
        "networking.k8s.io",
        &[
            "ClusterCIDR",
            "IPAddress",
            "Ingress",
            "IngressClass",
            "ServiceCIDR",
        ],
    ),
    (
        "apps",
        &["ControllerRevision", "DeploymentRollback", "Scale"],
    ),
    ("batch", &["JobTemplate", "ScheduledJob"]),
    (
        "extensions",
        &[
            "DeploymentRollback",
            "Ingress",
            "PodSecurityPolicy",
            "ReplicationControllerDummy",
            "Scale",
            "ThirdPartyResource",
        ],
    ),
    (
        "cilium.io",
        &[
            "CiliumBGPAdvertisement",
            "CiliumBGPClusterConfig",
            "CiliumBGPNodeConfig",
            "CiliumBGPNodeConfigOverride",
            "CiliumBGPPeerConfig",
            "CiliumBGPPeeringPolicy",
            "CiliumClusterwideEnvoyConfig",
            "CiliumEgressGatewayPolicy",
            "CiliumEgressNATPolicy",
            "CiliumEndpoint",
            "CiliumEndpointSlice",
            "CiliumEnvoyConfig",
            "CiliumExternalWorkload",
            "CiliumGatewayClassConfig",
            "CiliumIdentity",
            "CiliumL2AnnouncementPolicy",
            "CiliumLoadBalancerIPPool",
            "CiliumLocalRedirectPolicy",
            "CiliumNode",
            "CiliumNodeConfig",
            "CiliumPodIPPool",
            "CiliumVTEPConfig",
        ],
    ),
    ("projectcalico.org", CALICO),
    ("crd.projectcalico.org", CALICO),
    ("policy.networking.k8s.io", &[]),
];

/// Staged policies are among them: Calico does not enforce those either.
const CALICO: &[&str] = &[
    "AlertException",
    "AuthenticationReview",
    "AuthorizationReview",
    "BFDConfiguration",
    "BGPConfiguration",
    "BGPFilter",
    "BGPPeer",
    "BlockAffinity",
    "CalicoNodeStatus",
    "ClusterInformation",
    "DeepPacketInspection",
    "EgressGatewayPolicy",
    "ExternalNetwork",
    "FelixConfiguration",
    "GlobalAlert",
    "GlobalAlertTemplate",
    "GlobalReport",
    "GlobalReportType",
    "GlobalThreatFeed",
    "IPAMBlock",
    "IPAMConfig",
    "IPAMConfiguration",
    "IPAMHandle",
    "IPPool",
    "IPReservation",
    "KubeControllersConfiguration",
    "LicenseKey",
    "LiveMigration",
    "ManagedCluster",
    "Node",
    "PacketCapture",
    "PolicyRecommendationScope",
    "RemoteClusterConfiguration",
    "SecurityEventWebhook",
    "StagedGlobalNetworkPolicy",
    "StagedKubernetesNetworkPolicy",
    "StagedNetworkPolicy",
    "UISettings",
    "UISettingsGroup",
];

/// The kinds of an API group that policy does not depend on; none if it is not a group in which
/// there is something to read.
pub(crate) fn ignored_kinds(group: &str) -> Option<&'static [&'static str]> {
    let entry = IGNORED_KINDS.iter().find(|(known, _)| *known == group);
    entry.map(|(_, kinds)| *kinds)
}

/// The API groups in which there is something to read.
pub(crate) fn known_groups() -> impl Iterator<Item = &'static str> {
    IGNORED_KINDS.iter().map(|(group, _)| *group)
}
