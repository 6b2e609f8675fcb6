//! A driver and a ledger for its counters, for tests and benches without an agent.
//!
//! Never: journals, unless the test gives the ledger a journal.

use palisade_dataplane::nftables::NftDataplane;
use palisade_dataplane::{ApplyOutcome, CounterLedger, Counters, DriverError, PolicyDriver};
use palisade_tables::{Delta, Tables};
use std::ops::{Deref, DerefMut};

/// A driver that counts in its own ledger.
#[derive(Debug)]
pub struct CountedDriver<D = NftDataplane> {
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

impl<D: PolicyDriver> CountedDriver<D> {
    /// [`PolicyDriver::resync`].
    ///
    /// # Errors
    /// As there.
    pub fn resync(&mut self, tables: &Tables) -> Result<ApplyOutcome, DriverError> {
        self.driver.resync(tables, &mut self.ledger)
    }

    /// [`PolicyDriver::execute`].
    ///
    /// # Errors
    /// As there.
    pub fn execute(&mut self, delta: &Delta, tables: &Tables) -> Result<ApplyOutcome, DriverError> {
        self.driver.execute(delta, tables, &mut self.ledger)
    }

    /// [`PolicyDriver::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&mut self, tables: &Tables) -> Result<ApplyOutcome, DriverError> {
        self.driver.verify(tables, &mut self.ledger)
    }

    /// [`PolicyDriver::counters`].
    ///
    /// # Errors
    /// As there.
    pub fn counters(&mut self) -> Result<Counters, DriverError> {
        self.driver.counters(&mut self.ledger)
    }
}
