//! Reading manifests and dumps once, for commands that need no agent.
//!
//! Files of any size: they are read object by object, and of each only what it says of policy is kept.

use crate::Flaw;
use crate::collect::{Collected, Collection};
use crate::roots::{Refusal, Roots};
use crate::scan::{Activity, Made, Tree, problem, shown};
use palisade_dialects::{Quota, fields_of_kind};
use palisade_manifest::{Limits, RawObject, Sink, stream};
use palisade_model::State;
use palisade_sys::writers::{Writers, writers};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The path that stands for the standard input.
const STANDARD_INPUT: &str = "-";

/// What a set of files and folders says.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The valid objects, and the isolation in the place of invalid policies.
    pub state: State,
    /// What is wrong or doubtful, by place; what is not told is counted.
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

/// How far the reading of a file is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'p> {
    /// Which file.
    pub file: &'p Path,
    /// Bytes read of it.
    pub read: u64,
    /// Bytes that it has, where that is known.
    pub size: Option<u64>,
}

/// Reads files and folders as one input, each file once. A path that cannot be read, or a file that
/// somebody is writing, is a flaw like any other; `-` is the standard input, and pipes are read to
/// their end. Names in messages are the paths as given, with what was found below them.
///
/// A file may have any size; one document of it, or one item of a list, is bounded.
pub fn load(paths: &[impl AsRef<Path>]) -> Loaded {
    load_with(paths, &mut |_| {})
}

/// The same, and tells now and then how far it is.
pub fn load_with(paths: &[impl AsRef<Path>], tell: &mut dyn FnMut(Progress<'_>)) -> Loaded {
    let (streams, roots): (Vec<PathBuf>, Vec<PathBuf>) = paths
        .iter()
        .map(|path| path.as_ref().to_path_buf())
        .partition(|path| is_stream(path));
    let mut nothing: Tree<()> = Tree::new(roots, nothing_of);
    nothing.found = Some(Vec::new());
    let tree = Tree::scan(&nothing, &mut Activity::default());
    let mut roots = Roots::of(&nothing.roots);
    let mut collection = Collection::default();
    for problem in tree.problems {
        collection.refuse(problem);
    }
    collection.leave_out(tree.more_problems);
    let mut paths = tree.found.unwrap_or_default();
    paths.extend(streams.iter().cloned());
    paths.sort();
    paths.dedup();
    let mut files = 0;
    for path in paths {
        collection.begin();
        // Of what was found in a folder only regular files are opened, whatever took their place.
        let source = match streams.contains(&path) {
            true => stream_of(&path),
            false => file_of(&path, &mut roots),
        };
        match source.and_then(|source| read(&path, source, &mut collection, tell)) {
            Ok(Outcome::Read) => files += 1,
            Ok(Outcome::Gone) => {}
            Ok(Outcome::BeingWritten) => {
                let reason = "somebody is writing it: it is not read".to_owned();
                collection.refuse(problem(&path, reason));
            }
            Err(error) => {
                files += 1;
                let reason = format!("it cannot be read: {error}");
                collection.refuse(problem(&path, reason));
            }
        }
    }
    let Collected {
        state,
        flaws,
        objects,
        ignored,
    } = collection.end();
    Loaded {
        state,
        flaws,
        files,
        objects,
        ignored,
    }
}

/// Whether a path that was given is no file that has an end: the standard input, a pipe (as
/// `<(kubectl get …)` makes one), a terminal.
fn is_stream(path: &Path) -> bool {
    path == Path::new(STANDARD_INPUT)
        || std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Files are only looked for here.
fn nothing_of(_: Vec<RawObject>, quota: Quota) -> Made<()> {
    Made {
        objects: Vec::new(),
        quota,
    }
}

enum Outcome {
    Read,
    BeingWritten,
    Gone,
}

/// What is to be read: a reader, and how many bytes it has, where that is known.
enum Source {
    Reader(Box<dyn Read>, Option<u64>),
    None(Outcome),
}

fn stream_of(path: &Path) -> io::Result<Source> {
    let reader: Box<dyn Read> = match path == Path::new(STANDARD_INPUT) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path)?),
    };
    Ok(Source::Reader(reader, None))
}

fn file_of(path: &Path, roots: &mut Roots) -> io::Result<Source> {
    let file = match roots.open(path) {
        Ok(opened) => opened.read()?,
        Err(Refusal::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Source::None(Outcome::Gone));
        }
        Err(Refusal::Io(error)) => return Err(error),
        Err(Refusal::Outside(reason)) => return Err(io::Error::other(reason)),
    };
    if writers(&file) == Writers::Some {
        return Ok(Source::None(Outcome::BeingWritten));
    }
    let size = file.metadata()?.len();
    Ok(Source::Reader(Box::new(file), Some(size)))
}

fn read(
    path: &Path,
    source: Source,
    collection: &mut Collection,
    tell: &mut dyn FnMut(Progress<'_>),
) -> io::Result<Outcome> {
    let (mut reader, size) = match source {
        Source::Reader(reader, size) => (reader, size),
        Source::None(outcome) => return Ok(outcome),
    };
    let mut told = Told {
        reader: &mut *reader,
        head: Vec::new(),
        progress: Progress {
            file: path,
            read: 0,
            size,
        },
        tell,
    };
    let limits = Limits {
        objects: usize::MAX,
        ..Limits::default()
    };
    stream(
        &shown(path),
        &mut told,
        &limits,
        None,
        fields_of_kind,
        collection,
    )?;
    let head = std::mem::take(&mut told.head);
    collection.end_file(path, &head);
    Ok(Outcome::Read)
}

/// How much of a file tells what it is, in bytes.
const HEAD: usize = 64 << 10;

/// A reader that tells how far it is, and remembers how it began.
struct Told<'r> {
    reader: &'r mut dyn Read,
    /// How it begins.
    head: Vec<u8>,
    progress: Progress<'r>,
    tell: &'r mut dyn FnMut(Progress<'_>),
}

impl Read for Told<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.progress.read += count as u64;
        let left = HEAD.saturating_sub(self.head.len()).min(count);
        self.head.extend(buffer.iter().take(left));
        (self.tell)(self.progress);
        Ok(count)
    }
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
