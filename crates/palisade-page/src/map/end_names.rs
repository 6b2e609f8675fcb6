//! Which box of the map an end of a recorded flow belongs to.

use palisade_api::RecordedEnd;

/// A kind of box, with what tells two of them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BoxName {
    /// A controller in a namespace: namespace, kind, name.
    Controller(String, String, String),
    /// A workload without a controller: namespace, name.
    Workload(String, String),
    /// A node.
    Node(String),
    /// A domain name outside.
    Domain(String),
    /// All other addresses.
    Outside,
}

impl BoxName {
    /// The box of an end.
    pub(crate) fn of_end(end: &RecordedEnd) -> Self {
        let name = || end.name.clone().unwrap_or_default();
        match (&end.namespace, &end.controller, &end.node) {
            (Some(namespace), Some(controller), _) => BoxName::Controller(
                namespace.clone(),
                controller.kind.to_string(),
                controller.name.to_string(),
            ),
            (Some(namespace), None, _) => BoxName::Workload(namespace.clone(), name()),
            (None, _, Some(node)) => BoxName::Node(node.clone()),
            (None, _, None) => match end.names.first() {
                Some(name) => BoxName::Domain(name.clone()),
                None => BoxName::Outside,
            },
        }
    }

    /// Its id in the map.
    pub(crate) fn id(&self) -> String {
        match self {
            BoxName::Controller(namespace, kind, name) => {
                format!("controller/{namespace}/{kind}/{name}")
            }
            BoxName::Workload(namespace, name) => format!("workload/{namespace}/{name}"),
            BoxName::Node(name) => format!("node/{name}"),
            BoxName::Domain(name) => format!("name/{name}"),
            BoxName::Outside => "outside".to_owned(),
        }
    }
}

/// The id of the box of an end.
pub(crate) fn end_id(end: &RecordedEnd) -> String {
    BoxName::of_end(end).id()
}
