//! `palisade validate`: reads manifests and prints every problem, without enforcing anything.

use crate::cli::{ManifestArgs, OutputFormat};
use crate::command::manifests;
use crate::command::status::problem_text;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{pluralize, print_output};
use palisade_api::{ProblemReport, ProblemSeverity, ValidationReport};
use palisade_text::printable;

/// Checks manifests; exit code 1 if there is an error.
pub(crate) fn run(files: &ManifestArgs, format: OutputFormat) -> CommandResult {
    manifests::check_paths_exist(&files.files)?;
    let mut loaded = manifests::load_showing_progress(&files.files);
    let valid = !loaded.has_errors();
    let (not_enforced, ignored) = manifests::split_ignored(core::mem::take(&mut loaded.ignored));
    let validation = ValidationReport {
        api_version: palisade_api::api_version(),
        valid,
        files: loaded.files,
        objects: loaded.objects,
        problems: manifests::problem_reports(&loaded),
        not_enforced,
        ignored,
    };
    print_output(format, &validation, validation_text)?;
    Ok(ExitStatus::of(!valid))
}

fn validation_text(validation: &ValidationReport) -> String {
    let mut out: String = validation
        .problems
        .iter()
        .map(|p| problem_text(p) + "\n")
        .collect();
    let total = |severity: ProblemSeverity| {
        let problems = validation
            .problems
            .iter()
            .filter(|p| p.severity == severity);
        problems.map(ProblemReport::count).sum()
    };
    let (errors, warnings) = (
        total(ProblemSeverity::Error),
        total(ProblemSeverity::Warning),
    );
    out.push_str(&format!(
        "{}, {}, {}, {}",
        pluralize(validation.files, "file"),
        pluralize(validation.objects, "valid object"),
        pluralize(errors, "error"),
        pluralize(warnings, "warning"),
    ));
    let closed: usize = total(ProblemSeverity::HeldClosed);
    if closed > 0 {
        out.push_str(&format!(", {} held closed", pluralize(closed, "part")));
    }
    out.push_str(&manifests::not_enforced_text(&validation.not_enforced));
    let ignored: usize = validation.ignored.values().sum();
    if ignored > 0 {
        let kinds: Vec<&str> = validation.ignored.keys().map(|k| &**k).collect();
        out.push_str(&format!(
            ", {} ignored, not policy related ({})",
            pluralize(ignored, "object"),
            printable(&kinds.join(", "))
        ));
    }
    out
}
