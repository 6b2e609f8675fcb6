//! `palisade suggest`: the policies that allow what was recorded.

use super::convert::target;
use super::manifests::load_state;
use super::preview::record_text;
use super::{recorded_flows, split_name};
use crate::cli::{OutputFormat, SuggestArgs};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_api::{EndName, SuggestionReport};
use palisade_manifest::to_yaml;
use palisade_preview::SuggestionScope;
use palisade_text::printable;

/// Writes the policies; exit code 1 if a workload gets none, or if the manifests have errors.
pub(crate) fn run(args: &SuggestArgs, client: &ApiClient, format: OutputFormat) -> CommandResult {
    let record = recorded_flows::read(&args.flows, client)?;
    let present = load_state(&args.base)?;
    let workload = args.workload.as_ref().map(|text| {
        let (namespace, name) = split_name(text);
        (namespace.to_owned(), name.to_owned())
    });
    let scope = SuggestionScope {
        dialect: target(args.dialect),
        namespace: args.namespace.clone(),
        workload,
        min_count: args.min_count,
    };
    let report = palisade_preview::suggest(&record, &present.state, &scope)
        .map_err(|error| CommandError::problem(error.to_string()))?;
    print_output(format, &report, |report| {
        let documents: Vec<String> = report.objects.iter().map(to_yaml).collect();
        documents.join("---\n")
    })?;
    if format != OutputFormat::Json {
        for line in remarks(&report) {
            eprintln!("{}", printable(&line));
        }
    }
    Ok(if report.refused.is_empty() {
        present.exit
    } else {
        ExitStatus::ProblemsFound
    })
}

/// What the policies do not say, in lines.
fn remarks(report: &SuggestionReport) -> Vec<String> {
    let mut lines: Vec<String> = record_text(&report.record)
        .lines()
        .map(str::to_owned)
        .collect();
    for refused in &report.refused {
        lines.push(format!(
            "no policy for {}: {}",
            refused.workload, refused.reason
        ));
    }
    for row in &report.left_out {
        let flow = &row.flow;
        lines.push(format!(
            "not allowed: {} to {}, {}: {}",
            EndName(&flow.source),
            EndName(&flow.destination),
            flow.traffic(),
            row.reason
        ));
    }
    for row in &report.widened {
        lines.push(format!(
            "allowed, not recorded: {} to {}, {}: {}",
            row.from, row.to, row.traffic, row.reason
        ));
    }
    lines
}
