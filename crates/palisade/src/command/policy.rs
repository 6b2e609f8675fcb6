//! `palisade policy`: the active policies and the counters of their rules.

use super::split_name;
use crate::cli::{OutputFormat, PolicyCommand};
use crate::client::ApiClient;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, print_output};
use palisade_api::{
    BudgetExcess, BudgetFallback, PolicyDetail, PolicyList, PolicyModeName, PolicySummary, path,
};
use palisade_text::printable;
use std::fmt::Write;

/// Lists policies, or shows one with its counters.
pub(crate) fn run(
    command: &PolicyCommand,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    match command {
        PolicyCommand::List => {
            let list: PolicyList = client.get(path::POLICIES)?;
            print_output(format, &list, |list| {
                let mut table = TextTable::new(&[
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
                        p.policy.without_line().to_string(),
                        p.endpoints.to_string(),
                        p.rules.to_string(),
                        p.subject.clone(),
                        or_dash(p.policy.line.clone().unwrap_or_default()),
                        p.over_budget
                            .as_ref()
                            .map_or("-".to_owned(), budget_excess_cell),
                    ]);
                }
                table.to_string()
            })?;
        }
        PolicyCommand::Get { name } => {
            let (namespace, name) = split_name(name);
            let detail: PolicyDetail =
                client.get(&format!("{}/{namespace}/{name}", path::POLICIES))?;
            print_output(format, &detail, detail_text)?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Whether the policy is enforced.
fn mode_text(p: &PolicySummary) -> String {
    match (p.mode, p.endpoints_in_audit) {
        (PolicyModeName::Audit, _) => "audit: it is not enforced".to_owned(),
        (PolicyModeName::Enforce, 0) => "enforce".to_owned(),
        (PolicyModeName::Enforce, some) => {
            format!(
                "enforce, except for {some} of {} endpoints, which are in audit",
                p.endpoints
            )
        }
    }
}

fn budget_excess_cell(over: &BudgetExcess) -> String {
    format!("{} of {}", over.elements, over.budget)
}

/// The excess over the budget, and what is enforced instead.
fn budget_excess_text(over: &BudgetExcess) -> String {
    let (what, instead) = match over.enforced {
        BudgetFallback::LastValid => ("the policy", "the last valid version stays in force"),
        BudgetFallback::Isolating => ("the policy", "the pods it selects are isolated"),
        BudgetFallback::Closed => ("the policy set", "all traffic of its endpoints is denied"),
    };
    format!(
        "{what} needs about {} kernel elements, {} allows {}: {instead}",
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
    line("Policy", p.policy.without_line().to_string());
    line("Tier", p.tier.clone());
    line("From", or_dash(p.policy.line.clone().unwrap_or_default()));
    line("Subject", p.subject.clone());
    line("Mode", mode_text(p));
    line("Selects", or_dash(detail.selects.join(", ")));
    let since = p.since.as_ref();
    let since = since.map(|since| format!("revision {}, since {since}", p.revision));
    line("In kernel", since.unwrap_or_else(|| "not yet".to_owned()));
    if let Some(over) = &p.over_budget {
        line("Budget", budget_excess_text(over));
        for rule in &over.rules {
            let at = rule.line.as_ref().map(|line| format!(" ({line})"));
            let at = at.unwrap_or_default();
            let (of, direction, index) = (&rule.policy, &rule.direction, rule.index);
            line(
                "",
                format!("{} by {of} {direction}[{index}]{at}", rule.elements),
            );
        }
    }
    out.push('\n');
    let mut rules = detail.rule_counters.iter();
    let audited = rules.any(|rule| rule.would_allow.is_some() || rule.would_deny.is_some());
    let audit_columns: &[&str] = match audited {
        true => &["WOULD ALLOW", "WOULD DENY"],
        false => &[],
    };
    let columns = ["DIRECTION", "RULE", "ACTION", "PACKETS", "BYTES"].iter();
    let columns: Vec<&str> = columns
        .chain(audit_columns)
        .chain(&["FROM"])
        .copied()
        .collect();
    let mut table = TextTable::new(&columns);
    for rule in &detail.rule_counters {
        let would = [rule.would_allow, rule.would_deny];
        let would = would.map(|count| count.unwrap_or_default().packets.to_string());
        let cells = [
            rule.direction.to_string(),
            rule.index.map_or("-".to_owned(), |index| index.to_string()),
            rule.action.to_string(),
            rule.count.packets.to_string(),
            rule.count.bytes.to_string(),
        ];
        let would = would.into_iter().filter(|_| audited);
        let from = or_dash(rule.line.clone().unwrap_or_default());
        table.row(cells.into_iter().chain(would).chain([from]));
    }
    out + &table.to_string()
}
