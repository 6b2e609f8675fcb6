//! Lines of the monitor as Hubble's flows: pure functions.
//!
//! A denied packet is a drop. A flow that began is a policy verdict at each end that is judged here, so that one between
//! two workloads of this host is two flows, as Cilium has it; a flow that ended is one trace. A packet that a Log rule
//! matched is a policy verdict.
//!
//! Promises: a line always becomes the same flows, with the same identifiers; what is not known stays unset.
//!
//! Never: invents flags, ports or names.

use crate::config::HubbleConfig;
use crate::detail;
use crate::identity::{self, stable_hash};
use crate::lost::loss_source;
use crate::policy::{MATCH_L3_L4, MATCH_NONE, deciders, drop_reason, places};
use crate::proto::flow::layer4::Protocol;
use crate::proto::flow::{
    CiliumEventType, Flow, FlowType, IcmPv4, IcmPv6, Ip, IpVersion, Layer4, LostEventSource,
    NetworkInterface, Sctp, Service, Tcp, TcpFlags, TraceObservationPoint, TraceReason,
    TrafficDirection, Udp, Verdict,
};
use palisade_api::{
    FlowDecision, FlowIcmp, FlowRecord, FlowState, MonitorEndpoint, MonitorLine, MonitorRule,
    MonitorVerdict, PacketAudit, PacketEvent, ProtocolName,
};
use palisade_flows::recent::RecentLine;
use palisade_model::{Direction, Str};
use std::net::IpAddr;
use std::time::Duration;

/// Types of Cilium's events.
pub(crate) const EVENT_DROP: i32 = 1;
pub(crate) const EVENT_TRACE: i32 = 4;
pub(crate) const EVENT_POLICY_VERDICT: i32 = 5;

/// Makes flows.
#[derive(Clone, Debug)]
pub(crate) struct FlowMaker {
    /// The name of this node, without and with the cluster.
    node: String,
    absolute_node: String,
    node_labels: Vec<String>,
    cluster: String,
    /// What tells the identifiers of this process from those of others.
    salt: u64,
}

/// What a line becomes.
#[derive(Debug, PartialEq)]
pub(crate) enum LineEvents {
    /// One or two flows.
    Flows(Vec<Flow>),
    /// Events that are not shown.
    Lost(LostEventSource, u64),
}

/// A time as messages have it.
pub(crate) fn timestamp(time: Duration) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or_default(),
    }
}

impl FlowMaker {
    /// The maker of a node: all of one process make the same identifiers.
    pub(crate) fn of_node(config: &HubbleConfig) -> Self {
        FlowMaker::new(
            &config.node,
            &config.node_labels,
            &config.cluster,
            config.started,
        )
    }

    /// A maker for a node of a cluster; `started` is when this process did.
    pub(crate) fn new(
        node: &str,
        node_labels: &[String],
        cluster: &str,
        started: Duration,
    ) -> Self {
        let absolute_node = format!("{cluster}/{node}");
        let started = started.as_nanos().to_string();
        FlowMaker {
            node: node.to_owned(),
            salt: stable_hash([absolute_node.as_str(), started.as_str()]),
            absolute_node,
            node_labels: node_labels.to_vec(),
            cluster: cluster.to_owned(),
        }
    }

    /// The flows of a line, without their extensions.
    pub(crate) fn events(&self, line: &RecentLine) -> LineEvents {
        let mut flows = match &line.line {
            MonitorLine::Packet(packet) => vec![self.packet(packet)],
            MonitorLine::Flow(record) => self.record(record),
            MonitorLine::Lost(lost) => {
                return LineEvents::Lost(loss_source(lost.cause), lost.count);
            }
        };
        for (index, flow) in flows.iter_mut().enumerate() {
            flow.time = Some(timestamp(line.time));
            flow.uuid = self.uuid(line.number, index as u64);
        }
        LineEvents::Flows(flows)
    }

    /// Adds to a flow what Hubble has no field for.
    pub(crate) fn extend(line: &RecentLine, flow: &mut Flow) {
        flow.extensions = detail::extension(&line.line);
    }

    /// An identifier in the form of a random one: that of this process, and the number of the flow.
    fn uuid(&self, line: u64, index: u64) -> String {
        let (high, low) = (self.salt, (line << 1 | index & 1) & 0x3fff_ffff_ffff_ffff);
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            0x8000 | low >> 48,
            low & 0xffff_ffff_ffff,
        )
    }

    /// What every flow between two ends has.
    fn between(&self, source: &MonitorEndpoint, destination: &MonitorEndpoint) -> Flow {
        let version = match destination.address.parse() {
            Ok(IpAddr::V4(_)) => IpVersion::IPv4,
            Ok(IpAddr::V6(_)) => IpVersion::IPv6,
            Err(_) => IpVersion::IpNotUsed,
        };
        let service = |end: &MonitorEndpoint| {
            end.service.as_ref().map(|service| Service {
                name: service.name.to_string(),
                namespace: service.namespace.to_string(),
            })
        };
        Flow {
            ip: Some(Ip {
                source: source.address.to_string(),
                destination: destination.address.to_string(),
                ip_version: version as i32,
                ..Ip::default()
            }),
            source: Some(identity::endpoint(source, &self.node, &self.cluster)),
            destination: Some(identity::endpoint(destination, &self.node, &self.cluster)),
            source_names: texts(&source.names),
            destination_names: texts(&destination.names),
            source_service: service(source),
            destination_service: service(destination),
            r#type: FlowType::L3L4 as i32,
            node_name: self.absolute_node.clone(),
            node_labels: self.node_labels.clone(),
            ..Flow::default()
        }
    }

    fn packet(&self, packet: &PacketEvent) -> Flow {
        let icmp = packet.icmp_type.map(|kind| FlowIcmp {
            kind,
            code: packet.icmp_code.unwrap_or_default(),
        });
        let mut flow = self.between(&packet.source, &packet.destination);
        // The report of a packet has no flags.
        set_layer4(
            &mut flow,
            packet.protocol,
            [&packet.source, &packet.destination],
            icmp,
            None,
        );
        set_reply(&mut flow, packet.reply);
        flow.traffic_direction = direction(packet.direction) as i32;
        flow.interface = packet.interface.as_ref().map(|name| NetworkInterface {
            index: 0,
            name: name.clone(),
        });
        let rules = packet.rule.iter().chain(&packet.logged);
        let ends_by_rule = packet.rule.is_some();
        let policies = if ends_by_rule {
            &[][..]
        } else {
            &packet.policies
        };
        flow.policy_log = places(rules, policies);
        let rule = packet.rule.as_ref();
        if packet.verdict == MonitorVerdict::Denied {
            let reason = drop_reason(packet.reason, rule) as i32;
            flow.verdict = Verdict::Dropped as i32;
            flow.event_type = event_type(EVENT_DROP, reason);
            flow.drop_reason_desc = reason;
            #[allow(deprecated, reason = "older clients read this one")]
            {
                flow.drop_reason = u32::try_from(reason).unwrap_or_default();
            }
            let denied_by = deciders(rule, &packet.policies, packet.revision);
            match packet.direction {
                Some(Direction::Egress) => flow.egress_denied_by = denied_by,
                Some(Direction::Ingress) => flow.ingress_denied_by = denied_by,
                None => {}
            }
        } else {
            set_verdict(
                &mut flow,
                packet.direction,
                rule,
                packet.audit.as_ref(),
                packet.revision,
            );
        }
        flow
    }

    fn record(&self, record: &FlowRecord) -> Vec<Flow> {
        let mut flow = self.between(&record.source, &record.destination);
        let flags = match record.state {
            FlowState::Began => TcpFlags {
                syn: true,
                ..TcpFlags::default()
            },
            FlowState::Ended => TcpFlags {
                fin: true,
                ack: true,
                ..TcpFlags::default()
            },
        };
        let ends = [&record.source, &record.destination];
        set_layer4(&mut flow, record.protocol, ends, record.icmp, Some(flags));
        set_reply(&mut flow, false);
        let translated = record
            .translation
            .as_ref()
            .and_then(|nat| nat.translated_source.as_ref());
        if let (Some(ip), Some(translated)) = (&mut flow.ip, translated) {
            ip.source_xlated = translated.address.to_string();
        }
        let decisions = [
            (Direction::Egress, record.egress.as_deref()),
            (Direction::Ingress, record.ingress.as_deref()),
        ];
        let judged = decisions
            .into_iter()
            .filter_map(|(direction, decision)| Some((direction, decision?)));
        if record.state == FlowState::Began && judged.clone().next().is_some() {
            return judged
                .map(|(direction, decision)| {
                    let mut flow = flow.clone();
                    set_decision(&mut flow, direction, decision);
                    flow
                })
                .collect();
        }
        let point = if record.ingress.is_some() {
            flow.traffic_direction = TrafficDirection::Ingress as i32;
            TraceObservationPoint::ToEndpoint
        } else {
            if record.egress.is_some() {
                flow.traffic_direction = TrafficDirection::Egress as i32;
            }
            TraceObservationPoint::ToStack
        };
        flow.verdict = Verdict::Forwarded as i32;
        flow.trace_observation_point = point as i32;
        flow.trace_reason = match record.state {
            FlowState::Began => TraceReason::New as i32,
            FlowState::Ended => TraceReason::Established as i32,
        };
        // Cilium's number of this point is zero, which in the message would be no point at all.
        let sub_type = match point {
            TraceObservationPoint::ToEndpoint => 0,
            point => point as i32,
        };
        flow.event_type = event_type(EVENT_TRACE, sub_type);
        flow.policy_log = places(
            judged.filter_map(|(_, decision)| decision.rule.as_ref()),
            &[],
        );
        vec![flow]
    }
}

fn texts(names: &[Str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn event_type(kind: i32, sub_type: i32) -> Option<CiliumEventType> {
    Some(CiliumEventType {
        r#type: kind,
        sub_type,
    })
}

fn direction(direction: Option<Direction>) -> TrafficDirection {
    match direction {
        Some(Direction::Ingress) => TrafficDirection::Ingress,
        Some(Direction::Egress) => TrafficDirection::Egress,
        None => TrafficDirection::Unknown,
    }
}

fn set_decision(flow: &mut Flow, at: Direction, decision: &FlowDecision) {
    flow.traffic_direction = direction(Some(at)) as i32;
    flow.policy_log = places(decision.rule.iter(), &[]);
    let audit = decision.audit.as_ref();
    set_verdict(
        flow,
        Some(at),
        decision.rule.as_ref(),
        audit,
        decision.revision,
    );
}

/// A policy verdict: what allowed a packet, and what would deny it if nothing were in audit.
fn set_verdict(
    flow: &mut Flow,
    at: Option<Direction>,
    rule: Option<&MonitorRule>,
    audit: Option<&PacketAudit>,
    revision: Option<u64>,
) {
    let denied = audit.filter(|audit| audit.verdict == MonitorVerdict::Denied);
    flow.verdict = match denied {
        Some(_) => Verdict::Audit as i32,
        None => Verdict::Forwarded as i32,
    };
    flow.policy_match_type = if rule.is_some() {
        MATCH_L3_L4
    } else {
        MATCH_NONE
    };
    let allowed_by = deciders(rule, &[], revision);
    let denied_by = denied.map_or_else(Vec::new, |audit| {
        deciders(audit.rule.as_ref(), &audit.policies, revision)
    });
    let sub_type = direction(at) as i32;
    flow.event_type = event_type(EVENT_POLICY_VERDICT, sub_type);
    match at {
        Some(Direction::Egress) => {
            flow.egress_allowed_by = allowed_by;
            flow.egress_denied_by = denied_by;
        }
        Some(Direction::Ingress) => {
            flow.ingress_allowed_by = allowed_by;
            flow.ingress_denied_by = denied_by;
        }
        None => {}
    }
}

fn set_reply(flow: &mut Flow, reply: bool) {
    flow.is_reply = Some(reply);
    #[allow(deprecated, reason = "older clients read this one")]
    {
        flow.reply = reply;
    }
}

fn set_layer4(
    flow: &mut Flow,
    protocol: ProtocolName,
    [source, destination]: [&MonitorEndpoint; 2],
    icmp: Option<FlowIcmp>,
    flags: Option<TcpFlags>,
) {
    let source_port = source.port.unwrap_or_default().into();
    let destination_port = destination.port.unwrap_or_default().into();
    let (kind, code) = icmp.map_or((0, 0), |icmp| (icmp.kind.into(), icmp.code.into()));
    let (protocol, summary) = match protocol {
        ProtocolName::Tcp => {
            let summary = tcp_summary(flags.as_ref());
            let ports = Tcp {
                source_port,
                destination_port,
                flags,
            };
            (Protocol::Tcp(ports), summary)
        }
        ProtocolName::Udp => {
            let ports = Udp {
                source_port,
                destination_port,
            };
            (Protocol::Udp(ports), "UDP".to_owned())
        }
        ProtocolName::Sctp => {
            let ports = Sctp {
                source_port,
                destination_port,
            };
            (Protocol::Sctp(ports), "SCTP".to_owned())
        }
        ProtocolName::Icmp => {
            let message = IcmPv4 { r#type: kind, code };
            (
                Protocol::IcmPv4(message),
                icmp_summary("ICMPv4", [8, 0], icmp),
            )
        }
        ProtocolName::Icmpv6 => {
            let message = IcmPv6 { r#type: kind, code };
            (
                Protocol::IcmPv6(message),
                icmp_summary("ICMPv6", [128, 129], icmp),
            )
        }
        ProtocolName::Other | ProtocolName::Number(_) => {
            set_summary(flow, format!("IP protocol {protocol}"));
            return;
        }
    };
    flow.l4 = Some(Layer4 {
        protocol: Some(protocol),
    });
    set_summary(flow, summary);
}

fn set_summary(flow: &mut Flow, text: String) {
    #[allow(deprecated, reason = "the command prints it")]
    {
        flow.summary = text;
    }
}

fn tcp_summary(flags: Option<&TcpFlags>) -> String {
    let Some(flags) = flags else {
        return "TCP".to_owned();
    };
    let names = [(flags.syn, "SYN"), (flags.ack, "ACK"), (flags.fin, "FIN")];
    let set: Vec<_> = names
        .iter()
        .filter(|(set, _)| *set)
        .map(|(_, name)| *name)
        .collect();
    format!("TCP Flags: {}", set.join(", "))
}

fn icmp_summary(name: &str, [request, reply]: [u8; 2], icmp: Option<FlowIcmp>) -> String {
    match icmp {
        // In the message it is zero, which is a type as well.
        None => name.to_owned(),
        Some(FlowIcmp { kind, .. }) if kind == request => format!("{name} EchoRequest"),
        Some(FlowIcmp { kind, .. }) if kind == reply => format!("{name} EchoReply"),
        Some(FlowIcmp { kind, code }) => format!("{name} {kind}({code})"),
    }
}

#[cfg(test)]
mod tests;
