//! The resources that are watched: the agent needs the rights to list and watch them, and no others.

/// A resource of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceType {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version of the group.
    pub version: &'static str,
    /// The name of the resource: the plural of the kind, in lower case.
    pub plural: &'static str,
    /// The kind of its objects.
    pub kind: &'static str,
    /// Whether a server may not have it: a policy API that has to be installed. It may come and go while the
    /// server is followed.
    pub is_optional: bool,
}

/// Every resource that is watched.
pub const RESOURCES: [ResourceType; 31] = [
    core("namespaces", "Namespace"),
    core("nodes", "Node"),
    core("pods", "Pod"),
    core("serviceaccounts", "ServiceAccount"),
    core("services", "Service"),
    ResourceType {
        group: "discovery.k8s.io",
        version: "v1",
        plural: "endpointslices",
        kind: "EndpointSlice",
        is_optional: false,
    },
    NETWORK_POLICY,
    CLUSTER_NETWORK_POLICY,
    ADMIN_NETWORK_POLICY,
    BASELINE_ADMIN_NETWORK_POLICY,
    CILIUM_NETWORK_POLICY,
    CILIUM_CLUSTERWIDE_NETWORK_POLICY,
    cilium("ciliumcidrgroups", "CiliumCIDRGroup"),
    calico_crd("networkpolicies", "NetworkPolicy"),
    calico_crd("globalnetworkpolicies", "GlobalNetworkPolicy"),
    calico_crd("stagednetworkpolicies", "StagedNetworkPolicy"),
    calico_crd("stagedglobalnetworkpolicies", "StagedGlobalNetworkPolicy"),
    calico_crd(
        "stagedkubernetesnetworkpolicies",
        "StagedKubernetesNetworkPolicy",
    ),
    calico_crd("tiers", "Tier"),
    calico_crd("networksets", "NetworkSet"),
    calico_crd("globalnetworksets", "GlobalNetworkSet"),
    calico_crd("hostendpoints", "HostEndpoint"),
    calico("networkpolicies", "NetworkPolicy"),
    calico("globalnetworkpolicies", "GlobalNetworkPolicy"),
    calico("stagednetworkpolicies", "StagedNetworkPolicy"),
    calico("stagedglobalnetworkpolicies", "StagedGlobalNetworkPolicy"),
    calico(
        "stagedkubernetesnetworkpolicies",
        "StagedKubernetesNetworkPolicy",
    ),
    calico("tiers", "Tier"),
    calico("networksets", "NetworkSet"),
    calico("globalnetworksets", "GlobalNetworkSet"),
    calico("hostendpoints", "HostEndpoint"),
];

pub(crate) const NETWORK_POLICY: ResourceType = ResourceType {
    group: "networking.k8s.io",
    version: "v1",
    plural: "networkpolicies",
    kind: "NetworkPolicy",
    is_optional: false,
};
pub(crate) const CLUSTER_NETWORK_POLICY: ResourceType =
    network_policy_api("v1alpha2", "clusternetworkpolicies", "ClusterNetworkPolicy");
pub(crate) const ADMIN_NETWORK_POLICY: ResourceType =
    network_policy_api("v1alpha1", "adminnetworkpolicies", "AdminNetworkPolicy");
pub(crate) const BASELINE_ADMIN_NETWORK_POLICY: ResourceType = network_policy_api(
    "v1alpha1",
    "baselineadminnetworkpolicies",
    "BaselineAdminNetworkPolicy",
);

pub(crate) const CILIUM_NETWORK_POLICY: ResourceType =
    cilium("ciliumnetworkpolicies", "CiliumNetworkPolicy");
pub(crate) const CILIUM_CLUSTERWIDE_NETWORK_POLICY: ResourceType = cilium(
    "ciliumclusterwidenetworkpolicies",
    "CiliumClusterwideNetworkPolicy",
);

const fn core(plural: &'static str, kind: &'static str) -> ResourceType {
    ResourceType {
        group: "",
        version: "v1",
        plural,
        kind,
        is_optional: false,
    }
}

/// A resource of the Network Policy API, which is installed by its own manifests.
const fn network_policy_api(
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
) -> ResourceType {
    ResourceType {
        group: "policy.networking.k8s.io",
        version,
        plural,
        kind,
        is_optional: true,
    }
}

/// A resource of Cilium, which is installed with it or by its own manifests.
const fn cilium(plural: &'static str, kind: &'static str) -> ResourceType {
    ResourceType {
        group: "cilium.io",
        version: "v2",
        plural,
        kind,
        is_optional: true,
    }
}

/// A resource in which Calico stores its objects. Its API serves the same objects ([`calico`]), and may be there or
/// not; an object of both has one name.
pub(crate) const fn calico_crd(plural: &'static str, kind: &'static str) -> ResourceType {
    ResourceType {
        group: "crd.projectcalico.org",
        version: "v1",
        plural,
        kind,
        is_optional: true,
    }
}

/// A resource of Calico's API.
pub(crate) const fn calico(plural: &'static str, kind: &'static str) -> ResourceType {
    ResourceType {
        group: "projectcalico.org",
        version: "v3",
        plural,
        kind,
        is_optional: true,
    }
}

impl ResourceType {
    /// `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Its name for messages: `pods`, `networkpolicies.networking.k8s.io`.
    #[must_use]
    pub fn name(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// Whether this is its name for messages. It is asked for every policy, so nothing is allocated.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(self.plural) else {
            return false;
        };
        match self.group {
            "" => rest.is_empty(),
            group => rest.strip_prefix('.') == Some(group),
        }
    }

    /// The path of all its objects, in every namespace.
    #[must_use]
    pub fn path(&self) -> String {
        self.path_in(None)
    }

    /// The path of its objects in a namespace; of all without one.
    pub(crate) fn path_in(&self, namespace: Option<&str>) -> String {
        let Self {
            group,
            version,
            plural,
            ..
        } = self;
        let api = match *group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match namespace {
            Some(namespace) => format!("{api}/namespaces/{namespace}/{plural}"),
            None => format!("{api}/{plural}"),
        }
    }

    /// The path of all its objects with parameters.
    pub(crate) fn path_with<'p>(
        &self,
        parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> String {
        let path = format!("{}?", self.path());
        let start = path.len();
        let mut query = form_urlencoded::Serializer::for_suffix(path, start);
        query.extend_pairs(parameters).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_known_by_its_name_alone() {
        let names = RESOURCES.map(|resource| resource.name());
        let others = [
            "podsx",
            "networkpolicies",
            "networkpoliciescrd.projectcalico.org",
        ];
        for resource in RESOURCES {
            for name in names.iter().map(String::as_str).chain(others) {
                assert_eq!(resource.is_named(name), resource.name() == name, "{name}");
            }
        }
    }
}
