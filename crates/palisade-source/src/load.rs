//! Reading manifests once, for commands that need no agent.

use crate::Flaw;
use crate::scan::Tree;
use palisade_dialects::{Status, lower};
use palisade_manifest::RawObject;
use palisade_model::State;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

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

/// Reads files and folders as one input. A path that cannot be read is a flaw like any other.
pub fn load(paths: &[impl AsRef<Path>]) -> Loaded {
    let mut raw: Vec<RawObject> = Vec::new();
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let mut tree = Tree::new(path.as_ref());
        tree.scan(&BTreeSet::new());
        problems.append(&mut tree.problems);
        for (path, file) in tree.files {
            if seen.insert(path) {
                raw.extend(file.objects.iter().cloned());
                problems.extend(file.problems.iter().cloned());
            }
        }
    }
    let lowering = lower(&raw);
    let state = lowering.state();
    problems.extend(lowering.errors);
    let errors = problems.into_iter().map(|problem| Flaw {
        problem,
        error: true,
    });
    let warnings = lowering.warnings.into_iter().map(|problem| Flaw {
        problem,
        error: false,
    });
    let mut flaws: Vec<Flaw> = errors.chain(warnings).collect();
    flaws.sort_by(|a, b| a.problem.cmp(&b.problem));
    Loaded {
        state,
        flaws,
        files: seen.len(),
        objects: lowering
            .entries
            .iter()
            .filter(|entry| entry.status == Status::Accepted)
            .count(),
        ignored: lowering.ignored,
    }
}
