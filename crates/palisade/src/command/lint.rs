//! `palisade lint`: what is valid in policies and surely not meant, computed by the analysis.

use super::manifests;
use crate::cli::{ManifestArgs, OutputFormat};
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{pluralize, print_output};
use palisade_analysis::LintLimit;
use palisade_api::{LintFinding, LintReport};

/// Prints the findings; exit code 1 if there is one, if something could not be checked, or if the manifests have
/// errors.
pub(crate) fn run(files: &ManifestArgs, format: OutputFormat) -> CommandResult {
    let loaded = manifests::load_state(&files.files)?;
    let limit = LintLimit::default();
    let mut report = palisade_analysis::lint(&loaded.state, &loaded.unnamed_ports, limit);
    (report.not_enforced, _) = manifests::split_ignored(loaded.ignored);
    print_output(format, &report, report_text)?;
    let is_clean = report.findings.is_empty() && report.unchecked.is_empty();
    Ok(if is_clean {
        loaded.exit
    } else {
        ExitStatus::ProblemsFound
    })
}

fn report_text(report: &LintReport) -> String {
    let mut out: String = report.findings.iter().map(finding_text).collect();
    for text in &report.unchecked {
        out.push_str(&format!("not checked: {text}\n"));
    }
    out.push_str(&format!(
        "{}, {}",
        policies_text(report.policies),
        pluralize(report.findings.len(), "finding")
    ));
    out.push_str(&manifests::not_enforced_text(&report.not_enforced));
    out
}

fn policies_text(count: usize) -> String {
    match count {
        1 => "1 policy".to_owned(),
        count => format!("{count} policies"),
    }
}

/// A finding in two lines: where and what, and what to do.
fn finding_text(finding: &LintFinding) -> String {
    let mut text = String::new();
    if let Some(line) = &finding.line {
        text.push_str(&format!("{line}: "));
    }
    text.push_str(&format!(
        "{}: {}: ",
        finding.code,
        finding.policy.without_line()
    ));
    if let (Some(direction), Some(rule)) = (finding.direction, finding.rule) {
        text.push_str(&format!("{direction} rule {rule}"));
        if let Some(name) = &finding.rule_name {
            text.push_str(&format!(" {name:?}"));
        }
        text.push_str(": ");
    }
    // Every finding takes two lines, whatever the names in it contain.
    let line = |text: String| palisade_text::printable(&text).into_owned();
    let first = line(text + &finding.message);
    format!("{first}\n  try: {}\n", line(finding.suggestion.clone()))
}
