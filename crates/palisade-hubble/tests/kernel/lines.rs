//! Two hundred lines of a monitor, and what Hubble is to say of each; written down apart from the code under test.

use palisade_api::{
    ControllerRef, FlowDecision, FlowIcmp, FlowRecord, FlowState, FlowTraffic, FlowTranslation,
    LossCause, LostEvents, MonitorEndpoint, MonitorLine, MonitorRule, MonitorVerdict, ObjectRef,
    OriginalDestination, PacketAudit, PacketEvent, PacketReason, ProtocolName, ServiceRef,
    api_version,
};
use palisade_model::{Action, Direction, Str};
use std::sync::Arc;

/// How many lines there are.
pub(crate) const LINES: usize = 200;

/// An end as a reader of the list knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct End {
    pub(crate) address: &'static str,
    /// Namespace and name.
    pub(crate) pod: Option<(&'static str, &'static str)>,
    pub(crate) app: &'static str,
    pub(crate) workload: Option<(&'static str, &'static str)>,
    pub(crate) node: Option<&'static str>,
    pub(crate) domain: &'static str,
    pub(crate) local: bool,
}

pub(crate) const WEB: End = End {
    address: "10.0.0.1",
    pod: Some(("shop", "web-1")),
    app: "web",
    workload: Some(("Deployment", "web")),
    node: None,
    domain: "",
    local: true,
};
pub(crate) const DB: End = End {
    address: "10.0.0.2",
    pod: Some(("shop", "db-0")),
    app: "db",
    workload: Some(("StatefulSet", "db")),
    ..WEB
};
pub(crate) const API: End = End {
    address: "10.0.1.3",
    pod: Some(("default", "api-1")),
    app: "api",
    workload: Some(("Deployment", "api")),
    local: false,
    ..WEB
};
pub(crate) const SIX: End = End {
    address: "fd00::6",
    pod: Some(("six", "six-1")),
    app: "six",
    workload: None,
    ..WEB
};
const NO_POD: End = End {
    address: "",
    pod: None,
    app: "",
    workload: None,
    node: None,
    domain: "",
    local: false,
};
pub(crate) const WORLD: End = End {
    address: "1.2.3.4",
    domain: "www.example.com",
    ..NO_POD
};
pub(crate) const WORLD_SIX: End = End {
    address: "2001:db8::5",
    ..NO_POD
};
pub(crate) const HOST: End = End {
    address: "192.168.0.1",
    node: Some("n1"),
    ..NO_POD
};
pub(crate) const OTHER_NODE: End = End {
    address: "192.168.0.2",
    node: Some("n2"),
    ..NO_POD
};

/// A flow that the service has to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown {
    /// The number of its line.
    pub(crate) line: usize,
    pub(crate) source: End,
    pub(crate) destination: End,
    pub(crate) protocol: &'static str,
    pub(crate) source_port: u16,
    pub(crate) port: u16,
    /// Cilium's type of the event.
    pub(crate) event: i32,
    pub(crate) verdict: &'static str,
    pub(crate) drop_reason: &'static str,
    pub(crate) direction: &'static str,
    pub(crate) flags: &'static str,
    pub(crate) reply: bool,
    pub(crate) xlated: &'static str,
    pub(crate) interface: &'static str,
    /// The policy that allowed it.
    pub(crate) policy: &'static str,
    pub(crate) service: &'static str,
}

/// Ends, protocol and port of a line.
type Pair = (End, End, &'static str, u16);

const PAIRS: [Pair; 8] = [
    (WEB, DB, "TCP", 5432),
    (WEB, WORLD, "TCP", 443),
    (API, WEB, "UDP", 53),
    (WORLD, WEB, "TCP", 80),
    (HOST, DB, "TCP", 9100),
    (OTHER_NODE, DB, "SCTP", 7),
    (SIX, WORLD_SIX, "ICMPv6", 0),
    (WEB, API, "ICMPv4", 0),
];

/// The lines, and what is to be shown of them in order.
pub(crate) fn lines() -> (Vec<MonitorLine>, Vec<Shown>) {
    let mut lines = Vec::new();
    let mut shown = Vec::new();
    for number in 0..LINES {
        let pair = PAIRS[number % PAIRS.len()];
        let (line, flows) = match number / PAIRS.len() % 7 {
            _ if number % 50 == 49 => (lost(), Vec::new()),
            0 => began(number, pair, false),
            1 => ended(number, pair),
            2 => denied(number, pair, PacketReason::Rule, "POLICY_DENY"),
            3 => denied(number, pair, PacketReason::DefaultDeny, "POLICY_DENIED"),
            4 => denied(number, pair, PacketReason::Spoofed, "INVALID_SOURCE_IP"),
            5 => began(number, pair, true),
            _ => logged(number, pair),
        };
        lines.push(line);
        shown.extend(flows);
    }
    (lines, shown)
}

fn base(number: usize, (source, destination, protocol, port): Pair) -> Shown {
    let has_ports = port != 0;
    Shown {
        line: number,
        source,
        destination,
        protocol,
        source_port: if has_ports { 20_000 + number as u16 } else { 0 },
        port,
        event: 0,
        verdict: "FORWARDED",
        drop_reason: "",
        direction: "",
        flags: "",
        reply: false,
        xlated: "",
        interface: "",
        policy: "",
        service: if destination == DB { "postgres" } else { "" },
    }
}

fn end(end: End, port: u16, service: &str) -> MonitorEndpoint {
    let text = Str::from;
    MonitorEndpoint {
        address: text(end.address),
        port: (port != 0).then_some(port),
        namespace: end.pod.map(|(namespace, _)| text(namespace)),
        name: end.pod.map(|(_, name)| text(name)),
        controller: end.workload.map(|(kind, name)| {
            ControllerRef {
                kind: text(kind),
                name: text(name),
            }
            .into()
        }),
        labels: Arc::new(
            end.pod
                .iter()
                .map(|_| (text("app"), text(end.app)))
                .collect(),
        ),
        node: end.node.map(text),
        names: Some(text(end.domain))
            .filter(|name| !name.is_empty())
            .into_iter()
            .collect(),
        service: (!service.is_empty()).then(|| {
            ServiceRef {
                namespace: text("shop"),
                name: text(service),
            }
            .into()
        }),
    }
}

fn protocol(name: &str) -> ProtocolName {
    match name {
        "TCP" => ProtocolName::Tcp,
        "UDP" => ProtocolName::Udp,
        "SCTP" => ProtocolName::Sctp,
        "ICMPv4" => ProtocolName::Icmp,
        _ => ProtocolName::Icmpv6,
    }
}

fn rule(name: &str, action: Action) -> MonitorRule {
    MonitorRule {
        policy: ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
            line: Some(format!("{name}.yaml:7")),
        },
        index: 0,
        rule_name: None,
        action: Some(action),
    }
}

fn record(shown: &Shown, state: FlowState) -> FlowRecord {
    FlowRecord {
        api_version: api_version(),
        state,
        began: Some("2026-11-29T15:00:00.000001Z".to_owned()),
        ended: None,
        source: end(shown.source, shown.source_port, ""),
        destination: end(shown.destination, shown.port, shown.service),
        translation: None,
        protocol: protocol(shown.protocol),
        icmp: (shown.port == 0).then_some(FlowIcmp { kind: 8, code: 0 }),
        egress: None,
        ingress: None,
        traffic: None,
    }
}

fn began(number: usize, pair: Pair, audited: bool) -> (MonitorLine, Vec<Shown>) {
    let mut base = base(number, pair);
    base.event = 5;
    base.flags = if base.protocol == "TCP" { "SYN" } else { "" };
    if base.destination == WORLD {
        base.xlated = "192.168.0.1";
    }
    let mut record = record(&base, FlowState::Began);
    record.translation = (!base.xlated.is_empty()).then(|| {
        FlowTranslation {
            original_destination: None,
            translated_source: Some(OriginalDestination {
                address: base.xlated.parse().unwrap(),
                port: Some(40_000),
            }),
        }
        .into()
    });
    let audit = audited.then(|| PacketAudit {
        verdict: MonitorVerdict::Denied,
        reason: PacketReason::DefaultDeny,
        rule: None,
        policies: vec![rule("strict", Action::Deny).policy],
    });
    let decision = |name: &str| FlowDecision {
        stage: None,
        reason: PacketReason::Rule,
        rule: Some(rule(name, Action::Allow)),
        policies: Vec::new(),
        audit: audit.clone(),
        revision: Some(3),
        stale: false,
    };
    base.verdict = if audited { "AUDIT" } else { "FORWARDED" };
    let mut shown = Vec::new();
    if base.source.local {
        record.egress = Some(Arc::new(decision("out")));
        shown.push(Shown {
            direction: "EGRESS",
            policy: "out",
            ..base
        });
    }
    if base.destination.local {
        record.ingress = Some(Arc::new(decision("in")));
        shown.push(Shown {
            direction: "INGRESS",
            policy: "in",
            ..base
        });
    }
    (MonitorLine::Flow(Arc::new(record)), shown)
}

fn ended(number: usize, pair: Pair) -> (MonitorLine, Vec<Shown>) {
    let mut base = base(number, pair);
    base.event = 4;
    base.flags = if base.protocol == "TCP" {
        "ACK,FIN"
    } else {
        ""
    };
    let mut record = record(&base, FlowState::Ended);
    record.traffic = Some(FlowTraffic {
        packets_sent: 4,
        bytes_sent: 400,
        packets_received: 3,
        bytes_received: 3000,
    });
    let decision = FlowDecision {
        stage: None,
        reason: PacketReason::Profile,
        rule: None,
        policies: Vec::new(),
        audit: None,
        revision: None,
        stale: false,
    };
    record.egress = base.source.local.then(|| Arc::new(decision.clone()));
    record.ingress = base.destination.local.then(|| Arc::new(decision.clone()));
    base.direction = if base.destination.local {
        "INGRESS"
    } else {
        "EGRESS"
    };
    (MonitorLine::Flow(Arc::new(record)), vec![base])
}

fn packet(shown: &Shown, verdict: MonitorVerdict, reason: PacketReason) -> PacketEvent {
    let direction = match shown.direction {
        "INGRESS" => Direction::Ingress,
        _ => Direction::Egress,
    };
    PacketEvent {
        api_version: api_version(),
        time: "2026-11-29T15:00:00.000001Z".to_owned(),
        verdict,
        rejected: false,
        reason,
        audit: None,
        direction: Some(direction),
        stage: None,
        endpoint: None,
        source: end(shown.source, shown.source_port, ""),
        destination: end(shown.destination, shown.port, shown.service),
        original_destination: None,
        protocol: protocol(shown.protocol),
        icmp_type: (shown.port == 0).then_some(8),
        icmp_code: None,
        reply: shown.reply,
        rule: None,
        policies: Vec::new(),
        logged: Vec::new(),
        length: 60,
        interface: Some(shown.interface.to_owned()),
        revision: Some(3),
        stale: false,
    }
}

/// A packet at the end of it that is here.
fn packet_base(number: usize, pair: Pair) -> Shown {
    let base = base(number, pair);
    let is_ingress = base.destination.local;
    Shown {
        direction: if is_ingress { "INGRESS" } else { "EGRESS" },
        interface: if is_ingress { "pal1" } else { "pal2" },
        reply: number.is_multiple_of(3),
        ..base
    }
}

fn denied(
    number: usize,
    pair: Pair,
    reason: PacketReason,
    drop_reason: &'static str,
) -> (MonitorLine, Vec<Shown>) {
    let mut base = packet_base(number, pair);
    base.event = 1;
    base.verdict = "DROPPED";
    base.drop_reason = drop_reason;
    let mut packet = packet(&base, MonitorVerdict::Denied, reason);
    match reason {
        PacketReason::Rule => packet.rule = Some(rule("no", Action::Deny)),
        PacketReason::DefaultDeny => packet.policies = vec![rule("isolate", Action::Deny).policy],
        _ => {}
    }
    (MonitorLine::Packet(Box::new(packet)), vec![base])
}

fn logged(number: usize, pair: Pair) -> (MonitorLine, Vec<Shown>) {
    let mut base = packet_base(number, pair);
    base.event = 5;
    base.policy = "in";
    let mut packet = packet(&base, MonitorVerdict::Allowed, PacketReason::Rule);
    packet.rule = Some(rule("in", Action::Allow));
    packet.logged = vec![rule("log", Action::Log)];
    (MonitorLine::Packet(Box::new(packet)), vec![base])
}

fn lost() -> MonitorLine {
    MonitorLine::Lost(Box::new(LostEvents {
        api_version: api_version(),
        time: "2026-11-29T15:00:00.000001Z".to_owned(),
        cause: LossCause::Kernel,
        count: 5,
        reason: None,
        rule: None,
        policies: Vec::new(),
    }))
}
