//! The directory source: follows a tree of manifests.
//!
//! A change is read after its file was closed or renamed and the tree has been quiet for the settle time. A
//! file that is open for writing keeps its previous content. Lost events, new folders and replaced links
//! cause a full scan. A missing object goes out of force only after a full scan during which nothing changed.
//! What could not be read or watched is tried again with growing delays, with each event, and when a report is requested.
//! It promises that no truncated file, rename, checkout or broken edit takes a policy out of force.

use crate::file_index::FileIndex;
use crate::file_problem::file_problem;
use crate::handles::{RefreshHandle, SourceHandle};
use crate::initial_load::PART_BYTES;
use crate::manifest_file::{FileId, ManifestFile};
use crate::partial_scan::PartialScan;
use crate::scan::{Tree, WriteActivity};
use crate::source_set::unix_time;
use crate::watch_set::WatchSet;
use crate::{DeltaSink, Source, SourceError};
use palisade_effective::{ObjectOrigin, SharedId, SourceDelta};
use palisade_sys::watch::{DirChange, DirWatch, InotifyWatch, WakeReason, WatchEvent};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A tree that is never quiet is scanned after this many settle times; one in which every
/// scan finds new folders is rescanned at once at most this many times.
const MAX_SETTLE_PERIODS: u32 = 20;
/// A full scan follows partial scans once the tree has been quiet for this many settle times: some changes
/// cause no event (such as a write through a hard link elsewhere).
const FULL_SCAN_PERIODS: u32 = 20;

/// First and longest delay after a scan before what could not be read or watched is tried again, with a full scan. The
/// kernel sends no event when descriptors, memory or watches become available.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Configuration of a directory source.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// The tree: a directory or a single file.
    pub path: PathBuf,
    /// The settle time: how long the tree must be quiet before a change is read.
    pub settle: Duration,
}

/// A directory of manifests; see the module documentation.
pub struct Directory<W = InotifyWatch> {
    options: DirectoryOptions,
    refresh: RefreshHandle,
    watch: W,
    watches: WatchSet,
    activity: WriteActivity,
    tree: Tree,
    index: FileIndex,
    schedule: ScanSchedule,
    /// The identity of the folder in which manifests were last found.
    root_id: Option<FileId>,
}

/// Why there is a next scan, and of what.
#[derive(Default)]
struct ScanSchedule {
    /// An event arrived that no scan has covered yet.
    pending: bool,
    /// When the first event arrived that has not been published.
    detected_at: Option<Instant>,
    /// An event arrived that only a full scan covers.
    needs_full_scan: bool,
    /// Only partial scans were made since the last full scan.
    only_partial_scan: bool,
    /// Delay after a scan before what could not be read or watched is tried again.
    retry_delay: Option<Duration>,
}

/// Why waiting for a change ended.
enum WaitOutcome {
    /// The tree has been quiet for the settle time.
    Settled,
    /// The tree is never quiet.
    NeverQuiet,
    /// A report was requested.
    Refresh,
    /// A stop request.
    Stopped,
}

/// The result of one scan.
struct TreeScan {
    /// Whether no event arrived during the scan.
    undisturbed: bool,
    /// The files scanned by a partial scan; `None` for a full scan.
    paths: Option<BTreeSet<PathBuf>>,
}

fn source_error<E: std::error::Error + Send + Sync + 'static>(
    doing: String,
) -> impl FnOnce(E) -> SourceError {
    move |cause| SourceError {
        action: doing,
        cause: Box::new(cause),
    }
}

impl DirectoryOptions {
    /// Fails if the tree does not exist.
    ///
    /// # Errors
    /// See above.
    pub fn check_path(&self) -> Result<(), SourceError> {
        let doing = format!("opening the policy directory {}", self.path.display());
        let exists = std::fs::metadata(&self.path);
        exists.map(drop).map_err(source_error(doing))
    }
}

impl Directory {
    /// Opens a source over a tree; `restored` are the objects it had in force before, which stay until the
    /// tree was read.
    ///
    /// # Errors
    /// If the tree does not exist or cannot be watched.
    pub fn open<'a>(
        options: DirectoryOptions,
        restored: impl IntoIterator<Item = (&'a SharedId, &'a ObjectOrigin)>,
    ) -> Result<Self, SourceError> {
        let doing = format!("watching {}", options.path.display());
        let watch = InotifyWatch::new().map_err(source_error(doing))?;
        Directory::with_watch(options, restored, watch)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> SourceHandle {
        let (stopper, refresh) = (self.watch.stopper(), self.refresh.clone());
        SourceHandle::new(move || stopper.stop(), move || refresh.refresh())
    }
}

impl<W: DirWatch> Directory<W> {
    /// Like [`Directory::open`], with `watch` as the source of events.
    ///
    /// # Errors
    /// If the tree does not exist.
    pub fn with_watch<'a>(
        options: DirectoryOptions,
        restored: impl IntoIterator<Item = (&'a SharedId, &'a ObjectOrigin)>,
        watch: W,
    ) -> Result<Self, SourceError> {
        let doing = || format!("opening the policy directory {}", options.path.display());
        options.check_path()?;
        // Links are not resolved: the path itself may be a link that is replaced later.
        let path = std::path::absolute(&options.path).map_err(source_error(doing()))?;
        let options = DirectoryOptions { path, ..options };
        Ok(Directory {
            refresh: RefreshHandle::new(watch.waker()),
            index: FileIndex::new(restored),
            tree: Tree::new(vec![options.path.clone()]),
            options,
            watch,
            watches: WatchSet::default(),
            activity: WriteActivity::default(),
            schedule: ScanSchedule {
                needs_full_scan: true,
                ..ScanSchedule::default()
            },
            root_id: None,
        })
    }

    /// Waits for events; an empty list after a timeout, `None` after a stop request.
    fn wait_events(&mut self, timeout: Option<Duration>) -> Option<Vec<WatchEvent>> {
        match self.watch.wait(timeout) {
            Ok(WakeReason::Stopped) => None,
            Ok(WakeReason::TimedOut) => Some(Vec::new()),
            Ok(WakeReason::Events(events)) => Some(events),
            Err(error) => {
                let path = self.options.path.display();
                tracing::warn!(%path, %error, "events could not be read: the directory is scanned");
                // The kernel sends no event when it can answer again.
                std::thread::park_timeout(RETRY_DELAYS.0);
                Some(vec![WatchEvent::Overflow])
            }
        }
    }

    /// Records events. Returns the files that were written to, and whether any event requires a scan.
    fn record_events(&mut self, events: &[WatchEvent]) -> (BTreeSet<PathBuf>, bool) {
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
                // Close events may be lost as well: the next scan checks each file for writers.
                self.activity.open_files.clear();
                self.activity
                    .touched
                    .extend(self.tree.files.keys().cloned());
                (relevant, self.schedule.needs_full_scan) = (true, true);
                continue;
            };
            if matches!(
                change,
                DirChange::Ignored | DirChange::SelfDeleted | DirChange::SelfMoved
            ) {
                relevant |= self.watches.remove_watch(&mut self.watch, *watch);
                self.schedule.needs_full_scan = true;
                continue;
            }
            for subject in self.watches.targets(*watch, name.as_deref()) {
                let path = subject.path;
                let file_check = std::fs::symlink_metadata(&path).map(|meta| meta.is_file());
                let is_no_file = !file_check.as_ref().is_ok_and(|is_file| *is_file);
                relevant |= *is_dir || name.is_none() || subject.is_relevant || is_no_file;
                // A removed entry that was no folder, no manifest and on no watched path was a temporary
                // file.
                self.schedule.needs_full_scan |= *is_dir
                    || name.is_none()
                    || subject.is_on_path
                    || file_check.is_ok_and(|is_file| !is_file)
                    || subject.is_relevant && is_removal(change);
                if *is_dir || !subject.is_relevant {
                    continue;
                }
                match change {
                    DirChange::Modified => {
                        self.activity.open_files.insert(path.clone());
                        written.insert(path.clone());
                    }
                    DirChange::Created if is_new_empty_file(&path) => {
                        self.activity.open_files.insert(path.clone());
                    }
                    // A program that changes the mode may still be writing.
                    DirChange::Created | DirChange::Attributes => {}
                    _ => drop(self.activity.open_files.remove(&path)),
                }
                self.activity.touched.insert(path);
            }
        }
        self.schedule.pending |= relevant;
        if relevant {
            self.schedule.detected_at.get_or_insert_with(monotonic);
        }
        (written, relevant)
    }

    /// Waits until the tree has changed and been quiet for the settle time.
    fn wait_until_settled(&mut self) -> Result<WaitOutcome, SourceError> {
        let mut quiet_since = monotonic();
        let mut since = quiet_since;
        let settle = self.options.settle;
        loop {
            let pending = self.schedule.pending;
            // Checked on every wake-up: it may coincide with events that require no scan.
            if !pending && self.refresh.take() {
                if self.schedule.retry_delay.is_none() {
                    return Ok(WaitOutcome::Refresh);
                }
                self.schedule.needs_full_scan = true;
                return Ok(WaitOutcome::Settled);
            }
            let left = match (pending, self.schedule.only_partial_scan) {
                (true, _) => Some(settle),
                (false, true) => Some(settle * FULL_SCAN_PERIODS),
                (false, false) => None,
            };
            let retry = self.schedule.retry_delay.filter(|_| !pending);
            let left = left.into_iter().chain(retry).min();
            let left = left.map(|left| left.saturating_sub(monotonic() - quiet_since));
            let Some(events) = self.wait_events(left) else {
                return Ok(WaitOutcome::Stopped);
            };
            if events.is_empty() {
                if pending {
                    return Ok(WaitOutcome::Settled);
                }
                if self.schedule.only_partial_scan || retry.is_some() {
                    self.schedule.needs_full_scan = true;
                    self.schedule.retry_delay = retry.map(|delay| (delay * 2).min(RETRY_DELAYS.1));
                    return Ok(WaitOutcome::Settled);
                }
                continue;
            }
            let (_, relevant) = self.record_events(&events);
            let now = monotonic();
            if relevant {
                quiet_since = now;
            }
            if !pending {
                since = now;
            } else if now - quiet_since >= settle {
                return Ok(WaitOutcome::Settled);
            } else if now - since > settle * MAX_SETTLE_PERIODS {
                return Ok(WaitOutcome::NeverQuiet);
            }
        }
    }

    /// Reads a big tree for the first time, in parts; what is left is reported by the first scan. Returns
    /// whether to go on.
    fn load(&mut self, sink: DeltaSink<'_>) -> Result<bool, SourceError> {
        let root = self.options.path.clone();
        let listed = Tree::list(vec![root.clone()]);
        let size = listed.listing.as_ref().map_or(0, |listing| listing.bytes);
        if size < PART_BYTES {
            return Ok(true);
        }
        // Before anything is read, so that every write to a file of a part makes an event.
        self.watches.update(&mut self.watch, &root, &listed);
        let bounds = self.tree.bounds;
        let paths = listed.listing.unwrap_or_default().paths.into_iter();
        let mut paths = paths.take(bounds.files).peekable();
        while paths.peek().is_some() && self.tree.object_count <= bounds.objects {
            let mut part = self.tree.read_part(&mut paths);
            let Some(events) = self.wait_events(Some(Duration::ZERO)) else {
                return Ok(false);
            };
            for path in self.record_events(&events).0 {
                part.remove(&path);
                self.tree.replace_file(&path, None);
            }
            if sink(self.index.add_part(&self.tree, &part), None).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Scans only the files that the events name. `None` if a full scan is needed.
    fn scan_changed_files(&mut self) -> Option<PartialScan> {
        if self.schedule.needs_full_scan || self.index.has_orphans() {
            return None;
        }
        let mut partial = self.tree.scan_changed_files(&mut self.activity)?;
        let defines_all = partial.paths.iter().all(|path| {
            let current = self.tree.files.get(path);
            let previous = partial.previous.get(path);
            let is_whole = current.is_none_or(|file| !file.incomplete && !file.empty);
            is_whole && defines_all(previous, current)
        });
        if defines_all {
            return Some(partial);
        }
        // Also part of the full scan, so that it is reverted if it is written to meanwhile.
        for path in partial.paths {
            self.tree
                .replace_file(&path, partial.previous.remove(&path));
            self.activity.touched.insert(path);
        }
        None
    }

    /// Scans the tree, including folders that appear meanwhile. `None` after a stop request.
    fn scan(&mut self) -> Result<Option<TreeScan>, SourceError> {
        let mut disturbed = false;
        let mut only = None;
        for _ in 0..MAX_SETTLE_PERIODS {
            self.schedule.pending = false;
            let partial = self.scan_changed_files();
            self.schedule.needs_full_scan = false;
            self.schedule.only_partial_scan = partial.is_some();
            let (previous, fresh) = match partial {
                Some(glance) => {
                    only = Some(glance.paths);
                    (glance.previous, false)
                }
                None => {
                    only = None;
                    let mut tree = Tree::scan(&self.tree, &mut self.activity);
                    let root = self.options.path.clone();
                    let followed = self.watches.update(&mut self.watch, &root, &tree);
                    let (fresh, mut unwatched) = followed;
                    tree.coverage.problems.append(&mut unwatched);
                    disturbed |= tree.coverage.changed_during_scan;
                    (std::mem::replace(&mut self.tree, tree).files, fresh)
                }
            };
            let Some(events) = self.wait_events(Some(Duration::ZERO)) else {
                return Ok(None);
            };
            let (written, relevant) = self.record_events(&events);
            for path in written {
                self.tree.revert_read(&path, &previous);
            }
            disturbed |= relevant;
            if !fresh {
                break;
            }
            // A folder without a watch may have changed without an event.
            self.schedule.needs_full_scan = true;
        }
        let has_failures = self.watches.incomplete || self.tree.coverage.has_read_errors;
        self.schedule.retry_delay =
            has_failures.then(|| self.schedule.retry_delay.unwrap_or(RETRY_DELAYS.0));
        self.guard_root();
        self.schedule.pending = disturbed;
        Ok(Some(TreeScan {
            undisturbed: !disturbed,
            paths: only,
        }))
    }

    /// Keeps all objects when the root was replaced by an empty folder. Such a folder is about to be filled
    /// (a clone, a volume not mounted yet); it does not mean that no policy is wanted.
    fn guard_root(&mut self) {
        let root = self.tree.folders.get(&self.options.path).copied();
        if !self.tree.files.is_empty() {
            self.root_id = root;
        } else if self.tree.coverage.is_complete
            && self.root_id.is_some()
            && root != self.root_id
            && !palisade_sys::fault::is_injected("empty-root-drops")
        {
            self.tree.coverage.is_complete = false;
            let reason = "the policy directory was replaced by one without manifests; all objects stay in \
                          force until it holds a manifest or the agent restarts";
            let reason = file_problem(&self.options.path, reason.to_owned());
            self.tree.coverage.problems.push(reason);
        }
    }

    /// Whether the tree was quiet for the settle time before the start. There are no events from then; the
    /// modification times tell when files last changed.
    fn was_quiet_before_start(&self) -> bool {
        let (seconds, nanos) = self.tree.last_change;
        let newest = u64::try_from(seconds).unwrap_or(0);
        let newest = Duration::from_secs(newest) + Duration::from_nanos(nanos.unsigned_abs());
        unix_time().checked_sub(newest) >= Some(self.options.settle)
    }

    /// Reports the changes of the last scan.
    fn publish(&mut self, scan: &TreeScan, sink: DeltaSink<'_>) -> ControlFlow<()> {
        let paths = scan.paths.as_ref();
        let delta = self.index.update(&self.tree, paths, scan.undisturbed);
        sink(delta, self.schedule.detected_at.take())
    }
}

impl<W: DirWatch + Send> Source for Directory<W> {
    fn describe(&self) -> (String, String) {
        (
            "directory".to_owned(),
            self.options.path.display().to_string(),
        )
    }

    fn run(&mut self, sink: DeltaSink<'_>) -> Result<(), SourceError> {
        if !self.load(sink)? {
            return Ok(());
        }
        let mut settled = None;
        loop {
            let Some(mut scan) = self.scan()? else {
                return Ok(());
            };
            let quiet = settled.unwrap_or_else(|| self.was_quiet_before_start());
            self.schedule.pending |= !quiet;
            scan.undisturbed &= quiet;
            if self.publish(&scan, sink).is_break() {
                return Ok(());
            }
            settled = Some(loop {
                match self.wait_until_settled()? {
                    WaitOutcome::Settled => break true,
                    WaitOutcome::NeverQuiet => break false,
                    WaitOutcome::Stopped => return Ok(()),
                    WaitOutcome::Refresh => {
                        let nothing = SourceDelta {
                            in_sync: true,
                            ..SourceDelta::default()
                        };
                        if sink(nothing, None).is_break() {
                            return Ok(());
                        }
                    }
                }
            });
        }
    }
}

/// Whether a new name is an empty file whose content is still to be written. A hard link, or a file written
/// elsewhere and linked here, is complete from the start.
fn is_new_empty_file(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.nlink() == 1 && meta.size() == 0)
}

/// Whether the entry does not exist after this change.
fn is_removal(change: &DirChange) -> bool {
    matches!(change, DirChange::MovedFrom { .. } | DirChange::Deleted)
}

/// Whether a file still defines each object of its previous version. A missing one may have moved to another
/// file, which only a full scan finds.
fn defines_all(previous: Option<&ManifestFile>, current: Option<&ManifestFile>) -> bool {
    let ids = |file: Option<&ManifestFile>| -> BTreeSet<SharedId> {
        let objects = file.into_iter().flat_map(|file| &file.content.objects);
        objects.map(|object| object.id.clone()).collect()
    };
    ids(previous).is_subset(&ids(current))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the settle time is measured in elapsed time"
)]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}
