//! The directory source: a tree of manifests, followed as it changes.
//!
//! A change is taken when its file is closed or renamed and the tree has then been quiet for the
//! settle time. A file that is open for writing keeps counting as it was. Lost events, new folders
//! and replaced links lead to another look at everything. What is missing goes out of force only
//! after a look at the whole tree during which nothing happened. It promises that neither a truncated
//! file, nor a rename, nor a checkout, nor a broken edit takes a policy out of force.

use crate::budget::BudgetHandle;
use crate::glance::Glance;
use crate::keeper::Keeper;
use crate::memory::{Memory, MemoryError};
use crate::piece::Piece;
use crate::scan::{Activity, File, FileId, Tree, problem};
use crate::watching::Watching;
use crate::{Batch, Budget, Flaw, Report, Source, SourceError};
use palisade_manifest::Problem;
use palisade_sys::watch::{Change, DirWatch, InotifyWatch, Stopper, Wake, WatchEvent};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A tree that is never quiet is looked at after this many settle times; and one in which every look
/// finds new folders, no more often than this at once.
const RESTLESS: u32 = 20;
/// After single files were looked at, everything is, once it has been quiet for so many settle times:
/// not every way to change a file makes an event (one is to write it by another name elsewhere).
const AT_LENGTH: u32 = 20;

/// How long after a look folders that could not be watched are tried again, with another look at
/// everything: at first, and at most. No event says that there is room for them.
const UNWATCHED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a directory source needs to know.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// The tree: a folder, or a single file.
    pub path: PathBuf,
    /// How long it must be quiet.
    pub settle: Duration,
    /// Where last valid versions are kept.
    pub state_dir: PathBuf,
    /// How much policies may take of the kernel.
    pub budget: Budget,
}

/// A directory of manifests. See the module's description.
pub struct Directory<W = InotifyWatch> {
    options: DirectoryOptions,
    settle: SettleHandle,
    budget: BudgetHandle,
    watch: W,
    watching: Watching,
    activity: Activity,
    tree: Tree<Piece>,
    keeper: Keeper,
    /// Something happened that no look has seen yet.
    pending: bool,
    /// Something happened that only a look at the whole tree shows.
    at_large: bool,
    /// Only single files were looked at since the whole tree was.
    glanced: bool,
    /// How long after a look what could not be watched is tried again.
    retry: Option<Duration>,
    /// The folder that the last manifests were found in.
    root: Option<FileId>,
    /// Why memory could not be saved.
    unsaved: Option<Problem>,
    told: Option<Report>,
}

/// What a look at the tree was.
struct Look {
    /// Whether nothing else happened meanwhile.
    undisturbed: bool,
    /// The files looked at, if it was not at everything.
    only: Option<BTreeSet<PathBuf>>,
}

/// Ends a directory source from another thread.
#[derive(Clone, Debug)]
pub struct StopHandle(pub(crate) Stopper);

impl StopHandle {
    /// Makes [`Source::run`] return soon.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// Changes how long the tree must be quiet, from another thread.
#[derive(Clone, Debug)]
pub struct SettleHandle(Arc<AtomicU64>);

impl SettleHandle {
    /// The tree must be quiet this long, from the next change on.
    pub fn set(&self, settle: Duration) {
        let micros = u64::try_from(settle.as_micros()).unwrap_or(u64::MAX);
        self.0.store(micros, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
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

/// Refuses a tree that is not there.
fn present(options: &DirectoryOptions) -> Result<(), SourceError> {
    let doing = format!("opening the policy directory {}", options.path.display());
    std::fs::metadata(&options.path)
        .map(drop)
        .map_err(failed(doing))
}

impl Directory {
    /// A source over a tree, with what was in force when the last one ended.
    ///
    /// # Errors
    /// If the tree is not there, cannot be watched, or the state directory cannot be read.
    pub fn open(options: DirectoryOptions) -> Result<Self, SourceError> {
        let doing = format!("watching {}", options.path.display());
        let watch = InotifyWatch::new().map_err(failed(doing))?;
        Directory::with_watch(options, watch)
    }

    /// As [`Directory::open`], for one that only looks: it keeps nothing and writes no file.
    ///
    /// # Errors
    /// As [`Directory::open`].
    pub fn peek(options: DirectoryOptions) -> Result<Self, SourceError> {
        let doing = format!("watching {}", options.path.display());
        let watch = InotifyWatch::new().map_err(failed(doing))?;
        let memory = Memory::peek(&options.state_dir);
        Directory::remembering(options, watch, memory)
    }

    /// Ends [`Source::run`] from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(self.watch.stopper())
    }
}

impl<W: DirWatch> Directory<W> {
    /// As [`Directory::open`], told of changes by `watch`.
    ///
    /// # Errors
    /// If the tree is not there, or the state directory cannot be read.
    pub fn with_watch(options: DirectoryOptions, watch: W) -> Result<Self, SourceError> {
        // Before anything is made in the state directory.
        present(&options)?;
        let memory = Memory::open(&options.state_dir);
        Directory::remembering(options, watch, memory)
    }

    fn remembering(
        options: DirectoryOptions,
        watch: W,
        memory: Result<Memory, MemoryError>,
    ) -> Result<Self, SourceError> {
        let doing = || format!("opening the policy directory {}", options.path.display());
        present(&options)?;
        // Not resolved further: the path itself may be a link that is turned later.
        let path = std::path::absolute(&options.path).map_err(failed(doing()))?;
        let options = DirectoryOptions { path, ..options };
        let memory = memory.map_err(failed::<MemoryError>(
            "opening the last valid objects".to_owned(),
        ))?;
        let settle = SettleHandle(Arc::default());
        settle.set(options.settle);
        Ok(Directory {
            settle,
            budget: BudgetHandle::new(options.budget, watch.waker()),
            keeper: Keeper::remembering(memory, options.budget),
            tree: Tree::new(vec![options.path.clone()], Piece::all_of),
            options,
            watch,
            watching: Watching::default(),
            activity: Activity::default(),
            pending: false,
            at_large: true,
            glanced: false,
            retry: None,
            root: None,
            unsaved: None,
            told: None,
        })
    }

    /// Changes how long the tree must be quiet, while the source runs.
    pub fn settle_handle(&self) -> SettleHandle {
        self.settle.clone()
    }

    /// Changes how much policies may take of the kernel, while the source runs.
    pub fn budget_handle(&self) -> BudgetHandle {
        self.budget.clone()
    }

    /// Waits for events; none if there are none in time, `None` when told to stop.
    fn events(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<Vec<WatchEvent>>, SourceError> {
        let wake = self.watch.wait(timeout);
        let path = self.options.path.display();
        match wake.map_err(failed(format!("watching {path}")))? {
            Wake::Stopped => Ok(None),
            Wake::TimedOut => Ok(Some(Vec::new())),
            Wake::Events(events) => Ok(Some(events)),
        }
    }

    /// Notes what happened. Says which files were written to, and whether anything happened that a
    /// look could show.
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
                // Which files were closed is lost as well: the next look asks for each file.
                self.activity.busy.clear();
                self.activity
                    .touched
                    .extend(self.tree.files.keys().cloned());
                (relevant, self.at_large) = (true, true);
                continue;
            };
            if matches!(
                change,
                Change::Ignored | Change::SelfDeleted | Change::SelfMoved
            ) {
                relevant |= self.watching.lost(&mut self.watch, *watch);
                self.at_large = true;
                continue;
            }
            for subject in self.watching.subjects(*watch, name.as_deref()) {
                let path = subject.path;
                let is_file = std::fs::symlink_metadata(&path).map(|meta| meta.is_file());
                let is_no_file = !is_file.as_ref().is_ok_and(|is| *is);
                relevant |= *is_dir || name.is_none() || subject.counts || is_no_file;
                // What is gone again, and was neither folder nor manifest nor on the way to one, was
                // somebody's temporary file.
                self.at_large |= *is_dir
                    || name.is_none()
                    || subject.hangs
                    || is_file.is_ok_and(|is| !is)
                    || subject.counts && takes_away(change);
                if *is_dir || !subject.counts {
                    continue;
                }
                match change {
                    Change::Modified => {
                        self.activity.busy.insert(path.clone());
                        written.insert(path.clone());
                    }
                    Change::Created if is_to_be_written(&path) => {
                        self.activity.busy.insert(path.clone());
                    }
                    // One who changes modes may be writing still.
                    Change::Created | Change::Attributes => {}
                    _ => drop(self.activity.busy.remove(&path)),
                }
                self.activity.touched.insert(path);
            }
        }
        self.pending |= relevant;
        (written, relevant)
    }

    /// Waits until the tree has changed and is quiet again; says whether it is, or is never quiet.
    /// `None` when told to stop.
    fn settled(&mut self) -> Result<Option<bool>, SourceError> {
        let mut quiet_since = monotonic();
        let mut since = quiet_since;
        let settle = self.settle.get();
        loop {
            let pending = self.pending;
            // Asked each time: the wake-up may have come together with events that are no reason to look.
            if !pending && self.budget.get() != self.keeper.budget() {
                self.at_large = true;
                return Ok(Some(true));
            }
            let left = match (pending, self.glanced) {
                (true, _) => Some(settle),
                (false, true) => Some(settle * AT_LENGTH),
                (false, false) => None,
            };
            let retry = self.retry.filter(|_| !pending);
            let left = left.into_iter().chain(retry).min();
            let left = left.map(|left| left.saturating_sub(monotonic() - quiet_since));
            let Some(events) = self.events(left)? else {
                return Ok(None);
            };
            if events.is_empty() {
                if pending {
                    return Ok(Some(true));
                }
                if self.glanced || retry.is_some() {
                    self.at_large = true;
                    self.retry = retry.map(|delay| (delay * 2).min(UNWATCHED.1));
                    return Ok(Some(true));
                }
                continue;
            }
            let (_, relevant) = self.note(&events);
            let now = monotonic();
            if relevant {
                quiet_since = now;
            }
            if !pending {
                since = now;
            } else if now - quiet_since >= settle {
                return Ok(Some(true));
            } else if now - since > settle * RESTLESS {
                return Ok(Some(false));
            }
        }
    }

    /// Looks at what the events name if that is enough. `None` if it is not.
    fn glance(&mut self) -> Option<Glance<Piece>> {
        if self.at_large || self.keeper.lingers() {
            return None;
        }
        let mut glance = self.tree.glance(&mut self.activity)?;
        let defines_all = glance.paths.iter().all(|path| {
            let is = self.tree.files.get(path);
            let was = glance.before.get(path);
            let is_whole = is.is_none_or(|file| !file.incomplete && !file.empty);
            let objects = |file: Option<&File<Piece>>| file.map(|file| Arc::clone(&file.objects));
            is_whole
                && keeps_all(
                    &objects(was).unwrap_or_default(),
                    &objects(is).unwrap_or_default(),
                )
        });
        if defines_all {
            return Some(glance);
        }
        // Read again with everything else, so that it is taken back if it is written to meanwhile.
        for path in glance.paths {
            self.tree.put(&path, glance.before.remove(&path));
            self.activity.touched.insert(path);
        }
        None
    }

    /// Looks at the tree, and at what appears meanwhile. `None` when told to stop.
    fn look(&mut self) -> Result<Option<Look>, SourceError> {
        let mut disturbed = false;
        let mut only = None;
        for _ in 0..RESTLESS {
            self.pending = false;
            let glance = self.glance();
            self.at_large = false;
            self.glanced = glance.is_some();
            let (before, fresh) = match glance {
                Some(glance) => {
                    only = Some(glance.paths);
                    (glance.before, false)
                }
                None => {
                    only = None;
                    let mut tree = Tree::scan(&self.tree, &mut self.activity);
                    let root = self.options.path.clone();
                    let followed = self.watching.follow(&mut self.watch, &root, &tree);
                    let (fresh, mut unwatched) = followed;
                    tree.problems.append(&mut unwatched);
                    disturbed |= tree.moved;
                    (std::mem::replace(&mut self.tree, tree).files, fresh)
                }
            };
            let Some(events) = self.events(Some(Duration::ZERO))? else {
                return Ok(None);
            };
            let (written, relevant) = self.note(&events);
            for path in written {
                self.tree.unread(&path, &before);
            }
            disturbed |= relevant;
            if !fresh {
                break;
            }
            // What was not watched yet may have changed unseen.
            self.at_large = true;
        }
        self.retry = (self.watching.incomplete).then(|| self.retry.unwrap_or(UNWATCHED.0));
        self.guard_root();
        self.pending = disturbed;
        Ok(Some(Look {
            undisturbed: !disturbed,
            only,
        }))
    }

    /// A new, empty folder in the place of the tree is one that is about to be filled (a clone, a
    /// volume that is not mounted yet), not the wish to have no policy.
    fn guard_root(&mut self) {
        let root = self.tree.folders.get(&self.options.path).copied();
        if !self.tree.files.is_empty() {
            self.root = root;
        } else if self.tree.whole
            && self.root.is_some()
            && root != self.root
            && !palisade_sys::fault::is_on("empty-root-drops")
        {
            self.tree.whole = false;
            let reason = "the folder was replaced by one without manifests; what was in force stays \
                          until it holds one, or until the next start";
            let reason = problem(&self.options.path, reason.to_owned());
            self.tree.problems.push(reason);
        }
    }

    /// Hands on what the last look changes.
    fn tell(
        &mut self,
        look: &Look,
        sink: &mut dyn FnMut(Batch) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let now = since_1970().as_secs();
        let only = look.only.as_ref();
        let budget = self.budget.get();
        let mut batch = self
            .keeper
            .take(&self.tree, only, look.undisturbed, budget, now);
        batch
            .report
            .problems
            .extend(self.unsaved.clone().map(Flaw::error));
        let news = !batch.updates.is_empty() || self.told.as_ref() != Some(&batch.report);
        if news {
            self.told = Some(batch.report.clone());
            sink(batch)?;
        }
        if palisade_sys::fault::is_on("versions-not-saved") {
            return ControlFlow::Continue(());
        }
        let unsaved = self.keeper.memory().save().err().map(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let cause = cause.unwrap_or_default();
            let reason = format!(
                "last valid versions cannot be saved ({error}: {cause}): after a restart an invalid \
                 object isolates instead; tried again with the next change"
            );
            problem(&self.options.state_dir, reason)
        });
        if unsaved == self.unsaved {
            return ControlFlow::Continue(());
        }
        let mut report = self.told.clone().unwrap_or_default();
        let old = self.unsaved.take().map(Flaw::error);
        report.problems.retain(|flaw| Some(flaw) != old.as_ref());
        report.problems.extend(unsaved.clone().map(Flaw::error));
        self.unsaved = unsaved;
        self.told = Some(report.clone());
        sink(Batch {
            updates: Vec::new(),
            in_sync: true,
            report,
        })
    }
}

impl<W: DirWatch + Send> Source for Directory<W> {
    fn describe(&self) -> (String, String) {
        (
            "directory".to_owned(),
            self.options.path.display().to_string(),
        )
    }

    fn run(&mut self, sink: &mut dyn FnMut(Batch) -> ControlFlow<()>) -> Result<(), SourceError> {
        let Some(mut look) = self.look()? else {
            return Ok(());
        };
        // Nothing was seen of what happened before, but files say when it did.
        let (seconds, nanos) = self.tree.newest;
        let newest = u64::try_from(seconds).unwrap_or(0);
        let newest = Duration::from_secs(newest) + Duration::from_nanos(nanos.unsigned_abs());
        let quiet = since_1970().checked_sub(newest) >= Some(self.settle.get());
        self.pending |= !quiet;
        look.undisturbed &= quiet;
        if self.tell(&look, sink).is_break() {
            return Ok(());
        }
        loop {
            let Some(quiet) = self.settled()? else {
                return Ok(());
            };
            let Some(mut look) = self.look()? else {
                return Ok(());
            };
            self.pending |= !quiet;
            look.undisturbed &= quiet;
            if self.tell(&look, sink).is_break() {
                return Ok(());
            }
        }
    }
}

/// Whether a name that has just appeared is a file whose content is still to come: a hard link, or a
/// file made elsewhere and linked here, is whole from the start.
fn is_to_be_written(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.nlink() == 1 && meta.size() == 0)
}

/// Whether an entry is not there after this.
fn takes_away(change: &Change) -> bool {
    matches!(change, Change::MovedFrom { .. } | Change::Deleted)
}

/// Whether each object that a file defined is still in it. One that is not may be defined elsewhere
/// now, which only a look at the whole tree tells.
fn keeps_all(was: &[Piece], is: &[Piece]) -> bool {
    let ids: BTreeSet<_> = is.iter().map(|piece| &piece.id).collect();
    was.iter().all(|piece| ids.contains(&piece.id))
}

#[allow(
    clippy::disallowed_methods,
    reason = "for how long it has been quiet is the very thing that is waited for"
)]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}

#[allow(
    clippy::disallowed_methods,
    reason = "tells people when a version was read; and how old files are when nothing was seen yet, where \
              a wrong clock only costs one settle time"
)]
fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
