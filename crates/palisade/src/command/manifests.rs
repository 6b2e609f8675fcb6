//! Loading of manifests for the commands that analyse them.

use crate::command::progress::ProgressMeter;
use crate::command::status::problem_text;
use crate::exit::{CommandError, ExitStatus};
use palisade_analysis::UnnamedPorts;
use palisade_api::{ProblemReport, ProblemSeverity};
use palisade_dialects::is_unenforced_policy;
use palisade_model::State;
use palisade_source::{LoadedInput, UnjudgedPod, load_with_progress};
use palisade_text::printable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A loaded state, and the exit code that it leads to.
pub(crate) struct LoadedManifests {
    /// The state that the manifests describe.
    pub(crate) state: State,
    /// The pods of the manifests that are no endpoints.
    pub(crate) unjudged_pods: Vec<UnjudgedPod>,
    /// The ports without a name that pods and workloads declare.
    pub(crate) unnamed_ports: UnnamedPorts,
    /// The number of objects of each ignored kind.
    pub(crate) ignored: BTreeMap<String, usize>,
    /// Success, or that problems were found.
    pub(crate) exit: ExitStatus,
}

impl LoadedManifests {
    /// The error for a name that no endpoint of the state has: what the pod of that name is, or `error`.
    pub(crate) fn unknown_name(&self, name: &str, error: String) -> CommandError {
        let pod = UnjudgedPod::find(&self.unjudged_pods, name);
        CommandError::usage(pod.map_or(error, |pod| printable(&pod.to_string()).into_owned()))
    }
}

/// Reads files. Problems are printed on standard error and do not prevent the analysis, which covers what can
/// be read: an invalid policy isolates its pods, as on a host. The exit code reports problems. Only a path
/// that does not exist is a usage error.
pub(crate) fn load_state(files: &[PathBuf]) -> Result<LoadedManifests, CommandError> {
    check_paths_exist(files)?;
    let loaded = load_showing_progress(files);
    for problem in problem_reports(&loaded)
        .iter()
        .filter(|p| p.severity == ProblemSeverity::Error)
    {
        eprintln!("{}", problem_text(problem));
    }
    let exit = if loaded.has_errors() {
        ExitStatus::ProblemsFound
    } else {
        ExitStatus::Success
    };
    Ok(LoadedManifests {
        state: loaded.state,
        unjudged_pods: loaded.unjudged_pods,
        unnamed_ports: loaded.unnamed_ports.into_iter().collect(),
        ignored: loaded.ignored,
        exit,
    })
}

/// Reads files and shows the progress on a terminal.
pub(crate) fn load_showing_progress(files: &[PathBuf]) -> LoadedInput {
    let mut meter = ProgressMeter::on_terminal();
    let loaded = load_with_progress(files, &mut |progress| meter.update(progress));
    meter.clear();
    loaded
}

/// Converts the problems of a source to API types.
pub(crate) fn problem_reports(loaded: &LoadedInput) -> Vec<ProblemReport> {
    loaded
        .diagnostics
        .iter()
        .map(palisade_views::status::problem_report)
        .collect()
}

/// A path on the command line that does not exist is a usage error, not a problem of the manifests.
pub(crate) fn check_paths_exist(files: &[PathBuf]) -> Result<(), CommandError> {
    let missing = |path: &&PathBuf| path.as_os_str() != "-" && !Path::exists(path);
    match files.iter().find(missing) {
        Some(path) => Err(CommandError::usage(format!(
            "no such file or directory: {}",
            printable(&path.display().to_string())
        ))),
        None => Ok(()),
    }
}

/// The counts of ignored kinds: those of policies of other software, and those that do not concern policy.
pub(crate) fn split_ignored(
    ignored: BTreeMap<String, usize>,
) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    ignored
        .into_iter()
        .partition(|(kind, _)| is_unenforced_policy(kind))
}

/// What a summary says about policies of other software, after what it says before; empty if there are none.
pub(crate) fn not_enforced_text(kinds: &BTreeMap<String, usize>) -> String {
    let count: usize = kinds.values().sum();
    let names: Vec<&str> = kinds.keys().map(|kind| &**kind).collect();
    let what = match count {
        0 => return String::new(),
        1 => "1 policy".to_owned(),
        count => format!("{count} policies"),
    };
    let names = printable(&names.join(", ")).into_owned();
    format!(", {what} of other software, not enforced by Palisade ({names})")
}
