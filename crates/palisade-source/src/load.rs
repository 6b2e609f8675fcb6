//! Reading manifests and dumps once, for commands that need no agent.
//!
//! Files of any size: they are read object by object, and of each only what it says of policy is kept.

use crate::Diagnostic;
use crate::collector::{CollectedInput, InputCollector};
use crate::manifest_file::{ConvertedObjects, file_problem, printable_path};
use crate::roots::{RootOpenError, Roots};
use crate::scan::{Tree, WriteActivity};
use palisade_dialects::{ProblemQuota, field_filter_of_kind};
use palisade_manifest::{Limits, ObjectSink, RawObject, read_stream};
use palisade_model::State;
use palisade_sys::writers::{WriterPresence, detect_writers};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The path that stands for the standard input.
const STDIN_PATH: &str = "-";

/// What a set of files and folders says.
#[derive(Clone, Debug, Default)]
pub struct LoadedInput {
    /// The valid objects, and the isolation in the place of invalid policies.
    pub state: State,
    /// What is wrong or doubtful, by place; what is not told is counted.
    pub diagnostics: Vec<Diagnostic>,
    /// How many files were read.
    pub files: usize,
    /// How many valid objects there are.
    pub objects: usize,
    /// Objects that are none of policy's, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl LoadedInput {
    /// Whether anything is wrong (doubts do not count).
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.is_error)
    }
}

/// How far the reading of a file is.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress<'p> {
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
pub fn load(paths: &[impl AsRef<Path>]) -> LoadedInput {
    load_with_progress(paths, &mut |_| {})
}

/// The same, and tells now and then how far it is.
pub fn load_with_progress(
    paths: &[impl AsRef<Path>],
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> LoadedInput {
    let (streams, roots): (Vec<PathBuf>, Vec<PathBuf>) = paths
        .iter()
        .map(|path| path.as_ref().to_path_buf())
        .partition(|path| is_stream(path));
    let mut listing: Tree<()> = Tree::new(roots, discard_objects);
    listing.listed = Some(Vec::new());
    let tree = Tree::scan(&listing, &mut WriteActivity::default());
    let mut roots = Roots::new(&listing.roots);
    let mut collection = InputCollector::default();
    for problem in tree.problems {
        collection.add_unreadable(problem);
    }
    collection.omit_folders(tree.omitted_problems);
    let mut paths = tree.listed.unwrap_or_default();
    paths.extend(streams.iter().cloned());
    paths.sort();
    paths.dedup();
    let mut files = 0;
    for path in paths {
        collection.begin_document();
        // Of what was found in a folder only regular files are opened, whatever took their place.
        let input = match streams.contains(&path) {
            true => open_stream(&path),
            false => open_file(&path, &mut roots),
        };
        match input.and_then(|source| read_input(&path, source, &mut collection, on_progress)) {
            Ok(InputOutcome::Read) => files += 1,
            Ok(InputOutcome::Gone) => {}
            Ok(InputOutcome::BeingWritten) => {
                let reason = "somebody is writing it: it is not read".to_owned();
                collection.add_unreadable(file_problem(&path, reason));
            }
            Err(error) => {
                files += 1;
                let reason = format!("it cannot be read: {error}");
                collection.add_unreadable(file_problem(&path, reason));
            }
        }
    }
    let CollectedInput {
        state,
        diagnostics: flaws,
        objects,
        ignored,
    } = collection.finish();
    LoadedInput {
        state,
        diagnostics: flaws,
        files,
        objects,
        ignored,
    }
}

/// Whether a path that was given is no file that has an end: the standard input, a pipe (as
/// `<(kubectl get …)` makes one), a terminal.
fn is_stream(path: &Path) -> bool {
    path == Path::new(STDIN_PATH)
        || std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Files are only looked for here.
fn discard_objects(_: Vec<RawObject>, quota: ProblemQuota) -> ConvertedObjects<()> {
    ConvertedObjects {
        objects: Vec::new(),
        quota,
    }
}

enum InputOutcome {
    Read,
    BeingWritten,
    Gone,
}

/// What is to be read: a reader, and how many bytes it has, where that is known.
enum InputReader {
    Reader(Box<dyn Read>, Option<u64>),
    Skipped(InputOutcome),
}

fn open_stream(path: &Path) -> io::Result<InputReader> {
    let reader: Box<dyn Read> = match path == Path::new(STDIN_PATH) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path)?),
    };
    Ok(InputReader::Reader(reader, None))
}

fn open_file(path: &Path, roots: &mut Roots) -> io::Result<InputReader> {
    let file = match roots.open(path) {
        Ok(opened) => opened.read()?,
        Err(RootOpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(InputReader::Skipped(InputOutcome::Gone));
        }
        Err(RootOpenError::Io(error)) => return Err(error),
        Err(RootOpenError::OutsideRoots(reason)) => return Err(io::Error::other(reason)),
    };
    if detect_writers(&file) == WriterPresence::Present {
        return Ok(InputReader::Skipped(InputOutcome::BeingWritten));
    }
    let size = file.metadata()?.len();
    Ok(InputReader::Reader(Box::new(file), Some(size)))
}

fn read_input(
    path: &Path,
    input: InputReader,
    collection: &mut InputCollector,
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> io::Result<InputOutcome> {
    let (mut reader, size) = match input {
        InputReader::Reader(reader, size) => (reader, size),
        InputReader::Skipped(outcome) => return Ok(outcome),
    };
    let mut progress_reader = ProgressReader {
        reader: &mut *reader,
        head: Vec::new(),
        progress: LoadProgress {
            file: path,
            read: 0,
            size,
        },
        on_progress,
    };
    let limits = Limits {
        objects: usize::MAX,
        ..Limits::default()
    };
    read_stream(
        &printable_path(path),
        &mut progress_reader,
        &limits,
        None,
        field_filter_of_kind,
        collection,
    )?;
    let head = std::mem::take(&mut progress_reader.head);
    collection.end_file(path, &head);
    Ok(InputOutcome::Read)
}

/// How much of a file tells what it is, in bytes.
const HEAD_BYTES: usize = 64 << 10;

/// A reader that tells how far it is, and remembers how it began.
struct ProgressReader<'r> {
    reader: &'r mut dyn Read,
    /// How it begins.
    head: Vec<u8>,
    progress: LoadProgress<'r>,
    on_progress: &'r mut dyn FnMut(LoadProgress<'_>),
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.progress.read += count as u64;
        let left = HEAD_BYTES.saturating_sub(self.head.len()).min(count);
        self.head.extend(buffer.iter().take(left));
        (self.on_progress)(self.progress);
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
        assert_eq!(names, ["Pod shop/runs"], "{:?}", loaded.diagnostics);
    }
}
