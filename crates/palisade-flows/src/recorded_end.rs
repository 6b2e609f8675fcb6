//! The ends of flows and what decided, as they are recorded: without what differs between two flows of the same kind.
//!
//! Promises: the JSON of a view is that of [`palisade_api::RecordedEnd`] or [`palisade_api::RecordedDecision`] with the
//! same content.
//!
//! Never: copies a text.

use palisade_api::{
    ControllerRef, MonitorEndpoint, MonitorRule, MonitorVerdict, ObjectRef, PacketReason,
    ServiceRef,
};
use palisade_model::{Labels, Str};
use serde::{Serialize, Serializer};

/// Labels that differ between the pods of a workload, or between its revisions and runs.
const PASSING_LABELS: &[&str] = &[
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-name",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "pod-template-generation",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// An end of a flow.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EndView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<&'a ControllerRef>,
    #[serde(skip_serializing_if = "LastingLabels::is_empty")]
    labels: LastingLabels<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a ServiceRef>,
}

impl<'a> EndView<'a> {
    /// The end of a flow.
    pub(crate) fn of(end: &'a MonitorEndpoint) -> Self {
        let service = end.service.as_deref();
        if end.name.is_some() {
            return EndView {
                namespace: end.namespace.as_deref(),
                name: match end.controller {
                    Some(_) => None,
                    None => end.name.as_deref(),
                },
                controller: end.controller.as_deref(),
                labels: LastingLabels(Some(&end.labels)),
                service,
                ..EndView::default()
            };
        }
        let mut names: Vec<&str> = end.names.iter().map(|name| &**name).collect();
        names.sort_unstable();
        EndView {
            address: Some(&end.address),
            node: end.node.as_deref(),
            names,
            service,
            ..EndView::default()
        }
    }

    /// The same without its address.
    pub(crate) fn without_address(self) -> Self {
        EndView {
            address: None,
            ..self
        }
    }
}

/// The labels of a workload that all its pods have.
#[derive(Clone, Debug, Default)]
struct LastingLabels<'a>(Option<&'a Labels>);

impl LastingLabels<'_> {
    fn iter(&self) -> impl Iterator<Item = (&Str, &Str)> {
        let labels = self.0.iter().flat_map(|labels| labels.iter());
        labels.filter(|(name, _)| !PASSING_LABELS.contains(&name.as_str()))
    }

    fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl Serialize for LastingLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// What decided at one end of a flow.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DecisionView<'a> {
    /// What decided.
    pub(crate) reason: PacketReason,
    /// The rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<&'a MonitorRule>,
    /// The policies that apply, if no rule decided.
    #[serde(skip_serializing_if = "is_empty")]
    pub(crate) policies: &'a [ObjectRef],
    /// The verdict if nothing were in audit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audit: Option<MonitorVerdict>,
}

fn is_empty(policies: &&[ObjectRef]) -> bool {
    policies.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{RecordedDecision, RecordedEnd};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn a_workload_is_its_controller_without_what_differs_between_its_pods() {
        let text = |text: &str| Some(text.to_owned());
        let lasting = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let passing = PASSING_LABELS.iter().map(|name| (*name, ""));
        let labels = passing.chain([("app", "web")]);
        let labels = labels.map(|(name, value)| (name.into(), value.into()));
        let controller = ControllerRef {
            kind: "Deployment".into(),
            name: "web".into(),
        };
        let service = ServiceRef {
            namespace: "shop".into(),
            name: "web".into(),
        };
        let mut end = MonitorEndpoint {
            address: "10.0.0.1".into(),
            port: Some(40_000),
            namespace: Some("shop".into()),
            name: Some("web-1".into()),
            controller: Some(Arc::new(controller.clone())),
            labels: Arc::new(labels.collect()),
            service: Some(Arc::new(service.clone())),
            ..MonitorEndpoint::default()
        };
        let mut expected = RecordedEnd {
            namespace: text("shop"),
            controller: Some(controller),
            labels: lasting,
            service: Some(service),
            ..RecordedEnd::default()
        };
        assert_same(&end, &expected);
        end.controller = None;
        expected.controller = None;
        expected.name = text("web-1");
        assert_same(&end, &expected);
    }

    fn assert_same(end: &MonitorEndpoint, expected: &RecordedEnd) {
        let [view, expected] = [
            serde_json::to_string(&EndView::of(end)).unwrap(),
            serde_json::to_string(expected).unwrap(),
        ];
        assert_eq!(view, expected);
    }

    #[test]
    fn an_address_has_its_node_and_its_names_in_order() {
        let end = MonitorEndpoint {
            address: "192.0.2.1".into(),
            port: Some(443),
            node: Some("node-2".into()),
            names: vec!["b.example".into(), "a.example".into()],
            ..MonitorEndpoint::default()
        };
        let mut expected = RecordedEnd {
            address: Some("192.0.2.1".to_owned()),
            node: Some("node-2".to_owned()),
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
            ..RecordedEnd::default()
        };
        assert_same(&end, &expected);
        let text = serde_json::to_string(&EndView::of(&end).without_address()).unwrap();
        expected.address = None;
        assert_eq!(text, serde_json::to_string(&expected).unwrap());
    }

    #[test]
    fn a_decision_is_written_as_it_is_read() {
        let policy = ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            line: Some("db.yaml:4".to_owned()),
        };
        let rule = MonitorRule {
            policy: policy.clone(),
            index: 1,
            rule_name: None,
            action: Some(palisade_model::Action::Allow),
        };
        for (rule, policies, audit) in [
            (Some(rule), Vec::new(), None),
            (None, vec![policy], Some(MonitorVerdict::Denied)),
            (None, Vec::new(), None),
        ] {
            let view = DecisionView {
                reason: PacketReason::DefaultDeny,
                rule: rule.as_ref(),
                policies: &policies,
                audit,
            };
            let text = serde_json::to_string(&view).unwrap();
            let decision = RecordedDecision {
                reason: PacketReason::DefaultDeny,
                rule,
                policies,
                audit,
            };
            assert_eq!(text, serde_json::to_string(&decision).unwrap());
        }
    }
}
