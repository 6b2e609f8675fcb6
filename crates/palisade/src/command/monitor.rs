//! `palisade monitor`: denied and logged packets, and flows.
//!
//! Promises: one line of text or JSON for each line of the agent's stream, printed at once; JSON is passed
//! through, so fields unknown to this build are kept.

use super::explain::percent_encode;
use crate::cli::{MonitorArgs, OutputFormat, VerdictFilter};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use palisade_api::{
    FlowIcmp, FlowRecord, FlowState, LossCause, LostEvents, MonitorEndpoint, MonitorLine,
    MonitorRule, ObjectRef, OriginalDestination, PacketEvent, PacketReason, ServiceRef, path,
};
use palisade_text::{printable, printable_json};
use std::io::{self, Write};
use std::ops::ControlFlow;

/// Prints the agent's stream.
pub(crate) fn run(args: MonitorArgs, client: &ApiClient, format: OutputFormat) -> CommandResult {
    let stop = args.no_follow;
    let verdict = args.verdict.map(|verdict| match verdict {
        VerdictFilter::Denied => "Denied".to_owned(),
        VerdictFilter::Allowed => "Allowed".to_owned(),
    });
    let query: Vec<String> = [
        ("endpoint", args.endpoint),
        ("namespace", args.namespace),
        ("verdict", verdict),
        ("from", args.from),
        ("to", args.to),
        ("audit", args.audit.then(|| "true".to_owned())),
        ("flows", args.flows.then(|| "true".to_owned())),
        ("last", Some(args.last.to_string())),
        ("stop", Some(stop.to_string())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(format!("{name}={}", percent_encode(&value?))))
    .collect();
    let query = query.join("&");
    let ended = client.follow(&format!("{}?{query}", path::MONITOR), |line| {
        print_line(format, line)
    })?;
    if ended && !stop {
        return Err(
            CommandError::new(ExitStatus::NotReached, "the agent stopped")
                .with_hint("restart the agent, then run palisade monitor again"),
        );
    }
    Ok(ExitStatus::Success)
}

fn print_line(format: OutputFormat, line: &[u8]) -> Result<ControlFlow<()>, CommandError> {
    let text = match format {
        OutputFormat::Json => printable_json(&String::from_utf8_lossy(line)).into_owned(),
        OutputFormat::Text | OutputFormat::Yaml => match serde_json::from_slice(line) {
            Ok(MonitorLine::Packet(packet)) => printable(&packet_text(&packet)).into_owned(),
            Ok(MonitorLine::Flow(flow)) => printable(&flow_text(&flow)).into_owned(),
            Ok(MonitorLine::Lost(lost)) => printable(&lost_text(&lost)).into_owned(),
            Err(error) => {
                return Err(CommandError::new(
                    ExitStatus::NotReached,
                    format!("invalid response from the agent: {error}"),
                ));
            }
        },
    };
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        // A closed pipe means that the reader is done.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(CommandError::problem(format!(
            "writing to standard output: {error}"
        ))),
    }
}

fn packet_text(packet: &PacketEvent) -> String {
    let mut out = format!("{} {:<7}", packet.time, packet.verdict);
    if let Some(direction) = &packet.direction {
        out.push_str(&format!(" {direction}"));
    }
    out.push_str(&format!(
        " {} -> {} {}",
        endpoint_text(&packet.source),
        endpoint_text(&packet.destination),
        packet.protocol
    ));
    if let Some(OriginalDestination { address, port }) = packet.original_destination {
        let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
        out.push_str(&format!(" (sent to {address}{port})"));
    }
    if let (Some(kind), Some(code)) = (packet.icmp_type, packet.icmp_code) {
        out.push_str(&format!(" type {kind} code {code}"));
    }
    if packet.reply {
        out.push_str(" (reply)");
    }
    out.push_str(&format!(" {} bytes", packet.length));
    if let Some(interface) = &packet.interface {
        out.push_str(&format!(" {interface}"));
    }
    if let Some(stage) = packet.stage {
        out.push_str(&format!(", {stage} stage"));
    }
    let reason = reason_text(packet.reason, packet.rule.as_ref(), &packet.policies);
    out.push_str(&format!(": {reason}"));
    if let Some(audit) = packet
        .audit
        .as_ref()
        .filter(|audit| audit.verdict != packet.verdict)
    {
        let reason = reason_text(audit.reason, audit.rule.as_ref(), &audit.policies);
        out.push_str(&format!("; without audit {}: {reason}", audit.verdict));
    }
    for logged in packet.logged.iter() {
        out.push_str(&format!("; logged by {}", rule_text(logged)));
    }
    if packet.rejected {
        out.push_str(" (rejected)");
    }
    if packet.stale {
        out.push_str(" (rules changed since)");
    }
    out
}

fn flow_text(flow: &FlowRecord) -> String {
    let time = match flow.state {
        FlowState::Began => &flow.began,
        FlowState::Ended => &flow.ended,
    };
    let mut out = format!(
        "{} {:<7} {} -> {} {}",
        time.as_deref().unwrap_or("-"),
        flow.state,
        endpoint_text(&flow.source),
        endpoint_text(&flow.destination),
        flow.protocol
    );
    if let Some(translation) = &flow.translation {
        let sides = [
            ("sent to", translation.original_destination),
            ("seen from", translation.translated_source),
        ];
        for (word, end) in sides {
            if let Some(OriginalDestination { address, port }) = end {
                let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
                out.push_str(&format!(" ({word} {address}{port})"));
            }
        }
    }
    if let Some(FlowIcmp { kind, code }) = flow.icmp {
        out.push_str(&format!(" type {kind} code {code}"));
    }
    if let Some(traffic) = flow.traffic {
        out.push_str(&format!(
            ", sent {} packets, {} bytes, received {} packets, {} bytes",
            traffic.packets_sent,
            traffic.bytes_sent,
            traffic.packets_received,
            traffic.bytes_received
        ));
    }
    let decisions = [("egress", &flow.egress), ("ingress", &flow.ingress)];
    let mut separator = ':';
    for (direction, decision) in decisions {
        let Some(decision) = decision else {
            continue;
        };
        let reason = match (decision.reason, &decision.rule) {
            (PacketReason::Unknown, _) => "an unknown rule".to_owned(),
            (reason, rule) => reason_text(reason, rule.as_ref(), &decision.policies),
        };
        let host = match decision.stage {
            Some(stage) => format!(" of the host, stage {stage},"),
            None => String::new(),
        };
        out.push_str(&format!("{separator} {direction}{host} by {reason}"));
        separator = ';';
        if let Some(audit) = &decision.audit {
            let reason = reason_text(audit.reason, audit.rule.as_ref(), &audit.policies);
            out.push_str(&format!(", without audit {}: {reason}", audit.verdict));
        }
        if decision.stale {
            out.push_str(" (rules changed since)");
        }
    }
    out
}

fn lost_text(lost: &LostEvents) -> String {
    let cause = match lost.cause {
        LossCause::Flows => {
            let text = "more begins and ends of flows came faster than the agent reads them";
            return format!("{} {} {text}", lost.time, lost.count);
        }
        LossCause::Kernel => "not reported by the kernel",
        LossCause::Agent => "dropped by the agent's queue",
        LossCause::Rate => "over the rate limit of a rule",
        LossCause::Client => "lost because this client read too slowly",
    };
    let mut out = format!("{} {} more packets {cause}", lost.time, lost.count);
    if let Some(reason) = lost.reason {
        let why = reason_text(reason, lost.rule.as_ref(), &lost.policies);
        out.push_str(&format!(": {why}"));
    }
    out
}

fn endpoint_text(end: &MonitorEndpoint) -> String {
    let mut out = match (&end.namespace, &end.name) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name} ({})", end.address),
        (None, Some(name)) => format!("{name} ({})", end.address),
        (_, None) => match (&end.node, &end.names[..]) {
            (Some(node), _) => format!("node {node} ({})", end.address),
            (None, []) => end.address.to_string(),
            (None, names) => format!("{} ({})", names.join(", "), end.address),
        },
    };
    if let Some(port) = end.port {
        out.push_str(&format!(" port {port}"));
    }
    if let Some(ServiceRef { namespace, name }) = end.service.as_deref() {
        out.push_str(&format!(" of Service {namespace}/{name}"));
    }
    out
}

fn reason_text(
    reason: PacketReason,
    decided: Option<&MonitorRule>,
    policies: &[ObjectRef],
) -> String {
    if let Some(decided) = decided {
        return rule_text(decided);
    }
    let text = match reason {
        PacketReason::DefaultDeny => {
            let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
            return format!("no rule allows it, isolated by {}", names.join(", "));
        }
        PacketReason::Profile => "no profile allows it",
        PacketReason::ForwardEnd => {
            "the host forwards it, and no policy with applyOnForward decided"
        }
        PacketReason::HairpinEnd => {
            "to itself through a Service, and no policy that judges such traffic decided"
        }
        PacketReason::StageEnd => "no policy of the stage decided",
        PacketReason::Encapsulated => "tunnelled packet (encapsulation is not allowed)",
        PacketReason::Spoofed => "spoofed source address",
        PacketReason::UnknownInterface => "interface not attached by the agent",
        PacketReason::Invalid => "invalid conntrack state",
        PacketReason::NoPoint => "destination is not an address of this interface's workload",
        PacketReason::Unknown => "rule unknown: policy changed before the packet was attributed",
        PacketReason::EndpointInAudit => "the workload is in audit",
        PacketReason::Audited => "would be denied without audit",
        PacketReason::Rule
        | PacketReason::Denied
        | PacketReason::Rejected
        | PacketReason::Logged => reason.name(),
    };
    text.to_owned()
}

fn rule_text(rule: &MonitorRule) -> String {
    let name = rule.rule_name.iter().map(|name| format!(" {name}"));
    let name: String = name.collect();
    let line = rule.policy.line.iter().map(|line| format!(" ({line})"));
    let line: String = line.collect();
    format!(
        "{} rule {}{name}{line}",
        rule.policy.without_line(),
        rule.index
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{FlowDecision, FlowTraffic, FlowTranslation, MonitorVerdict, ProtocolName};
    use palisade_model::{Action, Direction};
    use std::sync::Arc;

    #[test]
    fn flows_read_well() {
        let end = |address: &str, port| MonitorEndpoint {
            address: address.into(),
            port: Some(port),
            namespace: Some("shop".into()),
            name: Some("x".into()),
            ..MonitorEndpoint::default()
        };
        let sent = |address: [u8; 4], port| OriginalDestination {
            address: address.into(),
            port: Some(port),
        };
        let policy = ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            line: Some("db.yaml:4".to_owned()),
        };
        let decision = |reason, rule| FlowDecision {
            reason,
            rule,
            policies: Vec::new(),
            stage: None,
            audit: None,
            revision: None,
            stale: false,
        };
        let rule = MonitorRule {
            policy,
            index: 1,
            rule_name: None,
            action: Some(Action::Allow),
        };
        let mut flow = FlowRecord {
            api_version: palisade_api::api_version(),
            state: FlowState::Began,
            began: Some("T1".to_owned()),
            ended: None,
            source: end("10.0.0.9", 40_000),
            destination: end("10.0.0.1", 5432),
            translation: None,
            protocol: ProtocolName::Tcp,
            icmp: None,
            egress: None,
            ingress: None,
            traffic: None,
        };
        assert_eq!(
            flow_text(&flow),
            "T1 began   shop/x (10.0.0.9) port 40000 -> shop/x (10.0.0.1) port 5432 TCP"
        );
        flow.state = FlowState::Ended;
        flow.ended = Some("T2".to_owned());
        flow.translation = Some(
            FlowTranslation {
                original_destination: Some(sent([10, 96, 0, 1], 80)),
                translated_source: Some(sent([192, 0, 2, 1], 61_000)),
            }
            .into(),
        );
        flow.egress = Some(Arc::new(decision(PacketReason::Unknown, None)));
        flow.ingress = Some(Arc::new(FlowDecision {
            stale: true,
            ..decision(PacketReason::Rule, Some(rule))
        }));
        flow.traffic = Some(FlowTraffic {
            packets_sent: 3,
            bytes_sent: 180,
            packets_received: 2,
            bytes_received: 120,
        });
        assert_eq!(
            flow_text(&flow),
            "T2 ended   shop/x (10.0.0.9) port 40000 -> shop/x (10.0.0.1) port 5432 TCP \
             (sent to 10.96.0.1 port 80) (seen from 192.0.2.1 port 61000), sent 3 packets, 180 bytes, \
             received 2 packets, 120 bytes: egress by an unknown rule; \
             ingress by NetworkPolicy shop/db rule 1 (db.yaml:4) (rules changed since)"
        );
    }

    #[test]
    fn lines_read_well() {
        let end = |address: &str, port, name: Option<&str>| MonitorEndpoint {
            address: address.into(),
            port,
            namespace: name.map(|_| "shop".into()),
            name: name.map(Into::into),
            ..MonitorEndpoint::default()
        };
        let policy = ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some("shop".to_owned()),
            name: "db".to_owned(),
            line: Some("db.yaml:4".to_owned()),
        };
        let log = MonitorRule {
            policy: policy.clone(),
            index: 1,
            rule_name: None,
            action: Some(Action::Log),
        };
        let mut packet = PacketEvent {
            original_destination: None,
            stage: None,
            api_version: palisade_api::api_version(),
            time: "T".to_owned(),
            verdict: MonitorVerdict::Denied,
            rejected: false,
            reason: PacketReason::DefaultDeny,
            audit: None,
            direction: Some(Direction::Ingress),
            endpoint: Some("shop/db".to_owned()),
            source: end("10.0.0.9", Some(40_000), None),
            destination: end("10.0.0.1", Some(5432), Some("db")),
            protocol: ProtocolName::Tcp,
            icmp_type: None,
            icmp_code: None,
            reply: false,
            rule: None,
            policies: vec![policy],
            logged: Vec::new(),
            length: 60,
            interface: Some("pal1".to_owned()),
            revision: Some(1),
            stale: false,
        };
        assert_eq!(
            packet_text(&packet),
            "T denied  ingress 10.0.0.9 port 40000 -> shop/db (10.0.0.1) port 5432 TCP 60 bytes pal1: \
             no rule allows it, isolated by NetworkPolicy shop/db (db.yaml:4)"
        );
        packet.verdict = MonitorVerdict::Allowed;
        packet.reason = PacketReason::Rule;
        packet.policies.clear();
        packet.rule = Some(log.clone());
        packet.logged = vec![log.clone()];
        packet.protocol = ProtocolName::Icmp;
        (packet.source.port, packet.destination.port) = (None, None);
        (packet.icmp_type, packet.icmp_code) = (Some(0), Some(0));
        (packet.reply, packet.stale) = (true, true);
        assert_eq!(
            packet_text(&packet),
            "T allowed ingress 10.0.0.9 -> shop/db (10.0.0.1) ICMP type 0 code 0 (reply) 60 bytes \
             pal1: NetworkPolicy shop/db rule 1 (db.yaml:4); \
             logged by NetworkPolicy shop/db rule 1 (db.yaml:4) (rules changed since)"
        );
        let lost = LostEvents {
            api_version: palisade_api::api_version(),
            time: "T".to_owned(),
            cause: LossCause::Rate,
            count: 9,
            reason: Some(PacketReason::Rule),
            rule: Some(log),
            policies: Vec::new(),
        };
        assert_eq!(
            lost_text(&lost),
            "T 9 more packets over the rate limit of a rule: NetworkPolicy shop/db rule 1 (db.yaml:4)"
        );
    }
}
