//! `palisade validate`: reads manifests and prints every problem, and enforces nothing.

use crate::cli::{Files, Format};
use crate::command::manifests;
use crate::command::status::problem_text;
use crate::exit::{Exit, Outcome};
use crate::output::{answer, counted};
use palisade_api::ProblemReport;
use palisade_source::Loaded;
use palisade_text::printable;
use serde::Serialize;
use std::collections::BTreeMap;

/// What `validate -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Validation {
    api_version: &'static str,
    valid: bool,
    files: usize,
    objects: usize,
    problems: Vec<ProblemReport>,
    /// Objects that are none of policy's, by kind.
    ignored: BTreeMap<String, usize>,
}

/// Checks manifests; exit 1 if anything is wrong.
pub(crate) fn run(files: &Files, format: Format) -> Outcome {
    manifests::exist(&files.files)?;
    let loaded = manifests::load(&files.files);
    let valid = !loaded.has_errors();
    let validation = Validation {
        api_version: palisade_api::API_VERSION,
        valid,
        files: loaded.files,
        objects: loaded.objects,
        problems: problems(&loaded),
        ignored: loaded.ignored,
    };
    answer(format, &validation, text)?;
    Ok(if valid { Exit::Fine } else { Exit::Found })
}

/// A source's flaws as the API words them.
pub(crate) fn problems(loaded: &Loaded) -> Vec<ProblemReport> {
    loaded
        .flaws
        .iter()
        .map(palisade_agent::report::problem)
        .collect()
}

fn text(validation: &Validation) -> String {
    let mut out: String = validation
        .problems
        .iter()
        .map(|p| problem_text(p) + "\n")
        .collect();
    let total = |severity: &str| {
        let of = validation
            .problems
            .iter()
            .filter(|p| p.severity == severity);
        of.map(ProblemReport::count).sum()
    };
    let (errors, warnings) = (total("error"), total("warning"));
    out.push_str(&format!(
        "{}, {}, {}, {}",
        counted(validation.files, "file"),
        counted(validation.objects, "valid object"),
        counted(errors, "error"),
        counted(warnings, "warning"),
    ));
    let ignored: usize = validation.ignored.values().sum();
    if ignored > 0 {
        let kinds: Vec<&str> = validation.ignored.keys().map(|k| &**k).collect();
        out.push_str(&format!(
            ", {} of no concern to policy ({})",
            counted(ignored, "object"),
            printable(&kinds.join(", "))
        ));
    }
    out
}
