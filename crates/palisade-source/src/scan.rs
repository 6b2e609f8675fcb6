//! Finding and reading the files of a tree of manifests.
//!
//! [`Tree`] remembers what each file held, so that a scan reads only files that changed, and never
//! one that somebody is still writing. Names that begin with a dot are skipped (version control,
//! editors' swap files, the hidden folders behind a mounted ConfigMap); links are followed, each
//! folder once. It never decides what is in force.

use palisade_manifest::{Limits, Location, Problem, RawObject, objects, read};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files in one tree beyond this are not read.
const FILES: usize = 100_000;
/// Folders nested deeper than this are not entered.
const DEPTH: usize = 64;

/// What tells versions of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// One file as it was last read.
#[derive(Clone, Debug)]
pub(crate) struct File {
    stamp: Option<Stamp>,
    /// Its objects, in order.
    pub(crate) objects: Arc<Vec<RawObject>>,
    /// What of it could not be read.
    pub(crate) problems: Arc<Vec<Problem>>,
    /// Whether it may hold objects that are not in `objects`.
    pub(crate) incomplete: bool,
}

/// A tree of manifests, or a single file.
#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    limits: Limits,
    /// By path as found.
    pub(crate) files: BTreeMap<PathBuf, File>,
    /// What could not be looked into, with why.
    pub(crate) problems: Vec<Problem>,
    /// The folders found, for watching.
    pub(crate) folders: BTreeSet<PathBuf>,
    /// The files whose content the last scan read.
    pub(crate) read_anew: BTreeSet<PathBuf>,
    /// Whether the last scan saw the whole tree, so that what it did not find is gone.
    pub(crate) whole: bool,
}

impl Tree {
    /// The tree below `root`; nothing is read yet.
    pub(crate) fn new(root: &Path) -> Self {
        Tree {
            root: root.to_path_buf(),
            limits: Limits::default(),
            files: BTreeMap::new(),
            problems: Vec::new(),
            folders: BTreeSet::new(),
            read_anew: BTreeSet::new(),
            whole: false,
        }
    }

    /// The same tree for another scan, which can then be thrown away.
    pub(crate) fn again(&self) -> Self {
        Tree {
            root: self.root.clone(),
            files: self.files.clone(),
            ..Tree::new(&self.root)
        }
    }

    /// Looks at the whole tree, reading what changed. Files in `busy` are being written: what they
    /// held before stays.
    pub(crate) fn scan(&mut self, busy: &BTreeSet<PathBuf>) {
        let mut walk = Walk::new(&self.files, &self.limits, busy);
        walk.enter(&self.root, 0, true);
        let Walk {
            files,
            folders,
            problems,
            whole,
            read_anew,
            ..
        } = walk;
        self.files = files;
        self.folders = folders;
        self.problems = problems;
        self.whole = whole;
        self.read_anew = read_anew;
    }
}

struct Walk<'a> {
    limits: &'a Limits,
    before: &'a BTreeMap<PathBuf, File>,
    busy: &'a BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, File>,
    folders: BTreeSet<PathBuf>,
    entered: BTreeSet<(u64, u64)>,
    problems: Vec<Problem>,
    whole: bool,
    read_anew: BTreeSet<PathBuf>,
}

impl<'a> Walk<'a> {
    fn new(
        before: &'a BTreeMap<PathBuf, File>,
        limits: &'a Limits,
        busy: &'a BTreeSet<PathBuf>,
    ) -> Self {
        Walk {
            limits,
            before,
            busy,
            files: BTreeMap::new(),
            folders: BTreeSet::new(),
            entered: BTreeSet::new(),
            problems: Vec::new(),
            whole: true,
            read_anew: BTreeSet::new(),
        }
    }

    fn enter(&mut self, path: &Path, depth: usize, root: bool) {
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            // Gone between listing and looking, or a link to nothing: no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !root => return,
            Err(error) => return self.blind(path, &format!("it cannot be looked at: {error}")),
        };
        if meta.is_dir() {
            self.folder(path, &meta, depth);
        } else if meta.is_file() && (root || is_manifest(path)) {
            self.file(path, &meta);
        }
    }

    fn folder(&mut self, path: &Path, meta: &std::fs::Metadata, depth: usize) {
        if depth > DEPTH {
            return self.blind(path, &format!("folders nest more than {DEPTH} deep here"));
        }
        if !self.entered.insert((meta.dev(), meta.ino())) {
            return;
        }
        self.folders.insert(path.to_path_buf());
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.blind(path, &format!("it cannot be listed: {error}")),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.file_name()),
                Err(error) => return self.blind(path, &format!("it cannot be listed: {error}")),
            }
        }
        names.sort();
        for name in names {
            if !name.as_encoded_bytes().starts_with(b".") {
                self.enter(&path.join(name), depth + 1, false);
            }
        }
    }

    fn file(&mut self, path: &Path, meta: &std::fs::Metadata) {
        if self.files.len() >= FILES {
            return self.blind(
                path,
                &format!("there are more than {FILES} files; it is not read"),
            );
        }
        let before = self.before.get(path);
        let stamp = Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        };
        let busy = self.busy.contains(path);
        let file = match before {
            Some(before) if busy || before.stamp == Some(stamp) => before.clone(),
            // Never read, and half written: it does not count yet.
            None if busy => return,
            _ => {
                self.read_anew.insert(path.to_path_buf());
                self.read(path, stamp, before)
            }
        };
        self.files.insert(path.to_path_buf(), file);
    }

    fn read(&self, path: &Path, stamp: Stamp, before: Option<&File>) -> File {
        let name = path.display().to_string();
        let broken = |reason: String| File {
            stamp: None,
            objects: Arc::default(),
            problems: Arc::new(vec![problem(&name, reason)]),
            incomplete: true,
        };
        if stamp.size > self.limits.file_bytes as u64 {
            let limit = self.limits.file_bytes >> 20;
            return File {
                stamp: Some(stamp),
                ..broken(format!("it is larger than {limit} MiB and is not read"))
            };
        }
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => return broken(format!("it cannot be read: {error}")),
        };
        let held = before.is_some_and(|file| file.incomplete || !file.objects.is_empty());
        if held && bytes.iter().all(u8::is_ascii_whitespace) {
            let reason = "it is empty now; what it held stays in force until the file is removed";
            return File {
                stamp: Some(stamp),
                ..broken(reason.to_owned())
            };
        }
        let found = objects(read(&name, &bytes, self.limits), self.limits);
        File {
            stamp: Some(stamp),
            incomplete: !found.problems.is_empty(),
            objects: Arc::new(found.objects),
            problems: Arc::new(found.problems),
        }
    }

    /// Something could not be looked into, so nothing can be said to be gone.
    fn blind(&mut self, path: &Path, reason: &str) {
        self.whole = false;
        self.problems
            .push(problem(&path.display().to_string(), reason.to_owned()));
    }
}

fn problem(file: &str, reason: String) -> Problem {
    let location = Location {
        file: file.into(),
        line: 1,
        column: 1,
    };
    Problem {
        location,
        object: None,
        field: String::new(),
        reason,
    }
}

/// Whether a file's name says that it is a manifest.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}
