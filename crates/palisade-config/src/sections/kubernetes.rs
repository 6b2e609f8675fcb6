//! The Kubernetes API server.

use crate::section::section;
use crate::value_parser::{boolean, kubernetes_api};
use crate::values::KubernetesApi;

section! {
    /// The Kubernetes API server.
    pub struct KubernetesConfig: "Kubernetes API server";

    /// Whether objects are read from a Kubernetes API server, and as whom: in-cluster (the service account of the
    /// agent's pod), or the path of a kubeconfig.
    api: KubernetesApi = "kubernetes", kubernetes_api(), "off", "HOW", Restart, set_by_chart;

    /// Whether the agent writes to the API server: the NodePolicyStatus of this node, at most every ten seconds, and
    /// every five minutes if only figures have changed; and, with the lease palisade-policy-feedback, events and
    /// conditions of policies.
    status_write: bool = "status-write", boolean(), "true", "true|false", Restart;
}
