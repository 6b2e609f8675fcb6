//! `palisade status` and `palisade config`.

use super::agent_config;
use crate::cli::{ConfigArgs, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, pluralize, print_output};
use palisade_api::{
    AuditSummary, ConfigReport, DataplaneStatus, FastPathReport, FollowedSource, Health,
    NamesStatus, ParameterOrigin, Status, TierReport, UntrustedServerReport, path,
};
use palisade_text::printable;
use std::fmt::Write;

/// Shows the agent's status; a degraded agent gives exit code 1.
pub(crate) fn run(client: &ApiClient, format: OutputFormat) -> CommandResult {
    let status: Status = client.get(path::STATUS)?;
    print_output(format, &status, status_text)?;
    Ok(ExitStatus::of(status.health == Health::Degraded))
}

/// Shows the agent's configuration, or that of an agent with the file to check.
pub(crate) fn run_config(
    args: ConfigArgs,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    let report: ConfigReport = match args.check {
        Some(file) => agent_config::resolve_file(file)?.report(),
        None => client.get(path::CONFIG)?,
    };
    print_output(format, &report, config_text)?;
    let refused = report.file.is_some_and(|file| file.error.is_some());
    Ok(ExitStatus::of(refused))
}

fn config_text(report: &ConfigReport) -> String {
    let mut out = String::new();
    if let Some(file) = &report.file {
        let absent = if file.found { "" } else { " (does not exist)" };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "File {}{absent}", printable(&file.path));
        if let Some(error) = &file.error {
            let _ = writeln!(
                out,
                "INVALID, the previous configuration stays active: {error}"
            );
        }
        out.push('\n');
    }
    let mut table = TextTable::new(&[
        "PARAMETER",
        "VALUE",
        "FROM",
        "DEFAULT",
        "CHANGES",
        "PENDING",
    ]);
    for p in &report.parameters {
        let from = match (p.source, p.origin.as_str()) {
            (ParameterOrigin::Default, _) | (_, "") => p.source.name(),
            (_, origin) => origin,
        };
        let changes = if p.changeable { "live" } else { "restart" };
        table.row([
            p.name.clone(),
            or_dash(&p.value),
            from.to_owned(),
            or_dash(&p.default),
            changes.to_owned(),
            match p.pending.as_deref() {
                None => or_dash(String::new()),
                Some("") => "(empty)".to_owned(),
                Some(pending) => pending.to_owned(),
            },
        ]);
    }
    let _ = write!(out, "{table}");
    out
}

/// Formats the status.
pub(super) fn status_text(status: &Status) -> String {
    let mut lines = StatusLines::default();
    add_summary(status, &mut lines);
    add_host_endpoints(status, &mut lines);
    add_policy(status, &mut lines);
    add_source(status, &mut lines);
    add_retained_objects(status, &mut lines);
    add_addresses_and_budget(status, &mut lines);
    if let Some(names) = &status.names {
        add_names(names, &mut lines);
    }
    add_dataplane(&status.dataplane, &mut lines);
    let steps: Vec<String> = status
        .bootstrap
        .iter()
        .map(|s| format!("{} {:.1} ms", s.name, s.millis))
        .collect();
    lines.add("Start", steps.join(", "));
    lines.text
}

/// Lines of a name and a value; a line that belongs to the one before has no name.
#[derive(Default)]
struct StatusLines {
    text: String,
}

impl StatusLines {
    fn add(&mut self, name: &str, value: String) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{name:<12} {}", printable(&value));
    }
}

fn add_summary(status: &Status, lines: &mut StatusLines) {
    let health = match status.health {
        Health::Starting => "starting",
        Health::Ready => "ready",
        Health::Degraded => "DEGRADED",
    };
    lines.add("Health", health.to_owned());
    for reason in &status.reasons {
        lines.add("", format!("- {reason}"));
    }
    if !status.as_of.is_empty() {
        lines.add("As of", status.as_of.clone());
    }
    lines.add(
        "Agent",
        format!(
            "palisade {}, process {}, since {}",
            status.version, status.pid, status.started
        ),
    );
    lines.add(
        "Policy",
        format!(
            "revision {} accepted, {} in the kernel; {} policies, {} endpoints, {} identities",
            status.revision, status.realised, status.policies, status.endpoints, status.identities
        ),
    );
}

fn add_host_endpoints(status: &Status, lines: &mut StatusLines) {
    for (at, host) in status.host_endpoints.iter().enumerate() {
        let text = match (&host.interface, &host.reason) {
            (Some(interface), _) if interface == "*" => "every other interface".to_owned(),
            (Some(interface), None) => format!("interface {interface}"),
            (Some(interface), Some(reason)) => format!("interface {interface}: {reason}"),
            (None, reason) => format!("not enforced: {}", reason.as_deref().unwrap_or_default()),
        };
        let title = if at == 0 { "Host" } else { "" };
        lines.add(title, format!("{} {}: {text}", host.kind, host.name));
    }
    for text in &status.missing_failsafe {
        lines.add("", format!("! {text}"));
    }
}

/// The tiers, how far policies are, and what the audit would deny.
fn add_policy(status: &Status, lines: &mut StatusLines) {
    if !status.tiers.is_empty() {
        let tiers: Vec<String> = status.tiers.iter().map(tier_text).collect();
        lines.add("Tiers", tiers.join(", "));
    }
    if !status.policy_states.is_empty() {
        let states = status.policy_states.iter();
        let states: Vec<String> = states
            .map(|count| format!("{} {}", count.policies, count.state))
            .collect();
        lines.add(
            "",
            format!("- {}: see palisade policy list", states.join(", ")),
        );
    }
    if !status.audit.is_empty() {
        for (at, text) in audit_lines(&status.audit).into_iter().enumerate() {
            lines.add(if at == 0 { "Audit" } else { "" }, text);
        }
    }
}

fn add_source(status: &Status, lines: &mut StatusLines) {
    let source = &status.source;
    let sources: Vec<String> = source.sources.iter().map(followed_text).collect();
    lines.add(
        "Source",
        format!(
            "{}; {}, {}, {}",
            sources.join(", "),
            pluralize(source.files, "file"),
            pluralize(source.objects, "object"),
            pluralize(source.problems.iter().map(|p| p.count()).sum(), "problem")
        ),
    );
    if let Some(error) = &status.node_status_error {
        lines.add("", format!("- NodePolicyStatus is not written: {error}"));
    }
    for problem in &source.problems {
        lines.add("", format!("- {}", problem_text(problem)));
    }
}

/// A source that is followed, and how.
fn followed_text(source: &FollowedSource) -> String {
    let synced = match (&source.stale, source.in_sync) {
        (Some(stale), _) => format!("not followed since {}", stale.since),
        (None, true) => "in sync".to_owned(),
        (None, false) => "not in sync yet".to_owned(),
    };
    let absent = if source.absent.is_empty() {
        String::new()
    } else {
        format!(", which does not have {}", source.absent.join(", "))
    };
    format!("{} {}: {synced}{absent}", source.name, source.location)
}

fn add_retained_objects(status: &Status, lines: &mut StatusLines) {
    for retained in &status.retained_objects {
        let what = match (&retained.since, &retained.hash) {
            (Some(since), Some(hash)) => format!(
                "version {} of {since} stays in force",
                &hash[..hash.len().min(12)]
            ),
            _ => "no valid version: the pods it selects are isolated".to_owned(),
        };
        lines.add("", format!("- {}: {what}", retained.object));
    }
    if let Some(more) = status.more_retained_objects {
        lines.add("", format!("- and {more} more objects stay in force"));
    }
}

fn add_addresses_and_budget(status: &Status, lines: &mut StatusLines) {
    for conflict in &status.conflicts {
        lines.add(
            "Conflict",
            format!(
                "{} belongs to {}; also claimed by {}",
                conflict.address,
                conflict.owner,
                conflict.others.join(", ")
            ),
        );
    }
    let budget = &status.budget;
    lines.add(
        "Budget",
        format!(
            "{} kernel elements used; limits: {} on this host, {} for a policy set; {} over budget",
            budget.elements,
            budget.host,
            budget.policy_set,
            status.over_budget.len()
        ),
    );
}

fn add_names(names: &NamesStatus, lines: &mut StatusLines) {
    let proxies = match names.proxies {
        0 => "no DNS proxy is connected".to_owned(),
        count => format!("{} connected", pluralize(count, "DNS proxy")),
    };
    lines.add(
        "Names",
        format!(
            "{} names, {} addresses, {} evicted; {} policies; {proxies}",
            names.names, names.addresses, names.evicted, names.policies
        ),
    );
    for server in &names.untrusted_servers {
        let UntrustedServerReport { address, answers } = server;
        let text = format!("server {address} is not trusted: {answers} answers gave no address");
        lines.add("", text);
    }
}

fn add_dataplane(dataplane: &DataplaneStatus, lines: &mut StatusLines) {
    lines.add(
        "Dataplane",
        format!("{}, generation {}", dataplane.name, dataplane.generation),
    );
    if let Some(start) = &dataplane.start {
        lines.add(
            "",
            format!(
                "start: {} kernel writes in {:.1} ms",
                start.writes, start.millis
            ),
        );
    }
    if let Some(last) = &dataplane.last {
        lines.add(
            "",
            format!(
                "last flush: revision {}, {} kernel writes in {:.1} ms",
                last.revision, last.writes, last.millis
            ),
        );
    }
    if dataplane.repaired > 0 {
        lines.add("", format!("repaired {} times", dataplane.repaired));
    }
    for repair in &dataplane.repairs {
        lines.add(
            "",
            format!(
                "repaired at {}: {}; {} kernel writes, {:.1} ms after detection",
                repair.at, repair.what, repair.writes, repair.millis
            ),
        );
    }
    for drops in &dataplane.drops {
        let (reason, count) = (drops.reason, drops.count);
        lines.add(
            "",
            format!(
                "dropped, {reason}: {} packets, {} bytes",
                count.packets, count.bytes
            ),
        );
    }
    if let Some(error) = &dataplane.error {
        lines.add("", format!("error: {error}"));
    }
    for condition in &dataplane.conditions {
        lines.add("", condition.message.clone());
    }
    if let Some(fast_path) = &dataplane.fast_path {
        lines.add("", fast_path_text(fast_path));
    }
}

/// Whether the host could run the fast path.
fn fast_path_text(fast_path: &FastPathReport) -> String {
    let missing = fast_path.missing.iter();
    let reasons: Vec<&str> = missing.map(|missing| missing.reason.as_str()).collect();
    if let Some(figures) = &fast_path.figures {
        let attachment = fast_path.attachment.as_deref();
        let attachment = attachment.map(|attachment| format!(", attached by {attachment}"));
        return format!(
            "eBPF fast path: {} addresses, {} flows, {} live flows evicted{}",
            figures.addresses,
            figures.flows,
            figures.evictions,
            attachment.unwrap_or_default()
        );
    }
    if fast_path.possible {
        return "eBPF fast path: not used; this host has what it would need".to_owned();
    }
    format!(
        "eBPF fast path: not used; this host lacks what it would need: {}",
        reasons.join("; ")
    )
}

/// A tier with its order and its policies.
fn tier_text(tier: &TierReport) -> String {
    let order = match (tier.order, tier.missing) {
        (_, true) => "does not exist, last".to_owned(),
        (Some(order), false) => format!("order {order}"),
        (None, false) => "no order".to_owned(),
    };
    let policies = match tier.policies {
        1 => "1 policy".to_owned(),
        some => format!("{some} policies"),
    };
    format!("{} ({order}): {policies}", tier.name)
}

/// What is in audit, and the packets judged there.
fn audit_lines(audit: &AuditSummary) -> Vec<String> {
    let objects = format!(
        "{} policies, {} namespaces, {} endpoints",
        audit.policies, audit.namespaces, audit.endpoints
    );
    let mut lines = vec![if audit.agent {
        format!("every endpoint, by policy-audit-mode: no policy is enforced; {objects}")
    } else {
        objects
    }];
    for (count, text) in [
        (audit.would_deny, "allowed, and would be denied"),
        (audit.would_allow, "denied, and would be allowed"),
        (audit.unchanged, "the verdict would be the same"),
    ] {
        lines.push(format!(
            "{text}: {} packets, {} bytes",
            count.packets, count.bytes
        ));
    }
    lines
}

/// Formats a problem on one line, like a compiler.
pub(crate) fn problem_text(problem: &palisade_api::ProblemReport) -> String {
    let mut text = match problem.line {
        // An object of a server has no lines.
        0 => format!("{}: {}: ", problem.file, problem.severity),
        line => format!(
            "{}:{line}:{}: {}: ",
            problem.file, problem.column, problem.severity
        ),
    };
    if let Some(object) = &problem.object {
        text.push_str(object);
        text.push_str(": ");
    }
    if !problem.field.is_empty() {
        text.push_str(&problem.field);
        text.push_str(": ");
    }
    text + &problem.reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::MissingFeatureReport;

    #[test]
    fn what_the_fast_path_lacks_is_told_with_what_to_do() {
        let mut report = FastPathReport {
            possible: true,
            attachment: Some("tc filters".to_owned()),
            figures: Some(palisade_api::FastPathFiguresReport {
                addresses: 12,
                rows: 9,
                flows: 40,
                flows_via_stack: 2,
                evictions: 0,
            }),
            missing: Vec::new(),
        };
        assert_eq!(
            fast_path_text(&report),
            "eBPF fast path: 12 addresses, 40 flows, 0 live flows evicted, attached by tc filters"
        );
        report.figures = None;
        assert!(fast_path_text(&report).ends_with("this host has what it would need"));
        report.possible = false;
        for reason in ["no tcx: upgrade", "no file system: mount it"] {
            report.missing.push(MissingFeatureReport {
                feature: "F".to_owned(),
                reason: reason.to_owned(),
            });
        }
        let text = fast_path_text(&report);
        assert!(text.ends_with("need: no tcx: upgrade; no file system: mount it"));
    }
}
