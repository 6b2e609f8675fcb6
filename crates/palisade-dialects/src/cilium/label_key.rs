//! Label keys with a source: `k8s:app`, `reserved:host`, `cidr:10.0.0.0/8`.
//!
//! Promises: a key is parsed as Cilium does it: what stands before the first colon is the source, `$x` and
//! `reserved.x` are of the source `reserved`, and a key without a source is of the source `any`.
//!
//! Never: decides what a label means.

use crate::names;
use palisade_model::Str;

/// Where a label comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelSource {
    /// Whatever source; what is written without one.
    Any,
    /// Labels of pods, namespaces and service accounts.
    Kubernetes,
    /// What an address is: `host`, `world` and so on.
    Reserved,
    /// Networks that contain an address outside of the cluster.
    Cidr,
    /// Labels of the CiliumCIDRGroups that contain an address outside of the cluster.
    CidrGroup,
    /// Labels of nodes.
    Node,
    /// Names that were resolved.
    Fqdn,
    /// A source that nothing here has labels of.
    Other,
}

/// A key with its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourcedKey {
    /// The source.
    pub(super) source: LabelSource,
    /// The key, without the source.
    pub(super) name: Str,
}

/// The label with the name of a pod's namespace.
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// What stands before the labels of a pod's namespace.
const NAMESPACE_LABELS: &str = "io.cilium.k8s.namespace.labels.";
/// The label with the name of a pod's service account.
const SERVICE_ACCOUNT: &str = "io.cilium.k8s.policy.serviceaccount";
/// The label with the name of a pod's cluster.
const CLUSTER: &str = "io.cilium.k8s.policy.cluster";

/// What a label of the source `k8s` is of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodLabel {
    /// The name of its namespace.
    NamespaceName,
    /// A label of its namespace.
    NamespaceLabel(Str),
    /// The name of its service account.
    ServiceAccount,
    /// The name of its cluster, which is not known here.
    Cluster,
    /// One of its own labels.
    Own(Str),
}

impl SourcedKey {
    /// Parses a key as written.
    pub(super) fn parse(text: &str) -> Self {
        let key = |source, name: &str| SourcedKey {
            source,
            name: name.into(),
        };
        if let Some(name) = text.strip_prefix('$') {
            return key(LabelSource::Reserved, name);
        }
        let Some((source, name)) = text.split_once(':') else {
            return match text.strip_prefix("reserved.") {
                Some(name) => key(LabelSource::Reserved, name),
                None => key(LabelSource::Any, text),
            };
        };
        let source = match source {
            "" | "any" => LabelSource::Any,
            "k8s" => LabelSource::Kubernetes,
            "reserved" => LabelSource::Reserved,
            "cidr" => LabelSource::Cidr,
            "cidrgroup" => LabelSource::CidrGroup,
            "node" => LabelSource::Node,
            "fqdn" => LabelSource::Fqdn,
            _ => LabelSource::Other,
        };
        key(source, name)
    }

    /// Why the key is none; empty if it is one. Keys of networks and of names have a form of their own.
    pub(super) fn errors(&self) -> Vec<String> {
        match self.source {
            LabelSource::Cidr | LabelSource::Fqdn => Vec::new(),
            _ => names::label_key_errors(&self.name),
        }
    }

    /// The label with the name of a pod's namespace.
    pub(super) fn of_namespace_name() -> Self {
        SourcedKey {
            source: LabelSource::Kubernetes,
            name: NAMESPACE.into(),
        }
    }

    /// Whether it is of the source `reserved`.
    pub(super) fn is_reserved(&self) -> bool {
        self.source == LabelSource::Reserved
    }

    /// Whether it is the label of everything outside of the cluster.
    pub(super) fn is_world(&self) -> bool {
        self.is_reserved() && &*self.name == "world"
    }

    /// Whether nodes have labels of this source.
    pub(super) fn is_of_nodes(&self) -> bool {
        matches!(self.source, LabelSource::Any | LabelSource::Node)
    }

    /// Whether pods have labels of this source.
    fn is_of_pods(&self) -> bool {
        matches!(self.source, LabelSource::Any | LabelSource::Kubernetes)
    }

    /// What it is of a pod; `None` if pods have no label of this source.
    pub(super) fn pod_label(&self) -> Option<PodLabel> {
        if !self.is_of_pods() {
            return None;
        }
        if let Some(label) = self.name.strip_prefix(NAMESPACE_LABELS) {
            return Some(PodLabel::NamespaceLabel(label.into()));
        }
        Some(match &*self.name {
            NAMESPACE => PodLabel::NamespaceName,
            SERVICE_ACCOUNT => PodLabel::ServiceAccount,
            CLUSTER => PodLabel::Cluster,
            _ => PodLabel::Own(self.name.clone()),
        })
    }

    /// Whether it names the namespace of pods.
    pub(super) fn is_namespace_name(&self) -> bool {
        self.pod_label() == Some(PodLabel::NamespaceName)
    }

    /// Whether it is the name of the cluster of pods.
    pub(super) fn is_cluster_name(&self) -> bool {
        self.pod_label() == Some(PodLabel::Cluster)
    }

    /// Whether it is a label of the namespace of pods.
    pub(super) fn is_namespace_label(&self) -> bool {
        matches!(self.pod_label(), Some(PodLabel::NamespaceLabel(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_as_cilium_reads_them() {
        use LabelSource::{Any, Cidr, CidrGroup, Fqdn, Kubernetes, Node, Other, Reserved};
        for (text, source, name) in [
            ("app", Any, "app"),
            ("any:app", Any, "app"),
            (":app", Any, "app"),
            ("k8s:app", Kubernetes, "app"),
            ("k8s:a.io/b", Kubernetes, "a.io/b"),
            ("reserved:host", Reserved, "host"),
            ("reserved.host", Reserved, "host"),
            ("$host", Reserved, "host"),
            ("cidr:10.0.0.0/8", Cidr, "10.0.0.0/8"),
            ("cidr:fd00--0/8", Cidr, "fd00--0/8"),
            ("cidrgroup:team", CidrGroup, "team"),
            ("node:zone", Node, "zone"),
            ("fqdn:a.b", Fqdn, "a.b"),
            ("container:app", Other, "app"),
        ] {
            let key = SourcedKey::parse(text);
            assert_eq!((key.source, &*key.name), (source, name), "{text}");
        }
    }

    #[test]
    fn labels_of_pods_that_are_not_their_own() {
        let pod_label = |text: &str| SourcedKey::parse(text).pod_label();
        assert_eq!(
            pod_label("k8s:io.kubernetes.pod.namespace"),
            Some(PodLabel::NamespaceName)
        );
        assert_eq!(
            pod_label("io.kubernetes.pod.namespace"),
            Some(PodLabel::NamespaceName)
        );
        assert_eq!(
            pod_label("k8s:io.cilium.k8s.namespace.labels.team"),
            Some(PodLabel::NamespaceLabel("team".into()))
        );
        assert_eq!(
            pod_label("io.cilium.k8s.policy.serviceaccount"),
            Some(PodLabel::ServiceAccount)
        );
        assert_eq!(pod_label("k8s:app"), Some(PodLabel::Own("app".into())));
        assert_eq!(pod_label("reserved:host"), None);
    }
}
