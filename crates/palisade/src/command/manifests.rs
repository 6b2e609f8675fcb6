//! Reading manifests for commands that answer questions about them.

use crate::command::status::problem_text;
use crate::command::validate::problems;
use crate::exit::Failure;
use palisade_model::State;
use palisade_source::load;
use std::path::{Path, PathBuf};

/// The state these files describe. Problems are told on standard error and do not stop the answer:
/// what is invalid isolates, as it would on a host; only paths that are not there do.
pub(crate) fn state(files: &[PathBuf]) -> Result<State, Failure> {
    if let Some(missing) = files
        .iter()
        .find(|path| path.as_os_str() != "-" && !Path::exists(path))
    {
        return Err(Failure::usage(format!("there is no {}", missing.display())));
    }
    let loaded = load(files);
    for problem in problems(&loaded).iter().filter(|p| p.severity == "error") {
        eprintln!("{}", problem_text(problem));
    }
    Ok(loaded.state)
}
