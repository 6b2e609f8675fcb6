//! `palisade policy`: what is in force and what its rules counted, as the agent tells it.

use super::split_name;
use crate::cli::{Format, PolicyCommand};
use crate::client::Client;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, answer, or_dash};
use palisade_api::{PolicyDetail, PolicyList, PolicySummary, path};
use std::fmt::Write;

/// Lists policies, or shows one with its counters.
pub(crate) fn run(command: &PolicyCommand, client: &Client, format: Format) -> Outcome {
    match command {
        PolicyCommand::List => {
            let list: PolicyList = client.get(path::POLICIES)?;
            answer(format, &list, |list| {
                let mut table =
                    Table::new(&["TIER", "POLICY", "ENDPOINTS", "RULES", "SUBJECT", "FROM"]);
                for p in &list.policies {
                    table.row([
                        p.tier.clone(),
                        name(p),
                        p.endpoints.to_string(),
                        p.rules.to_string(),
                        p.subject.clone(),
                        or_dash(p.line.clone().unwrap_or_default()),
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

fn detail_text(detail: &PolicyDetail) -> String {
    let mut out = String::new();
    let p = &detail.summary;
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<10} {value}");
    };
    line("Policy", name(p));
    line("Tier", p.tier.clone());
    line("From", or_dash(p.line.clone().unwrap_or_default()));
    line("Subject", p.subject.clone());
    line("Selects", or_dash(detail.selects.join(", ")));
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
