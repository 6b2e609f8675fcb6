//! Reading manifests once, for commands that need no agent.

use crate::Flaw;
use crate::scan::{Activity, File, Tree, parse_text, problem};
use palisade_dialects::{Entry, Lowering, Status, doubts, lower};
use palisade_manifest::{Limits, RawObject};
use palisade_model::State;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The path that stands for the standard input.
const STANDARD_INPUT: &str = "-";

/// What a set of files and folders says.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The valid objects, and the isolation in the place of invalid policies.
    pub state: State,
    /// Everything that is wrong or doubtful, by place.
    pub flaws: Vec<Flaw>,
    /// How many files were read.
    pub files: usize,
    /// How many valid objects there are.
    pub objects: usize,
    /// Objects that are none of policy's, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl Loaded {
    /// Whether anything is wrong (doubts do not count).
    pub fn has_errors(&self) -> bool {
        self.flaws.iter().any(|flaw| flaw.error)
    }
}

/// Reads files and folders as one input, each file once. A path that cannot be read, or a file that
/// somebody is writing, is a flaw like any other; `-` is the standard input, and pipes are read to
/// their end. Names in messages are the paths as given, with what was found below them.
pub fn load(paths: &[impl AsRef<Path>]) -> Loaded {
    let (streams, roots): (Vec<PathBuf>, Vec<PathBuf>) = paths
        .iter()
        .map(|path| path.as_ref().to_path_buf())
        .partition(|path| is_stream(path));
    let nothing = Tree::new(roots, |objects: Vec<RawObject>| objects);
    let mut tree = Tree::scan(&nothing, &mut Activity::default());
    for path in streams {
        match read_stream(&path) {
            Ok(bytes) => {
                let file = parse_text(&path, &bytes, |objects| objects);
                tree.files.insert(path, file);
            }
            Err(error) => {
                let reason = format!("it cannot be read: {error}");
                tree.problems.push(problem(&path, reason));
            }
        }
    }
    of_tree(tree)
}

/// Whether a path that was given is no file that has an end: the standard input, a pipe (as
/// `<(kubectl get …)` makes one), a terminal.
fn is_stream(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
        || std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

fn read_stream(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is read of any file, so that its reader says that it is too long.
    let most = Limits::default().file_bytes as u64 + 1;
    if path == Path::new(STANDARD_INPUT) {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?
            .take(most)
            .read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn of_tree(tree: Tree<RawObject>) -> Loaded {
    let mut raw: Vec<RawObject> = Vec::new();
    let mut errors = tree.problems;
    for path in &tree.being_written {
        let reason = "somebody is writing it: it is not read".to_owned();
        errors.push(problem(path, reason));
    }
    let files = tree.files.len();
    for File {
        objects, problems, ..
    } in tree.files.into_values()
    {
        raw.extend(std::sync::Arc::unwrap_or_clone(objects));
        errors.extend(problems.iter().cloned());
    }
    let mut lowering = lower(&raw);
    errors.append(&mut lowering.errors);
    let mut warnings = doubts(&raw, &lowering);
    warnings.append(&mut lowering.warnings);
    let mut flaws = Flaw::all(errors, warnings);
    Flaw::sort(&mut flaws);
    let accepted = |entry: &&palisade_dialects::Entry| entry.status == Status::Accepted;
    Loaded {
        state: standing(&lowering),
        flaws,
        files,
        objects: lowering.entries.iter().filter(accepted).count(),
        ignored: lowering.ignored,
    }
}

/// The state without pods that ran to their end: they hold no address, and whoever answers from
/// files would take an endpoint without addresses for one whose addresses are unknown.
fn standing(lowering: &Lowering) -> State {
    let mut state = lowering.state();
    let accepted = |entry: &&Entry| entry.status == Status::Accepted && entry.completed;
    for entry in lowering.entries.iter().filter(accepted) {
        state.endpoints.remove(&entry.id);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pods_that_ran_to_their_end_are_not_there() {
        let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        for (name, phase) in [
            ("done", "Succeeded"),
            ("failed", "Failed"),
            ("runs", "Running"),
        ] {
            writeln!(
                file,
                "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\n\
                 status: {{phase: {phase}}}"
            )
            .unwrap();
        }
        let path = file.into_temp_path();
        let loaded = load(&[&path]);
        let names: Vec<String> = loaded
            .state
            .endpoints
            .keys()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["Pod shop/runs"], "{:?}", loaded.flaws);
    }
}
