//! An in-memory dataplane that records its calls.
//!
//! Promises: it applies deltas to its own copy of the tables and checks that the caller's copy agrees;
//! failures are injected by the test. Never: judges.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_tables::{Credit, Delta, Phase, Tables, UndoRecord};

use crate::counter_journal::{CounterJournal, JournalEntry};
use crate::driver::{
    ApplyOutcome, Counters, Dataplane, Error, InstalledWorkloads, Masquerade, StepOutcome,
    TamperEvent, TamperWatch,
};
use crate::packet_report::{PacketReportBatch, PacketWatch};

/// A call of a [`FakeDataplane`] method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataplaneCall {
    /// [`Dataplane::start`] with these tables.
    Start(Tables),
    /// [`Dataplane::apply`] of this delta.
    Apply(Delta),
    /// [`Dataplane::verify`].
    Verify,
    /// [`Dataplane::remove`].
    Remove,
}

/// A recording dataplane; clones share its state.
#[derive(Clone, Debug, Default)]
pub struct FakeDataplane {
    state: Arc<Mutex<FakeDataplaneState>>,
}

#[derive(Debug, Default)]
struct FakeDataplaneState {
    calls: Vec<DataplaneCall>,
    tables: Option<Tables>,
    failures: Vec<String>,
    counters: Counters,
    counter_reads: usize,
    journal: Vec<JournalEntry>,
    journal_error: Option<std::io::Error>,
    generation: u32,
    tampers: Vec<TamperEvent>,
    packet_reports: VecDeque<PacketReportBatch>,
    masqueraded: BTreeSet<IpAddr>,
}

impl FakeDataplane {
    /// A dataplane with an empty kernel.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The calls so far, in order, including failed ones.
    #[must_use]
    pub fn calls(&self) -> Vec<DataplaneCall> {
        self.lock().calls.clone()
    }

    /// The tables that it holds; `None` before the first start and after a removal.
    #[must_use]
    pub fn tables(&self) -> Option<Tables> {
        self.lock().tables.clone()
    }

    /// Replaces the tables, as another program would.
    pub fn tamper(&self, held: Option<Tables>) {
        let mut state = self.lock();
        state.tables = held;
        state.tampers.push(TamperEvent::Changed {
            description: "the tables".to_owned(),
        });
    }

    /// Makes the next start, apply or verify fail with `reason`.
    pub fn fail_next(&self, reason: &str) {
        self.lock().failures.push(reason.to_owned());
    }

    /// The number of calls of [`Dataplane::counters`].
    pub fn counter_reads(&self) -> usize {
        self.lock().counter_reads
    }

    /// Sets the result of [`Dataplane::counters`].
    pub fn set_counters(&self, counters: Counters) {
        self.lock().counters = counters;
    }

    /// Queues packets for the packet watch.
    pub fn push_packets(&self, seen: PacketReportBatch) {
        self.lock().packet_reports.push_back(seen);
    }

    /// The entries that it got with its journal.
    #[must_use]
    pub fn journal(&self) -> Vec<JournalEntry> {
        self.lock().journal.clone()
    }

    fn lock(&self) -> MutexGuard<'_, FakeDataplaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeDataplaneState {
    fn record_call(&mut self, call: DataplaneCall) -> Result<(), Error> {
        self.calls.push(call);
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(Error::Injected(self.failures.remove(0)))
    }

    /// Replaces the tables; counts one write if they differ.
    fn replace_tables(&mut self, tables: &Tables) -> ApplyOutcome {
        let same = self.tables.as_ref() == Some(tables);
        self.tables = Some(tables.clone());
        if self.generation == 0 {
            self.generation = 1;
        }
        let steps = (!same).then_some(StepOutcome {
            phase: Phase::Split,
            ops: 1,
            duration: Duration::ZERO,
            grace_duration: Duration::ZERO,
        });
        ApplyOutcome {
            writes: usize::from(!same),
            steps: steps.into_iter().collect(),
            generation: self.generation,
        }
    }
}

impl Dataplane for FakeDataplane {
    fn start(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error> {
        let mut state = self.lock();
        state.record_call(DataplaneCall::Start(tables.clone()))?;
        Ok(state.replace_tables(tables))
    }

    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<ApplyOutcome, Error> {
        let mut state = self.lock();
        state.record_call(DataplaneCall::Apply(delta.clone()))?;
        let mut held = state.tables.clone().unwrap_or_default();
        held.judge_host_traffic = tables.judge_host_traffic;
        delta.apply_to(&mut held);
        if held != *tables {
            return Err(Error::Injected(
                "the tables after the delta differ from the tables passed with it".to_owned(),
            ));
        }
        state.tables = Some(held);
        let mut outcome = ApplyOutcome::default();
        for step in &delta.steps {
            if step.phase == Phase::Revoke {
                state.generation += 1;
            }
            outcome.writes += step.changes.len();
            outcome.steps.push(StepOutcome {
                phase: step.phase,
                ops: step.changes.len(),
                duration: Duration::ZERO,
                grace_duration: Duration::ZERO,
            });
        }
        outcome.generation = state.generation;
        Ok(outcome)
    }

    fn verify(&mut self, tables: &Tables) -> Result<ApplyOutcome, Error> {
        let mut state = self.lock();
        state.record_call(DataplaneCall::Verify)?;
        Ok(state.replace_tables(tables))
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let mut state = self.lock();
        state.counter_reads += 1;
        Ok(state.counters.clone())
    }

    fn masquerade(&mut self, wanted: &Masquerade) -> Result<usize, Error> {
        let mut state = self.lock();
        if !state.failures.is_empty() {
            return Err(Error::Injected(state.failures.remove(0)));
        }
        let writes = usize::from(state.masqueraded != wanted.addresses);
        state.masqueraded.clone_from(&wanted.addresses);
        Ok(writes)
    }

    fn installed_workloads(&mut self) -> Result<InstalledWorkloads, Error> {
        let state = self.lock();
        let points = state.tables.iter().flat_map(|tables| tables.points.keys());
        let points: BTreeSet<_> = points.map(|p| (p.interface.clone(), p.address)).collect();
        Ok(InstalledWorkloads {
            interfaces: points
                .iter()
                .map(|(interface, _)| interface.clone())
                .collect(),
            points,
            masqueraded_addresses: state.masqueraded.clone(),
        })
    }

    fn remove(&mut self) -> Result<(), Error> {
        let mut state = self.lock();
        state.record_call(DataplaneCall::Remove)?;
        state.tables = None;
        Ok(())
    }

    fn tamper_watch(&self) -> Result<TamperWatch, Error> {
        let this = self.clone();
        Ok(TamperWatch::new(move |_| Ok(this.lock().tampers.pop())))
    }

    fn packet_watch(&self) -> Result<Option<PacketWatch>, Error> {
        let this = self.clone();
        Ok(Some(PacketWatch::new(move |_| {
            Ok(this.lock().packet_reports.pop_front())
        })))
    }

    fn undo(&self, delta: &Delta) -> Option<UndoRecord> {
        let state = self.lock();
        state
            .tables
            .as_ref()
            .map(|held| UndoRecord::new(delta, held))
    }

    fn set_journal(&mut self, mut ledger: Box<dyn CounterJournal>, entries: Vec<JournalEntry>) {
        let mut state = self.lock();
        state.journal_error = ledger.replace(&entries).err();
        state.journal = entries;
    }

    fn retain_counts(&mut self, keep: &dyn Fn(&Credit) -> bool) {
        let counters = &mut self.lock().counters;
        counters.by_rule.retain(|credit, _| keep(credit));
    }

    fn take_journal_error(&mut self) -> Option<std::io::Error> {
        self.lock().journal_error.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_tables::{DeltaStep, TableChange};

    #[test]
    fn it_holds_what_it_was_given_and_notices_tampering() {
        let fake = FakeDataplane::new();
        let mut driver: Box<dyn Dataplane> = Box::new(fake.clone());
        let mut tables = Tables::default();
        assert_eq!(driver.start(&tables).unwrap().writes, 1);
        assert_eq!(driver.start(&tables).unwrap().writes, 0);
        let delta = Delta {
            revision: 1,
            steps: vec![
                DeltaStep {
                    phase: Phase::Split,
                    changes: vec![TableChange::Interface("pal1".into(), true)],
                },
                DeltaStep {
                    phase: Phase::Revoke,
                    changes: Vec::new(),
                },
            ],
        };
        assert!(driver.apply(&delta, &tables).is_err());
        delta.apply_to(&mut tables);
        let outcome = driver.apply(&delta, &tables).unwrap();
        assert_eq!((outcome.writes, outcome.generation), (1, 2));
        assert_eq!(fake.tables(), Some(tables.clone()));

        let mut watch = driver.tamper_watch().unwrap();
        assert_eq!(watch.wait(Duration::ZERO).unwrap(), None);
        fake.tamper(None);
        assert!(watch.wait(Duration::ZERO).unwrap().is_some());
        assert_eq!(driver.verify(&tables).unwrap().writes, 1);
        fake.fail_next("on purpose");
        assert!(driver.verify(&tables).is_err());
        assert_eq!(driver.verify(&tables).unwrap().writes, 0);
    }
}
