//! `palisade policy`: what is in force and what its rules counted, as the agent tells it.

use super::split_name;
use crate::cli::{Format, PolicyCommand};
use crate::client::Client;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, answer, or_dash};
use palisade_api::{Enforced, OverBudget, PolicyDetail, PolicyList, PolicySummary, path};
use palisade_text::printable;
use std::fmt::Write;

/// Lists policies, or shows one with its counters.
pub(crate) fn run(command: &PolicyCommand, client: &Client, format: Format) -> Outcome {
    match command {
        PolicyCommand::List => {
            let list: PolicyList = client.get(path::POLICIES)?;
            answer(format, &list, |list| {
                let mut table = Table::new(&[
                    "TIER",
                    "POLICY",
                    "ENDPOINTS",
                    "RULES",
                    "SUBJECT",
                    "FROM",
                    "OVER BUDGET",
                ]);
                for p in &list.policies {
                    table.row([
                        p.tier.clone(),
                        name(p),
                        p.endpoints.to_string(),
                        p.rules.to_string(),
                        p.subject.clone(),
                        or_dash(p.line.clone().unwrap_or_default()),
                        p.over_budget.as_ref().map_or("-".to_owned(), in_short),
                    ]);
                }
                table.to_string()
            })?;
        }
        PolicyCommand::Get { name } => {
            let (namespace, name) = split_name(name);
            let detail: PolicyDetail =
                client.get(&format!("{}/{namespace}/{name}", path::POLICIES))?;
            answer(format, &detail, detail_text)?;
        }
    }
    Ok(Exit::Fine)
}

fn name(policy: &PolicySummary) -> String {
    match &policy.namespace {
        Some(namespace) => format!("{} {namespace}/{}", policy.kind, policy.name),
        None => format!("{} {}", policy.kind, policy.name),
    }
}

fn in_short(over: &OverBudget) -> String {
    format!("{} of {}", over.elements, over.budget)
}

/// What would take too much, and what is enforced instead.
fn over_budget(over: &OverBudget) -> String {
    let (what, instead) = match over.enforced {
        Enforced::LastValid => ("its text", "the last valid version stays in force"),
        Enforced::Isolating => ("its text", "what it selects is isolated"),
        Enforced::Closed => ("its policy set", "what it selects is denied everything"),
    };
    format!(
        "{what} would take about {} kernel elements, {} allows {}: {instead}",
        over.elements, over.parameter, over.budget
    )
}

fn detail_text(detail: &PolicyDetail) -> String {
    let mut out = String::new();
    let p = &detail.summary;
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<10} {}", printable(&value));
    };
    line("Policy", name(p));
    line("Tier", p.tier.clone());
    line("From", or_dash(p.line.clone().unwrap_or_default()));
    line("Subject", p.subject.clone());
    line("Selects", or_dash(detail.selects.join(", ")));
    if let Some(over) = &p.over_budget {
        line("Refused", over_budget(over));
        for rule in &over.rules {
            let at = rule.line.as_ref().map(|line| format!(" ({line})"));
            let at = at.unwrap_or_default();
            let (of, way, index) = (&rule.policy, &rule.direction, rule.index);
            line("", format!("{} by {of} {way}[{index}]{at}", rule.elements));
        }
    }
    out.push('\n');
    let mut table = Table::new(&["DIRECTION", "RULE", "ACTION", "PACKETS", "BYTES", "FROM"]);
    for rule in &detail.rule_counters {
        table.row([
            rule.direction.clone(),
            rule.index.map_or("-".to_owned(), |index| index.to_string()),
            rule.action.clone(),
            rule.count.packets.to_string(),
            rule.count.bytes.to_string(),
            or_dash(rule.line.clone().unwrap_or_default()),
        ]);
    }
    out + &table.to_string()
}
