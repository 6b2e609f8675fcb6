//! Reading manifests once, for commands that need no agent.

use crate::Flaw;
use crate::scan::{Activity, File, Tree, parse_text, problem};
use palisade_dialects::{Entry, Lowering, Status, doubts, lower};
use palisade_manifest::RawObject;
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
/// somebody is writing, is a flaw like any other; `-` is the standard input. Names in messages are
/// the paths as given, with what was found below them.
pub fn load(paths: &[impl AsRef<Path>]) -> Loaded {
    let is_stdin = |path: &&Path| *path == Path::new(STANDARD_INPUT);
    let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
    let roots: Vec<PathBuf> = paths
        .iter()
        .filter(|path| !is_stdin(path))
        .map(|path| path.to_path_buf())
        .collect();
    let nothing = Tree::new(roots, |object: RawObject| object);
    let mut tree = Tree::scan(&nothing, &mut Activity::default());
    if paths.iter().any(|path| is_stdin(&path)) {
        read_stdin(&mut tree);
    }
    of_tree(tree)
}

fn read_stdin(tree: &mut Tree<RawObject>) {
    let name = Path::new(STANDARD_INPUT);
    let mut bytes = Vec::new();
    match std::io::stdin().lock().read_to_end(&mut bytes) {
        Ok(_) => {
            let file = parse_text(name, &bytes, |object| object);
            tree.files.insert(name.to_path_buf(), file);
        }
        Err(error) => {
            let reason = format!("the standard input cannot be read: {error}");
            tree.problems.push(problem(name, reason));
        }
    }
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
