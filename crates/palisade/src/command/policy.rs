//! `palisade policy`: every policy, what is in force of it, and the counters of its rules.

use crate::cli::{OutputFormat, PolicyCommand};
use crate::client::ApiClient;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, print_output};
use palisade_api::{
    BudgetExcess, BudgetFallback, PolicyDetail, PolicyFinding, PolicyList, PolicyModeName,
    PolicyState, PolicyStatus, PolicySummary, path,
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
                    "ORDER",
                    "POLICY",
                    "STATUS",
                    "ENDPOINTS",
                    "RULES",
                    "SUBJECT",
                    "FROM",
                    "OVER BUDGET",
                ]);
                for p in &list.policies {
                    table.row([
                        tier_text(&p.tier, p.tier_order),
                        or_dash(order_text(p.order)),
                        p.policy.path_name(),
                        p.status.state.to_string(),
                        p.endpoints.to_string(),
                        p.rules.to_string(),
                        or_dash(&p.subject),
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
            let detail: PolicyDetail = client.get(&policy_path(name))?;
            print_output(format, &detail, detail_text)?;
        }
    }
    Ok(ExitStatus::Success)
}

/// A tier with its order, as text: `platform (100)`; `-` where there is none.
pub(super) fn tier_text(tier: &str, order: Option<f64>) -> String {
    match order {
        Some(order) => format!("{tier} ({order})"),
        None => or_dash(tier),
    }
}

fn order_text(order: Option<f64>) -> String {
    order.map_or(String::new(), |order| order.to_string())
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

/// The path of a policy as a user names it. A name as messages have it (`NetworkPolicy shop/web`) is one as well.
fn policy_path(name: &str) -> String {
    let name = name.trim();
    let spelled = match name.split_once(' ') {
        Some((kind, rest)) => format!("{kind}/{}", rest.trim_start()),
        None => name.to_owned(),
    };
    let mut path = path::POLICIES.to_owned();
    for segment in spelled.split('/') {
        path.push('/');
        for byte in segment.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => path.push(byte.into()),
                // Dots too: a client may take `..` for the path above.
                other => path.push_str(&format!("%{other:02X}")),
            }
        }
    }
    path
}

/// What is in force of a policy, in a sentence.
fn state_text(status: &PolicyStatus) -> String {
    let state = status.state;
    let what = match state {
        PolicyState::Accepted => "it is in force as written",
        PolicyState::PartlyClosed => "it is in force; some parts are held closed",
        PolicyState::OverBudget => {
            "all traffic of the endpoints that it selects with other policies is denied"
        }
        PolicyState::LastValid => "its last valid version stays in force",
        PolicyState::Isolating => "no valid version: the pods that it selects are isolated",
        PolicyState::NotEnforced => "nothing of it is in force",
    };
    match &status.version_since {
        Some(since) => format!("{state}: {what}, which was read at {since}"),
        None => format!("{state}: {what}"),
    }
}

/// The reasons, the parts held closed and the warnings, each with what it is.
fn finding_lines(status: &PolicyStatus) -> Vec<(&'static str, String)> {
    let text = |finding: &PolicyFinding| {
        let field = if finding.field.is_empty() {
            String::new()
        } else {
            format!("{}: ", finding.field)
        };
        let at = if finding.at.is_empty() {
            String::new()
        } else {
            format!(" ({})", finding.at)
        };
        format!("{field}{}{at}", finding.reason)
    };
    let more =
        |count: usize, what: &'static str| (count > 0).then(|| (what, format!("and {count} more")));
    let errors = status.errors.iter().map(|error| ("Error", text(error)));
    let closed = status
        .closed
        .iter()
        .map(|closed| ("Closed", text(&closed.part)));
    let warnings = status
        .warnings
        .iter()
        .map(|warning| ("Warning", text(warning)));
    errors
        .chain(more(status.more_errors, "Error"))
        .chain(closed)
        .chain(more(status.more_closed, "Closed"))
        .chain(warnings)
        .collect()
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
    line("Policy", p.policy.path_name());
    line("Status", state_text(&p.status));
    for (what, text) in finding_lines(&p.status) {
        line(what, text);
    }
    line("Tier", tier_text(&p.tier, p.tier_order));
    line("Order", or_dash(order_text(p.order)));
    line("From", or_dash(p.policy.line.clone().unwrap_or_default()));
    line("Subject", or_dash(&p.subject));
    line("Mode", mode_text(p));
    line("Selects", or_dash(detail.selects.join(", ")));
    let since = p.since.as_ref();
    let since = since.map(|since| format!("revision {}, since {since}", p.revision));
    let without = match p.status.state {
        PolicyState::NotEnforced => "-",
        _ => "not yet",
    };
    line("In kernel", since.unwrap_or_else(|| without.to_owned()));
    if let Some(over) = &p.over_budget {
        line("Budget", budget_excess_text(over));
        for rule in &over.rules {
            let at = rule.line.as_ref().map(|line| format!(" ({line})"));
            let at = at.unwrap_or_default();
            let (policy, direction, index) = (&rule.policy, &rule.direction, rule.index);
            line(
                "",
                format!("{} by {policy} {direction}[{index}]{at}", rule.elements),
            );
        }
    }
    out.push('\n');
    let mut rules = detail.rule_counters.iter();
    let audited = rules.any(|rule| rule.would_allow.is_some() || rule.would_deny.is_some());
    let audit_columns: &[&str] = if audited {
        &["WOULD ALLOW", "WOULD DENY"]
    } else {
        &[]
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

#[cfg(test)]
mod tests {
    use super::policy_path;

    #[test]
    fn a_name_becomes_a_path_and_never_another_one() {
        for (name, path) in [
            ("web", "/v1/policies/web"),
            ("shop/web", "/v1/policies/shop/web"),
            (
                "networkpolicy/shop/web-1",
                "/v1/policies/networkpolicy/shop/web-1",
            ),
            (
                " NetworkPolicy shop/web ",
                "/v1/policies/NetworkPolicy/shop/web",
            ),
            ("a.b/c", "/v1/policies/a%2Eb/c"),
            ("../status", "/v1/policies/%2E%2E/status"),
            ("a?x=y#z", "/v1/policies/a%3Fx%3Dy%23z"),
            ("ü", "/v1/policies/%C3%BC"),
        ] {
            assert_eq!(policy_path(name), path, "{name}");
        }
    }
}
