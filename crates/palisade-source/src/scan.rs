//! Finding and reading the files of a tree of manifests.
//!
//! [`Tree`] remembers what each file held, so that a scan reads only files that changed, and never
//! one that somebody is still writing. Names that begin with a dot are skipped (version control,
//! editors' swap files, the hidden folders behind a mounted ConfigMap); links are followed within the
//! roots, and one that leads out of them is a problem; each
//! folder and each file counts once, under the first of its names. Only regular files are opened. It
//! never decides what is in force.

use crate::bounds::Bounds;
use crate::named::Named;
use crate::roots::{Refusal, Roots};
use crate::unrendered::{self, Contents};
use palisade_dialects::{OF_FILE, OF_INPUT, Quota, Untold};
use palisade_manifest::{Limits, Location, Problem, RawObject, objects, read};
use palisade_sys::writers::{Writers, writers};
use palisade_text::printable;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What tells files and folders apart, whatever their names: device and inode.
pub(crate) type FileId = (u64, u64);

/// What tells versions of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    id: FileId,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// One file as it was last read; `T` is what is made of each of its objects.
#[derive(Debug)]
pub(crate) struct File<T> {
    stamp: Option<Stamp>,
    /// Its objects, in order.
    pub(crate) objects: Arc<Vec<T>>,
    /// What of it could not be read.
    pub(crate) problems: Arc<Vec<Problem>>,
    /// Whether it may hold objects that are not in `objects`.
    pub(crate) incomplete: bool,
    /// Whether there is nothing in it at all.
    pub(crate) empty: bool,
    /// The text of one that is incomplete, as far as there is any.
    text: Option<Named>,
    /// How many problems of it are told.
    told: Told,
    /// How many are only counted.
    pub(crate) untold: Untold,
    /// How many of the tree's problems could be told when it was read.
    room: Told,
}

/// A number of errors and of warnings that are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
}

impl Told {
    fn plus(self, other: Told) -> Told {
        Told {
            errors: self.errors + other.errors,
            warnings: self.warnings + other.warnings,
        }
    }

    fn minus(self, other: Told) -> Told {
        Told {
            errors: self.errors.saturating_sub(other.errors),
            warnings: self.warnings.saturating_sub(other.warnings),
        }
    }
}

/// What is made of the objects of a file, and what is left of the quota of its problems.
pub(crate) struct Made<T> {
    pub(crate) objects: Vec<T>,
    pub(crate) quota: Quota,
}

/// Makes something of the objects of a file; their problems are told within a quota.
pub(crate) type Make<T> = fn(Vec<RawObject>, Quota) -> Made<T>;

impl<T> Clone for File<T> {
    fn clone(&self) -> Self {
        File {
            stamp: self.stamp,
            objects: Arc::clone(&self.objects),
            problems: Arc::clone(&self.problems),
            incomplete: self.incomplete,
            empty: self.empty,
            text: self.text.clone(),
            told: self.told,
            untold: self.untold,
            room: self.room,
        }
    }
}

impl<T> File<T> {
    /// Whether it may hold an object of this name that could not be read.
    pub(crate) fn may_hold(&self, name: &str) -> bool {
        self.broken_text().is_some_and(|text| text.says(name))
    }

    /// Its text, if it may hold objects that could not be read.
    pub(crate) fn broken_text(&self) -> Option<&Named> {
        self.text.as_ref().filter(|_| self.incomplete)
    }

    /// Whether any of its problems is told.
    pub(crate) fn tells(&self) -> bool {
        self.told != Told::default()
    }

    /// Whether problems that had no room when it was read would have some now.
    fn may_tell_more(&self, room: Told) -> bool {
        let more = |untold: usize, then: usize, now: usize| untold > 0 && then < now.min(OF_FILE);
        more(self.untold.errors, self.room.errors, room.errors)
            || more(self.untold.warnings, self.room.warnings, room.warnings)
    }
}

/// What files are known to be open for writing, or written since they were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    /// Written to, and not closed as far as is known.
    pub(crate) busy: BTreeSet<PathBuf>,
    /// Touched since the last scan: read again whatever they look like.
    pub(crate) touched: BTreeSet<PathBuf>,
}

impl Activity {
    /// Takes in what a look saw; `free` are the files that nobody is writing.
    pub(crate) fn seen<T>(&mut self, tree: &Tree<T>, free: &BTreeSet<FileId>) {
        self.busy
            .retain(|path| identity(path).is_some_and(|id| !free.contains(&id)));
        self.busy.extend(tree.being_written.iter().cloned());
        self.touched.clear();
    }
}

/// A tree of manifests, or several, or single files.
#[derive(Debug)]
pub(crate) struct Tree<T> {
    pub(crate) roots: Vec<PathBuf>,
    make: Make<T>,
    pub(crate) bounds: Bounds,
    /// Where files are only listed, and not read: those found, in order.
    pub(crate) found: Option<Vec<PathBuf>>,
    /// By path as found.
    pub(crate) files: BTreeMap<PathBuf, File<T>>,
    /// What could not be looked into, with why.
    pub(crate) problems: Vec<Problem>,
    /// How many more there are of these.
    pub(crate) more_problems: usize,
    /// The folders found.
    pub(crate) folders: BTreeMap<PathBuf, FileId>,
    /// What in it is a link: where it leads has to be watched too.
    pub(crate) links: BTreeSet<PathBuf>,
    /// The files whose content the last scan read.
    pub(crate) read_anew: BTreeMap<FileId, PathBuf>,
    /// The files that were being written.
    pub(crate) being_written: BTreeSet<PathBuf>,
    /// Whether the last scan saw the whole tree, so that what it did not find is gone.
    pub(crate) whole: bool,
    /// Whether a file went while it was looked at.
    pub(crate) moved: bool,
    /// The last change of any file or folder found, in seconds and nanoseconds since 1970.
    pub(crate) newest: (i64, i64),
    /// How many objects the files hold.
    pub(crate) objects: usize,
    /// How many problems of the files are told.
    pub(crate) told: Told,
}

impl<T> Tree<T> {
    /// The tree below these paths; nothing is read yet.
    pub(crate) fn new(roots: Vec<PathBuf>, make: Make<T>) -> Self {
        Tree {
            roots,
            make,
            bounds: Bounds::default(),
            found: None,
            files: BTreeMap::new(),
            problems: Vec::new(),
            more_problems: 0,
            folders: BTreeMap::new(),
            links: BTreeSet::new(),
            read_anew: BTreeMap::new(),
            being_written: BTreeSet::new(),
            whole: false,
            moved: false,
            newest: (0, 0),
            objects: 0,
            told: Told::default(),
        }
    }

    /// Looks at the whole tree, reading what changed since `before`. Files that are being written
    /// stay as they were; `activity` is brought up to date.
    pub(crate) fn scan(before: &Tree<T>, activity: &mut Activity) -> Self {
        let limits = Limits::default();
        activity.busy.retain(|path| identity(path).is_some());
        let mut walk = Walk::beside(before, Told::default(), &limits, activity);
        for root in &before.roots {
            walk.enter(root, 0, false);
        }
        let (tree, free) = walk.end();
        activity.seen(&tree, &free);
        tree
    }

    /// Puts a file in the place of one, or takes it out; gives what was there.
    pub(crate) fn put(&mut self, path: &Path, file: Option<File<T>>) -> Option<File<T>> {
        let is = file.as_ref().map_or(0, |file| file.objects.len());
        let told = file.as_ref().map_or(Told::default(), |file| file.told);
        let was = match file {
            Some(file) => self.files.insert(path.to_path_buf(), file),
            None => self.files.remove(path),
        };
        let less = was.as_ref().map_or(0, |was| was.objects.len());
        self.objects = (self.objects + is).saturating_sub(less);
        let no_more = was.as_ref().map_or(Told::default(), |was| was.told);
        self.told = self.told.plus(told).minus(no_more);
        was
    }

    /// Takes back what was read of a file that was written to meanwhile.
    /// `before` are the files as they were.
    pub(crate) fn unread(&mut self, path: &Path, before: &BTreeMap<PathBuf, File<T>>) {
        let path = identity(path)
            .and_then(|id| self.read_anew.get(&id).cloned())
            .unwrap_or_else(|| path.to_path_buf());
        if !self.read_anew.values().any(|read| *read == path) {
            return;
        }
        self.put(&path, before.get(&path).cloned());
        self.being_written.insert(path);
    }
}

/// What a look saw, and the files that nobody is writing after all.
pub(crate) type Seen<T> = (Tree<T>, BTreeSet<FileId>);

/// A look under way.
pub(crate) struct Walk<'a, T> {
    limits: &'a Limits,
    before: &'a BTreeMap<PathBuf, File<T>>,
    busy: BTreeSet<FileId>,
    touched: BTreeSet<FileId>,
    /// Files that nobody is writing after all.
    free: BTreeSet<FileId>,
    entered: BTreeSet<FileId>,
    full: bool,
    roots: Roots,
    /// How many problems of files that are not looked at are told.
    told_elsewhere: Told,
    tree: Tree<T>,
}

impl<'a, T> Walk<'a, T> {
    /// One that has seen nothing yet, beside the last one's tree.
    pub(crate) fn beside(
        before: &'a Tree<T>,
        told_elsewhere: Told,
        limits: &'a Limits,
        activity: &Activity,
    ) -> Self {
        let ids = |paths: &BTreeSet<PathBuf>| paths.iter().filter_map(|p| identity(p)).collect();
        Walk {
            limits,
            before: &before.files,
            busy: ids(&activity.busy),
            touched: ids(&activity.touched),
            free: BTreeSet::new(),
            entered: BTreeSet::new(),
            full: false,
            roots: Roots::of(&before.roots),
            told_elsewhere,
            tree: Tree {
                bounds: before.bounds,
                found: before.found.as_ref().map(|_| Vec::new()),
                whole: true,
                ..Tree::new(before.roots.clone(), before.make)
            },
        }
    }

    /// What it saw, and the files that nobody is writing after all.
    pub(crate) fn end(self) -> Seen<T> {
        (self.tree, self.free)
    }

    /// A manifest was found.
    pub(crate) fn found(&mut self, path: &Path, meta: &std::fs::Metadata) {
        let changed = (meta.ctime(), meta.ctime_nsec());
        self.tree.newest = self.tree.newest.max(changed);
        self.file(path, meta, false);
    }

    fn enter(&mut self, path: &Path, depth: usize, is_link: bool) {
        let root = depth == 0;
        let named = root || is_manifest(path);
        if is_link {
            self.tree.links.insert(path.to_path_buf());
        }
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            // Gone between listing and looking, or a link to nothing: no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !root => return,
            // A link in a circle holds nothing, so nothing in it can be missed.
            Err(error) if is_link && !named => return drop(error),
            Err(error) => return self.blind(path, &format!("it cannot be looked at: {error}")),
        };
        if meta.is_dir() {
            self.folder(path, depth);
        } else if meta.is_file() && named {
            let changed = (meta.ctime(), meta.ctime_nsec());
            self.tree.newest = self.tree.newest.max(changed);
            self.file(path, &meta, is_link);
        } else if is_link && named {
            self.leads_out(path);
        } else if root {
            self.blind(path, "it is neither a file nor a folder");
        }
    }

    fn folder(&mut self, path: &Path, depth: usize) {
        let most = self.tree.bounds.depth;
        if depth > most {
            return self.blind(path, &format!("folders nest more than {most} deep here"));
        }
        let opened = match self.roots.open(path) {
            Ok(opened) => opened,
            // Gone since it was looked at.
            Err(Refusal::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                self.tree.moved = true;
                return;
            }
            Err(Refusal::Io(error)) => {
                return self.blind(path, &format!("it cannot be looked at: {error}"));
            }
            Err(Refusal::Outside(reason)) => return self.blind(path, &reason),
        };
        let meta = opened.meta();
        let changed = (meta.ctime(), meta.ctime_nsec());
        self.tree.newest = self.tree.newest.max(changed);
        let id = (meta.dev(), meta.ino());
        if !self.entered.insert(id) {
            return;
        }
        self.tree.folders.insert(path.to_path_buf(), id);
        let entries = match opened.entries() {
            Ok(entries) => entries,
            Err(error) => return self.blind(path, &format!("it cannot be listed: {error}")),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => {
                    let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                    names.push((entry.file_name(), is_link));
                }
                Err(error) => return self.blind(path, &format!("it cannot be listed: {error}")),
            }
        }
        names.sort();
        for (name, is_link) in names {
            if !name.as_encoded_bytes().starts_with(b".") {
                self.enter(&path.join(name), depth + 1, is_link);
            }
        }
    }

    /// Whether a link that has a manifest's name leads out of the roots; it is then a file that may
    /// hold anything.
    fn leads_out(&mut self, path: &Path) -> bool {
        let Err(Refusal::Outside(reason)) = self.roots.open(path) else {
            return false;
        };
        if self.tree.found.is_some() {
            self.blind(path, &reason);
        } else {
            let file = broken(path, reason, self.room());
            drop(self.tree.put(path, Some(file)));
        }
        true
    }

    fn file(&mut self, path: &Path, meta: &std::fs::Metadata, is_link: bool) {
        if self.full {
            return;
        }
        let most = self.tree.bounds.files;
        if self.tree.files.len() >= most {
            self.full = true;
            let reason = format!("there are more than {most} files; from this one on none is read");
            return self.blind(path, &reason);
        }
        if is_link && self.leads_out(path) {
            return;
        }
        let stamp = Stamp {
            id: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        };
        if !self.entered.insert(stamp.id) {
            return;
        }
        if let Some(found) = &mut self.tree.found {
            return found.push(path.to_path_buf());
        }
        let before = self.before.get(path);
        let busy = self.busy.contains(&stamp.id);
        let touched = busy || self.touched.contains(&stamp.id);
        let room = self.room();
        let is_known = |before: &&File<T>| {
            before.stamp == Some(stamp) && !touched && !before.may_tell_more(room)
        };
        let known = before.filter(is_known);
        let file = match known {
            Some(known) => Some(known.clone()),
            None => self.read(path, stamp, busy, before),
        };
        let Some(file) = file else { return };
        let objects = self.tree.objects + file.objects.len();
        let most = self.tree.bounds.objects;
        if objects > most {
            self.full = true;
            let reason =
                format!("there are more than {most} objects; from this file on none is read");
            return self.blind(path, &reason);
        }
        self.tree.put(path, Some(file));
    }

    /// A file that changed; none if it is gone, or new and being written.
    fn read(
        &mut self,
        path: &Path,
        stamp: Stamp,
        busy: bool,
        before: Option<&File<T>>,
    ) -> Option<File<T>> {
        if stamp.size > self.limits.file_bytes as u64 {
            let limit = self.limits.file_bytes >> 20;
            let reason = format!("it is larger than {limit} MiB and is not read");
            return Some(File {
                stamp: Some(stamp),
                ..broken(path, reason, self.room())
            });
        }
        let mut bytes = Vec::new();
        let opened = match self.roots.open(path) {
            Ok(opened) => opened.read(),
            Err(Refusal::Io(error)) => Err(error),
            Err(Refusal::Outside(reason)) => return Some(broken(path, reason, self.room())),
        };
        let opened = opened.and_then(|mut file| {
            let writing = match writers(&file) {
                Writers::Some => true,
                Writers::None => false,
                Writers::Unknown => busy,
            };
            let writing = writing && !palisade_sys::fault::is_on("half-written-read");
            if !writing {
                // One that grows meanwhile is read again: its writer closes it later.
                let most = self.limits.file_bytes as u64 + 1;
                file.by_ref().take(most).read_to_end(&mut bytes)?;
            }
            Ok(writing)
        });
        match opened {
            Ok(true) => {
                self.tree.being_written.insert(path.to_path_buf());
                return before.cloned();
            }
            Ok(false) => drop(self.free.insert(stamp.id)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.tree.moved = true;
                return before.cloned();
            }
            Err(error) => {
                let reason = format!("it cannot be read: {error}");
                return Some(broken(path, reason, self.room()));
            }
        }
        self.tree.read_anew.insert(stamp.id, path.to_path_buf());
        let room = self.room();
        let file = parse(path, &bytes, self.limits, self.tree.make, room);
        Some(File {
            stamp: Some(stamp),
            ..file
        })
    }

    /// How many more problems can be told.
    fn room(&self) -> Told {
        let most = Told {
            errors: OF_INPUT,
            warnings: OF_INPUT,
        };
        most.minus(self.tree.told).minus(self.told_elsewhere)
    }

    /// Something could not be looked into, so nothing can be said to be gone.
    fn blind(&mut self, path: &Path, reason: &str) {
        self.tree.whole = false;
        if self.tree.problems.len() >= OF_FILE {
            self.tree.more_problems += 1;
        } else {
            self.tree.problems.push(problem(path, reason.to_owned()));
        }
    }
}

fn parse<T>(path: &Path, bytes: &[u8], limits: &Limits, make: Make<T>, room: Told) -> File<T> {
    let mut found = objects(read(&shown(path), bytes, limits), limits);
    let mut seen = Contents::default();
    found.objects.retain(|object| seen.add(object));
    unrendered::explain(path, bytes, seen, &mut found.problems);
    // An object of a kind that nobody knows may be one that was in force.
    let known = found.objects.iter().all(palisade_dialects::is_known);
    let incomplete = !found.problems.is_empty() || !known;
    let most = Told {
        errors: room.errors.min(OF_FILE),
        warnings: room.warnings.min(OF_FILE),
    };
    let mut quota = Quota::left(most.errors, most.warnings);
    let mut problems = found.problems;
    problems.retain(|_| quota.admit(true));
    let made = make(found.objects, quota);
    let (errors, warnings) = made.quota.room();
    File {
        stamp: None,
        incomplete,
        empty: bytes.iter().all(u8::is_ascii_whitespace),
        text: incomplete.then(|| Named::of(bytes)),
        objects: Arc::new(made.objects),
        problems: Arc::new(problems),
        told: most.minus(Told { errors, warnings }),
        untold: made.quota.untold(),
        room,
    }
}

fn broken<T>(path: &Path, reason: String, room: Told) -> File<T> {
    let mut quota = Quota::left(room.errors, room.warnings);
    let told = quota.admit(true);
    let problem = told.then(|| problem(path, reason));
    File {
        stamp: None,
        objects: Arc::new(Vec::new()),
        problems: Arc::new(problem.into_iter().collect()),
        incomplete: true,
        empty: false,
        text: None,
        told: Told {
            errors: usize::from(told),
            warnings: 0,
        },
        untold: quota.untold(),
        room,
    }
}

/// A path as it is printed.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.display().to_string()).into_owned()
}

/// A problem with a file or folder as a whole.
pub(crate) fn problem(path: &Path, reason: String) -> Problem {
    let location = Location {
        file: shown(path).into(),
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

/// What is at a path, behind any links.
pub(crate) fn identity(path: &Path) -> Option<FileId> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Whether a file's name says that it is a manifest.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "tests write files")]
    fn what_goes_beyond_a_bound_is_told_once_and_nothing_counts_as_gone() {
        let dir = tempfile::tempdir().unwrap();
        let object = "---\n{apiVersion: v1, kind: Secret, metadata: {name: s}}\n";
        for (name, objects) in [("a", 2), ("b", 1), ("c", 3), ("d", 1)] {
            std::fs::write(
                dir.path().join(format!("{name}.yaml")),
                object.repeat(objects),
            )
            .unwrap();
        }
        let look = |files, objects| {
            let make: Make<RawObject> = |objects, quota| Made { objects, quota };
            let mut tree = Tree::new(vec![dir.path().to_path_buf()], make);
            tree.bounds = Bounds {
                files,
                objects,
                depth: 1,
            };
            let tree = Tree::scan(&tree, &mut Activity::default());
            let problems: Vec<String> = tree
                .problems
                .iter()
                .map(|p| {
                    format!(
                        "{}: {}",
                        &p.location.file[dir.path().as_os_str().len() + 1..],
                        p.reason
                    )
                })
                .collect();
            (tree.files.len(), tree.whole, problems.join("\n"))
        };
        assert_eq!(look(4, 7), (4, true, String::new()));
        let files = "c.yaml: there are more than 2 files; from this one on none is read";
        assert_eq!(look(2, 7), (2, false, files.to_owned()));
        let objects = "c.yaml: there are more than 5 objects; from this file on none is read";
        assert_eq!(look(4, 5), (2, false, objects.to_owned()));
    }
}
