//! `palisade preview`: the recorded flows that a change of the manifests would cut or open.

use super::manifests::{check_paths_exist, load_changed, load_state};
use super::recorded_flows;
use crate::cli::{OutputFormat, PreviewArgs};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::{TextTable, pluralize, print_output};
use palisade_api::{EndName, FlowSummary, PreviewReport, PreviewedFlow, RecordSummary};
use palisade_model::Direction;
use palisade_preview::AgentActions;

/// Judges the record; exit code 6 if a flow would be cut, else 1 if the manifests have errors.
pub(crate) fn run(args: &PreviewArgs, client: &ApiClient, format: OutputFormat) -> CommandResult {
    check_paths_exist(&args.base)?;
    check_paths_exist(&args.files)?;
    let record = recorded_flows::read(&args.flows, client)?;
    let present = load_state(&args.base)?;
    let changed = load_changed(&args.base, &args.files, &args.delete)?;
    let actions = AgentActions {
        host_to_endpoint: args.host_to_endpoint.unwrap_or_default().action(),
        hairpin: args.hairpin.unwrap_or_default().action(),
    };
    let report = palisade_preview::preview(&record, &present.state, &changed.state, actions)
        .map_err(|error| CommandError::problem(error.to_string()))?;
    print_output(format, &report, preview_text)?;
    Ok(match [present.exit, changed.exit] {
        _ if !report.cut.is_empty() => ExitStatus::WouldCut,
        [ExitStatus::Success, ExitStatus::Success] => ExitStatus::Success,
        _ => ExitStatus::ProblemsFound,
    })
}

fn preview_text(report: &PreviewReport) -> String {
    let mut parts = vec![format!(
        "{}, {} judged",
        record_text(&report.record),
        report.judged
    )];
    for (title, flows, by) in [
        ("Would be cut:", &report.cut, "DENIED BY"),
        ("Would be opened:", &report.opened, "NOW DENIED BY"),
        (
            "Recorded as allowed, denied already and after the change:",
            &report.already_denied,
            "DENIED BY",
        ),
    ] {
        if !flows.is_empty() {
            parts.push(format!("{title}\n{}", flows_table(flows, by).trim_end()));
        }
    }
    if !report.unjudged.is_empty() {
        let mut table = TextTable::new(&[
            "FROM",
            "TO",
            "TRAFFIC",
            "RECORDED",
            "COUNT",
            "LAST SEEN",
            "REASON",
        ]);
        for row in &report.unjudged {
            let mut cells = flow_cells(&row.flow);
            cells.push(row.reason.clone());
            table.row(cells);
        }
        parts.push(format!("Not judged:\n{}", table.to_string().trim_end()));
    }
    if report.cut.is_empty() && report.opened.is_empty() {
        parts.push("no recorded flow would be cut or opened".to_owned());
    }
    parts.extend(report.notes.iter().map(|note| format!("note: {note}")));
    parts.join("\n\n")
}

/// The record in lines: its time, nodes and size, and what it lacks.
pub(super) fn record_text(record: &RecordSummary) -> String {
    let [since, until] = [&record.since, &record.until].map(|time| time.as_deref().unwrap_or("-"));
    let nodes = pluralize(record.nodes.len(), "node");
    let mut lines = vec![format!(
        "Recorded from {since} to {until} on {nodes}: {}",
        record.nodes.join(", ")
    )];
    if !record.nodes_missing.is_empty() {
        lines.push(format!(
            "No record of {}: {}",
            pluralize(record.nodes_missing.len(), "node"),
            record.nodes_missing.join(", ")
        ));
    }
    if record.lost > 0 {
        lines.push(format!(
            "Not recorded, as far as it is known: {}",
            pluralize(
                usize::try_from(record.lost).unwrap_or(usize::MAX),
                "flow or packet"
            )
            .replace("flow or packets", "flows and packets")
        ));
    }
    if !record.truncated.is_empty() {
        lines.push(format!(
            "Cut off, so that flows are missing: the record of {}",
            record.truncated.join(", ")
        ));
    }
    let entries = match record.entries {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    };
    lines.push(format!("{entries}, {}", pluralize(record.flows, "flow")));
    lines.join("\n")
}

fn flow_cells(flow: &FlowSummary) -> Vec<String> {
    vec![
        EndName(&flow.source).to_string(),
        EndName(&flow.destination).to_string(),
        flow.traffic(),
        flow.recorded.to_string(),
        flow.count.to_string(),
        flow.last.clone(),
    ]
}

fn flows_table(flows: &[PreviewedFlow], by: &str) -> String {
    let mut table = TextTable::new(&[
        "FROM",
        "TO",
        "TRAFFIC",
        "RECORDED",
        "COUNT",
        "LAST SEEN",
        by,
    ]);
    for row in flows {
        let mut cells = flow_cells(&row.flow);
        let mut reasons: Vec<String> = row.denied_by.iter().map(ToString::to_string).collect();
        if let Some(share) = row.pairs {
            reasons.push(format!(
                "between {} of {} kinds of pods",
                share.concerned, share.total
            ));
        }
        reasons.extend(row.reconstructed.iter().map(|end| {
            let end = match end {
                Direction::Egress => "source",
                Direction::Ingress => "destination",
            };
            format!("the {end} is gone, and was judged by its recorded labels")
        }));
        cells.push(reasons.join("; "));
        table.row(cells);
    }
    table.to_string()
}
