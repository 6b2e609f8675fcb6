//! Which kinds are read, which are ignored, and which are typos.

use crate::common::{self, EntryStatus};
use palisade_dialects::is_unenforced_policy;

/// The outcome for an object: `read`, `ignored`, or the error.
fn outcome(version: &str, kind: &str) -> String {
    let spec = match kind {
        "NetworkPolicy" => "{}",
        "AdminNetworkPolicy" => "{\"priority\": 1, \"subject\": {\"namespaces\": {}}}",
        "ClusterNetworkPolicy" => {
            "{\"tier\": \"Admin\", \"priority\": 1, \"subject\": {\"namespaces\": {}}}"
        }
        "CronJob" => "{\"jobTemplate\": {\"spec\": {\"template\": {}}}}",
        _ => "{\"template\": {}}",
    };
    let text = format!(
        "{{\"apiVersion\": \"{version}\", \"kind\": \"{kind}\", \"metadata\": {{\"name\": \"a\"}}, \
         \"spec\": {spec}}}"
    );
    let lowering = common::lowering("f", &text);
    match (&*lowering.entries, &*lowering.errors) {
        ([], []) => "ignored".to_owned(),
        ([entry], []) if entry.status == EntryStatus::Accepted => "read".to_owned(),
        ([_], [error]) => format!("{}: {}", error.field, error.reason),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_slip_is_an_error_with_a_suggestion() {
    let policy = "networking.k8s.io/v1 NetworkPolicy";
    for (version, kind, field, meant) in [
        ("networking.k8s.io/v1", "Networkpolicy", "kind", policy),
        ("networking.k8s.io/v1", "networkPolicy", "kind", policy),
        ("networking.k8s.io/v1", "NETWORKPOLICY", "kind", policy),
        ("networking.k8s.io/v1", "NetworkPolicies", "kind", policy),
        ("networking.k8s.io/v1", "NetworkPolicys", "kind", policy),
        ("networking.k8s.io/v1", "NetworkPolcy", "kind", policy),
        ("networking.k8s.io/v1", "NetwrokPolicy", "kind", policy),
        ("networking.k8s.io/v1", "NetworkPolicy ", "kind", policy),
        ("networking.k8s.io/v1", " NetworkPolicy", "kind", policy),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy\u{a0}",
            "kind",
            policy,
        ),
        ("networking.k8s.io/v1", "Network Policy", "kind", policy),
        ("networking.k8s.io/v1", "network-policy", "kind", policy),
        ("networking.k8s.io/v1", "NetPolicy", "kind", ""),
        ("networking.k8s.io/v1", "Ingres", "kind", "Ingress"),
        ("networking.k8s.io/v1", "Pod", "apiVersion", "v1 Pod"),
        ("networking.k8s.io/v1beta1", "NetworkPolcy", "kind", policy),
        ("networking.k8s.io", "NetworkPolicy", "apiVersion", policy),
        ("networking.k8s.io ", "NetworkPolicy", "apiVersion", policy),
        (
            "networking.k8s.io /v1",
            "NetworkPolicy",
            "apiVersion",
            policy,
        ),
        (
            "Networking.k8s.io/v1",
            "NetworkPolicy",
            "apiVersion",
            policy,
        ),
        ("networking.k8.io/v1", "NetworkPolicy", "apiVersion", policy),
        ("networking.k8.io/v1", "Networkpolicy", "apiVersion", policy),
        ("networking/v1", "NetworkPolicy", "apiVersion", policy),
        ("v1", "NetworkPolicy", "apiVersion", policy),
        ("apps/v1", "NetworkPolicy", "apiVersion", policy),
        ("policy/v1", "NetworkPolicy", "apiVersion", policy),
        ("extensions/v1beta1", "NetworkPolcy", "apiVersion", policy),
        ("example.com/v1", "NetworkPolicy", "apiVersion", policy),
        ("example.com/v1", "NetworkPolicies", "apiVersion", policy),
        ("example.com/v1", "etworkPolicy", "apiVersion", policy),
        ("v1", "pod", "kind", "v1 Pod"),
        ("v1", "POD", "kind", "v1 Pod"),
        ("v1", "Pods", "kind", "v1 Pod"),
        ("v1", "Pod ", "kind", "v1 Pod"),
        ("v1", "Pood", "kind", "v1 Pod"),
        ("v1", "NameSpace", "kind", "v1 Namespace"),
        ("v1", "Services", "kind", "v1 Service"),
        ("v1", "Sevice", "kind", "v1 Service"),
        ("v1", "Serviceaccount", "kind", "v1 ServiceAccount"),
        ("v1", "Secrets", "kind", "Secret"),
        ("v1", "Lst", "kind", ""),
        ("v1", "Deployment", "apiVersion", "apps/v1 Deployment"),
        ("v1", "CronJob", "apiVersion", "batch/v1 CronJob"),
        ("app/v1", "Deployment", "apiVersion", "apps/v1 Deployment"),
        ("apps", "Deployment", "apiVersion", "apps/v1 Deployment"),
        ("apps/v1", "Deploment", "kind", "apps/v1 Deployment"),
        ("apps/v1", "Daemonset", "kind", "apps/v1 DaemonSet"),
        ("apps/v1", "StatefullSet", "kind", "apps/v1 StatefulSet"),
        ("batch/v1", "Cronjob", "kind", "batch/v1 CronJob"),
        (
            "apps.k8s.io/v1",
            "Deployment",
            "apiVersion",
            "apps/v1 Deployment",
        ),
        ("core/v1", "Pod", "apiVersion", "v1 Pod"),
        ("example.com/v1", "pod", "apiVersion", "v1 Pod"),
        ("example.com/v1", "Namespaces", "apiVersion", "v1 Namespace"),
        ("example.com/v1", "Serivce", "apiVersion", "v1 Service"),
        (
            "cilium.io/v2",
            "CiliumNetworkPolcy",
            "kind",
            "cilium.io/v2 CiliumNetworkPolicy",
        ),
        ("cilium.io/v2", "NetworkPolicy", "apiVersion", policy),
        (
            "cilium.com/v2",
            "CiliumNetworkPolicy",
            "apiVersion",
            "cilium.io/v2 CiliumNetworkPolicy",
        ),
        (
            "projectcalico.org/v3",
            "GlobalNetworkPolices",
            "kind",
            "projectcalico.org/v3 GlobalNetworkPolicy",
        ),
        (
            "policy.networking.k8s.io/v1alpha1",
            "AdminNetworkpolicy",
            "kind",
            "policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy",
        ),
        // The intended kind is unknown, but the object must not be ignored.
        ("networking.k8s.io/v1", "Firewall", "kind", ""),
        ("v1", "Widget", "kind", ""),
    ] {
        let outcome = outcome(version, kind);
        assert!(
            outcome.starts_with(&format!("{field}: ")),
            "{version} {kind:?}: {outcome}"
        );
        let hint = match meant {
            "" => "check apiVersion and kind".to_owned(),
            meant => format!("did you mean `{meant}`?"),
        };
        assert!(outcome.ends_with(&hint), "{version} {kind:?}: {outcome}");
    }
}

#[test]
fn another_version_is_an_error() {
    for (version, kind) in [
        ("v1 pod", "Pod"),
        ("v2", "Pod"),
        ("V1", "Pod"),
        ("v1 ", "Pod"),
        ("networking.k8s.io/", "NetworkPolicy"),
        ("networking.k8s.io/v1 ", "NetworkPolicy"),
        ("networking.k8s.io/v1/NetworkPolicy", "NetworkPolicy"),
        ("networking.k8s.io/v1beta1", "NetworkPolicy"),
        ("extensions/v1beta1", "NetworkPolicy"),
        ("extensions/v1beta1", "Deployment"),
        ("apps/v1beta2", "Deployment"),
        ("batch/v1beta1", "CronJob"),
        ("policy.networking.k8s.io/v1", "ClusterNetworkPolicy"),
        ("policy.networking.k8s.io/v1alpha1", "ClusterNetworkPolicy"),
        ("policy.networking.k8s.io/v1alpha2", "AdminNetworkPolicy"),
        (
            "policy.networking.k8s.io/v1alpha2",
            "BaselineAdminNetworkPolicy",
        ),
    ] {
        let outcome = outcome(version, kind);
        let start = format!("apiVersion: `{version}` is not a supported version: ");
        assert!(outcome.starts_with(&start), "{outcome}");
    }
}

#[test]
fn what_is_of_no_concern_stays_so() {
    for (version, kinds) in [
        (
            "v1",
            "ConfigMap Secret Event Endpoints PersistentVolume PersistentVolumeClaim LimitRange \
             ResourceQuota PodTemplate ComponentStatus Binding",
        ),
        (
            "networking.k8s.io/v1",
            "Ingress IngressClass IPAddress ServiceCIDR",
        ),
        (
            "networking.k8s.io/v1beta1",
            "Ingress IngressClass IPAddress ServiceCIDR",
        ),
        ("apps/v1", "ControllerRevision"),
        ("extensions/v1beta1", "Ingress PodSecurityPolicy"),
        ("events.k8s.io/v1", "Event"),
        ("policy/v1", "PodDisruptionBudget Eviction"),
        ("policy/v1beta1", "PodSecurityPolicy"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        (
            "rbac.authorization.k8s.io/v1",
            "Role ClusterRole RoleBinding ClusterRoleBinding",
        ),
        ("scheduling.k8s.io/v1", "PriorityClass PodGroup Workload"),
        (
            "storage.k8s.io/v1",
            "StorageClass CSIDriver CSINode VolumeAttachment",
        ),
        ("node.k8s.io/v1", "RuntimeClass"),
        (
            "certificates.k8s.io/v1beta1",
            "PodCertificateRequest CertificateSigningRequest",
        ),
        ("coordination.k8s.io/v1", "Lease LeaseCandidate"),
        (
            "resource.k8s.io/v1",
            "ResourceClaim ResourceSlice DeviceClass DeviceTaintRule",
        ),
        ("metrics.k8s.io/v1beta1", "PodMetrics NodeMetrics"),
        ("apiregistration.k8s.io/v1", "APIService"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        (
            "gateway.networking.k8s.io/v1",
            "Gateway HTTPRoute GRPCRoute GatewayClass ReferenceGrant",
        ),
        (
            "multicluster.x-k8s.io/v1alpha1",
            "ServiceImport ServiceExport",
        ),
        (
            "cluster.x-k8s.io/v1beta1",
            "Cluster Machine MachineDeployment MachineSet MachinePool",
        ),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        (
            "monitoring.coreos.com/v1",
            "PodMonitor ServiceMonitor Probe PrometheusRule Prometheus",
        ),
        (
            "chaos-mesh.org/v1alpha1",
            "PodChaos NetworkChaos Schedule Workflow",
        ),
        (
            "serving.knative.dev/v1",
            "Service Route Revision Configuration",
        ),
        (
            "security.istio.io/v1",
            "AuthorizationPolicy PeerAuthentication RequestAuthentication",
        ),
        (
            "networking.istio.io/v1",
            "VirtualService ServiceEntry DestinationRule Gateway Sidecar",
        ),
        ("kyverno.io/v1", "ClusterPolicy Policy"),
        (
            "argoproj.io/v1alpha1",
            "Application AppProject Workflow CronWorkflow",
        ),
        ("batch.volcano.sh/v1alpha1", "Job"),
        ("scheduling.volcano.sh/v1beta1", "PodGroup Queue"),
        ("apps.kruise.io/v1beta1", "SidecarSet ImagePullJob"),
        ("route.openshift.io/v1", "Route"),
        ("project.openshift.io/v1", "Project"),
        ("management.cattle.io/v3", "Node NodePool Cluster"),
        ("longhorn.io/v1beta2", "Node Volume Engine Replica"),
        ("kubevirt.io/v1", "VirtualMachine VirtualMachineInstance"),
        ("kubeflow.org/v1", "Profile TFJob PyTorchJob MPIJob"),
        ("ray.io/v1", "RayJob RayService RayCluster"),
        ("spark.apache.org/v1", "SparkApplication"),
        ("ceph.rook.io/v1", "CephCluster CephBlockPool"),
        ("karpenter.sh/v1", "NodePool NodeClaim"),
        ("servicebus.azure.com/v1api20211101", "Namespace"),
        ("cert-manager.io/v1", "Certificate Issuer ClusterIssuer"),
        ("external-secrets.io/v1", "SecretStore ExternalSecret"),
        (
            "operators.coreos.com/v1alpha1",
            "Subscription ClusterServiceVersion InstallPlan",
        ),
        ("operator.tigera.io/v1", "Installation APIServer"),
        (
            "network.openshift.io/v1",
            "EgressNetworkPolicy NetNamespace HostSubnet",
        ),
        (
            "k8s.cni.cncf.io/v1beta1",
            "MultiNetworkPolicy NetworkAttachmentDefinition",
        ),
        (
            "cilium.io/v2",
            "CiliumEndpoint CiliumIdentity CiliumNode CiliumBGPPeerConfig",
        ),
        (
            "projectcalico.org/v3",
            "IPPool BGPPeer FelixConfiguration Node BGPFilter",
        ),
        (
            "crd.projectcalico.org/v1",
            "IPAMBlock BlockAffinity ClusterInformation IPAMHandle",
        ),
        (
            "example.com/v1",
            "Pod Node Job Widget NetworkPolicyStatus ServicePolicy Device Workspace PodSet Mode",
        ),
    ] {
        for kind in kinds.split_whitespace() {
            assert_eq!(outcome(version, kind), "ignored", "{version} {kind}");
        }
    }
    for (version, kinds) in [
        (
            "v1",
            "Pod Namespace Node Service ServiceAccount ReplicationController",
        ),
        ("apps/v1", "Deployment StatefulSet DaemonSet ReplicaSet"),
        ("batch/v1", "Job CronJob"),
        ("networking.k8s.io/v1", "NetworkPolicy"),
        ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"),
        ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"),
    ] {
        for kind in kinds.split_whitespace() {
            assert_eq!(outcome(version, kind), "read", "{version} {kind}");
        }
    }
}

#[test]
fn a_mistyped_policy_is_an_invalid_version_of_the_policy() {
    let text = "apiVersion: networking.k8s.io/v1\nkind: Networkpolicy\nmetadata: {name: a}\n\
                spec: {podSelector: {matchLabels: {app: web}}}\n";
    let lowering = common::lowering("f", text);
    let [entry] = &*lowering.entries else {
        panic!("{lowering:?}");
    };
    assert_eq!(entry.id.to_string(), "NetworkPolicy default/a");
    assert_eq!(entry.id.kind.group(), "networking.k8s.io");
    // Never valid: its pods are isolated.
    let isolation = entry
        .isolation
        .first()
        .map(|policy| policy.id.object.clone());
    assert_eq!(isolation.as_ref(), Some(&entry.id));
    let error = common::problem(&lowering.errors[0]);
    assert_eq!(
        error,
        "Networkpolicy a: f:2:7: kind: unknown kind \"Networkpolicy\" in the API group \
         \"networking.k8s.io\"; did you mean `networking.k8s.io/v1 NetworkPolicy`?"
    );
    let long = "N".repeat(100_000);
    let reason = outcome("networking.k8s.io/v1", &long);
    assert!(reason.len() < 300, "{}", reason.len());
}

/// Policies of other software are ignored with a warning, counted as policies, and nothing of another vendor is
/// suggested.
#[test]
fn a_policy_of_other_software_is_named_as_one() {
    for (version, kind) in [
        ("k8s.ovn.org/v1", "EgressFirewall"),
        ("network.openshift.io/v1", "EgressNetworkPolicy"),
        ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy"),
        ("crd.antrea.io/v1beta1", "NetworkPolicy"),
        ("crd.antrea.io/v1alpha1", "ClusterNetworkPolicy"),
        ("crd.antrea.io/v1beta1", "Tier"),
        ("crd.antrea.io/v1beta1", "ClusterGroup"),
        ("crd.antrea.io/v1beta1", "Group"),
        ("k8s.cni.cncf.io/v1beta1", "MultiNetworkPolicy"),
        ("networking.k8s.aws/v1alpha1", "ClusterNetworkPolicy"),
        ("networking.gke.io/v1alpha1", "FQDNNetworkPolicy"),
        ("security.istio.io/v1", "AuthorizationPolicy"),
        ("policy.linkerd.io/v1beta3", "Server"),
        ("isovalent.com/v1", "IsovalentNetworkPolicy"),
        ("cilium.io/v2", "CiliumEgressGatewayPolicy"),
        ("cilium.io/v2", "CiliumLocalRedirectPolicy"),
        ("projectcalico.org/v3", "EgressGatewayPolicy"),
        ("example.com/v1", "AcmeNetworkPolicy"),
    ] {
        let text = format!(
            "{{\"apiVersion\": \"{version}\", \"kind\": \"{kind}\", \"metadata\": {{\"name\": \"a\"}}}}"
        );
        let lowering = common::lowering("f", &text);
        let counted = format!("{version} {kind}");
        assert_eq!(lowering.ignored.keys().collect::<Vec<_>>(), [&counted]);
        assert!(is_unenforced_policy(&counted), "{counted}");
        let warnings = format!("{:?}", lowering.warnings);
        assert!(
            warnings.contains("Palisade does not enforce it"),
            "{counted}: {warnings}"
        );
        assert!(!warnings.contains("did you mean"), "{counted}: {warnings}");
        assert!(lowering.errors.is_empty(), "{counted}");
    }
    for counted in [
        "v1 ConfigMap",
        "crd.antrea.io/v1beta1 AntreaAgentInfo",
        "cilium.io/v2 CiliumEndpoint",
        "cilium.io/v2alpha1 CiliumBGPPeeringPolicy",
        "policy/v1beta1 PodSecurityPolicy",
        "sriovnetwork.openshift.io/v1 SriovNetworkNodePolicy",
    ] {
        assert!(!is_unenforced_policy(counted), "{counted}");
    }
    // A kind of one vendor is not suggested for an object of another.
    for (version, kind) in [
        ("cilium.io/v2", "GlobalNetworkPolicy"),
        ("projectcalico.org/v3", "CiliumNetworkPolicy"),
        ("acme.example.com/v1", "ClusterNetworkPolicy"),
    ] {
        let outcome = outcome(version, kind);
        assert!(
            outcome.ends_with("check apiVersion and kind"),
            "{version} {kind}: {outcome}"
        );
    }
}

/// Workloads of other software whose pod template is where that of a Deployment is.
#[test]
fn other_owners_of_pods_are_workloads() {
    for (version, kind) in [
        ("argoproj.io/v1alpha1", "Rollout"),
        ("apps.openshift.io/v1", "DeploymentConfig"),
        ("apps.kruise.io/v1alpha1", "CloneSet"),
        ("apps.kruise.io/v1beta1", "StatefulSet"),
        ("apps.kruise.io/v1alpha1", "DaemonSet"),
    ] {
        assert_eq!(outcome(version, kind), "read", "{version} {kind}");
    }
    // A Rollout may refer to a Deployment instead, and has no pods of its own then.
    let text = "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: a}, \
                spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}";
    let lowering = common::lowering("f", text);
    assert_eq!((lowering.errors.len(), lowering.warnings.len()), (0, 0));
    for (version, kind) in [
        ("argoproj.io/v1alpha1", "Application"),
        ("argoproj.io/v1alpha1", "Workflow"),
    ] {
        assert_eq!(outcome(version, kind), "ignored", "{version} {kind}");
    }
}
