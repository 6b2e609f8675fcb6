//! The ignored kinds of the API groups in which some kind is read.
//!
//! In such a group an unknown kind is likely a typo, and skipping it would take a policy out of force. So the
//! other kinds of these groups are listed: those of Kubernetes 1.35 and those of earlier versions. In groups
//! that are not listed here every kind is ignored.

/// API groups and their kinds that do not concern policy, as words.
const IGNORED_KINDS: [(&str, &str); 10] = [
    (
        "",
        "Binding ComponentStatus ConfigMap DeleteOptions Endpoints Event LimitRange \
         NodeProxyOptions PersistentVolume PersistentVolumeClaim PodAttachOptions PodExecOptions \
         PodLogOptions PodPortForwardOptions PodProxyOptions PodStatusResult PodTemplate \
         RangeAllocation ResourceQuota Secret SerializedReference ServiceProxyOptions Status",
    ),
    (
        "networking.k8s.io",
        "ClusterCIDR IPAddress Ingress IngressClass ServiceCIDR",
    ),
    ("apps", "ControllerRevision DeploymentRollback Scale"),
    ("batch", "JobTemplate ScheduledJob"),
    (
        "extensions",
        "DeploymentRollback Ingress PodSecurityPolicy ReplicationControllerDummy Scale \
         ThirdPartyResource",
    ),
    (
        "cilium.io",
        "CiliumBGPAdvertisement CiliumBGPClusterConfig CiliumBGPNodeConfig \
         CiliumBGPNodeConfigOverride CiliumBGPPeerConfig CiliumBGPPeeringPolicy \
         CiliumClusterwideEnvoyConfig CiliumEgressGatewayPolicy CiliumEgressNATPolicy \
         CiliumEndpoint CiliumEndpointSlice CiliumEnvoyConfig CiliumExternalWorkload \
         CiliumGatewayClassConfig CiliumIdentity CiliumL2AnnouncementPolicy \
         CiliumLoadBalancerIPPool CiliumLocalRedirectPolicy CiliumNode CiliumNodeConfig \
         CiliumPodIPPool CiliumVTEPConfig",
    ),
    ("projectcalico.org", CALICO),
    ("crd.projectcalico.org", CALICO),
    ("policy.networking.k8s.io", ""),
    ("discovery.k8s.io", ""),
];

const CALICO: &str = "AlertException AuthenticationReview AuthorizationReview BFDConfiguration BGPConfiguration \
     BGPFilter BGPPeer BlockAffinity CalicoNodeStatus ClusterInformation DeepPacketInspection \
     EgressGatewayPolicy ExternalNetwork FelixConfiguration GlobalAlert GlobalAlertTemplate \
     GlobalReport GlobalReportType GlobalThreatFeed IPAMBlock IPAMConfig IPAMConfiguration \
     IPAMHandle IPPool IPReservation KubeControllersConfiguration LicenseKey LiveMigration \
     ManagedCluster Node PacketCapture PolicyRecommendationScope RemoteClusterConfiguration \
     SecurityEventWebhook UISettings UISettingsGroup";

/// The kinds of an API group that do not concern policy; `None` if no kind of the group is read.
pub(crate) fn ignored_kinds(group: &str) -> Option<Vec<&'static str>> {
    let entry = IGNORED_KINDS.iter().find(|(known, _)| *known == group);
    entry.map(|(_, kinds)| kinds.split_whitespace().collect())
}

/// The API groups in which some kind is read.
pub(crate) fn known_groups() -> impl Iterator<Item = &'static str> {
    IGNORED_KINDS.iter().map(|(group, _)| *group)
}
