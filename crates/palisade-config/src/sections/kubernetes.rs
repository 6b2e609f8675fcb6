//! The Kubernetes API server.

use crate::section::section;
use crate::value_parser::{boolean, kubernetes_api};
use crate::values::KubernetesApi;

section! {
    /// The Kubernetes API server.
    pub struct KubernetesConfig: "Kubernetes API server";

    /// Whether objects are read from a Kubernetes API server, and with which credentials: in-cluster (the service
    /// account of the agent's pod), or the path of a kubeconfig file, of which the current context is used.
    api: KubernetesApi = "kubernetes", kubernetes_api(), "off", "HOW", Restart, set_by_chart;

    /// Whether the agent writes to the API server: the state of this node, as the NodePolicyStatus of its name, at
    /// most every ten seconds, and every five minutes if only figures have changed; and, if it holds the lease
    /// palisade-policy-feedback, events on policies that are not accepted, and conditions of policies whose API
    /// has them.
    status_write: bool = "status-write", boolean(), "true", "true|false", Restart;
}
