//! The kinds of policies that a cluster is told about, and in which form.

/// A kind of policy. Every refused object of it gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackKind {
    /// Its kind.
    pub kind: &'static str,
    /// The API group of its objects.
    pub group: &'static str,
    /// The version of the group.
    pub version: &'static str,
    /// The name of the resource.
    pub plural: &'static str,
    /// Whether its objects have a namespace.
    pub is_namespaced: bool,
    /// The subresource of its objects' status, if that has conditions: then each gets the condition `Accepted`.
    pub status: Option<&'static str>,
}

/// Every kind that is written back.
pub const FEEDBACK: [FeedbackKind; 4] = [
    FeedbackKind {
        kind: "NetworkPolicy",
        group: "networking.k8s.io",
        version: "v1",
        plural: "networkpolicies",
        is_namespaced: true,
        status: None,
    },
    cluster_wide(
        ("ClusterNetworkPolicy", "v1alpha2"),
        "clusternetworkpolicies",
        "clusternetworkpolicies/status",
    ),
    cluster_wide(
        ("AdminNetworkPolicy", "v1alpha1"),
        "adminnetworkpolicies",
        "adminnetworkpolicies/status",
    ),
    cluster_wide(
        ("BaselineAdminNetworkPolicy", "v1alpha1"),
        "baselineadminnetworkpolicies",
        "baselineadminnetworkpolicies/status",
    ),
];

/// A kind of the Network Policy API.
const fn cluster_wide(
    (kind, version): (&'static str, &'static str),
    plural: &'static str,
    status: &'static str,
) -> FeedbackKind {
    FeedbackKind {
        kind,
        group: "policy.networking.k8s.io",
        version,
        plural,
        is_namespaced: false,
        status: Some(status),
    }
}

impl FeedbackKind {
    /// The kind of this name; `None` if it is not written back.
    #[must_use]
    pub fn of(kind: &str) -> Option<&'static FeedbackKind> {
        FEEDBACK.iter().find(|known| known.kind == kind)
    }

    /// The name of the resource, as messages have it.
    #[must_use]
    pub fn resource(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// The path of its objects: of a namespace, or all.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let api = format!("/apis/{}/{}", self.group, self.version);
        match namespace {
            Some(namespace) => format!("{api}/namespaces/{namespace}/{}", self.plural),
            None => format!("{api}/{}", self.plural),
        }
    }
}
