//! Executing transactions.
//!
//! Promises: each step is one kernel transaction, followed by a grace period;
//! the counts that a step removes are read before it and handed over only once
//! it is done; a refusal names the operation.
//!
//! Never: goes on after a failed step, or undoes the steps before it.

use std::collections::BTreeMap;
use std::time::Instant;

use palisade_model::Str;
use palisade_nft::{
    CounterLocation, CounterValue, CreditedCounter, Element, ElementKey, Expr, Op, Ruleset,
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

/// A commit that failed for a passing reason is tried at most so often.
const MAX_COMMIT_ATTEMPTS: usize = 8;
/// More elements of one set than this are read by listing the set.
const MAX_SINGLE_READS: usize = 64;

/// A step was not executed. Nothing of it was done, unless said; the steps before it are.
#[derive(Debug, Error)]
pub enum ExecuteError {
    /// An operation cannot be written.
    #[error("step {step} ({phase:?}), {doing}: {error}")]
    Encode {
        /// Place of the step, from 0.
        step: usize,
        /// What it was for.
        phase: Phase,
        /// The operation, in words.
        doing: String,
        /// Why not.
        error: EncodeError,
    },
    /// The kernel refused an operation.
    #[error("step {step} ({phase:?}), {doing}: {error}")]
    Refused {
        /// Place of the step, from 0.
        step: usize,
        /// What it was for.
        phase: Phase,
        /// The operation, in words.
        doing: String,
        /// The kernel's answer.
        error: KernelError,
    },
    /// The kernel refused the step as a whole, or its answer was lost.
    #[error("step {step} ({phase:?}): {error}")]
    Batch {
        /// Place of the step, from 0.
        step: usize,
        /// What it was for.
        phase: Phase,
        /// What happened; after [`BatchError::Unconfirmed`] the step may be done.
        error: BatchError,
    },
    /// Counts that the step would have removed could not be read.
    #[error("step {step} ({phase:?}), reading counts before they go: {error}")]
    ReadCounters {
        /// Place of the step, from 0.
        step: usize,
        /// What it was for.
        phase: Phase,
        /// What happened.
        error: TableReadError,
    },
    /// The step is done, but whether packets under way have passed it is not known.
    #[error("step {step} ({phase:?}) is done, but {error}")]
    Grace {
        /// Place of the step, from 0.
        step: usize,
        /// What it was for.
        phase: Phase,
        /// What happened.
        error: GraceError,
    },
}

/// Is told what a step removes, before and after.
pub trait CounterObserver {
    /// These counts are about to go with a step. If it fails, they may or may not have gone.
    fn before_delete(&mut self, counts: &[(&CreditedCounter, CounterValue)]);

    /// They are gone.
    fn after_delete(&mut self, counts: &[(&CreditedCounter, CounterValue)]);
}

/// Hears of each count that is gone.
impl<F: FnMut(&CreditedCounter, CounterValue)> CounterObserver for F {
    fn before_delete(&mut self, _: &[(&CreditedCounter, CounterValue)]) {}

    fn after_delete(&mut self, counts: &[(&CreditedCounter, CounterValue)]) {
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
    /// What is known of the table's sets.
    declarations: BTreeMap<Str, SetDecl>,
}

impl<N: Nfnetlink, G: GracePeriod> Executor<N, G> {
    /// Works on `table` through a socket.
    pub fn new(table: Str, nfnetlink: N, grace: G) -> Self {
        Self {
            nfnetlink,
            grace,
            table,
            declarations: BTreeMap::new(),
        }
    }

    /// Works on another table for once, through the same socket. `sets` are those that it has.
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

    /// The socket, for what is not about a table's content.
    pub(crate) fn nfnetlink_mut(&mut self) -> &mut N {
        &mut self.nfnetlink
    }

    /// The waits for packets under way.
    pub fn grace(&self) -> &G {
        &self.grace
    }

    /// The table as it is in the kernel; `None` if it is not there.
    ///
    /// # Errors
    /// What could not be read.
    pub fn read_back(&mut self) -> Result<Option<Ruleset>, TableReadError> {
        let found = TableReader::new(&mut self.nfnetlink, &self.table).table()?;
        self.declarations = found
            .iter()
            .flat_map(|ruleset| &ruleset.sets)
            .map(|(name, set)| (name.clone(), set.decl.clone()))
            .collect();
        Ok(found)
    }

    /// The elements of one set with their counts; `None` if it is not there.
    ///
    /// # Errors
    /// What could not be read.
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

    /// The rules of one chain with their counts, in order.
    ///
    /// # Errors
    /// What could not be read; `ENOENT` if the chain is not there.
    pub fn rules(&mut self, chain: &str) -> Result<Vec<palisade_nft::NftRule>, TableReadError> {
        TableReader::new(&mut self.nfnetlink, &self.table).rules(chain)
    }

    /// All chains with their rules and counts.
    ///
    /// # Errors
    /// What could not be read.
    pub fn chains(&mut self) -> Result<BTreeMap<Str, palisade_nft::Chain>, TableReadError> {
        TableReader::new(&mut self.nfnetlink, &self.table).chains(&mut Vec::new())
    }

    /// Executes the steps in order. `harvest` is told of the counts that a step
    /// removes, before it and once it is done.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn execute(
        &mut self,
        transaction: &Transaction,
        observer: &mut dyn CounterObserver,
    ) -> Result<Vec<StepOutcome>, ExecuteError> {
        let mut outcomes = Vec::with_capacity(transaction.steps.len());
        for (step, of) in transaction.steps.iter().enumerate() {
            let phase = of.phase;
            let began = now();
            let counts = self
                .read_counters(&of.retiring_counters)
                .map_err(|error| ExecuteError::ReadCounters { step, phase, error })?;
            let counts: Vec<(&CreditedCounter, CounterValue)> =
                of.retiring_counters.iter().zip(counts).collect();
            let late = fault::is_injected("ledger-after-delete");
            if !counts.is_empty() && !late {
                observer.before_delete(&counts);
            }
            self.commit(step, phase, &of.ops)?;
            if !counts.is_empty() {
                if late {
                    observer.before_delete(&counts);
                }
                observer.after_delete(&counts);
            }
            let written = now();
            if of.needs_grace_period && !fault::is_injected("grace-skipped") {
                let waited = self.grace.wait();
                waited.map_err(|error| ExecuteError::Grace { step, phase, error })?;
            }
            outcomes.push(StepOutcome {
                phase,
                ops: of.ops.len(),
                duration: began.elapsed(),
                grace_duration: written.elapsed(),
            });
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

    /// Commits, again where the reason for a failure passes by itself.
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

    /// Makes the declarations of all sets that `ops` name known.
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
            let mut found = TableReader::new(&mut self.nfnetlink, &self.table).declarations()?;
            // What this step makes is not there yet, and may replace what is.
            found.append(&mut self.declarations);
            self.declarations = found;
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

    /// The counts at the places given, in the same order; zero where nothing is.
    fn read_counters(
        &mut self,
        harvests: &[CreditedCounter],
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
                        let found = self.rules(chain)?;
                        rules.insert(chain, found);
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

/// True where trying the same again can help.
fn is_transient(error: &BatchError) -> bool {
    matches!(error.errno(), Some(Errno::EINTR | Errno::EAGAIN))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the time a step took is told, and decides nothing"
)]
fn now() -> Instant {
    Instant::now()
}
