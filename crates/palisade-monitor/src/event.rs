//! Packet events: resolves addresses and rule numbers to names and source lines.
//!
//! The line is that of the rule's present definition; a deleted rule has none.

use super::attribution::{AuditAttribution, PacketAttribution};
use super::decision_cache::DecisionCache;
use super::end_cache::{AddressEnd, AddressWorkload, EndCache};
use super::known_addresses::KnownAddresses;
use palisade_api::{
    ControllerRef, HostStage, MonitorEndpoint, MonitorRule, MonitorVerdict, ObjectRef,
    OriginalDestination, PacketAudit, PacketEvent, PacketReason, ServiceRef,
};
use palisade_dataplane::PacketReport;
use palisade_enforcer::packet_reason::packet_reason;
use palisade_enforcer::policy_state::PolicyState;
use palisade_model::{
    Action, Direction, Endpoint, EndpointId, L4, Policy, PolicyId, Rule, RuleOrigin, Str,
};
use palisade_node::clock::rfc3339_micros;
use palisade_tables::{Packet, ReportReason, Verdict, VerdictCause};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The cause of a packet event, as reported.
pub(super) struct PacketCause {
    pub(crate) reason: PacketReason,
    pub(crate) rule: Option<MonitorRule>,
    pub(crate) policies: Vec<ObjectRef>,
}

/// What controls a pod, as users name it: of a ReplicaSet that a Deployment or Rollout has made, that one. The name of
/// such a ReplicaSet ends in the label of its pods. A node does not control its static pods.
fn controller(pod: &Endpoint) -> Option<Arc<ControllerRef>> {
    let owner = pod.metadata.owner.as_ref()?;
    let made_by = |label: &str| {
        let hash = pod.labels.get(label)?;
        owner.name.strip_suffix(&**hash)?.strip_suffix('-')
    };
    let maker = |kind: &str, name: &str| {
        Some(Arc::new(ControllerRef {
            kind: kind.into(),
            name: name.into(),
        }))
    };
    match &*owner.kind {
        "Node" => None,
        "ReplicaSet" => match (
            made_by("pod-template-hash"),
            made_by("rollouts-pod-template-hash"),
        ) {
            (Some(name), _) => maker("Deployment", name),
            (None, Some(name)) => maker("Rollout", name),
            (None, None) => maker("ReplicaSet", &owner.name),
        },
        kind => maker(kind, &owner.name),
    }
}

/// The names of a workload; `endpoint` is what is known of it, if it is not gone.
fn workload_names(id: &EndpointId, endpoint: Option<&Endpoint>) -> MonitorEndpoint {
    let labels = endpoint.map(|endpoint| endpoint.labels.clone());
    MonitorEndpoint {
        namespace: id.namespace.clone(),
        name: Some(id.name.clone()),
        controller: endpoint.and_then(controller),
        labels: Arc::new(labels.unwrap_or_default()),
        ..MonitorEndpoint::default()
    }
}

impl PacketCause {
    /// A cause that is no rule.
    pub(super) const fn without_rule(reason: PacketReason) -> Self {
        PacketCause {
            reason,
            rule: None,
            policies: Vec::new(),
        }
    }
}

/// What packets are judged by and named from.
pub(crate) struct PacketContext<'a> {
    pub(crate) state: &'a PolicyState,
    pub(crate) addresses: &'a KnownAddresses,
    /// The name of this host's node.
    pub(crate) own_node: &'a Str,
    /// The decisions that records of flows have in common.
    pub(super) decisions: &'a DecisionCache,
    /// What they have in common of their ends.
    pub(super) ends: &'a EndCache,
}

/// The direction of a packet, as it was judged, or as the reason has it.
fn packet_direction(
    judgement: Option<&PacketAttribution>,
    reason: ReportReason,
) -> Option<Direction> {
    match (judgement, reason) {
        (Some(judgement), _) => Some(judgement.direction),
        (None, ReportReason::Logged(direction) | ReportReason::Audited(direction)) => {
            Some(direction)
        }
        (None, ReportReason::Spoofed | ReportReason::UnknownInterface) => Some(Direction::Egress),
        (
            None,
            ReportReason::Denied
            | ReportReason::Rejected
            | ReportReason::Invalid
            | ReportReason::NoPoint,
        ) => None,
    }
}

/// Source and destination port.
type PortPair = (u16, u16);

/// Type and code.
type IcmpHeader = (u8, u8);

/// The ports of a packet, or its ICMP header.
fn ports_or_icmp(l4: L4) -> (Option<PortPair>, Option<IcmpHeader>) {
    match l4 {
        L4::Ports {
            source,
            destination,
        } => (Some((source, destination)), None),
        L4::Icmp { kind, code } => (None, Some((kind, code))),
        L4::None => (None, None),
    }
}

impl PacketContext<'_> {
    /// The event of a packet. `attribution`: the evaluation, its revision, and whether that revision is past.
    pub(super) fn packet_event(
        &self,
        report: &PacketReport,
        judged: &Packet,
        attribution: Option<(PacketAttribution, u64, bool)>,
        at: Duration,
    ) -> PacketEvent {
        let packet = &report.packet;
        let judgement = attribution.as_ref().map(|(judgement, ..)| judgement);
        let direction = packet_direction(judgement, report.reason);
        let host_stage = judgement.and_then(|judgement| judgement.host_stage);
        let is_host = host_stage.is_some();
        let interface = match (direction, is_host) {
            (Some(Direction::Egress), false) | (Some(Direction::Ingress), true) => {
                judged.input_interface.as_ref()
            }
            (Some(Direction::Ingress), false) | (Some(Direction::Egress), true) => {
                judged.output_interface.as_ref()
            }
            (None, _) => packet
                .input_interface
                .as_ref()
                .or(packet.output_interface.as_ref()),
        };
        let causes = judgement.map_or(&[][..], |judgement| &judgement.causes);
        let cause = self.packet_cause(report.reason, causes.last().map(|cause| &**cause));
        let logged = causes.iter().filter_map(|cause| {
            let rule = self.monitor_rule(cause)?;
            (rule.action == Some(Action::Log)).then_some(rule)
        });
        let (ports, icmp) = ports_or_icmp(packet.l4);
        PacketEvent {
            api_version: palisade_api::api_version(),
            time: rfc3339_micros(at),
            verdict: match report.reason {
                ReportReason::Logged(_) | ReportReason::Audited(_) => MonitorVerdict::Allowed,
                _ => MonitorVerdict::Denied,
            },
            rejected: report.reason == ReportReason::Rejected,
            audit: judgement
                .and_then(|judgement| judgement.audit.as_ref())
                .map(|audit| self.packet_audit(audit)),
            reason: cause.reason,
            direction,
            stage: host_stage.map(HostStage::from),
            endpoint: interface.and_then(|name| {
                if is_host {
                    return Some(format!("host:{}", self.own_node));
                }
                let id = self.state.workload_at(name)?;
                let namespace = id.namespace.as_deref().unwrap_or_default();
                Some(format!("{namespace}/{}", id.name))
            }),
            source: MonitorEndpoint {
                port: ports.map(|(port, _)| port),
                ..self.address_end(packet.source, at).names.clone()
            },
            destination: MonitorEndpoint {
                port: ports.map(|(_, port)| port),
                service: self.service(packet),
                ..self.address_end(packet.destination, at).names.clone()
            },
            original_destination: packet.pre_dnat.map(|sent| OriginalDestination {
                address: sent.destination,
                port: ports.map(|_| sent.port),
            }),
            protocol: packet.protocol.into(),
            icmp_type: icmp.map(|(kind, _)| kind),
            icmp_code: icmp.map(|(_, code)| code),
            reply: report.reply,
            rule: cause.rule,
            policies: cause.policies,
            logged: logged.collect(),
            length: report.length,
            interface: interface.map(|name| name.to_string()),
            revision: attribution.as_ref().map(|(_, revision, _)| *revision),
            stale: attribution.as_ref().is_some_and(|(.., past)| *past),
        }
    }

    /// What is known of an address at a time.
    pub(super) fn address_end(&self, address: IpAddr, at: Duration) -> Arc<AddressEnd> {
        if self.state.was_released(address) {
            return Arc::new(self.find_end(address, at));
        }
        let state = (self.state.engine.revision(), self.addresses.host_version());
        let find = || self.find_end(address, at);
        self.ends.end(state, address, find)
    }

    fn find_end(&self, address: IpAddr, at: Duration) -> AddressEnd {
        let is_of_host = self.addresses.is_of_host(address);
        let holder = self.state.address_holder(address, at);
        let endpoint = (holder.as_ref()).and_then(|id| self.state.engine.endpoint(id));
        let names = match &holder {
            Some(id) => workload_names(id, endpoint.as_ref()),
            None => self.outside_names(address, is_of_host),
        };
        AddressEnd {
            names: MonitorEndpoint {
                address: address.to_string().into(),
                ..names
            },
            is_of_host,
            workload: holder.map(|id| AddressWorkload {
                id,
                exists: endpoint.is_some(),
                interface: endpoint.and_then(|endpoint| endpoint.interface),
            }),
        }
    }

    /// The names of an address that no workload has.
    fn outside_names(&self, address: IpAddr, is_of_host: bool) -> MonitorEndpoint {
        let engine = &self.state.engine;
        let names = engine.domain_names_at(address).into_iter();
        MonitorEndpoint {
            node: if is_of_host {
                Some(self.own_node.clone())
            } else {
                engine.node_at(address)
            },
            names: names.take(MonitorEndpoint::MAX_NAMES).collect(),
            ..MonitorEndpoint::default()
        }
    }

    /// The Service that a packet was sent to.
    pub(super) fn service(&self, packet: &Packet) -> Option<Arc<ServiceRef>> {
        let sent_to = packet.pre_dnat.map(|sent| sent.destination);
        self.addresses
            .service(sent_to.unwrap_or(packet.destination))
    }

    /// What an event says of a packet with this reason and this cause of its verdict.
    pub(super) fn packet_cause(
        &self,
        why: ReportReason,
        cause: Option<&VerdictCause>,
    ) -> PacketCause {
        let without_rule = PacketCause::without_rule;
        match (why, cause) {
            (
                ReportReason::Denied
                | ReportReason::Rejected
                | ReportReason::Logged(_)
                | ReportReason::Audited(_),
                cause,
            ) => cause.map_or_else(|| without_rule(PacketReason::Unknown), |c| self.cause(c)),
            (other, _) => without_rule(packet_reason(other)),
        }
    }

    /// How an event names the cause of a verdict; in audit, that of the verdict that it would be otherwise.
    pub(super) fn cause(&self, cause: &VerdictCause) -> PacketCause {
        let without_rule = PacketCause::without_rule;
        match cause {
            VerdictCause::Rule { .. } => PacketCause {
                rule: self.monitor_rule(cause),
                ..without_rule(PacketReason::Rule)
            },
            VerdictCause::ProfileRule { .. } => PacketCause {
                rule: self.monitor_rule(cause),
                ..without_rule(PacketReason::Profile)
            },
            VerdictCause::TierDefault { policies, .. } => PacketCause {
                policies: policies.iter().map(|id| self.monitor_policy(id)).collect(),
                ..without_rule(PacketReason::DefaultDeny)
            },
            VerdictCause::MissingProfile { .. } | VerdictCause::NoProfileMatch { .. } => {
                without_rule(PacketReason::Profile)
            }
            VerdictCause::ForwardEnd { .. } => without_rule(PacketReason::ForwardEnd),
            VerdictCause::HairpinEnd { .. } => without_rule(PacketReason::HairpinEnd),
            VerdictCause::StageEnd { .. } => without_rule(PacketReason::StageEnd),
            VerdictCause::Encapsulated => without_rule(PacketReason::Encapsulated),
            VerdictCause::EndpointInAudit { .. } => without_rule(PacketReason::EndpointInAudit),
            VerdictCause::Audit { cause, .. } => self.cause(cause),
        }
    }

    /// The evaluation if nothing were in audit.
    pub(super) fn packet_audit(&self, audit: &AuditAttribution) -> PacketAudit {
        let unknown = PacketCause::without_rule(PacketReason::Unknown);
        let cause = audit
            .causes
            .last()
            .map_or(unknown, |cause| self.cause(cause));
        PacketAudit {
            verdict: match audit.verdict {
                Verdict::Allow | Verdict::Continue => MonitorVerdict::Allowed,
                Verdict::Deny => MonitorVerdict::Denied,
            },
            reason: cause.reason,
            rule: cause.rule,
            policies: cause.policies,
        }
    }

    fn monitor_policy(&self, id: &PolicyId) -> ObjectRef {
        let current = self.state.engine.policy(id);
        let line = current.as_ref().and_then(|policy| policy.line.as_ref());
        ObjectRef::new(&id.object, line)
    }

    /// The rule of a cause, with its present location.
    fn monitor_rule(&self, cause: &VerdictCause) -> Option<MonitorRule> {
        let of_policy;
        let mut in_force = None;
        let (policy, origin, rules): (_, &RuleOrigin, &[Rule]) = match cause {
            VerdictCause::Rule {
                policy,
                direction,
                origin,
            } => {
                of_policy = self.state.engine.policy(policy);
                in_force = of_policy.as_ref();
                let rules = in_force.and_then(|now: &Policy| now.rules(*direction));
                (
                    self.monitor_policy(policy),
                    origin,
                    rules.map_or(&[], |direction_rules| &direction_rules.rules),
                )
            }
            VerdictCause::ProfileRule {
                profile,
                direction,
                origin,
            } => {
                let policy = ObjectRef {
                    kind: "Profile".to_owned(),
                    namespace: None,
                    name: profile.to_string(),
                    line: None,
                };
                let now = self.state.engine.profile(profile);
                let rules = now.map(|now| match direction {
                    Direction::Ingress => now.ingress.as_slice(),
                    Direction::Egress => now.egress.as_slice(),
                });
                (policy, origin, rules.unwrap_or_default())
            }
            _ => return None,
        };
        let now = rules.iter().find(|rule| rule.origin.is_same_rule(origin));
        let line = now.and_then(|rule| match in_force {
            Some(policy) => policy.rule_source(&rule.origin),
            None => rule.origin.line.as_ref().map(ToString::to_string),
        });
        Some(MonitorRule {
            policy: ObjectRef { line, ..policy },
            index: now.map_or(origin.index, |rule| rule.origin.index),
            rule_name: origin.name.as_deref().map(str::to_owned),
            action: now.map(|rule| rule.action),
        })
    }
}
