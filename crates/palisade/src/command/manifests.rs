//! Loading of manifests for the commands that analyse them.

use crate::command::progress::ProgressMeter;
use crate::command::status::problem_text;
use crate::command::validate::problem_reports;
use crate::exit::{CommandError, ExitStatus};
use palisade_api::ProblemSeverity;
use palisade_model::State;
use palisade_source::{LoadedInput, load_with_progress};
use palisade_text::printable;
use std::path::{Path, PathBuf};

/// A loaded state, and the exit code that it leads to.
pub(crate) struct LoadedManifests {
    /// The state that the manifests describe.
    pub(crate) state: State,
    /// Success, or that problems were found.
    pub(crate) exit: ExitStatus,
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
    let exit = match loaded.has_errors() {
        true => ExitStatus::ProblemsFound,
        false => ExitStatus::Success,
    };
    Ok(LoadedManifests {
        state: loaded.state,
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
