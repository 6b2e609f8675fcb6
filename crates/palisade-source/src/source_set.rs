//! The sources of an agent, what they have in force together, and the last valid versions on disk.
//!
//! Each source reports its changes; the set returns one stream of updates. It never reads what a source
//! reads.

use crate::file_problem::file_problem;
use crate::handles::ElementBudgetHandle;
use crate::version_store::VersionStore;
use crate::{SourceError, UpdateBatch, VersionStoreError};
use palisade_effective::{
    BudgetUse, CidrMatchMode, Diagnostic, EffectiveObjects, EffectiveReport, ElementBudget,
    ObjectOrigin, SharedId, SourceDelta, SourceNumber,
};
use palisade_manifest::Problem;
use palisade_model::Str;
use palisade_sys::fault;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Receives batches; breaks to end the sources.
pub type BatchSink<'a> = &'a mut dyn FnMut(UpdateBatch) -> ControlFlow<()>;

/// Sources by name in the order of precedence, and what they have in force.
#[derive(Debug)]
pub struct SourceSet {
    effective: EffectiveObjects,
    store: VersionStore,
    state_dir: PathBuf,
    budget: ElementBudgetHandle,
    /// Why the store could not be saved.
    save_problem: Option<Problem>,
    last_report: Option<EffectiveReport>,
}

impl SourceSet {
    /// Starts from the versions stored in a state directory.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn open(
        sources: impl IntoIterator<Item = Str>,
        state_dir: &Path,
        budget: ElementBudget,
    ) -> Result<Self, SourceError> {
        SourceSet::with_store(sources, state_dir, budget, VersionStore::open(state_dir))
    }

    /// Like [`SourceSet::open`], but never writes a file.
    ///
    /// # Errors
    /// As [`SourceSet::open`].
    pub fn open_read_only(
        sources: impl IntoIterator<Item = Str>,
        state_dir: &Path,
        budget: ElementBudget,
    ) -> Result<Self, SourceError> {
        let store = VersionStore::open_read_only(state_dir);
        SourceSet::with_store(sources, state_dir, budget, store)
    }

    fn with_store(
        sources: impl IntoIterator<Item = Str>,
        state_dir: &Path,
        budget: ElementBudget,
        store: Result<VersionStore, VersionStoreError>,
    ) -> Result<Self, SourceError> {
        let store = store.map_err(|cause| SourceError {
            action: "opening the store of last valid versions".to_owned(),
            cause: Box::new(cause),
        })?;
        let mut effective = EffectiveObjects::new(sources, budget, BudgetUse::Enforced);
        #[cfg(feature = "faults")]
        effective.inject(palisade_effective::ChoiceFaults {
            first_definition_wins: fault::is_injected("first-definition-wins"),
            last_valid_dropped: fault::is_injected("last-valid-dropped"),
            never_valid_passes: fault::is_injected("never-valid-passes"),
        });
        effective.restore(store.restored());
        Ok(SourceSet {
            effective,
            store,
            state_dir: state_dir.to_path_buf(),
            budget: ElementBudgetHandle::new(budget),
            save_problem: None,
            last_report: None,
        })
    }

    /// Sets what networks in Cilium's policies match; before the first delta.
    pub fn set_cidr_match(&mut self, mode: CidrMatchMode) {
        self.effective.set_cidr_match(mode);
    }

    /// The objects of a source that were restored, and where each was read.
    pub fn restored(
        &self,
        source: SourceNumber,
    ) -> impl Iterator<Item = (&SharedId, &ObjectOrigin)> {
        self.effective.restored(source)
    }

    /// A handle that changes the element budget. It is effective from the next delta on.
    pub fn budget_handle(&self) -> ElementBudgetHandle {
        self.budget.clone()
    }

    /// Takes in the changes of a source, the first of them detected at this time, passes on what changed, and
    /// saves.
    pub fn apply(
        &mut self,
        source: SourceNumber,
        delta: SourceDelta,
        detected_at: Option<Instant>,
        sink: BatchSink<'_>,
    ) -> ControlFlow<()> {
        let now = unix_time().as_secs();
        // A part of a first delivery: the warnings, and what is saved, need all of it.
        let is_part = !delta.in_sync && delta.stale.is_none() && delta.report.is_none();
        let mut updates = Vec::new();
        let mut push = |update| updates.push(update);
        self.effective.set_budget(self.budget.get(), now, &mut push);
        self.effective.apply(source, delta, now, &mut push);
        let host_network = self.effective.take_host_network_changes();
        if is_part {
            return if updates.is_empty() && host_network.is_empty() {
                ControlFlow::Continue(())
            } else {
                sink(UpdateBatch {
                    updates,
                    host_network,
                    in_sync: self.effective.in_sync(),
                    report: self.last_report.clone().unwrap_or_default(),
                    detected_at: None,
                })
            };
        }
        let mut report = self.effective.report();
        report
            .problems
            .extend(self.save_problem.clone().map(Diagnostic::error));
        let has_changes = !updates.is_empty() || !host_network.is_empty();
        if has_changes || self.last_report.as_ref() != Some(&report) {
            self.last_report = Some(report.clone());
            sink(UpdateBatch {
                detected_at: detected_at.filter(|_| !updates.is_empty()),
                updates,
                host_network,
                in_sync: self.effective.in_sync(),
                report,
            })?;
        }
        self.save(sink)
    }

    /// Saves the versions in force; a failure is reported, and retried at the next delta.
    fn save(&mut self, sink: BatchSink<'_>) -> ControlFlow<()> {
        if fault::is_injected("versions-not-saved") {
            return ControlFlow::Continue(());
        }
        for (id, version) in self.effective.take_unsaved() {
            let number = version.as_ref().map(|version| usize::from(version.source));
            let state = number.and_then(|number| self.effective.sources().get(number));
            self.store.put(&id, version, state.map(|state| &state.name));
        }
        let unsaved = self.store.save().err().map(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let cause = cause.unwrap_or_default();
            let reason = format!(
                "cannot save the last valid versions ({error}: {cause}): after a restart, pods selected by \
                 an invalid policy are isolated; retried at the next change"
            );
            file_problem(&self.state_dir, reason)
        });
        if unsaved == self.save_problem {
            return ControlFlow::Continue(());
        }
        let mut report = self.last_report.clone().unwrap_or_default();
        let old = self.save_problem.take().map(Diagnostic::error);
        report
            .problems
            .retain(|diagnostic| Some(diagnostic) != old.as_ref());
        report
            .problems
            .extend(unsaved.clone().map(Diagnostic::error));
        self.save_problem = unsaved;
        self.last_report = Some(report.clone());
        sink(UpdateBatch {
            in_sync: self.effective.in_sync(),
            report,
            ..UpdateBatch::default()
        })
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "status shows when a version was read; before the first event it gives the age of files, where \
              a wrong clock costs at most one settle time"
)]
pub(crate) fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
