//! Reads manifests and dumps once, for commands that work without an agent.
//!
//! Files may have any size: they are read object by object, and only what policy evaluation needs is kept.

use crate::collector::InputCollector;
use crate::file_problem::{file_problem, printable_path};
use crate::loaded_input::LoadedInput;
use crate::roots::{RootOpenError, Roots};
use crate::scan::Tree;
use palisade_dialects::field_filter_of_kind;
use palisade_manifest::{FieldFilter, Limits, ObjectSink, read_stream};
use palisade_model::ObjectId;
use palisade_sys::writers::{WriterPresence, detect_writers};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The path of the standard input.
const STDIN_PATH: &str = "-";

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
    collect(paths, InputCollector::default(), on_progress)
}

/// Like [`load`], and keeps the manifest of every object that is not of an ignored kind, with all of its fields.
pub fn load_manifests(paths: &[impl AsRef<Path>]) -> LoadedInput {
    collect(paths, InputCollector::with_manifests(), &mut |_| {})
}

/// Like [`load_with_progress`] of `present`, with a change: objects that the files of `change` have are added, or replace
/// those of the same kind, namespace and name; those that `is_deleted` selects are left out of `present`. It is asked
/// about every object there.
pub fn load_changed(
    present: &[impl AsRef<Path>],
    change: &[impl AsRef<Path>],
    is_deleted: Box<dyn Fn(&ObjectId) -> bool>,
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> LoadedInput {
    let mut collection = InputCollector::of_change();
    let mut files = read_paths(change, &mut collection, on_progress);
    collection.begin_document();
    collection.end_change(is_deleted);
    files += read_paths(present, &mut collection, on_progress);
    collection.finish(files)
}

fn collect(
    paths: &[impl AsRef<Path>],
    mut collection: InputCollector,
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> LoadedInput {
    let files = read_paths(paths, &mut collection, on_progress);
    collection.finish(files)
}

/// Reads files and folders, and returns the number of files.
fn read_paths(
    paths: &[impl AsRef<Path>],
    collection: &mut InputCollector,
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> usize {
    let (streams, roots): (Vec<PathBuf>, Vec<PathBuf>) = paths
        .iter()
        .map(|path| path.as_ref().to_path_buf())
        .partition(|path| is_stream(path));
    let tree = Tree::list(roots);
    let mut roots = Roots::new(&tree.roots);
    for problem in tree.coverage.problems {
        collection.add_unreadable(problem);
    }
    collection.omit_folders(tree.coverage.omitted_problems);
    let mut paths = tree.listing.unwrap_or_default().paths;
    paths.extend(streams.iter().cloned());
    paths.sort();
    paths.dedup();
    let mut files = 0;
    for path in paths {
        collection.begin_file(&path);
        // Files found in a folder are opened only if they are still regular files.
        let input = if streams.contains(&path) {
            open_stream(&path)
        } else {
            open_file(&path, &mut roots)
        };
        let read = match input {
            Ok(OpenedInput::Gone) => continue,
            Ok(OpenedInput::BeingWritten) => {
                let reason = "another process has the file open for writing; not read".to_owned();
                collection.add_unreadable(file_problem(&path, reason));
                continue;
            }
            Ok(OpenedInput::Reader(reader, size)) => {
                read_input(&path, reader, size, collection, on_progress)
            }
            Err(error) => Err(error),
        };
        files += 1;
        if let Err(error) = read {
            let reason = format!("it cannot be read: {error}");
            collection.add_unreadable(file_problem(&path, reason));
        }
    }
    files
}

/// Whether a given path is not a regular file: the standard input, a pipe (such as `<(kubectl get …)`), a
/// terminal.
fn is_stream(path: &Path) -> bool {
    path == Path::new(STDIN_PATH)
        || std::fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// A path that was opened.
enum OpenedInput {
    /// With its size in bytes, if known.
    Reader(Box<dyn Read>, Option<u64>),
    BeingWritten,
    Gone,
}

fn open_stream(path: &Path) -> io::Result<OpenedInput> {
    let reader: Box<dyn Read> = if path == Path::new(STDIN_PATH) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    Ok(OpenedInput::Reader(reader, None))
}

fn open_file(path: &Path, roots: &mut Roots) -> io::Result<OpenedInput> {
    let file = match roots.open(path) {
        Ok(opened) => opened.read()?,
        Err(RootOpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(OpenedInput::Gone);
        }
        Err(RootOpenError::Io(error)) => return Err(error),
        Err(RootOpenError::OutsideRoots(reason)) => return Err(io::Error::other(reason)),
    };
    if detect_writers(&file) == WriterPresence::Present {
        return Ok(OpenedInput::BeingWritten);
    }
    let size = file.metadata()?.len();
    Ok(OpenedInput::Reader(Box::new(file), Some(size)))
}

fn read_input(
    path: &Path,
    mut reader: Box<dyn Read>,
    size: Option<u64>,
    collection: &mut InputCollector,
    on_progress: &mut dyn FnMut(LoadProgress<'_>),
) -> io::Result<()> {
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
        if collection.keeps_manifests() {
            |_| &FieldFilter::All
        } else {
            field_filter_of_kind
        },
        collection,
    )?;
    let head = std::mem::take(&mut progress_reader.head);
    collection.end_file(path, &head);
    Ok(())
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
    fn a_change_replaces_adds_and_deletes() {
        let file = |text: &str| {
            let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file.into_temp_path()
        };
        let policy = |name: &str, label: &str| {
            format!(
                "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
                 metadata: {{name: {name}, namespace: shop}}\n\
                 spec: {{podSelector: {{matchLabels: {{app: {label}}}}}}}\n"
            )
        };
        let present =
            file(&(policy("kept", "old") + &policy("replaced", "old") + &policy("gone", "old")));
        let change = file(&(policy("replaced", "new") + &policy("added", "new")));
        let is_deleted = |id: &ObjectId| *id.name == *"gone";
        let loaded = load_changed(&[&present], &[&change], Box::new(is_deleted), &mut |_| {});
        assert_eq!(loaded.diagnostics.len(), 0, "{:?}", loaded.diagnostics);
        let found: Vec<(String, bool)> = loaded
            .state
            .policies
            .iter()
            .map(|(id, policy)| {
                let is_new = policy.subject.to_string().contains("new");
                (id.object.name.to_string(), is_new)
            })
            .collect();
        let expected = [("added", true), ("kept", false), ("replaced", true)];
        assert_eq!(
            found,
            expected.map(|(name, is_new)| (name.to_owned(), is_new))
        );
    }

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
