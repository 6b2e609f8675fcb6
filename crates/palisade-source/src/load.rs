//! Reads manifests and dumps once, for commands that work without an agent.
//!
//! Files may have any size: they are read object by object, and only what policy evaluation needs is kept.

use crate::collector::{CollectedInput, InputCollector};
use crate::file_problem::{file_problem, printable_path};
use crate::manifest_file::ConvertedObjects;
use crate::roots::{RootOpenError, Roots};
use crate::scan::{Tree, WriteActivity};
use palisade_dialects::{ProblemQuota, field_filter_of_kind};
use palisade_effective::Diagnostic;
use palisade_manifest::{Limits, RawObject, read_stream};
use palisade_model::State;
use palisade_sys::writers::{WriterPresence, detect_writers};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The path of the standard input.
const STDIN_PATH: &str = "-";

/// The content of a set of files and folders.
#[derive(Clone, Debug, Default)]
pub struct LoadedInput {
    /// The valid objects and the isolation policies of invalid ones.
    pub state: State,
    /// Errors and warnings by location, with counts of those not listed.
    pub diagnostics: Vec<Diagnostic>,
    /// The number of files read.
    pub files: usize,
    /// The number of valid objects.
    pub objects: usize,
    /// The number of objects of ignored kinds, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl LoadedInput {
    /// Whether there are errors (warnings do not count).
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.is_error)
    }
}

/// The progress of reading a file.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress<'p> {
    /// The file.
    pub file: &'p Path,
    /// The number of bytes read.
    pub read: u64,
    /// The size of the file in bytes, if known.
    pub size: Option<u64>,
}

/// Reads files and folders as one input, each file once. A path that cannot be read, or a file that is open
/// for writing, is reported as a diagnostic. `-` is the standard input; pipes are read to their end. Names in
/// messages are the paths as given, with the path below them appended.
///
/// A file may have any size; the size of one document, or of one item of a list, is limited.
pub fn load(paths: &[impl AsRef<Path>]) -> LoadedInput {
    load_with_progress(paths, &mut |_| {})
}

/// Like [`load`], and calls `on_progress` from time to time.
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
        collection.begin_file(&path);
        // Files found in a folder are opened only if they are still regular files.
        let input = match streams.contains(&path) {
            true => open_stream(&path),
            false => open_file(&path, &mut roots),
        };
        match input.and_then(|source| read_input(&path, source, &mut collection, on_progress)) {
            Ok(InputOutcome::Read) => files += 1,
            Ok(InputOutcome::Gone) => {}
            Ok(InputOutcome::BeingWritten) => {
                let reason = "another process has the file open for writing; not read".to_owned();
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

/// Whether a given path is not a regular file: the standard input, a pipe (such as `<(kubectl get …)`), a
/// terminal.
fn is_stream(path: &Path) -> bool {
    path == Path::new(STDIN_PATH)
        || std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// The tree only lists files here.
fn discard_objects(_: &Path, _: Vec<RawObject>, quota: ProblemQuota) -> ConvertedObjects<()> {
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

/// A reader and its size in bytes, if known.
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

/// The number of bytes at the beginning of a file that decide what kind of file it is.
const HEAD_BYTES: usize = 64 << 10;

/// A reader that reports progress and keeps the beginning of the file.
struct ProgressReader<'r> {
    reader: &'r mut dyn Read,
    /// The beginning of the file.
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
