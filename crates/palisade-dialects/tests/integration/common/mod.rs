//! Prints a lowered input as text for review.

mod cases;
mod lowering;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub(crate) use cases::{check_cases, problem_lines};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub(crate) use lowering::{EntryStatus, Lowering, lint, lower};
use palisade_manifest::{Limits, Problem, RawObject, extract_objects, parse};
use palisade_model::{
    DirectionRules, Endpoint, IcmpMatch, Labels, Object, Peer, Policy, PolicyMode, PortMatch,
    PortSpec, Rule, TrafficMatch, TrafficScope,
};
use std::fmt::Write;

/// The objects of a text, which must have no other content.
pub(crate) fn raw(file: &str, text: &str) -> Vec<RawObject> {
    let limits = Limits::default();
    let read = extract_objects(parse(file, text.as_bytes(), &limits), &limits);
    assert_eq!(
        read.problems,
        Vec::<Problem>::new(),
        "{file} is not readable"
    );
    read.objects
}

pub(crate) fn lowering(file: &str, text: &str) -> Lowering {
    lower(&raw(file, text))
}

pub(crate) fn problem(problem: &Problem) -> String {
    let object = problem.object.as_deref().unwrap_or("-");
    format!("{object}: {problem}")
}

/// The complete result of lowering.
pub(crate) fn show(lowering: &Lowering) -> String {
    let mut out = String::new();
    for entry in &lowering.entries {
        let line = entry.location.line;
        let status = match &entry.status {
            EntryStatus::Accepted => "",
            EntryStatus::Rejected => " REJECTED",
            EntryStatus::Duplicate { .. } => " DUPLICATE",
        };
        let completed = if entry.completed { " completed" } else { "" };
        writeln!(out, "{line}: {}{status}{completed}", entry.id).unwrap();
        for object in &entry.objects {
            show_object(&mut out, object);
        }
        for policy in &entry.isolation {
            out.push_str("  instead, if it was never valid:\n");
            show_policy(&mut out, policy);
        }
    }
    for (title, problems) in [
        ("errors", &lowering.errors),
        ("held closed", &lowering.closed),
        ("warnings", &lowering.warnings),
    ] {
        if !problems.is_empty() {
            writeln!(out, "\n{title}:").unwrap();
        }
        for p in problems {
            writeln!(out, "  {}", problem(p)).unwrap();
        }
    }
    if !lowering.ignored.is_empty() {
        out.push_str("\nignored:\n");
    }
    for (kind, count) in &lowering.ignored {
        writeln!(out, "  {kind}: {count}").unwrap();
    }
    out
}

fn show_object(out: &mut String, object: &Object) {
    match object {
        Object::Policy(policy) => show_policy(out, policy),
        Object::Endpoint(endpoint) => show_endpoint(out, endpoint),
        Object::Namespace(o) => {
            let audit = if o.audit { " audit" } else { "" };
            writeln!(out, "  labels {}{audit}", labels(&o.labels)).unwrap();
        }
        Object::Node(o) => {
            writeln!(out, "  labels {}", labels(&o.labels)).unwrap();
            writeln!(out, "  addresses {:?}", o.addresses).unwrap();
            writeln!(out, "  internal {:?}", o.internal_addresses).unwrap();
            writeln!(out, "  pods {:?}", o.pod_networks).unwrap();
        }
        Object::ServiceAccount(o) => writeln!(out, "  labels {}", labels(&o.labels)).unwrap(),
        Object::Service(o) => {
            writeln!(out, "  selector {}", labels(&o.selector)).unwrap();
            writeln!(out, "  addresses {:?}", o.addresses).unwrap();
            for p in &o.ports {
                let name = p.name.as_deref().unwrap_or("-");
                writeln!(
                    out,
                    "  port {name} {} {} to {}",
                    p.port, p.protocol, p.target
                )
                .unwrap();
            }
        }
        other => writeln!(out, "  {other:?}").unwrap(),
    }
}

fn show_endpoint(out: &mut String, e: &Endpoint) {
    let template = if e.is_template() { "template " } else { "" };
    assert!(!e.is_host());
    writeln!(out, "  {template}labels {}", labels(&e.labels)).unwrap();
    let account = e.service_account.as_deref().unwrap_or("-");
    let node = e.node.as_deref().unwrap_or("-");
    writeln!(
        out,
        "  account {account} node {node} addresses {:?}",
        e.addresses
    )
    .unwrap();
    let owner = e
        .metadata
        .owner
        .as_ref()
        .map(|o| format!("{} {}", o.kind, o.name));
    let owner = owner.as_deref().unwrap_or("-");
    writeln!(
        out,
        "  created {} owner {owner} profiles {:?}",
        e.created, e.profiles
    )
    .unwrap();
    for (flag, is_set) in [("host network", e.uses_host_network()), ("audit", e.audit)] {
        if is_set {
            writeln!(out, "  {flag}").unwrap();
        }
    }
    if let Some(interface) = &e.interface {
        writeln!(out, "  interface {interface}").unwrap();
    }
    for p in &e.ports {
        writeln!(out, "  port {} {} {}", p.name, p.protocol, p.port).unwrap();
    }
}

fn show_policy(out: &mut String, p: &Policy) {
    let line = p.line.as_ref().unwrap().line;
    let (order, rank) = (p.precedence.order, p.precedence.rank);
    if p.id.part > 0 {
        writeln!(out, "  part {}", p.id.part).unwrap();
    }
    let scope = match p.scope {
        TrafficScope::Endpoints => String::new(),
        scope => format!(" scope {scope:?}"),
    };
    let mode = match p.mode {
        PolicyMode::Enforce => String::new(),
        mode => format!(" mode {mode:?}"),
    };
    writeln!(
        out,
        "  line {line} tier {} {order:?} rank {rank}{scope}{mode}",
        p.tier
    )
    .unwrap();
    writeln!(out, "  subject {}", p.subject).unwrap();
    show_direction(out, "ingress", p.ingress.as_ref());
    show_direction(out, "egress", p.egress.as_ref());
}

fn show_direction(out: &mut String, name: &str, rules: Option<&DirectionRules>) {
    let Some(rules) = rules else { return };
    let default = if rules.default_deny {
        " default deny"
    } else {
        ""
    };
    writeln!(out, "  {name}:{default}").unwrap();
    for rule in &rules.rules {
        show_rule(out, rule);
    }
}

fn show_rule(out: &mut String, rule: &Rule) {
    let name = rule.origin.name.as_ref().map(|name| format!(" {name:?}"));
    let name = name.unwrap_or_default();
    let line = rule.origin.line.as_ref().unwrap().line;
    writeln!(
        out,
        "    {} (line {line}) {}{name}",
        rule.origin.index, rule.action
    )
    .unwrap();
    for peer in &rule.peers {
        writeln!(out, "      peer {}", show_peer(peer)).unwrap();
    }
    if let Some(own) = &rule.local {
        writeln!(out, "      own {}", show_peer(own)).unwrap();
    }
    for traffic in &rule.traffic {
        writeln!(out, "      traffic {}", show_traffic(traffic)).unwrap();
    }
    for name in rule.dns_names.iter().flatten() {
        writeln!(out, "      query {name}").unwrap();
    }
}

fn show_peer(peer: &Peer) -> String {
    if peer.is_any() {
        return "any".to_owned();
    }
    let mut out = String::new();
    if let Some(selector) = &peer.selector {
        write!(out, "{selector}").unwrap();
    }
    if let Some(nets) = &peer.nets {
        write!(out, "{nets:?}").unwrap();
    }
    if !peer.not_nets.is_empty() {
        write!(out, " less {:?}", peer.not_nets).unwrap();
    }
    if let Some(selector) = &peer.not_selector {
        write!(out, " not ({selector})").unwrap();
    }
    out
}

fn show_traffic(traffic: &TrafficMatch) -> String {
    if *traffic == TrafficMatch::any() {
        return "any".to_owned();
    }
    let protocol = traffic.protocol.map(|protocol| protocol.to_string());
    let protocol = protocol.unwrap_or_else(|| "any".to_owned());
    let mut out = protocol;
    if let Some(family) = traffic.family {
        write!(out, " {family:?}").unwrap();
    }
    if !traffic.not_protocols.is_empty() {
        write!(out, " not protocols {:?}", traffic.not_protocols).unwrap();
    }
    for (end, ports) in [("", &traffic.destination), (" from", &traffic.source)] {
        if *ports != PortMatch::any() {
            write!(out, "{end}{}", show_ports(ports)).unwrap();
        }
    }
    for (word, message) in [("message", traffic.icmp), ("not message", traffic.not_icmp)] {
        if let Some(IcmpMatch { kind, code }) = message {
            write!(out, " {word} {kind} code {code:?}").unwrap();
        }
    }
    out
}

fn show_ports(ports: &PortMatch) -> String {
    let join = |ports: &[PortSpec]| {
        let texts: Vec<String> = ports.iter().map(ToString::to_string).collect();
        texts.join(",")
    };
    let mut out = String::new();
    if let Some(listed) = &ports.any_of {
        write!(out, " {}", join(listed)).unwrap();
    }
    if !ports.not.is_empty() {
        write!(out, " less {}", join(&ports.not)).unwrap();
    }
    out
}

fn labels(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(", "))
}
