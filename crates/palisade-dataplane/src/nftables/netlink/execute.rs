//! Executes transactions.
//!
//! Promises: each step is one kernel transaction, followed by a grace period; counters that a step deletes
//! are read before it and reported as deleted only after it; an error names the operation.
//!
//! Never: continues after a failed step, or undoes earlier steps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use palisade_model::Str;
use palisade_nft::{
    AttributedCounter, CounterLocation, CounterValue, Element, ElementKey, Expr, Op, Ruleset,
    SetDecl, Transaction,
};
use palisade_sys::Errno;
use palisade_sys::fault;
use palisade_sys::grace::{GraceError, GracePeriod};
use palisade_sys::netlink::KernelError;
use palisade_sys::nfnetlink::{BatchError, NfBatch, Nfnetlink};
use palisade_tables::Phase;
use thiserror::Error;

use super::batch::{self, EncodeError};
use super::describe::describe;
use super::read::{TableReadError, TableReader};
use super::set::RangeEncoding;
use crate::driver::StepOutcome;
use crate::error::DriverError;

/// Attempts of a commit that fails for a transient reason.
const MAX_COMMIT_ATTEMPTS: usize = 8;
/// More elements of one set than this are read by listing the set.
const MAX_SINGLE_READS: usize = 64;

/// A step failed. It had no effect unless stated; earlier steps stay applied.
#[derive(Debug, Error)]
pub enum ExecuteError {
    /// An operation cannot be encoded.
    #[error("step {step} ({phase:?}), {doing}: {error}")]
    Encode {
        /// Index of the step, from 0.
        step: usize,
        /// The phase of the step.
        phase: Phase,
        /// Description of the operation.
        doing: String,
        /// The reason.
        error: EncodeError,
    },
    /// The kernel refused an operation.
    #[error("step {step} ({phase:?}), {doing}: {error}")]
    Refused {
        /// Index of the step, from 0.
        step: usize,
        /// The phase of the step.
        phase: Phase,
        /// Description of the operation.
        doing: String,
        /// The kernel's error.
        error: KernelError,
    },
    /// The kernel refused the step as a whole, or its answer was lost.
    #[error("step {step} ({phase:?}): {error}")]
    Batch {
        /// Index of the step, from 0.
        step: usize,
        /// The phase of the step.
        phase: Phase,
        /// The error; after [`BatchError::Unconfirmed`] the step may have been applied.
        error: BatchError,
    },
    /// Counters that the step would have deleted could not be read.
    #[error("step {step} ({phase:?}), reading counters before deleting them: {error}")]
    ReadCounters {
        /// Index of the step, from 0.
        step: usize,
        /// The phase of the step.
        phase: Phase,
        /// The error.
        error: TableReadError,
    },
    /// Nothing was applied, because the grace period of the transaction before could not be waited for.
    #[error("the grace period of the transaction before failed: {0}")]
    EarlierGrace(GraceError),
    /// The step was applied, but its observer failed.
    #[error("step {step} ({phase:?}) was applied, but its observer failed: {error}")]
    Observer {
        /// Index of the step, from 0.
        step: usize,
        /// The phase of the step.
        phase: Phase,
        /// The error.
        error: DriverError,
    },
    /// The step was applied, but the grace period after it could not be waited for.
    #[error("step {step} ({phase:?}) was applied, but the grace period failed: {error}")]
    Grace {
        /// Index of the step, from 0.
        step: usize,
        /// The phase of the step.
        phase: Phase,
        /// The error.
        error: GraceError,
    },
}

/// Receives the counters that a step deletes, before and after it, and each step that is written.
pub trait TransactionObserver {
    /// A step is about to delete these counters. If it fails, they may or may not be gone.
    fn before_delete(&mut self, counts: &[(&AttributedCounter, CounterValue)]);

    /// The counters are deleted.
    fn after_delete(&mut self, counts: &[(&AttributedCounter, CounterValue)]);

    /// The step of this index is written; its grace period has not begun.
    ///
    /// # Errors
    /// Then the transaction ends here.
    fn after_step(&mut self, _step: usize, _phase: Phase) -> Result<(), DriverError> {
        Ok(())
    }
}

/// A function is called for each deleted counter.
impl<F: FnMut(&AttributedCounter, CounterValue)> TransactionObserver for F {
    fn before_delete(&mut self, _: &[(&AttributedCounter, CounterValue)]) {}

    fn after_delete(&mut self, counts: &[(&AttributedCounter, CounterValue)]) {
        for (harvest, count) in counts {
            self(harvest, *count);
        }
    }
}

/// Executes transactions on one table and reads it.
#[derive(Debug)]
pub struct Executor<N, G> {
    nfnetlink: N,
    grace: G,
    table: Str,
    /// The declarations of the table's sets that are known.
    declarations: BTreeMap<Str, SetDecl>,
    /// The time spent waiting for grace periods.
    grace_duration: Duration,
    /// Whether the transactions whose grace periods may not have ended only loosen addresses.
    unended_only_loosen: bool,
}

impl<N: Nfnetlink, G: GracePeriod> Executor<N, G> {
    /// An executor for `table` with this socket.
    pub fn new(table: Str, nfnetlink: N, grace: G) -> Self {
        Self {
            nfnetlink,
            grace,
            table,
            declarations: BTreeMap::new(),
            grace_duration: Duration::ZERO,
            unended_only_loosen: true,
        }
    }

    /// Runs `work` on another table through the same socket. `sets` are that table's sets.
    pub fn with_table<R>(
        &mut self,
        table: Str,
        sets: BTreeMap<Str, SetDecl>,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let own = std::mem::replace(&mut self.table, table);
        let declarations = std::mem::replace(&mut self.declarations, sets);
        let done = work(self);
        self.table = own;
        self.declarations = declarations;
        done
    }

    /// The socket.
    pub fn nfnetlink(&self) -> &N {
        &self.nfnetlink
    }

    /// The socket, for requests that are not about a table's content.
    pub(crate) fn nfnetlink_mut(&mut self) -> &mut N {
        &mut self.nfnetlink
    }

    /// The time spent waiting for grace periods.
    pub(crate) fn grace_duration(&self) -> Duration {
        self.grace_duration
    }

    /// The grace period implementation.
    pub fn grace(&self) -> &G {
        &self.grace
    }

    /// The table as it is in the kernel; `None` if it does not exist.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, TableReadError> {
        let ruleset = TableReader::new(&mut self.nfnetlink, &self.table).table()?;
        self.declarations = ruleset
            .iter()
            .flat_map(|ruleset| &ruleset.sets)
            .map(|(name, set)| (name.clone(), set.decl.clone()))
            .collect();
        Ok(ruleset)
    }

    /// The elements of one set with their counters; `None` if the set does not exist.
    ///
    /// # Errors
    /// If the set cannot be read.
    pub fn elements(
        &mut self,
        set: &str,
    ) -> Result<Option<BTreeMap<ElementKey, Element>>, TableReadError> {
        let Some(decl) = self.declaration(set)? else {
            return Ok(None);
        };
        let mut reader = TableReader::new(&mut self.nfnetlink, &self.table);
        match reader.elements(set, &decl) {
            Ok(elements) => Ok(Some(elements)),
            Err(TableReadError::Query(error)) if error.error.errno == Errno::ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The rules of one chain with their counters, in order.
    ///
    /// # Errors
    /// If the chain cannot be read; `ENOENT` if it does not exist.
    pub fn rules(&mut self, chain: &str) -> Result<Vec<palisade_nft::NftRule>, TableReadError> {
        TableReader::new(&mut self.nfnetlink, &self.table).rules(chain)
    }

    /// All chains with their rules and counters.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn chains(&mut self) -> Result<BTreeMap<Str, palisade_nft::Chain>, TableReadError> {
        TableReader::new(&mut self.nfnetlink, &self.table).chains(&mut Vec::new())
    }

    /// Executes the steps in order. `observer` receives the counters that a step deletes, before and after
    /// it, and each step that is written.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn execute(
        &mut self,
        transaction: &Transaction,
        observer: &mut dyn TransactionObserver,
    ) -> Result<Vec<StepOutcome>, ExecuteError> {
        let mut outcomes = Vec::with_capacity(transaction.steps.len());
        let mut began = now();
        // One without grace periods, such as that of the masquerade table, depends on no earlier one either.
        if transaction.steps.iter().any(|step| step.needs_grace_period) {
            if !(transaction.only_loosens_addresses && self.unended_only_loosen) {
                self.grace.finish().map_err(ExecuteError::EarlierGrace)?;
            }
            self.unended_only_loosen = transaction.only_loosens_addresses;
        }
        self.grace_duration += began.elapsed();
        for (index, step) in transaction.steps.iter().enumerate() {
            let phase = step.phase;
            let counts = self
                .read_counters(&step.retiring_counters)
                .map_err(|error| ExecuteError::ReadCounters {
                    step: index,
                    phase,
                    error,
                })?;
            let counts: Vec<(&AttributedCounter, CounterValue)> =
                step.retiring_counters.iter().zip(counts).collect();
            let late = fault::is_injected("ledger-after-delete");
            if !counts.is_empty() && !late {
                observer.before_delete(&counts);
            }
            self.commit(index, phase, &step.ops)?;
            if !counts.is_empty() {
                if late {
                    observer.before_delete(&counts);
                }
                observer.after_delete(&counts);
            }
            observer
                .after_step(index, phase)
                .map_err(|error| ExecuteError::Observer {
                    step: index,
                    phase,
                    error,
                })?;
            let written = now();
            if step.needs_grace_period && !fault::is_injected("grace-skipped") {
                // Nothing is changed after the last step until the next transaction, which waits then.
                let ended = if index + 1 == transaction.steps.len() {
                    self.grace.begin()
                } else {
                    self.grace.wait()
                };
                ended.map_err(|error| ExecuteError::Grace {
                    step: index,
                    phase,
                    error,
                })?;
            }
            outcomes.push(StepOutcome {
                phase,
                ops: step.ops.len(),
                duration: began.elapsed(),
            });
            self.grace_duration += written.elapsed();
            began = now();
        }
        Ok(outcomes)
    }

    fn commit(&mut self, step: usize, phase: Phase, ops: &[Op]) -> Result<(), ExecuteError> {
        let read = self.load_declarations(ops);
        read.map_err(|error| ExecuteError::ReadCounters { step, phase, error })?;
        let declarations = &self.declarations;
        let mut ranges = |set: &str| {
            declarations
                .get(set)
                .map_or(RangeEncoding::SingleElement, RangeEncoding::of)
        };
        let encoded = batch::encode(&self.table, ops, &mut ranges).map_err(|(op, error)| {
            ExecuteError::Encode {
                step,
                phase,
                doing: ops.get(op).map(describe).unwrap_or_default(),
                error,
            }
        })?;
        match self.commit_with_retry(&encoded.batch) {
            Ok(()) => {
                self.drop_declarations(ops);
                Ok(())
            }
            Err(BatchError::Refused {
                index: Some(index),
                error,
                ..
            }) => Err(ExecuteError::Refused {
                step,
                phase,
                doing: encoded
                    .operation(index, &error)
                    .and_then(|op| ops.get(op))
                    .map_or_else(|| format!("message {index}"), describe),
                error,
            }),
            Err(error) => Err(ExecuteError::Batch { step, phase, error }),
        }
    }

    /// Commits the batch, and retries transient errors.
    fn commit_with_retry(&mut self, batch: &NfBatch) -> Result<(), BatchError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.nfnetlink.commit(batch) {
                Err(error) if tries < MAX_COMMIT_ATTEMPTS && is_transient(&error) => {}
                result => return result,
            }
        }
    }

    /// Loads the declarations of all sets that `ops` name.
    fn load_declarations(&mut self, ops: &[Op]) -> Result<(), TableReadError> {
        let mut missing = false;
        for op in ops {
            match op {
                Op::AddSet { set, decl } => {
                    self.declarations.insert(set.clone(), decl.clone());
                }
                Op::AddElement { set, .. } | Op::DeleteElement { set, .. } => {
                    missing |= !self.declarations.contains_key(set);
                }
                _ => {}
            }
        }
        if missing {
            let mut declarations =
                TableReader::new(&mut self.nfnetlink, &self.table).declarations()?;
            // Sets that this step creates do not exist yet, and may replace existing ones.
            declarations.append(&mut self.declarations);
            self.declarations = declarations;
        }
        Ok(())
    }

    fn drop_declarations(&mut self, ops: &[Op]) {
        let mut made: Vec<&Str> = Vec::new();
        for op in ops.iter().rev() {
            match op {
                Op::AddSet { set, .. } => made.push(set),
                Op::DeleteSet { set } if !made.contains(&set) => {
                    self.declarations.remove(set);
                }
                Op::DeleteTable => {
                    self.declarations.retain(|set, _| made.contains(&set));
                }
                _ => {}
            }
        }
    }

    fn declaration(&mut self, set: &str) -> Result<Option<SetDecl>, TableReadError> {
        if !self.declarations.contains_key(set) {
            self.declarations =
                TableReader::new(&mut self.nfnetlink, &self.table).declarations()?;
        }
        Ok(self.declarations.get(set).cloned())
    }

    /// The values of the counters at these locations, in the same order; zero where there is none.
    fn read_counters(
        &mut self,
        harvests: &[AttributedCounter],
    ) -> Result<Vec<CounterValue>, TableReadError> {
        let mut keys: BTreeMap<&Str, usize> = BTreeMap::new();
        for harvest in harvests {
            if let CounterLocation::Element { set, .. } = &harvest.location {
                *keys.entry(set).or_default() += 1;
            }
        }
        let mut listed: BTreeMap<&Str, BTreeMap<ElementKey, Element>> = BTreeMap::new();
        let mut rules: BTreeMap<&Str, Vec<palisade_nft::NftRule>> = BTreeMap::new();
        let mut counts = Vec::with_capacity(harvests.len());
        for harvest in harvests {
            let count = match &harvest.location {
                CounterLocation::Element { set, key } => {
                    let Some(decl) = self.declaration(set)? else {
                        counts.push(CounterValue::default());
                        continue;
                    };
                    if decl.interval || keys.get(set).is_some_and(|n| *n > MAX_SINGLE_READS) {
                        if !listed.contains_key(set) {
                            let elements = self.elements(set)?.unwrap_or_default();
                            listed.insert(set, elements);
                        }
                        listed
                            .get(set)
                            .and_then(|elements| elements.get(key))
                            .and_then(|element| element.counter)
                    } else {
                        TableReader::new(&mut self.nfnetlink, &self.table)
                            .element(set, &decl, key)?
                            .and_then(|element| element.counter)
                    }
                }
                CounterLocation::Rule { chain, index } => {
                    if !rules.contains_key(chain) {
                        let chain_rules = self.rules(chain)?;
                        rules.insert(chain, chain_rules);
                    }
                    rules
                        .get(chain)
                        .and_then(|rules| rules.get(*index))
                        .and_then(|rule| {
                            rule.exprs.iter().find_map(|expr| match expr {
                                Expr::Counter(count) => Some(*count),
                                _ => None,
                            })
                        })
                }
            };
            counts.push(count.unwrap_or_default());
        }
        Ok(counts)
    }
}

/// Whether a retry can succeed.
fn is_transient(error: &BatchError) -> bool {
    matches!(error.errno(), Some(Errno::EINTR | Errno::EAGAIN))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the duration of a step is only reported"
)]
fn now() -> Instant {
    Instant::now()
}
