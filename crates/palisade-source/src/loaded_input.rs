//! What a command gets from its files.

use palisade_effective::Diagnostic;
use palisade_model::{Endpoint, EndpointId, ObjectId, Protocol, State, Str};
use std::collections::BTreeMap;

/// An object and its manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedManifest {
    /// Its name, with the default namespace applied.
    pub id: ObjectId,
    /// The manifest, with all of its fields.
    pub manifest: serde_json::Value,
}

/// The content of a set of files and folders.
#[derive(Clone, Debug, Default)]
pub struct LoadedInput {
    /// The valid objects and the isolation policies of invalid ones.
    pub state: State,
    /// Every object with its manifest, in the order of reading; only if manifests were asked for.
    pub manifests: Vec<LoadedManifest>,
    /// The pods that are no endpoints: on the network of their node, or finished.
    pub unjudged_pods: Vec<UnjudgedPod>,
    /// The ports without a name that pods and workloads declare; only those that declare some.
    pub unnamed_ports: Vec<(EndpointId, Vec<(Protocol, u16)>)>,
    /// Errors and warnings by location, with counts of those not listed.
    pub diagnostics: Vec<Diagnostic>,
    /// The number of files read.
    pub files: usize,
    /// The number of valid objects.
    pub objects: usize,
    /// The number of objects of ignored kinds, by kind.
    pub ignored: BTreeMap<String, usize>,
}

/// A Pod of the input that no policy selects, and that is no peer of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnjudgedPod {
    /// Its namespace and name.
    pub id: EndpointId,
    /// The node that it names.
    pub node: Option<Str>,
    /// Whether it uses the network of its node; otherwise it has finished.
    pub host_network: bool,
}

impl UnjudgedPod {
    /// The Pod that an endpoint describes, if it is one.
    pub(crate) fn of(endpoint: &Endpoint) -> Option<Self> {
        let is_unjudged = endpoint.uses_host_network() || endpoint.is_completed();
        is_unjudged.then(|| UnjudgedPod {
            id: endpoint.id.clone(),
            node: endpoint.node.clone(),
            host_network: endpoint.uses_host_network(),
        })
    }
}

impl UnjudgedPod {
    /// The one of a name: `namespace/name`, or a name in the namespace `default`.
    pub fn find<'a>(pods: &'a [UnjudgedPod], name: &str) -> Option<&'a UnjudgedPod> {
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let is_it = |pod: &&UnjudgedPod| {
            pod.id.namespace.as_deref() == Some(namespace) && *pod.id.name == *name
        };
        pods.iter().find(is_it)
    }
}

impl std::fmt::Display for UnjudgedPod {
    /// What it is and what that means, with the next step.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let namespace = self.id.namespace.as_deref().unwrap_or_default();
        write!(f, "{namespace}/{} ", self.id.name)?;
        if !self.host_network {
            return write!(
                f,
                "has finished (Succeeded or Failed): it has no address any more, and no policy judges it"
            );
        }
        write!(
            f,
            "uses the network of its node: its packets are those of the node, and no policy selects it as a pod; \
             ask about "
        )?;
        match &self.node {
            Some(node) => write!(f, "host:{node}"),
            None => write!(f, "host:NODE, with the node that it runs on"),
        }
    }
}

impl LoadedInput {
    /// Whether there are errors (warnings do not count).
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.is_error())
    }
}
