//! A driver in memory that records its calls.
//!
//! Promises: it executes deltas on its own copy of the tables and checks that the caller's copy agrees;
//! failures are injected by the test. Never: judges.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_model::Str;
use palisade_tables::{Atomicity, CounterValue, Delta, Phase, Point, Tables};

use palisade_dataplane::{
    AddressTranslation, ApplyOutcome, CountAccount, CounterAccounts, CounterKey, CounterLedger,
    CounterSnapshot, Counters, Dataplane, DriverCondition, DriverError, DriverErrorKind,
    DriverStatus, FastPathCheck, FastPathEndpoint, FastPathFlowFilter, FastPathFlows,
    FastPathPolicy, FastPathPolicyQuery, FastPathReader, FastPathUplink, InstalledObject,
    InstalledObjectKind, InstalledPolicy, Interface, InterfaceChange, MasqueradePolicy,
    PacketReportBatch, PlanPreview, PolicyDriver, StepObserver, StepOutcome, Subscription,
    TamperEvent,
};

/// The name of the driver, and of its part of the counter ledger.
const NAME: &str = "fake";

/// A call of a [`FakeDataplane`] method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataplaneCall {
    /// [`PolicyDriver::resync`] with these tables.
    Resync(Box<Tables>),
    /// [`PolicyDriver::execute`] of this delta.
    Execute(Delta),
    /// [`PolicyDriver::verify`].
    Verify,
    /// [`PolicyDriver::remove`].
    Remove,
}

/// A recording dataplane; clones share its state.
#[derive(Clone, Debug, Default)]
pub struct FakeDataplane {
    state: Arc<Mutex<FakeDataplaneState>>,
    /// The tables that this clone wrote last, shared with the state; `None` after a failure.
    written: Option<Arc<Tables>>,
}

#[derive(Debug, Default)]
struct FakeDataplaneState {
    calls: Vec<DataplaneCall>,
    tables: Option<Arc<Tables>>,
    failures: Vec<String>,
    counters: FakeCounters,
    counter_reads: usize,
    generation: u32,
    /// What other programs changed; `None`: the driver does not notice it.
    tampers: Option<Vec<TamperEvent>>,
    packet_reports: VecDeque<PacketReportBatch>,
    masqueraded: BTreeSet<IpAddr>,
    conditions: Vec<DriverCondition>,
    fast_path: Option<FakeFastPath>,
    /// The interfaces that it was told of, by index.
    interfaces: BTreeMap<u32, Str>,
    step_observer: Option<StepObserver>,
}

/// The counters of a [`FakeDataplane`], one for each account.
#[derive(Debug, Default)]
struct FakeCounters(BTreeMap<CounterKey, (CountAccount, CounterValue)>);

impl CounterSnapshot for FakeCounters {
    fn value(&self, key: &CounterKey, _: &[CountAccount]) -> Option<CounterValue> {
        self.0.get(key).map(|(_, value)| *value)
    }
}

impl FakeDataplane {
    /// A dataplane with an empty kernel, which notices changes by others.
    #[must_use]
    pub fn new() -> Self {
        let fake = Self::default();
        fake.lock().tampers = Some(Vec::new());
        fake
    }

    /// A dataplane with an empty kernel, which does not notice changes by others.
    #[must_use]
    pub fn without_notices() -> Self {
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
        self.lock().tables.as_deref().cloned()
    }

    /// Replaces the tables, as another program would.
    pub fn tamper(&self, held: Option<Tables>) {
        let mut state = self.lock();
        state.tables = held.map(Arc::new);
        let description = "the tables".to_owned();
        let notices = state.tampers.iter_mut();
        notices.for_each(|notices| {
            notices.push(TamperEvent::Changed {
                description: description.clone(),
            });
        });
    }

    /// Makes the next resync, execution or verification fail with `reason`.
    pub fn fail_next(&self, reason: &str) {
        self.lock().failures.push(reason.to_owned());
    }

    /// The number of calls of [`PolicyDriver::counters`].
    pub fn counter_reads(&self) -> usize {
        self.lock().counter_reads
    }

    /// Sets the value of an account's counter.
    pub fn set_counter(&self, account: CountAccount, value: CounterValue) {
        let key = CounterKey::new(format!("{account:?}"));
        self.lock().counters.0.insert(key, (account, value));
    }

    /// Sets what the driver says that it cannot do.
    pub fn set_conditions(&self, conditions: Vec<DriverCondition>) {
        self.lock().conditions = conditions;
    }

    /// Sets what the driver's fast path has; `None` if none runs.
    pub fn set_fast_path(&self, fast_path: Option<FakeFastPath>) {
        self.lock().fast_path = fast_path;
    }

    /// The interfaces that exist as far as the driver was told, by index.
    #[must_use]
    pub fn interfaces(&self) -> BTreeMap<u32, Str> {
        self.lock().interfaces.clone()
    }

    /// Queues packets for the packet watch.
    pub fn push_packets(&self, seen: PacketReportBatch) {
        self.lock().packet_reports.push_back(seen);
    }

    fn lock(&self) -> MutexGuard<'_, FakeDataplaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeDataplaneState {
    fn record_call(&mut self, call: DataplaneCall) -> Result<(), DriverError> {
        self.calls.push(call);
        self.take_failure()
    }

    fn take_failure(&mut self) -> Result<(), DriverError> {
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(injected(self.failures.remove(0)))
    }

    /// Replaces the tables; counts one write if they differ.
    fn replace_tables(&mut self, tables: &Tables) -> ApplyOutcome {
        let same = self.tables.as_deref() == Some(tables);
        if !same {
            self.tables = Some(Arc::new(tables.clone()));
        }
        if self.generation == 0 {
            self.generation = 1;
        }
        let steps = (!same).then_some(StepOutcome {
            phase: Phase::Tighten,
            ops: 1,
            duration: Duration::ZERO,
        });
        ApplyOutcome {
            writes: usize::from(!same),
            steps: steps.into_iter().collect(),
        }
    }
}

fn injected(reason: impl Into<String>) -> DriverError {
    let kind = DriverErrorKind::Retryable;
    DriverError::new(kind, "injected", "failure", reason.into())
}

impl PolicyDriver for FakeDataplane {
    fn atomicity(&self) -> Atomicity {
        Atomicity::Step
    }

    fn interfaces_listed(&mut self, interfaces: &[Interface]) -> Result<(), DriverError> {
        self.lock().interfaces = interfaces
            .iter()
            .map(|interface| (interface.index, interface.name.clone()))
            .collect();
        Ok(())
    }

    fn interfaces_changed(&mut self, changes: &[InterfaceChange]) -> Result<(), DriverError> {
        let mut state = self.lock();
        for change in changes {
            match change {
                InterfaceChange::Present(Interface { name, index }) => {
                    state.interfaces.insert(*index, name.clone());
                }
                InterfaceChange::Gone(Interface { index, .. }) => {
                    state.interfaces.remove(index);
                }
            }
        }
        Ok(())
    }

    fn set_step_observer(&mut self, observer: Option<StepObserver>) {
        self.lock().step_observer = observer;
    }

    fn status(&self) -> DriverStatus {
        DriverStatus {
            generation: Some(self.lock().generation),
            ..DriverStatus::default()
        }
    }

    fn observe(&mut self) -> Result<InstalledPolicy, DriverError> {
        let state = self.lock();
        let points = state.tables.iter().flat_map(|tables| tables.points.keys());
        let points: BTreeSet<Point> = points.cloned().collect();
        let workloads = points.iter().filter_map(Point::workload);
        let interfaces = workloads.map(|(interface, _)| interface.clone()).collect();
        Ok(InstalledPolicy { interfaces, points })
    }

    fn preview(&mut self, tables: &Tables) -> Result<PlanPreview, DriverError> {
        Ok(PlanPreview {
            writes: usize::from(self.lock().tables.as_deref() != Some(tables)),
            text: String::new(),
        })
    }

    fn resync(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        self.written = None;
        let mut state = self.lock();
        state.record_call(DataplaneCall::Resync(Box::new(tables.clone())))?;
        ledger.part(NAME).reconcile(&state.counters);
        let outcome = state.replace_tables(tables);
        let written = state.tables.clone();
        drop(state);
        self.written = written;
        Ok(outcome)
    }

    fn execute(
        &mut self,
        delta: &Delta,
        tables: &Tables,
        _: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        self.written = None;
        let mut state = self.lock();
        state.record_call(DataplaneCall::Execute(delta.clone()))?;
        let mut held = state.tables.as_deref().cloned().unwrap_or_default();
        held.judgement = tables.judgement.clone();
        delta.apply_to(&mut held);
        if held != *tables {
            return Err(injected(
                "the tables after the delta differ from the tables passed with it",
            ));
        }
        let held = Arc::new(held);
        state.tables = Some(Arc::clone(&held));
        let mut outcome = ApplyOutcome::default();
        for (number, step) in delta.steps.iter().enumerate() {
            if let Some(observer) = &mut state.step_observer {
                observer.step_written(number, step.phase)?;
            }
            if step.phase == Phase::Revoke {
                state.generation += 1;
            }
            outcome.writes += step.changes.len();
            outcome.steps.push(StepOutcome {
                phase: step.phase,
                ops: step.changes.len(),
                duration: Duration::ZERO,
            });
        }
        drop(state);
        self.written = Some(held);
        Ok(outcome)
    }

    fn verify(
        &mut self,
        tables: &Tables,
        _: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        let mut state = self.lock();
        state.record_call(DataplaneCall::Verify)?;
        Ok(state.replace_tables(tables))
    }

    fn counters(&mut self, ledger: &mut CounterLedger) -> Result<Counters, DriverError> {
        let mut state = self.lock();
        state.counter_reads += 1;
        let counters = &state.counters;
        let accounts = counters.0.iter();
        let accounts: CounterAccounts = accounts
            .map(|(key, (account, _))| (key.clone(), vec![account.clone()]))
            .collect();
        ledger.part(NAME).update(accounts, counters);
        Ok(ledger.totals())
    }

    fn written_tables(&self) -> Option<&Tables> {
        self.written.as_deref()
    }

    fn installed_objects(&mut self) -> Result<Vec<InstalledObject>, DriverError> {
        let tables = self.lock().tables.is_some().then(|| InstalledObject {
            kind: InstalledObjectKind::Table,
            name: "tables".to_owned(),
        });
        Ok(tables.into_iter().collect())
    }

    fn remove(&mut self) -> Result<(), DriverError> {
        let mut state = self.lock();
        state.record_call(DataplaneCall::Remove)?;
        state.tables = None;
        Ok(())
    }
}

impl AddressTranslation for FakeDataplane {
    fn masquerade(&mut self, wanted: &MasqueradePolicy) -> Result<usize, DriverError> {
        let mut state = self.lock();
        state.take_failure()?;
        let writes = usize::from(state.masqueraded != wanted.addresses);
        state.masqueraded.clone_from(&wanted.addresses);
        Ok(writes)
    }

    fn preview(&mut self, wanted: &MasqueradePolicy) -> Result<PlanPreview, DriverError> {
        Ok(PlanPreview {
            writes: usize::from(self.lock().masqueraded != wanted.addresses),
            text: String::new(),
        })
    }

    fn masqueraded_addresses(&mut self) -> BTreeSet<IpAddr> {
        self.lock().masqueraded.clone()
    }
}

impl Dataplane for FakeDataplane {
    fn name(&self) -> &'static str {
        NAME
    }

    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        Some(self)
    }

    fn notices_changes(&self) -> bool {
        self.lock().tampers.is_some()
    }

    fn tamper_events(&self) -> Result<Vec<Subscription<TamperEvent>>, DriverError> {
        if !self.notices_changes() {
            return Ok(Vec::new());
        }
        let this = self.clone();
        let next = move |_| Ok(this.lock().tampers.as_mut().and_then(Vec::pop));
        Ok(vec![Subscription::new(next)])
    }

    fn packet_reports(&self) -> Result<Vec<Subscription<PacketReportBatch>>, DriverError> {
        let this = self.clone();
        let next = move |_| Ok(this.lock().packet_reports.pop_front());
        Ok(vec![Subscription::new(next)])
    }

    fn conditions(&self) -> Vec<DriverCondition> {
        self.lock().conditions.clone()
    }

    fn fast_path_reader(&self) -> Option<Box<dyn FastPathReader + '_>> {
        let fast_path = self.lock().fast_path.clone()?;
        Some(Box::new(fast_path))
    }
}

/// What the fast path of a [`FakeDataplane`] has.
#[derive(Clone, Debug, Default)]
pub struct FakeFastPath {
    /// Its addresses.
    pub endpoints: Vec<FastPathEndpoint>,
    /// Its interfaces to other hosts.
    pub uplinks: Vec<FastPathUplink>,
    /// Its flows.
    pub flows: FastPathFlows,
    /// What it judges by.
    pub policy: FastPathPolicy,
    /// What differs.
    pub check: FastPathCheck,
}

impl FastPathReader for FakeFastPath {
    fn endpoints(&self) -> Vec<FastPathEndpoint> {
        self.endpoints.clone()
    }

    fn uplinks(&self) -> Vec<FastPathUplink> {
        self.uplinks.clone()
    }

    fn flows(&self, filter: &FastPathFlowFilter) -> Result<FastPathFlows, DriverError> {
        let mut flows = self.flows.clone();
        flows.flows.retain(|flow| {
            let ends = [flow.source.0, flow.destination.0];
            let addresses = filter.addresses.as_ref();
            let is_protocol = filter
                .protocol
                .is_none_or(|protocol| protocol == flow.protocol);
            is_protocol
                && addresses.is_none_or(|wanted| ends.iter().any(|end| wanted.contains(end)))
        });
        let count = flows.flows.len();
        flows.flows.truncate(filter.limit);
        flows.left_out = (count - flows.flows.len()) as u64;
        Ok(flows)
    }

    fn policy(&self, query: &FastPathPolicyQuery) -> Result<FastPathPolicy, DriverError> {
        let mut policy = self.policy.clone();
        policy.pairs.truncate(query.limit);
        policy.left_out = self.policy.pairs.len() - policy.pairs.len();
        Ok(policy)
    }

    fn check(&self) -> Result<FastPathCheck, DriverError> {
        Ok(self.check.clone())
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
        let (mut tables, mut ledger) = (Tables::default(), CounterLedger::default());
        assert_eq!(driver.resync(&tables, &mut ledger).unwrap().writes, 1);
        assert_eq!(driver.resync(&tables, &mut ledger).unwrap().writes, 0);
        let delta = Delta {
            revision: 1,
            steps: vec![
                DeltaStep {
                    phase: Phase::Tighten,
                    changes: vec![TableChange::Interface("pal1".into(), true)],
                },
                DeltaStep {
                    phase: Phase::Revoke,
                    changes: Vec::new(),
                },
            ],
        };
        assert!(driver.execute(&delta, &tables, &mut ledger).is_err());
        delta.apply_to(&mut tables);
        let outcome = driver.execute(&delta, &tables, &mut ledger).unwrap();
        assert_eq!((outcome.writes, driver.status().generation), (1, Some(2)));
        assert_eq!(fake.tables(), Some(tables.clone()));

        let mut watch = driver.tamper_events().unwrap().remove(0);
        assert_eq!(watch.wait(Duration::ZERO).unwrap(), None);
        fake.tamper(None);
        assert!(watch.wait(Duration::ZERO).unwrap().is_some());
        assert_eq!(driver.verify(&tables, &mut ledger).unwrap().writes, 1);
        fake.fail_next("on purpose");
        assert!(driver.verify(&tables, &mut ledger).is_err());
        assert_eq!(driver.verify(&tables, &mut ledger).unwrap().writes, 0);
    }
}
