//! The shape of every piece of kernel state that the agent keeps, and what runs it.
//!
//! A [`Subsystem`] takes in what the sources and this host changed, plans actions as values, and executes each. What is
//! the same for all is written once, in [`Runner`]: when a subsystem runs, retries with growing delays, repairs, the
//! present failure, previews. The core runs all of them in one order after every event.
//!
//! `C` is what a subsystem acts through: the dataplane for policy and its translation, the state of the node for the
//! others.
//!
//! Promises: a subsystem that fails holds up no other, and is retried until it succeeds; a plan that is not executed
//! changes nothing. Never: knows what a subsystem keeps.

use crate::cluster_nodes::NodeChanges;
use crate::host_changes::HostChanges;
use crate::retry_timer::RetryTimer;
use palisade_api::{CleanupItem, Status};
use palisade_model::Update;
use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// What a batch of the sources changed, as the sources decided it: one value for all that read it.
#[derive(Clone, Copy, Debug)]
pub struct ObjectChanges<'a> {
    /// The objects, in order.
    pub updates: &'a [Update],
    /// What they changed of nodes.
    pub nodes: &'a NodeChanges,
    /// Whether the sources have now been read completely for the first time.
    pub is_first_sync: bool,
}

/// Why a subsystem could not read or write its state. Its text is that of the cause, which says what was being done to
/// which object.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SubsystemError(Box<dyn Error + Send + Sync>);

impl SubsystemError {
    /// An error with this cause.
    pub fn new(cause: impl Error + Send + Sync + 'static) -> Self {
        SubsystemError(Box::new(cause))
    }
}

/// What an action did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionOutcome {
    /// It changed the kernel as intended.
    Done,
    /// It restored what another program had changed; what that was.
    Repaired(Vec<String>),
}

/// A piece of kernel state of this host.
pub trait Subsystem<C: ?Sized>: Send {
    /// One change of the state. Its text is what a preview shows.
    type Action: fmt::Display;

    /// Its name in logs and in `palisade status`.
    fn name(&self) -> &'static str;

    /// Takes in what the sources changed.
    fn observe(&mut self, _changes: &ObjectChanges<'_>) {}

    /// Takes in what changed on this host.
    fn host_changed(&mut self, _changes: &HostChanges) {}

    /// Whether [`Subsystem::plan`] may have actions. Reads nothing from the kernel.
    fn has_work(&self, context: &C) -> bool;

    /// Whether it also runs before the policy of a change of the sources is written, since that policy needs it.
    fn precedes_policy(&self) -> bool {
        false
    }

    /// Compares what is wanted with the kernel; the actions that make it so, in order. Reads only.
    ///
    /// # Errors
    /// If the kernel cannot be read; it is retried.
    fn plan(&mut self, context: &mut C) -> Result<Vec<Self::Action>, SubsystemError>;

    /// Executes an action of the last plan. Those after one that fails are executed as well.
    ///
    /// # Errors
    /// If the kernel refuses; it is planned again later.
    fn execute(
        &mut self,
        action: Self::Action,
        context: &mut C,
    ) -> Result<ActionOutcome, SubsystemError>;

    /// What an action of a plan that is not executed would change, in words; `None`: nothing. Reads only.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn describe(
        &mut self,
        action: &Self::Action,
        _context: &mut C,
    ) -> Result<Option<String>, SubsystemError> {
        Ok(Some(action.to_string()))
    }

    /// Whether something that it could not do is to be tried again, although no action of a run failed.
    fn wants_retry(&self) -> bool {
        false
    }

    /// The retry is due: the next plan has what is tried again.
    fn retry(&mut self) {}

    /// The reason of its failure for `palisade status`, one sentence.
    fn failure_reason(&self, failure: &str) -> String {
        format!("{}: {failure}", self.name())
    }

    /// Adds its part of `palisade status`: fields, and reasons for an administrator beyond its failure.
    fn report(&self, _status: &mut Status) {}

    /// See [`Installed::installed`].
    ///
    /// # Errors
    /// If the host cannot be read.
    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        Ok(Vec::new())
    }

    /// See [`Installed::remove`].
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&mut self, _item: &CleanupItem) -> Result<bool, SubsystemError> {
        Ok(false)
    }
}

/// Something of the agent that stays on a host without it, for `palisade cleanup`.
pub trait Installed {
    /// What of it is on this host, also if another agent left it, in the order of removal. Reads only.
    ///
    /// # Errors
    /// If the host cannot be read.
    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError>;

    /// Removes an item that [`Installed::installed`] listed; false if it has to stay.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError>;
}

/// Repairs of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repairs {
    /// What other programs had changed.
    pub what: Vec<String>,
    /// When the change was detected.
    pub detected_at: Instant,
}

/// Runs a subsystem: after its input, and again when a retry is due.
#[derive(Debug)]
pub struct Runner<S> {
    subsystem: S,
    retry: RetryTimer,
    failure: Option<String>,
    /// When the change of the host was detected that it has not been run after.
    host_changed_at: Option<Instant>,
}

impl<S> Deref for Runner<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.subsystem
    }
}

impl<S> DerefMut for Runner<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.subsystem
    }
}

impl<S> Runner<S> {
    /// Runs this subsystem, which has not failed.
    pub fn new(subsystem: S) -> Self {
        Runner {
            subsystem,
            retry: RetryTimer::default(),
            failure: None,
            host_changed_at: None,
        }
    }

    /// Why its state is not in the kernel, after the last run.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// When it is to be run again without input; `None`: it has not failed.
    pub fn retry_due(&self) -> Option<Instant> {
        self.retry.due()
    }

    /// Whether it has to be run: it has work, and no retry of it is to be waited for.
    pub fn is_due<C: ?Sized>(&self, context: &C, now: Instant) -> bool
    where
        S: Subsystem<C>,
    {
        let has_input = self.host_changed_at.is_some() || self.failure.is_none();
        self.is_retry_due(now) || has_input && self.subsystem.has_work(context)
    }

    fn is_retry_due(&self, now: Instant) -> bool {
        self.retry.due().is_some_and(|due| due <= now)
    }

    /// Plans and executes. A failure is kept, and a retry is scheduled.
    ///
    /// # Errors
    /// The failure, for a caller that waits for it.
    pub fn run<C: ?Sized>(
        &mut self,
        context: &mut C,
        now: Instant,
    ) -> Result<Option<Repairs>, SubsystemError>
    where
        S: Subsystem<C>,
    {
        let detected_at = self.host_changed_at.take().unwrap_or(now);
        let mut what = Vec::new();
        let is_retry = self.is_retry_due(now);
        if is_retry {
            self.subsystem.retry();
        }
        let result = self.subsystem.plan(context).and_then(|actions| {
            let mut first_error = None;
            for action in actions {
                match self.subsystem.execute(action, context) {
                    Ok(ActionOutcome::Done) => {}
                    Ok(ActionOutcome::Repaired(items)) => what.extend(items),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
            first_error.map_or(Ok(()), Err)
        });
        let wants_retry = self.subsystem.wants_retry();
        self.record(self.subsystem.name(), &result, (wants_retry, is_retry), now);
        result.map(|()| (!what.is_empty()).then_some(Repairs { what, detected_at }))
    }

    /// Keeps a failure that happened outside of a run, and schedules a retry.
    pub fn fail<C: ?Sized>(&mut self, error: SubsystemError, now: Instant)
    where
        S: Subsystem<C>,
    {
        let name = self.subsystem.name();
        self.record(name, &Err(error), (false, false), now);
    }

    /// Keeps the failure, and schedules the retry of it and of what else is to be tried again.
    fn record(
        &mut self,
        name: &str,
        result: &Result<(), SubsystemError>,
        (wants_retry, is_retry): (bool, bool),
        now: Instant,
    ) {
        let Err(error) = result else {
            self.failure = None;
            match (wants_retry, is_retry) {
                (false, _) => self.retry.clear(),
                (true, true) => drop(self.retry.schedule(now)),
                (true, false) => self.retry.ensure(now),
            }
            return;
        };
        let wait = self.retry.schedule(now);
        let failure = palisade_text::error_chain(error);
        if self.failure.as_ref() != Some(&failure) {
            let retry_ms = wait.as_millis() as u64;
            tracing::error!(subsystem = name, error = %failure, retry_ms, "writing a part of the kernel's state failed; will retry");
        }
        self.failure = Some(failure);
    }

    /// What a run would change now, one text for each action. Changes nothing on the host.
    ///
    /// # Errors
    /// If the kernel cannot be read.
    pub fn preview<C: ?Sized>(&mut self, context: &mut C) -> Result<Vec<String>, SubsystemError>
    where
        S: Subsystem<C>,
    {
        let actions = self.subsystem.plan(context)?;
        let texts = actions
            .iter()
            .map(|action| self.subsystem.describe(action, context));
        texts.filter_map(Result::transpose).collect()
    }
}

/// A runner of any subsystem, for the list of all.
pub trait RunSubsystem<C: ?Sized>: Send {
    /// See [`Subsystem::name`].
    fn name(&self) -> &'static str;
    /// See [`Subsystem::observe`].
    fn observe(&mut self, changes: &ObjectChanges<'_>);
    /// See [`Subsystem::host_changed`].
    fn host_changed(&mut self, changes: &HostChanges, detected_at: Instant);
    /// See [`Subsystem::precedes_policy`].
    fn precedes_policy(&self) -> bool;
    /// Runs it if it is due; returns what it repaired.
    fn run_if_due(&mut self, context: &mut C, now: Instant) -> Option<Repairs>;
    /// See [`Runner::preview`].
    ///
    /// # Errors
    /// If the kernel cannot be read.
    fn preview(&mut self, context: &mut C) -> Result<Vec<String>, SubsystemError>;
    /// See [`Runner::retry_due`].
    fn retry_due(&self) -> Option<Instant>;
    /// See [`Subsystem::failure_reason`]; `None`: it has not failed.
    fn failure_reason(&self) -> Option<String>;
    /// See [`Subsystem::report`].
    fn report(&self, status: &mut Status);
    /// See [`Subsystem::installed`].
    ///
    /// # Errors
    /// If the host cannot be read.
    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError>;
    /// See [`Subsystem::remove`].
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError>;
}

/// What an ended agent's subsystem left.
impl<C: ?Sized> Installed for Box<dyn RunSubsystem<C>> {
    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        (**self).installed()
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        (**self).remove(item)
    }
}

impl<C: ?Sized, S: Subsystem<C>> RunSubsystem<C> for Runner<S> {
    fn name(&self) -> &'static str {
        self.subsystem.name()
    }

    fn observe(&mut self, changes: &ObjectChanges<'_>) {
        self.subsystem.observe(changes);
    }

    fn host_changed(&mut self, changes: &HostChanges, detected_at: Instant) {
        self.subsystem.host_changed(changes);
        self.host_changed_at.get_or_insert(detected_at);
    }

    fn precedes_policy(&self) -> bool {
        self.subsystem.precedes_policy()
    }

    fn run_if_due(&mut self, context: &mut C, now: Instant) -> Option<Repairs> {
        if !self.is_due(context, now) {
            self.host_changed_at = None;
            if self.subsystem.wants_retry() {
                self.retry.ensure(now);
            }
            return None;
        }
        // The failure is kept for the status.
        self.run(context, now).ok().flatten()
    }

    fn preview(&mut self, context: &mut C) -> Result<Vec<String>, SubsystemError> {
        Runner::preview(self, context)
    }

    fn retry_due(&self) -> Option<Instant> {
        Runner::retry_due(self)
    }

    fn failure_reason(&self) -> Option<String> {
        let failure = self.failure.as_deref()?;
        Some(self.subsystem.failure_reason(failure))
    }

    fn report(&self, status: &mut Status) {
        self.subsystem.report(status);
    }

    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        self.subsystem.installed()
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        self.subsystem.remove(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use std::io;
    use std::time::Duration;

    /// A kernel with one number, which refuses while it is broken.
    #[derive(Default)]
    struct Kernel {
        number: u32,
        is_broken: bool,
    }

    #[derive(Default)]
    struct Number {
        wanted: u32,
        written: Option<u32>,
        is_changed: bool,
    }

    struct SetNumber(u32, bool);

    impl fmt::Display for SetNumber {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "number {}", self.0)
        }
    }

    impl Subsystem<Kernel> for Number {
        type Action = SetNumber;

        fn name(&self) -> &'static str {
            "number"
        }

        fn host_changed(&mut self, _: &HostChanges) {
            self.is_changed = true;
        }

        fn has_work(&self, _: &Kernel) -> bool {
            self.is_changed || self.written != Some(self.wanted)
        }

        fn plan(&mut self, kernel: &mut Kernel) -> Result<Vec<SetNumber>, SubsystemError> {
            let is_repair = self.written == Some(self.wanted);
            let differs = kernel.number != self.wanted;
            self.is_changed = false;
            self.written = Some(kernel.number);
            Ok(differs
                .then_some(SetNumber(self.wanted, is_repair))
                .into_iter()
                .collect())
        }

        fn execute(
            &mut self,
            SetNumber(number, is_repair): SetNumber,
            kernel: &mut Kernel,
        ) -> Result<ActionOutcome, SubsystemError> {
            if kernel.is_broken {
                let refused = io::Error::other("broken");
                return Err(SubsystemError::new(refused));
            }
            kernel.number = number;
            self.written = Some(number);
            Ok(if is_repair {
                ActionOutcome::Repaired(vec!["the number was changed".to_owned()])
            } else {
                ActionOutcome::Done
            })
        }
    }

    #[test]
    fn a_subsystem_runs_after_input_retries_and_repairs() {
        let mut now = SystemClock.monotonic();
        let mut kernel = Kernel::default();
        let mut runner = Runner::new(Number::default());
        assert_eq!(runner.run_if_due(&mut kernel, now), None);
        assert!(!runner.is_due(&kernel, now), "nothing to do");
        runner.wanted = 7;
        let preview = Runner::preview(&mut runner, &mut kernel).unwrap();
        assert_eq!((preview, kernel.number), (vec!["number 7".to_owned()], 0));
        kernel.is_broken = true;
        assert_eq!(runner.run_if_due(&mut kernel, now), None);
        assert_eq!(Runner::failure(&runner), Some("broken"));
        assert!(!runner.is_due(&kernel, now), "it waits for its retry");
        kernel.is_broken = false;
        now = Runner::retry_due(&runner).unwrap();
        assert_eq!(runner.run_if_due(&mut kernel, now), None);
        assert_eq!((kernel.number, Runner::failure(&runner)), (7, None));
        assert_eq!(Runner::retry_due(&runner), None);
        kernel.number = 9;
        let detected_at = now + Duration::from_secs(1);
        runner.host_changed(&HostChanges::all(), detected_at);
        let repairs = runner.run_if_due(&mut kernel, detected_at);
        let what = vec!["the number was changed".to_owned()];
        assert_eq!(repairs, Some(Repairs { what, detected_at }));
        assert_eq!(kernel.number, 7);
    }
}
