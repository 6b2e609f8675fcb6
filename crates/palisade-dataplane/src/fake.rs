//! A dataplane in memory: records what it is asked, refuses when told to.

use crate::driver::{Counters, Dataplane, Error, Outcome, StepOutcome};
use palisade_tables::{Delta, Phase, Tables};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a [`FakeDataplane`] was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Dataplane::start`].
    Start,
    /// [`Dataplane::apply`] with these phases.
    Apply(Vec<Phase>),
    /// [`Dataplane::verify`].
    Verify,
    /// [`Dataplane::remove`].
    Remove,
}

/// A dataplane in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct FakeDataplane(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    tables: Option<Tables>,
    generation: u32,
    refuses: bool,
    calls: Vec<Call>,
}

impl FakeDataplane {
    /// From now on every call fails, or none does.
    pub fn refuse(&self, refuses: bool) {
        self.memory(|memory| memory.refuses = refuses);
    }

    /// What it holds; `None` before the first start.
    pub fn tables(&self) -> Option<Tables> {
        self.memory(|memory| memory.tables.clone())
    }

    /// What it was asked since the last time.
    pub fn calls(&self) -> Vec<Call> {
        self.memory(|memory| std::mem::take(&mut memory.calls))
    }

    fn memory<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn call(&self, call: Call, tables: Option<Tables>, writes: usize) -> Result<Outcome, Error> {
        self.memory(|memory| {
            memory.calls.push(call);
            if memory.refuses {
                return Err("the kernel refuses everything".into());
            }
            memory.tables = tables;
            let steps = vec![StepOutcome {
                phase: Phase::Split,
                writes,
                took: Duration::ZERO,
            }];
            Ok(Outcome {
                writes,
                steps,
                generation: memory.generation,
            })
        })
    }
}

impl Dataplane for FakeDataplane {
    fn start(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        let writes = usize::from(self.tables().as_ref() != Some(tables));
        self.call(Call::Start, Some(tables.clone()), writes)
    }

    fn apply(&mut self, delta: &Delta, tables: &Tables) -> Result<Outcome, Error> {
        let phases: Vec<Phase> = delta.steps.iter().map(|step| step.phase).collect();
        if phases.contains(&Phase::Revoke) {
            self.memory(|memory| memory.generation += 1);
        }
        let writes = delta.steps.iter().map(|step| step.changes.len()).sum();
        self.call(Call::Apply(phases), Some(tables.clone()), writes)
    }

    fn verify(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        let writes = usize::from(self.tables().as_ref() != Some(tables));
        self.call(Call::Verify, Some(tables.clone()), writes)
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn remove(&mut self) -> Result<(), Error> {
        self.call(Call::Remove, None, 0).map(drop)
    }
}
