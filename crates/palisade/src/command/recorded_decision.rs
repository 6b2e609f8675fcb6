//! What decided at one end of recorded flows, as text.

use palisade_api::{ObjectRef, RecordedDecision};
use std::fmt::Write;

/// What decided at one end.
pub(super) fn decision_text(decision: &RecordedDecision) -> String {
    let mut out = match (&decision.rule, decision.policies.as_slice()) {
        (Some(rule), _) => {
            let line = rule.policy.line.iter().map(|line| format!(" ({line})"));
            let line: String = line.collect();
            let policy = rule.policy.without_line();
            format!("{policy} rule {}{line}", rule.index)
        }
        (None, []) => decision.reason.name().to_owned(),
        (None, policies) => {
            let names: Vec<String> = policies.iter().map(ObjectRef::to_string).collect();
            format!("{} of {}", decision.reason, names.join(", "))
        }
    };
    if let Some(audit) = decision.audit {
        let _ = write!(out, ", without audit {audit}");
    }
    out
}

/// Recorded flows of tests.
#[cfg(test)]
pub(super) mod samples {
    use palisade_api::{
        ControllerRef, FlowIcmp, FlowTraffic, MonitorRule, MonitorVerdict, ObjectRef, PacketReason,
        ProtocolName, RecordedDecision, RecordedEnd, RecordedFlow, RecordedFlowList, ServiceRef,
    };
    use palisade_model::Action;

    fn policy() -> ObjectRef {
        ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            line: Some("db.yaml:4".to_owned()),
        }
    }

    fn decision(rule: Option<MonitorRule>, policies: Vec<ObjectRef>) -> RecordedDecision {
        RecordedDecision {
            reason: match rule {
                Some(_) => PacketReason::Rule,
                None => PacketReason::DefaultDeny,
            },
            rule,
            policies,
            audit: None,
        }
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn workload(name: &str) -> RecordedEnd {
        RecordedEnd {
            namespace: text("shop"),
            controller: Some(ControllerRef {
                kind: "Deployment".into(),
                name: name.into(),
            }),
            labels: [("app".to_owned(), name.to_owned())].into(),
            ..RecordedEnd::default()
        }
    }

    fn allowed() -> RecordedFlow {
        let rule = MonitorRule {
            policy: policy(),
            index: 1,
            rule_name: None,
            action: Some(Action::Allow),
        };
        RecordedFlow {
            source: workload("web"),
            destination: RecordedEnd {
                service: Some(ServiceRef {
                    namespace: "shop".into(),
                    name: "db".into(),
                }),
                ..workload("db")
            },
            protocol: ProtocolName::Tcp,
            port: Some(5432),
            icmp: None,
            verdict: MonitorVerdict::Allowed,
            egress: None,
            ingress: Some(decision(Some(rule), Vec::new())),
            first: "2026-11-21T07:00:00Z".to_owned(),
            last: "2026-11-21T07:32:05Z".to_owned(),
            count: 7,
            traffic: Some(FlowTraffic {
                packets_sent: 10,
                bytes_sent: 1_000,
                packets_received: 8,
                bytes_received: 9_000,
            }),
        }
    }

    /// An allowed flow between workloads, a denied one from outside, a ping of others.
    pub(in crate::command) fn list() -> RecordedFlowList {
        let denied = RecordedFlow {
            source: RecordedEnd {
                address: text("192.0.2.7"),
                names: vec!["scanner.example".to_owned()],
                ..RecordedEnd::default()
            },
            destination: workload("db"),
            verdict: MonitorVerdict::Denied,
            ingress: Some(decision(None, vec![policy()])),
            last: "2026-11-21T07:31:00Z".to_owned(),
            count: 1,
            traffic: None,
            ..allowed()
        };
        let others = RecordedFlow {
            source: RecordedEnd::default(),
            destination: RecordedEnd {
                address: text("10.0.0.5"),
                node: text("node-2"),
                ..RecordedEnd::default()
            },
            protocol: ProtocolName::Icmp,
            port: None,
            icmp: Some(FlowIcmp { kind: 8, code: 0 }),
            ingress: None,
            last: "2026-11-21T07:30:00Z".to_owned(),
            count: 3,
            traffic: None,
            ..allowed()
        };
        RecordedFlowList {
            api_version: palisade_api::api_version(),
            node: "node-1".to_owned(),
            since: text("2026-11-20T00:00:00Z"),
            flows: vec![allowed(), denied, others],
            lost: 4,
            truncated: true,
        }
    }
}
