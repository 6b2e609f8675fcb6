//! Dry run: what an agent would find and do on this host, without changing anything.
//!
//! It follows the start of the agent: the source is read completely, workload records are restored, the
//! tables are compiled, the kernel is read, and the resulting plan is printed instead of executed. It
//! writes nothing: no table, link, sysctl, file, lock or socket; so it may run beside an enforcing
//! agent.

use crate::core::{Core, CoreEvent, CoreParts};
use crate::driver::open_enforcing_driver;
use crate::run_error::RunError;
use crate::sources::{ConfiguredSources, SourceAccess};
use palisade_api::{DryRunPlan, DryRunReport};
use palisade_config::Config;
use palisade_dataplane::{
    AddressTranslation, ApplyOutcome, CounterLedger, Counters, Dataplane, DriverError,
    DriverStatus, InstalledObject, InstalledPolicy, MasqueradePolicy, PlanPreview, PolicyDriver,
    StepObserver,
};
use palisade_network::network_driver::HostDrivers;
use palisade_node::clock::SystemClock;
use palisade_tables::{Atomicity, Delta, Tables};
use palisade_views::endpoints::endpoint_list;
use palisade_views::status::status;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs the dry run.
///
/// # Errors
/// If the source, the records or the kernel cannot be read.
pub fn run(config: Config) -> Result<DryRunReport, RunError> {
    let sources = ConfiguredSources::open(&config, SourceAccess::ReadOnly)?;
    let preview = Arc::new(Mutex::new(PlanPreview::default()));
    let dataplane = DryRunDataplane {
        driver: open_enforcing_driver(&config)?,
        preview: Arc::clone(&preview),
    };
    let mut core = Core::new(CoreParts {
        config,
        dataplane: Box::new(dataplane),
        host: HostDrivers::read_only()?,
        clock: Box::new(SystemClock),
        sources: sources.describe(),
    });
    core.restore()?;
    sources.read_once(|set, number, delta, detected_at| {
        let _ = set.apply(number, delta, detected_at, &mut |batch| {
            core.handle_event(CoreEvent::Source(batch));
            ControlFlow::Continue(())
        });
    })?;
    let subsystems = core.preview()?;
    let preview = preview.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(DryRunReport {
        api_version: palisade_api::api_version(),
        status: status(&core.snapshot(), None),
        endpoints: endpoint_list(&core.snapshot()),
        plan: DryRunPlan {
            writes: preview.writes,
            text: preview.text.clone(),
        },
        subsystems,
    })
}

/// A dataplane that plans against the kernel's present state and writes nothing.
struct DryRunDataplane {
    driver: Box<dyn Dataplane>,
    preview: Arc<Mutex<PlanPreview>>,
}

impl PolicyDriver for DryRunDataplane {
    fn atomicity(&self) -> Atomicity {
        self.driver.atomicity()
    }

    // No step is written.
    fn set_step_observer(&mut self, _: Option<StepObserver>) {}

    fn status(&self) -> DriverStatus {
        self.driver.status()
    }

    fn observe(&mut self) -> Result<InstalledPolicy, DriverError> {
        self.driver.observe()
    }

    fn preview(&mut self, tables: &Tables) -> Result<PlanPreview, DriverError> {
        self.driver.preview(tables)
    }

    fn resync(
        &mut self,
        tables: &Tables,
        _: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        let preview = self.driver.preview(tables)?;
        let writes = preview.writes;
        *self.preview.lock().unwrap_or_else(PoisonError::into_inner) = preview;
        Ok(ApplyOutcome {
            writes,
            ..ApplyOutcome::default()
        })
    }

    fn execute(
        &mut self,
        _: &Delta,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        self.resync(tables, ledger)
    }

    fn verify(
        &mut self,
        tables: &Tables,
        ledger: &mut CounterLedger,
    ) -> Result<ApplyOutcome, DriverError> {
        self.resync(tables, ledger)
    }

    fn counters(&mut self, _: &mut CounterLedger) -> Result<Counters, DriverError> {
        Ok(Counters::default())
    }

    fn written_tables(&self) -> Option<&Tables> {
        None
    }

    fn installed_objects(&mut self) -> Result<Vec<InstalledObject>, DriverError> {
        self.driver.installed_objects()
    }

    fn remove(&mut self) -> Result<(), DriverError> {
        Ok(())
    }
}

impl AddressTranslation for DryRunDataplane {
    fn masquerade(&mut self, _: &MasqueradePolicy) -> Result<usize, DriverError> {
        Ok(0)
    }

    fn preview(&mut self, wanted: &MasqueradePolicy) -> Result<PlanPreview, DriverError> {
        let translation = self.driver.address_translation();
        translation.map_or(Ok(PlanPreview::default()), |t| t.preview(wanted))
    }

    fn masqueraded_addresses(&mut self) -> BTreeSet<IpAddr> {
        BTreeSet::new()
    }
}

impl Dataplane for DryRunDataplane {
    fn name(&self) -> &'static str {
        self.driver.name()
    }

    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        Some(self)
    }
}
