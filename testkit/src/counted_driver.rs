//! A driver and a ledger for its counters, for tests and benches without an agent.
//!
//! Never: journals, unless the test gives the ledger a journal.

use palisade_dataplane::ebpf::EbpfDataplane;
use palisade_dataplane::{ApplyOutcome, CounterLedger, Counters, DriverError, PolicyDriver};
use palisade_tables::{Delta, Tables};
use std::ops::{Deref, DerefMut};

/// A driver that counts in its own ledger.
#[derive(Debug)]
pub struct CountedDriver<D = EbpfDataplane> {
    driver: D,
    /// The ledger.
    pub ledger: CounterLedger,
}

impl<D: PolicyDriver> From<D> for CountedDriver<D> {
    fn from(driver: D) -> Self {
        let ledger = CounterLedger::default();
        CountedDriver { driver, ledger }
    }
}

impl<D> Deref for CountedDriver<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.driver
    }
}

impl<D> DerefMut for CountedDriver<D> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.driver
    }
}

/// What a driver did, and its generation afterwards.
#[derive(Debug)]
pub struct CountedOutcome {
    outcome: ApplyOutcome,
    /// The generation of [`PolicyDriver::status`]; 0 if the driver has none.
    pub generation: u32,
}

impl Deref for CountedOutcome {
    type Target = ApplyOutcome;

    fn deref(&self) -> &ApplyOutcome {
        &self.outcome
    }
}

impl<D: PolicyDriver> CountedDriver<D> {
    fn counted(&self, outcome: ApplyOutcome) -> CountedOutcome {
        let generation = self.driver.status().generation.unwrap_or_default();
        CountedOutcome {
            outcome,
            generation,
        }
    }

    /// [`PolicyDriver::resync`].
    ///
    /// # Errors
    /// As there.
    pub fn resync(&mut self, tables: &Tables) -> Result<CountedOutcome, DriverError> {
        let outcome = self.driver.resync(tables, &mut self.ledger)?;
        Ok(self.counted(outcome))
    }

    /// [`PolicyDriver::execute`].
    ///
    /// # Errors
    /// As there.
    pub fn execute(
        &mut self,
        delta: &Delta,
        tables: &Tables,
    ) -> Result<CountedOutcome, DriverError> {
        let outcome = self.driver.execute(delta, tables, &mut self.ledger)?;
        Ok(self.counted(outcome))
    }

    /// [`PolicyDriver::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&mut self, tables: &Tables) -> Result<CountedOutcome, DriverError> {
        let outcome = self.driver.verify(tables, &mut self.ledger)?;
        Ok(self.counted(outcome))
    }

    /// [`PolicyDriver::counters`].
    ///
    /// # Errors
    /// As there.
    pub fn counters(&mut self) -> Result<Counters, DriverError> {
        self.driver.counters(&mut self.ledger)
    }
}
