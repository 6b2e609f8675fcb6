//! The directory source: a tree of manifests, followed as it changes.
//!
//! A change is taken when its file is closed or renamed and the tree has then been quiet for the
//! settle time; then the whole tree is looked at, so what is gone is gone from all of it. A file that
//! is open for writing keeps counting as it was. Lost events, new folders and replaced links lead to
//! another look at everything. It promises that neither a truncated file, nor a rename, nor a
//! checkout, nor a broken edit takes a policy out of force.

use crate::keeper::Keeper;
use crate::memory::{Memory, MemoryError};
use crate::scan::{Tree, is_manifest};
use crate::{Batch, Source, SourceError};
use palisade_sys::watch::{Change, DirWatch, InotifyWatch, Stopper, Wake, WatchEvent, WatchId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A tree that is never quiet is looked at after this many settle times.
const RESTLESS: u32 = 20;

/// What a directory source needs to know.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// The tree: a folder, or a single file.
    pub path: PathBuf,
    /// How long it must be quiet.
    pub settle: Duration,
    /// Where last valid versions are kept.
    pub state_dir: PathBuf,
}

/// A directory of manifests. See the module's description.
pub struct Directory {
    options: DirectoryOptions,
    watch: InotifyWatch,
    watched: BTreeMap<WatchId, PathBuf>,
    tree: Tree,
    busy: BTreeSet<PathBuf>,
    keeper: Keeper,
    memory: Memory,
}

/// Ends a directory source from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle(Stopper);

impl StopHandle {
    /// Makes [`Source::run`] return soon.
    pub fn stop(&self) {
        self.0.stop();
    }
}

fn failed<E: std::error::Error + Send + Sync + 'static>(
    doing: String,
) -> impl FnOnce(E) -> SourceError {
    move |cause| SourceError {
        doing,
        cause: Box::new(cause),
    }
}

impl Directory {
    /// A source over a tree, with what was in force when the last one ended.
    ///
    /// # Errors
    /// If the tree is not there, cannot be watched, or the state directory cannot be read.
    pub fn open(options: DirectoryOptions) -> Result<Self, SourceError> {
        let shown = options.path.display().to_string();
        let path = options
            .path
            .canonicalize()
            .map_err(failed(format!("opening the policy directory {shown}")))?;
        // Names in messages are as the user wrote them; only the root of a relative path needs care.
        let options = DirectoryOptions {
            path: if options.path.is_absolute() {
                options.path
            } else {
                path
            },
            ..options
        };
        let memory = Memory::open(&options.state_dir).map_err(failed::<MemoryError>(
            "opening the last valid objects".to_owned(),
        ))?;
        let watch = InotifyWatch::new().map_err(failed(format!("watching {shown}")))?;
        Ok(Directory {
            keeper: Keeper::remembering(&memory),
            tree: Tree::new(&options.path),
            options,
            watch,
            watched: BTreeMap::new(),
            busy: BTreeSet::new(),
            memory,
        })
    }

    /// Ends [`Source::run`] from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.watch.stopper())
    }

    /// Watches every folder of the tree, and the folder the tree itself lies in. Says whether one
    /// was not watched before: what happened in it until now was not seen.
    fn watch_folders(&mut self, tree: &Tree) -> bool {
        let parent = self
            .options
            .path
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .map(Path::to_path_buf);
        let wanted: BTreeSet<PathBuf> = tree.folders.iter().cloned().chain(parent).collect();
        let known: BTreeSet<PathBuf> = self.watched.values().cloned().collect();
        let stale: Vec<WatchId> = self
            .watched
            .iter()
            .filter(|(_, path)| !wanted.contains(*path))
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.watched.remove(&id);
            self.watch.remove(id);
        }
        let mut fresh = false;
        for folder in wanted.difference(&known) {
            match self.watch.add(folder) {
                Ok(id) => {
                    fresh = true;
                    self.watched.insert(id, folder.clone());
                }
                Err(error) => tracing::warn!(%error, "changes there will not be seen"),
            }
        }
        fresh
    }

    /// Notes what happened; says which files it touched while they are being written, and whether
    /// anything happened that a look could show.
    fn note(&mut self, events: &[WatchEvent]) -> (BTreeSet<PathBuf>, bool) {
        let mut written = BTreeSet::new();
        let mut relevant = false;
        for event in events {
            let WatchEvent::Changed {
                watch,
                name,
                is_dir,
                change,
            } = event
            else {
                self.busy.clear();
                relevant = true;
                continue;
            };
            let Some(folder) = self.watched.get(watch) else {
                continue;
            };
            let is_parent = !self.tree.folders.contains(folder)
                && Some(&**folder) == self.options.path.parent();
            let path = name
                .as_ref()
                .map_or_else(|| folder.clone(), |name| folder.join(name));
            if is_parent && path != self.options.path {
                continue;
            }
            match change {
                Change::Modified => {
                    self.busy.insert(path.clone());
                    written.insert(path);
                    continue;
                }
                Change::Created if !is_dir && is_being_made(&path) => {
                    self.busy.insert(path.clone());
                    written.insert(path);
                    continue;
                }
                Change::Ignored | Change::SelfDeleted | Change::SelfMoved => {
                    self.watched.remove(watch);
                }
                _ => drop(self.busy.remove(&path)),
            }
            relevant |= *is_dir || name.is_none() || is_manifest(&path) || is_link_target(&path);
        }
        (written, relevant)
    }

    /// Waits until the tree has changed and is quiet again. `None` when told to stop.
    fn settled(&mut self) -> Result<Option<()>, SourceError> {
        let path = self.options.path.display().to_string();
        let mut pending = false;
        let mut waits = 0;
        loop {
            let timeout = pending.then_some(self.options.settle);
            let wake = self
                .watch
                .wait(timeout)
                .map_err(failed(format!("watching {path}")))?;
            match wake {
                Wake::Stopped => return Ok(None),
                Wake::TimedOut => return Ok(Some(())),
                Wake::Events(events) => {
                    pending |= self.note(&events).1;
                    waits += u32::from(pending);
                    if waits > RESTLESS {
                        return Ok(Some(()));
                    }
                }
            }
        }
    }

    /// Looks at the tree until what was read was not being written meanwhile. `None` when told to
    /// stop.
    fn look(&mut self) -> Result<Option<()>, SourceError> {
        for _ in 0..RESTLESS {
            let mut tree = self.tree.again();
            tree.scan(&self.busy);
            let fresh_folders = self.watch_folders(&tree);
            let path = self.options.path.display().to_string();
            let wake = self
                .watch
                .wait(Some(Duration::ZERO))
                .map_err(failed(format!("watching {path}")))?;
            let written = match wake {
                Wake::Stopped => return Ok(None),
                Wake::TimedOut => BTreeSet::new(),
                Wake::Events(events) => self.note(&events).0,
            };
            if written.iter().any(|path| tree.read_anew.contains(path)) {
                continue;
            }
            self.tree = tree;
            if !fresh_folders {
                break;
            }
        }
        Ok(Some(()))
    }

    fn take(&mut self) -> Batch {
        #[allow(
            clippy::disallowed_methods,
            reason = "when a version was read is told to people, and decides nothing"
        )]
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        self.keeper.take(&self.tree, now, &mut self.memory)
    }
}

impl Source for Directory {
    fn describe(&self) -> (String, String) {
        (
            "directory".to_owned(),
            self.options.path.display().to_string(),
        )
    }

    fn run(&mut self, sink: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> Result<(), SourceError> {
        loop {
            if self.look()?.is_none() {
                return Ok(());
            }
            let batch = self.take();
            if sink(batch).is_break() {
                return Ok(());
            }
            if let Err(error) = self.memory.save() {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "remembering valid objects; it is tried again with the next change");
            }
            if self.settled()?.is_none() {
                return Ok(());
            }
        }
    }
}

/// Whether a name that has just appeared is a file whose content is still to come: a hard link or a
/// symbolic link is whole from the start.
fn is_being_made(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.nlink() == 1)
}

/// Whether this may be a link or folder that files of the tree lie behind, such as the `..data` of a
/// mounted ConfigMap.
fn is_link_target(path: &Path) -> bool {
    std::fs::symlink_metadata(path).map_or(true, |meta| !meta.is_file())
}
