//! Sources of policy objects: each source delivers its definitions as changes, and all of them together
//! become one stream of updates.
//!
//! A [`Source`] first delivers every definition it has, then marks that it is in sync, and after that delivers
//! changes only. A [`SourceSet`] passes the changes of all sources to the component that decides what is in
//! force ([`palisade_effective`]); the sum of its updates is always the state in force, also after a broken
//! file, a lost watch or a full scan. A source never decides what is in force, never evaluates policy and
//! never accesses the kernel.

mod backoff;
mod collector;
mod directory;
mod file_index;
mod file_object;
mod file_problem;
mod file_watch;
mod handles;
mod initial_load;
mod input_diagnostics;
mod load;
mod loaded_input;
mod manifest_file;
mod name_index;
mod partial_scan;
mod path_entries;
mod policy_manifest;
mod replacement;
mod roots;
mod scan;
mod snapshot_keeper;
mod snapshot_store;
mod source_set;
mod stored_parts;
mod string_interner;
mod templates;
mod tree_limits;
mod version_store;
mod watch_set;

pub use backoff::Backoff;
pub use directory::{Directory, DirectoryOptions};
pub use file_watch::{FileWatch, StopHandle};
pub use handles::{ElementBudgetHandle, SourceHandle};
pub use load::{LoadProgress, load, load_changed, load_manifests, load_with_progress};
pub use loaded_input::{LoadedInput, LoadedManifest, UnjudgedPod};
pub use policy_manifest::{PolicyManifest, PolicyManifestError, RuleLines, read_policy_manifest};
pub use snapshot_keeper::SnapshotKeeper;
pub use snapshot_store::{SnapshotEntry, SnapshotError, SnapshotMark, SnapshotStore};
pub use source_set::{BatchSink, SourceSet};
pub use version_store::VersionStoreError;

use palisade_effective::{EffectiveReport, HostNetworkChange, SourceDelta};
use palisade_model::Update;
use std::ops::ControlFlow;
use std::time::Instant;

/// A batch of updates that belong together, and the report after them.
#[derive(Clone, Debug, Default)]
pub struct UpdateBatch {
    /// The changes, in any order.
    pub updates: Vec<Update>,
    /// The changes of pods on the network of their node, of which there are no updates; in order.
    pub host_network: Vec<HostNetworkChange>,
    /// Whether every object of every source has been delivered. Once true it stays true.
    pub in_sync: bool,
    /// The state of the input after this batch, for status.
    pub report: EffectiveReport,
    /// When the first of the changes was detected; `None` if they were there before the source was followed,
    /// or if there are none.
    pub detected_at: Option<Instant>,
}

/// Receives the changes of a source, and when the first of them was detected; breaks to end it.
pub type DeltaSink<'a> = &'a mut dyn FnMut(SourceDelta, Option<Instant>) -> ControlFlow<()>;

/// A source of objects.
pub trait Source: Send {
    /// The kind of this source and its location, for status.
    fn describe(&self) -> (String, String);

    /// Passes changes to `sink` until it breaks or the source's stop handle is used.
    ///
    /// # Errors
    /// Only errors after which the source cannot continue; everything else is a [`Diagnostic`] in a report.
    fn run(&mut self, sink: DeltaSink<'_>) -> Result<(), SourceError>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn describe(&self) -> (String, String) {
        (**self).describe()
    }

    fn run(&mut self, sink: DeltaSink<'_>) -> Result<(), SourceError> {
        (**self).run(sink)
    }
}

/// Why a source ended.
#[derive(Debug)]
pub struct SourceError {
    /// The operation and its object.
    pub action: String,
    /// The cause.
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.action)
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.cause)
    }
}
