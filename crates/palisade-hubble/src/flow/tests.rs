//! What each kind of line becomes, field by field.

use super::*;
use crate::observed_line::observed_line;
use palisade_api::{
    ControllerRef, FlowTranslation, LossCause, LostEvents, ObjectRef, OriginalDestination,
    PacketReason, ServiceRef,
};
use palisade_model::Action;
use prost::Message;
use std::collections::BTreeSet;
use std::sync::Arc;

fn maker() -> FlowMaker {
    FlowMaker::new(
        "n1",
        &["zone=east".to_owned()],
        "prod",
        Duration::from_secs(1),
    )
}

fn line(number: u64, line: MonitorLine) -> RecentLine {
    let time = Duration::new(1_764_428_400, 5000);
    RecentLine { number, time, line }
}

fn flows(content: MonitorLine) -> Vec<Flow> {
    match maker().events(&line(7, content)) {
        LineEvents::Flows(flows) => flows,
        lost => panic!("{lost:?}"),
    }
}

fn end(address: &str, name: Option<&str>) -> MonitorEndpoint {
    MonitorEndpoint {
        address: address.into(),
        port: Some(80),
        namespace: name.map(|_| "shop".into()),
        name: name.map(Into::into),
        ..MonitorEndpoint::default()
    }
}

fn rule(name: &str, action: Action) -> MonitorRule {
    MonitorRule {
        policy: ObjectRef {
            kind: "CiliumNetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
            line: Some(format!("{name}.yaml:3")),
        },
        index: 0,
        rule_name: None,
        action: Some(action),
    }
}

fn packet(verdict: MonitorVerdict, reason: PacketReason) -> PacketEvent {
    PacketEvent {
        api_version: palisade_api::api_version(),
        time: String::new(),
        verdict,
        rejected: false,
        reason,
        audit: None,
        direction: Some(Direction::Ingress),
        stage: None,
        endpoint: Some("shop/db".to_owned()),
        source: end("10.0.0.9", None),
        destination: end("10.0.0.1", Some("db")),
        original_destination: None,
        protocol: ProtocolName::Tcp,
        icmp_type: None,
        icmp_code: None,
        reply: false,
        rule: None,
        policies: Vec::new(),
        logged: Vec::new(),
        length: 60,
        interface: Some("pal1".to_owned()),
        revision: Some(3),
        stale: false,
    }
}

fn packet_flow(packet: PacketEvent) -> Flow {
    flows(MonitorLine::Packet(Box::new(packet))).remove(0)
}

fn record(state: FlowState) -> FlowRecord {
    FlowRecord {
        api_version: palisade_api::api_version(),
        state,
        began: Some("2026-11-29T15:00:00.000005Z".to_owned()),
        ended: None,
        source: end("10.0.0.1", Some("web")),
        destination: end("10.0.0.2", Some("db")),
        translation: None,
        protocol: ProtocolName::Tcp,
        icmp: None,
        egress: None,
        ingress: None,
        traffic: None,
    }
}

fn decision(name: &str) -> FlowDecision {
    FlowDecision {
        stage: None,
        reason: PacketReason::Rule,
        rule: Some(rule(name, Action::Allow)),
        policies: Vec::new(),
        audit: None,
        revision: Some(9),
        stale: false,
    }
}

fn record_flows(record: FlowRecord) -> Vec<Flow> {
    flows(MonitorLine::Flow(Arc::new(record)))
}

fn kind(flow: &Flow) -> [i32; 3] {
    let event = flow.event_type.unwrap();
    [event.r#type, event.sub_type, flow.verdict]
}

fn names(policies: &[crate::proto::flow::Policy]) -> Vec<&str> {
    policies.iter().map(|policy| policy.name.as_str()).collect()
}

const FORWARDED: i32 = Verdict::Forwarded as i32;
const DROPPED: i32 = Verdict::Dropped as i32;
const AUDIT: i32 = Verdict::Audit as i32;

#[test]
fn a_denied_packet_is_a_drop() {
    let mut denied = packet(MonitorVerdict::Denied, PacketReason::Rule);
    denied.rule = Some(rule("no", Action::Deny));
    let flow = packet_flow(denied);
    assert_eq!(kind(&flow), [EVENT_DROP, 181, DROPPED]);
    assert_eq!(flow.drop_reason_desc, 181);
    assert_eq!(names(&flow.ingress_denied_by), ["no"]);
    let policy = &flow.ingress_denied_by[0];
    assert_eq!(
        (
            policy.kind.as_str(),
            policy.namespace.as_str(),
            policy.revision
        ),
        ("CiliumNetworkPolicy", "shop", 3)
    );
    assert_eq!(policy.labels[1], "k8s:io.cilium.k8s.policy.name=no");
    assert_eq!(flow.policy_log, ["no.yaml:3"]);
    assert_eq!(flow.traffic_direction, TrafficDirection::Ingress as i32);
    assert_eq!(flow.interface.unwrap().name, "pal1");
    assert_eq!(flow.node_name, "prod/n1");
    assert_eq!(flow.node_labels, ["zone=east"]);
    assert_eq!(flow.time.unwrap().nanos, 5000);
    assert_eq!(flow.destination.unwrap().cluster_name, "prod");
    let ip = flow.ip.unwrap();
    assert_eq!(
        (ip.source.as_str(), ip.ip_version),
        ("10.0.0.9", IpVersion::IPv4 as i32)
    );
    let Some(Protocol::Tcp(tcp)) = flow.l4.unwrap().protocol else {
        panic!("no TCP");
    };
    assert_eq!((tcp.destination_port, tcp.flags), (80, None));
}

#[test]
fn every_reason_of_a_drop_has_a_number() {
    let mut isolated = packet(MonitorVerdict::Denied, PacketReason::DefaultDeny);
    isolated.direction = Some(Direction::Egress);
    isolated.policies = vec![
        rule("a", Action::Allow).policy,
        rule("b", Action::Allow).policy,
    ];
    let flow = packet_flow(isolated);
    assert_eq!(kind(&flow), [EVENT_DROP, 133, DROPPED]);
    assert_eq!(names(&flow.egress_denied_by), ["a", "b"]);
    assert_eq!(flow.policy_log, ["a.yaml:3", "b.yaml:3"]);
    for (reason, number) in [
        (PacketReason::Spoofed, 132),
        (PacketReason::Encapsulated, 170),
        (PacketReason::UnknownInterface, 165),
        (PacketReason::Invalid, 163),
        (PacketReason::NoPoint, 150),
        (PacketReason::Profile, 133),
        (PacketReason::Unknown, 133),
    ] {
        let mut denied = packet(MonitorVerdict::Denied, reason);
        denied.direction = None;
        let flow = packet_flow(denied);
        assert_eq!(kind(&flow), [EVENT_DROP, number, DROPPED], "{reason}");
        assert_eq!(flow.traffic_direction, 0);
        assert!(flow.ingress_denied_by.is_empty() && flow.egress_denied_by.is_empty());
    }
    for reason in PacketReason::ALL {
        let flow = packet_flow(packet(MonitorVerdict::Denied, *reason));
        assert!(flow.drop_reason_desc >= 130, "{reason}");
    }
}

#[test]
fn a_logged_packet_is_a_policy_verdict() {
    let mut logged = packet(MonitorVerdict::Allowed, PacketReason::Rule);
    logged.rule = Some(rule("yes", Action::Allow));
    logged.logged = vec![rule("log", Action::Log)];
    logged.reply = true;
    let flow = packet_flow(logged.clone());
    assert_eq!(kind(&flow), [EVENT_POLICY_VERDICT, 1, FORWARDED]);
    assert_eq!(names(&flow.ingress_allowed_by), ["yes"]);
    assert_eq!(flow.policy_log, ["yes.yaml:3", "log.yaml:3"]);
    assert_eq!((flow.policy_match_type, flow.is_reply), (2, Some(true)));
    logged.audit = Some(PacketAudit {
        verdict: MonitorVerdict::Denied,
        reason: PacketReason::Rule,
        rule: Some(rule("staged", Action::Deny)),
        policies: Vec::new(),
    });
    let flow = packet_flow(logged);
    assert_eq!(kind(&flow), [EVENT_POLICY_VERDICT, 1, AUDIT]);
    assert_eq!(names(&flow.ingress_allowed_by), ["yes"]);
    assert_eq!(names(&flow.ingress_denied_by), ["staged"]);
}

#[test]
fn a_flow_begins_at_each_end_that_is_judged_here() {
    let mut began = record(FlowState::Began);
    began.source.controller = Some(
        ControllerRef {
            kind: "Deployment".into(),
            name: "web".into(),
        }
        .into(),
    );
    began.source.names = vec!["a.example".into()];
    began.destination.service = Some(
        ServiceRef {
            namespace: "shop".into(),
            name: "db".into(),
        }
        .into(),
    );
    began.translation = Some(
        FlowTranslation {
            original_destination: None,
            translated_source: Some(OriginalDestination {
                address: "192.0.2.1".parse().unwrap(),
                port: Some(7),
            }),
        }
        .into(),
    );
    began.egress = Some(Arc::new(decision("out")));
    let one = record_flows(began.clone());
    assert_eq!(one.len(), 1);
    began.ingress = Some(Arc::new(FlowDecision {
        reason: PacketReason::Unknown,
        rule: None,
        policies: vec![rule("some", Action::Allow).policy],
        revision: None,
        ..decision("")
    }));
    let both = record_flows(began);
    assert_eq!(both[0], one[0]);
    assert_eq!(
        [kind(&both[0]), kind(&both[1])],
        [[5, 2, FORWARDED], [5, 1, FORWARDED]]
    );
    let [egress, ingress] = [&both[0], &both[1]];
    assert_eq!(names(&egress.egress_allowed_by), ["out"]);
    assert_eq!(egress.egress_allowed_by[0].revision, 9);
    assert!(egress.ingress_allowed_by.is_empty() && ingress.egress_allowed_by.is_empty());
    // Policies that only apply have not allowed it.
    assert!(ingress.ingress_allowed_by.is_empty());
    assert_eq!(
        [egress.policy_match_type, ingress.policy_match_type],
        [2, 0]
    );
    assert_ne!(egress.uuid, ingress.uuid);
    assert_eq!(egress.ip.as_ref().unwrap().source_xlated, "192.0.2.1");
    assert_eq!(egress.source_names, ["a.example"]);
    assert_eq!(egress.destination_service.as_ref().unwrap().name, "db");
    assert_eq!(egress.source.as_ref().unwrap().workloads[0].name, "web");
    let Some(Protocol::Tcp(tcp)) = &egress.l4.as_ref().unwrap().protocol else {
        panic!("no TCP");
    };
    assert!(tcp.flags.unwrap().syn && !tcp.flags.unwrap().ack);
}

#[test]
fn a_flow_that_ended_is_one_trace() {
    let mut ended = record(FlowState::Ended);
    ended.egress = Some(Arc::new(decision("out")));
    let flow = record_flows(ended.clone()).remove(0);
    assert_eq!(kind(&flow), [EVENT_TRACE, 3, FORWARDED]);
    assert_eq!(
        flow.trace_observation_point,
        TraceObservationPoint::ToStack as i32
    );
    assert_eq!(flow.trace_reason, TraceReason::Established as i32);
    assert_eq!(flow.traffic_direction, TrafficDirection::Egress as i32);
    assert_eq!(flow.policy_log, ["out.yaml:3"]);
    ended.ingress = Some(Arc::new(decision("in")));
    let flows = record_flows(ended);
    assert_eq!(flows.len(), 1);
    assert_eq!(kind(&flows[0]), [EVENT_TRACE, 0, FORWARDED]);
    assert_eq!(flows[0].trace_observation_point, 101);
    assert_eq!(flows[0].traffic_direction, TrafficDirection::Ingress as i32);
    // One that only passes through this host.
    let passing = record_flows(record(FlowState::Began)).remove(0);
    assert_eq!(kind(&passing), [EVENT_TRACE, 3, FORWARDED]);
    assert_eq!(
        (passing.traffic_direction, passing.trace_reason),
        (0, TraceReason::New as i32)
    );
}

#[test]
#[allow(deprecated, reason = "the command prints it")]
fn each_protocol_has_its_form() {
    let form = |protocol, icmp| {
        let mut began = record(FlowState::Began);
        began.protocol = protocol;
        began.icmp = icmp;
        let flow = record_flows(began).remove(0);
        (flow.summary.clone(), flow.l4.is_some())
    };
    let icmp = |kind| Some(FlowIcmp { kind, code: 3 });
    let text = |text: &str| (text.to_owned(), true);
    assert_eq!(form(ProtocolName::Tcp, None), text("TCP Flags: SYN"));
    assert_eq!(form(ProtocolName::Udp, None), text("UDP"));
    assert_eq!(form(ProtocolName::Sctp, None), text("SCTP"));
    assert_eq!(
        form(ProtocolName::Icmp, icmp(8)),
        text("ICMPv4 EchoRequest")
    );
    assert_eq!(form(ProtocolName::Icmp, icmp(3)), text("ICMPv4 3(3)"));
    assert_eq!(form(ProtocolName::Icmp, None), text("ICMPv4"));
    assert_eq!(
        form(ProtocolName::Icmpv6, icmp(129)),
        text("ICMPv6 EchoReply")
    );
    assert_eq!(
        form(ProtocolName::Number(47), None),
        ("IP protocol 47".to_owned(), false)
    );
}

#[test]
fn losses_keep_their_place_and_number() {
    let lost = |cause| {
        let event = LostEvents {
            api_version: palisade_api::api_version(),
            time: String::new(),
            cause,
            count: 5,
            reason: None,
            rule: None,
            policies: Vec::new(),
        };
        maker().events(&line(0, MonitorLine::Lost(Box::new(event))))
    };
    assert_eq!(
        lost(LossCause::Kernel),
        LineEvents::Lost(LostEventSource::PerfEventRingBuffer, 5)
    );
    assert_eq!(
        lost(LossCause::Flows),
        LineEvents::Lost(LostEventSource::PerfEventRingBuffer, 5)
    );
    assert_eq!(
        lost(LossCause::Agent),
        LineEvents::Lost(LostEventSource::ObserverEventsQueue, 5)
    );
    assert_eq!(
        lost(LossCause::Client),
        LineEvents::Lost(LostEventSource::HubbleRingBuffer, 5)
    );
}

#[test]
fn identifiers_are_unique_and_look_random() {
    let mut all = BTreeSet::new();
    for other in [
        maker(),
        FlowMaker::new("n2", &[], "prod", Duration::from_secs(1)),
    ] {
        for number in [0, 1, 2, 1 << 40, (1 << 61) - 1] {
            for index in [0, 1] {
                let uuid = other.uuid(number, index);
                let parts: Vec<&str> = uuid.split('-').collect();
                let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
                assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
                assert!(
                    parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']),
                    "{uuid}"
                );
                assert!(all.insert(uuid));
            }
        }
    }
}

#[test]
fn the_extension_has_the_words_of_the_monitor() {
    let mut denied = packet(MonitorVerdict::Denied, PacketReason::Rule);
    denied.rule = Some(rule("no", Action::Deny));
    let line = line(0, MonitorLine::Packet(Box::new(denied)));
    let mut flow = Flow::default();
    FlowMaker::extend(&line, &mut flow);
    let any = flow.extensions.unwrap();
    assert_eq!(any.type_url, "type.googleapis.com/google.protobuf.Struct");
    let detail = prost_types::Struct::decode(any.value.as_slice()).unwrap();
    let keys: Vec<&String> = detail.fields.keys().collect();
    assert_eq!(keys, ["endpoint", "length", "reason", "revision", "rule"]);
    let Some(prost_types::value::Kind::StructValue(rule)) = &detail.fields["rule"].kind else {
        panic!("{detail:?}");
    };
    let text = |text: &str| Some(prost_types::value::Kind::StringValue(text.to_owned()));
    assert_eq!(rule.fields["line"].kind, text("no.yaml:3"));
    assert_eq!(rule.fields["kind"].kind, text("CiliumNetworkPolicy"));
}

#[test]
fn a_client_has_the_lines_that_flows_were_made_of() {
    let web = || MonitorEndpoint {
        labels: Arc::new([("app".into(), "web".into())].into()),
        controller: Some(
            ControllerRef {
                kind: "Deployment".into(),
                name: "web".into(),
            }
            .into(),
        ),
        ..end("10.0.0.1", Some("web"))
    };
    let outside = || MonitorEndpoint {
        names: vec!["example.com".into()],
        service: Some(
            ServiceRef {
                namespace: "shop".into(),
                name: "api".into(),
            }
            .into(),
        ),
        ..end("2001:db8::1", None)
    };
    let host = || MonitorEndpoint {
        node: Some("n1".into()),
        ..end("192.0.2.1", None)
    };
    let time = || "2025-11-29T15:00:00.000005Z".to_owned();
    let mut denied = packet(MonitorVerdict::Denied, PacketReason::Rule);
    denied.time = time();
    denied.rule = Some(rule("no", Action::Deny));
    denied.source = web();
    let mut logged = packet(MonitorVerdict::Allowed, PacketReason::DefaultDeny);
    logged.time = time();
    logged.direction = None;
    logged.interface = None;
    logged.protocol = ProtocolName::Icmpv6;
    (logged.icmp_type, logged.icmp_code) = (Some(128), Some(0));
    logged.destination = MonitorEndpoint {
        port: None,
        ..outside()
    };
    logged.source.port = None;
    logged.logged = vec![rule("log", Action::Log)];
    logged.audit = Some(PacketAudit {
        verdict: MonitorVerdict::Denied,
        reason: PacketReason::DefaultDeny,
        rule: None,
        policies: vec![rule("audited", Action::Deny).policy],
    });
    logged.reply = true;
    let both = FlowRecord {
        egress: Some(Arc::new(decision("out"))),
        ingress: Some(Arc::new(decision("in"))),
        ..record(FlowState::Began)
    };
    let began = FlowRecord {
        ingress: Some(Arc::new(decision("in"))),
        source: host(),
        protocol: ProtocolName::Sctp,
        ..record(FlowState::Began)
    };
    let ended = FlowRecord {
        egress: Some(Arc::new(decision("out"))),
        ingress: Some(Arc::new(decision("in"))),
        ended: Some(time()),
        translation: Some(
            FlowTranslation {
                original_destination: Some(OriginalDestination {
                    address: "10.96.0.1".parse().unwrap(),
                    port: Some(80),
                }),
                translated_source: None,
            }
            .into(),
        ),
        destination: outside(),
        ..record(FlowState::Ended)
    };
    let flow = |record| MonitorLine::Flow(Arc::new(record));
    for content in [
        MonitorLine::Packet(Box::new(denied)),
        MonitorLine::Packet(Box::new(logged)),
        flow(both),
        flow(began),
        flow(ended),
        flow(record(FlowState::Began)),
    ] {
        let made = line(7, content.clone());
        let LineEvents::Flows(flows) = maker().events(&made) else {
            panic!("{content:?}");
        };
        let observed: Vec<_> = flows
            .into_iter()
            .filter_map(|mut flow| {
                FlowMaker::extend(&made, &mut flow);
                observed_line(&flow)
            })
            .collect();
        assert_eq!(observed, [(made.time, content)]);
    }
    // A flow of another agent does not say what decided.
    let foreign = record_flows(record(FlowState::Began)).remove(0);
    assert_eq!(observed_line(&foreign), None);
}
