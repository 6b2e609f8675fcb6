//! Reading manifests for commands that answer questions about them.

use crate::command::progress::ProgressMeter;
use crate::command::status::problem_text;
use crate::command::validate::problem_reports;
use crate::exit::{CommandError, ExitStatus};
use palisade_model::State;
use palisade_source::{LoadedInput, load_with_progress};
use palisade_text::printable;
use std::path::{Path, PathBuf};

/// What manifests say, and how a command that answers from them ends.
pub(crate) struct LoadedManifests {
    /// The state they describe.
    pub(crate) state: State,
    /// Fine, or that problems were found.
    pub(crate) exit: ExitStatus,
}

/// Reads files. Problems are told on standard error and do not stop the answer, which is about what
/// can be read: what is invalid isolates, as it would on a host. The exit code says that they are
/// there. Only paths that do not exist are an error by themselves.
pub(crate) fn load_state(files: &[PathBuf]) -> Result<LoadedManifests, CommandError> {
    check_paths_exist(files)?;
    let loaded = load_showing_progress(files);
    for problem in problem_reports(&loaded)
        .iter()
        .filter(|p| p.severity == "error")
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

/// Reads files, and shows on a terminal how far it is.
pub(crate) fn load_showing_progress(files: &[PathBuf]) -> LoadedInput {
    let mut meter = ProgressMeter::on_terminal();
    let loaded = load_with_progress(files, &mut |progress| meter.update(progress));
    meter.clear();
    loaded
}

/// A path that was typed and does not exist is wrong usage, not a problem of the manifests.
pub(crate) fn check_paths_exist(files: &[PathBuf]) -> Result<(), CommandError> {
    let missing = |path: &&PathBuf| path.as_os_str() != "-" && !Path::exists(path);
    match files.iter().find(missing) {
        Some(path) => Err(CommandError::usage(format!(
            "there is no {}",
            printable(&path.display().to_string())
        ))),
        None => Ok(()),
    }
}
