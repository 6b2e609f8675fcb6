//! An explanation as text: the verdict, the deciding reason, then the evaluation trace.

use super::{
    DecisionReport, DirectionReport, Explanation, FlowEndReport, FlowReport, HostReport, HostStage,
    OriginalDestination, RuleRef, StepReport, VerdictWord,
};
use crate::{ObjectRef, ProtocolName};
use palisade_model::{Direction, TierDefault};
use std::fmt::{self, Display, Formatter};

impl Display for VerdictWord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VerdictWord::Allow => "ALLOW",
            VerdictWord::Deny => "DENY",
        })
    }
}

impl Display for RuleRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.direction, self.index)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        write!(f, " ({})", self.action)?;
        match &self.line {
            Some(line) => write!(f, " at {line}"),
            None => Ok(()),
        }
    }
}

impl RuleRef {
    /// The rule with its policy or profile.
    pub(crate) fn qualified(&self) -> String {
        match (&self.policy, &self.profile) {
            (Some(policy), _) => {
                let policy = ObjectRef {
                    line: policy.line.clone().filter(|_| self.line.is_none()),
                    ..policy.clone()
                };
                format!("{policy} {self}")
            }
            (None, Some(profile)) => format!("profile {profile} {self}"),
            (None, None) => self.to_string(),
        }
    }
}

impl Display for FlowEndReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = match (&self.endpoint, &self.node) {
            (Some(endpoint), _) => Some(endpoint.to_string()),
            (None, Some(node)) => Some(format!("host:{node}")),
            (None, None) => None,
        };
        match (name, self.address) {
            (Some(name), Some(address)) => write!(f, "{name} [{address}]")?,
            (Some(name), None) => f.write_str(&name)?,
            (None, Some(address)) => address.fmt(f)?,
            (None, None) => f.write_str("unknown endpoint")?,
        }
        match &self.service {
            Some(service) => write!(f, " as backend of service {service}"),
            None => Ok(()),
        }
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.case.fmt(f)?;
        if !self.others.is_empty() {
            f.write_str("\nThe query covers several flows with different results:\n")?;
        }
        for case in &self.others {
            write!(f, "\n{case}")?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}\n")?;
        }
        Ok(())
    }
}

impl Display for FlowReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.verdict, self.traffic())?;
        if let Some(audit) = self.audit_verdict {
            writeln!(f, "  {audit} if nothing were in audit")?;
        }
        if let Some(answer) = self.rejected_with {
            writeln!(f, "  the sender is answered with {answer}")?;
        }
        writeln!(f, "  from  {}", self.from)?;
        writeln!(f, "  to    {}", self.to)?;
        if let Some(OriginalDestination { address, port }) = self.original_destination {
            let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
            writeln!(f, "  sent  to {address}{port}, before destination NAT")?;
        }
        self.write_end(&self.from, Direction::Egress, &self.egress, f)?;
        for at in &self.hosts {
            writeln!(f)?;
            let stage = match (at.stage, at.direction) {
                (HostStage::Untracked, _) => "before connection tracking",
                (HostStage::PreDnat, _) => "before destination NAT",
                (HostStage::Forward, _) => "forwarded",
                (HostStage::Normal, Direction::Ingress) => "to the host",
                (HostStage::Normal, Direction::Egress) => "from the host",
            };
            let HostReport {
                node, interface, ..
            } = at;
            let address = interface
                .strip_prefix('[')
                .and_then(|name| name.strip_suffix(']'));
            let interface = match (interface.as_str(), address) {
                ("*", _) => "any interface that no host endpoint names".to_owned(),
                (_, Some(address)) => format!("the interface with {address}"),
                (name, None) => name.to_owned(),
            };
            let name = format!("host:{node} at {interface}, {stage}, {}", at.direction);
            write_direction(&name, &at.decision, f)?;
        }
        self.write_end(&self.to, Direction::Ingress, &self.ingress, f)
    }
}

impl FlowReport {
    /// Writes what is decided at one end; of a host that is what it decides at its interfaces.
    fn write_end(
        &self,
        end: &FlowEndReport,
        direction: Direction,
        side: &DirectionReport,
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        let is_judged = |node: &String| {
            let mut hosts = self.hosts.iter();
            hosts.any(|at| at.node == *node && at.direction == direction)
        };
        match &end.node {
            Some(node) if is_judged(node) => Ok(()),
            Some(node) => writeln!(
                f,
                "\nALLOW by {direction} of host:{node}\n  no host endpoint governs an interface that the packet crosses"
            ),
            None => {
                writeln!(f)?;
                write_direction(&direction.to_string(), side, f)
            }
        }
    }

    fn traffic(&self) -> String {
        let protocol = match self.protocol {
            ProtocolName::Number(number) => format!("protocol {number}"),
            named => named.to_string(),
        };
        let detail = match (self.port, self.source_port, self.icmp_type) {
            (Some(port), Some(source), _) => format!(" to port {port} from port {source}"),
            (_, _, Some([kind, code])) => format!(" type {kind} code {code}"),
            _ => String::new(),
        };
        format!("{protocol}{detail} over {}", self.family)
    }
}

fn write_direction(name: &str, report: &DirectionReport, f: &mut Formatter<'_>) -> fmt::Result {
    match &report.subject {
        Some(subject) => writeln!(f, "{} by {name} of {subject}", report.verdict)?,
        None => writeln!(f, "{} by {name}", report.verdict)?,
    }
    write_judgement(report, f)?;
    let Some(audit) = &report.audit else {
        return Ok(());
    };
    writeln!(f, "{} by {name} if nothing were in audit", audit.verdict)?;
    write_judgement(audit, f)
}

/// The decision, and what led to it.
fn write_judgement(report: &DirectionReport, f: &mut Formatter<'_>) -> fmt::Result {
    match report.dns_names.as_deref() {
        None => {}
        Some([]) if report.verdict == VerdictWord::Allow => {
            writeln!(
                f,
                "  DNS queries are observed; every name may be asked for:"
            )?;
        }
        Some([]) => writeln!(f, "  DNS queries are decided by name: none is allowed:")?,
        Some(names) => writeln!(
            f,
            "  DNS queries are decided by name: allowed are {}; for others:",
            names.join(", ")
        )?,
    }
    write_decision(report, f)?;
    if let Some(miss) = &report.nearest_miss {
        writeln!(f, "  nearest rule: {}", miss.rule.qualified())?;
        writeln!(f, "  it does not match because:")?;
        for reason in &miss.unless {
            writeln!(f, "    - {reason}")?;
        }
    }
    if !report.steps.is_empty() {
        writeln!(f, "  evaluation trace:")?;
    }
    for step in &report.steps {
        write_step(step, f)?;
    }
    match report.not_applying {
        0 => Ok(()),
        1 => writeln!(f, "    1 other policy does not apply (--all shows why)"),
        more => writeln!(
            f,
            "    {more} other policies do not apply (--all shows why)"
        ),
    }
}

fn write_decision(report: &DirectionReport, f: &mut Formatter<'_>) -> fmt::Result {
    match &report.decided_by {
        DecisionReport::Rule(rule) => writeln!(f, "  decided by {}", rule.qualified()),
        DecisionReport::TierDefault { tier, isolating } => {
            writeln!(
                f,
                "  denied by the default of tier {tier}; these policies apply default deny:"
            )?;
            isolating
                .iter()
                .try_for_each(|policy| writeln!(f, "    - {policy}"))
        }
        DecisionReport::AllowAllProfile => {
            writeln!(f, "  no policy decided; allowed by the default profile")
        }
        DecisionReport::NoProfileMatch => writeln!(
            f,
            "  no policy decided and no profile rule matched; denied by default"
        ),
        DecisionReport::MissingProfile { profile } => {
            writeln!(
                f,
                "  no policy decided; denied because profile {profile} does not exist"
            )
        }
        DecisionReport::HostOrigin => {
            writeln!(
                f,
                "  allowed: traffic from the host itself to its own endpoints, whatever policies say (host-to-endpoint: allow)"
            )
        }
        DecisionReport::Itself => {
            writeln!(
                f,
                "  allowed: source and destination are the same endpoint, and no policy that judges this selects it"
            )
        }
        DecisionReport::HairpinEnd => writeln!(
            f,
            "  allowed: source and destination are the same endpoint, and no policy that judges this decided"
        ),
        DecisionReport::Encapsulated {
            encapsulation,
            parameter,
        } => writeln!(
            f,
            "  rules allow it, but it is an encapsulated packet ({encapsulation}), and rules do not see the \
             inner packet; the agent drops it unless {parameter} has {}",
            encapsulation.name()
        ),
        DecisionReport::EndpointInAudit => {
            writeln!(
                f,
                "  allowed: the endpoint is in audit, so no policy is enforced"
            )
        }
        DecisionReport::Failsafe => {
            writeln!(
                f,
                "  allowed: a failsafe port of the host, which no policy can close"
            )
        }
        DecisionReport::NoForwardPolicy => writeln!(
            f,
            "  allowed: no policy with applyOnForward selects the interface, and the host only forwards it"
        ),
        DecisionReport::ForwardEnd => writeln!(
            f,
            "  allowed: no policy with applyOnForward decided, and the host only forwards it"
        ),
        DecisionReport::StageEnd => writeln!(
            f,
            "  not decided: no rule of these policies matched, and the next stage judges"
        ),
        DecisionReport::NotAnEndpoint => {
            writeln!(f, "  not a pod or workload: no policy applies at this end")
        }
    }
}

/// The order of a policy that has one.
fn order_suffix(order: Option<f64>) -> String {
    order.map_or(String::new(), |order| format!(", order {order}"))
}

fn write_step(step: &StepReport, f: &mut Formatter<'_>) -> fmt::Result {
    match step {
        StepReport::Tier {
            tier,
            order,
            missing,
            counts,
            ..
        } => {
            let order = match (order, *missing) {
                (_, true) => " (no such tier exists; evaluated last)".to_owned(),
                (Some(order), false) => format!(" (order {order})"),
                (None, false) => " (no order; evaluated after tiers that have one)".to_owned(),
            };
            let skipped = if *counts {
                ""
            } else {
                ": skipped, none of its policies applies"
            };
            writeln!(f, "    tier {tier}{order}{skipped}")
        }
        StepReport::Policy {
            policy,
            order,
            judges: true,
            ..
        } => writeln!(f, "      {policy} applies{}", order_suffix(*order)),
        StepReport::Policy { policy, reason, .. } => {
            let reason = reason
                .as_deref()
                .unwrap_or("it does not select the endpoint");
            writeln!(f, "      {policy} does not apply: {reason}")
        }
        StepReport::Rule {
            rule,
            matched,
            reasons,
        } => {
            let outcome = if *matched {
                "matches"
            } else {
                "does not match"
            };
            writeln!(f, "        {rule} {outcome}")?;
            reasons
                .iter()
                .try_for_each(|reason| writeln!(f, "          - {reason}"))
        }
        StepReport::TierEnd {
            tier,
            outcome,
            reason,
        } => {
            let outcome = match outcome {
                TierDefault::Deny => "deny",
                TierDefault::Pass => "pass",
            };
            writeln!(f, "      end of tier {tier}: {outcome} ({reason})")
        }
        StepReport::Profile { profile, exists } => {
            let missing = if *exists { "" } else { " does not exist" };
            writeln!(f, "    profile {profile}{missing}")
        }
    }
}
