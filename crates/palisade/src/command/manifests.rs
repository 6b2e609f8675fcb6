//! Reading manifests for commands that answer questions about them.

use crate::command::progress::Meter;
use crate::command::status::problem_text;
use crate::command::validate::problems;
use crate::exit::{Exit, Failure};
use palisade_model::State;
use palisade_source::{Loaded, load_with};
use palisade_text::printable;
use std::path::{Path, PathBuf};

/// What manifests say, and how a command that answers from them ends.
pub(crate) struct Read {
    /// The state they describe.
    pub(crate) state: State,
    /// Fine, or that problems were found.
    pub(crate) exit: Exit,
}

/// Reads files. Problems are told on standard error and do not stop the answer, which is about what
/// can be read: what is invalid isolates, as it would on a host. The exit code says that they are
/// there. Only paths that do not exist are an error by themselves.
pub(crate) fn read(files: &[PathBuf]) -> Result<Read, Failure> {
    exist(files)?;
    let loaded = load(files);
    for problem in problems(&loaded).iter().filter(|p| p.severity == "error") {
        eprintln!("{}", problem_text(problem));
    }
    let exit = match loaded.has_errors() {
        true => Exit::Found,
        false => Exit::Fine,
    };
    Ok(Read {
        state: loaded.state,
        exit,
    })
}

/// Reads files, and shows on a terminal how far it is.
pub(crate) fn load(files: &[PathBuf]) -> Loaded {
    let mut meter = Meter::on_terminal();
    let loaded = load_with(files, &mut |progress| meter.tell(progress));
    meter.end();
    loaded
}

/// A path that was typed and does not exist is wrong usage, not a problem of the manifests.
pub(crate) fn exist(files: &[PathBuf]) -> Result<(), Failure> {
    let missing = |path: &&PathBuf| path.as_os_str() != "-" && !Path::exists(path);
    match files.iter().find(missing) {
        Some(path) => Err(Failure::usage(format!(
            "there is no {}",
            printable(&path.display().to_string())
        ))),
        None => Ok(()),
    }
}
