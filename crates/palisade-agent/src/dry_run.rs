//! Dry run: what an agent would find and do on this host, without changing anything.
//!
//! It follows the start of the agent: the source is read completely, workload records are restored, the
//! tables are compiled, the kernel is read, and the resulting plan is printed instead of executed. It
//! writes nothing: no table, link, sysctl, file, lock or socket; so it may run beside an enforcing
//! agent.

use crate::clock::SystemClock;
use crate::config::Config;
use crate::core::{Core, CoreEvent, CoreParts};
use crate::driver::{DEFAULT_DRIVER, open_driver};
use crate::network_driver::{
    AddressUse, HostInterfaceState, HostInventory, KernelNetworkDriver, NetnsFacts, NetnsInterface,
    NetworkDriver, NetworkDriverError,
};
use crate::run::{source_names, source_options};
use crate::run_error::RunError;
use crate::settings::SettingsFile;
use crate::views::endpoints::endpoint_list;
use crate::views::status::status;
use crate::workload_store::WorkloadRecord;
use palisade_api::{DryRunPlan, DryRunReport};
use palisade_dataplane::{
    AddressTranslation, ApplyOutcome, CounterLedger, Counters, Dataplane, DriverError,
    InstalledPolicy, MasqueradePolicy, PlanPreview, PolicyDriver,
};
use palisade_model::Prefix;
use palisade_source::{Directory, Source, SourceSet};
use palisade_sys::netns::{NetNs, NetNsOpener};
use palisade_tables::{Delta, Tables};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Runs the dry run.
///
/// # Errors
/// If the source, the records or the kernel cannot be read.
pub fn run(config: Config) -> Result<DryRunReport, RunError> {
    let options = source_options(&config);
    options.check_path()?;
    let mut sources = SourceSet::open_read_only(source_names(), &config.state_dir, config.budget)?;
    let mut source = Directory::open(options, sources.restored(0))?;
    let preview = Arc::new(Mutex::new(PlanPreview::default()));
    let dataplane = DryRunDataplane {
        driver: open_driver(DEFAULT_DRIVER, &config)?,
        preview: Arc::clone(&preview),
    };
    let mut core = Core::new(CoreParts {
        config,
        dataplane: Box::new(dataplane),
        network: Box::new(ReadOnlyNetworkDriver(KernelNetworkDriver::current()?)),
        clock: Box::new(SystemClock),
        source: source.describe(),
    });
    core.restore()?;
    source.run(&mut |delta, detected_at| {
        sources.apply(0, delta, detected_at, &mut |batch| {
            let in_sync = batch.in_sync;
            core.handle_event(CoreEvent::Source(batch));
            match in_sync {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    })?;
    let preview = preview.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(DryRunReport {
        api_version: palisade_api::api_version(),
        status: status(&core.snapshot(), None),
        endpoints: endpoint_list(&core.snapshot()),
        plan: DryRunPlan {
            writes: preview.writes,
            text: preview.text.clone(),
        },
    })
}

/// A dataplane that plans against the kernel's present state and writes nothing.
struct DryRunDataplane {
    driver: Box<dyn Dataplane>,
    preview: Arc<Mutex<PlanPreview>>,
}

impl PolicyDriver for DryRunDataplane {
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

    fn installed_objects(&mut self) -> Result<Vec<String>, DriverError> {
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

/// A network driver that only reads.
struct ReadOnlyNetworkDriver(KernelNetworkDriver);

impl NetworkDriver for ReadOnlyNetworkDriver {
    fn create_interfaces(&mut self, _: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        Ok(())
    }

    fn configure_netns(&mut self, _: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        Ok(())
    }

    fn bring_up(&mut self, _: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        Ok(())
    }

    fn delete_interfaces(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Vec<Result<(), NetworkDriverError>> {
        records.iter().map(|_| Ok(())).collect()
    }

    fn has_interface(&mut self, record: &WorkloadRecord) -> Result<bool, NetworkDriverError> {
        self.0.has_interface(record)
    }

    fn opener(&self) -> Option<NetNsOpener> {
        self.0.opener()
    }

    fn pin_netns(&mut self, netns: Option<NetNs>) {
        self.0.pin_netns(netns);
    }

    fn netns_facts(&mut self, record: &WorkloadRecord) -> Result<NetnsFacts, NetworkDriverError> {
        self.0.netns_facts(record)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, NetworkDriverError> {
        self.0.address_use(address, pool, whole)
    }

    fn link_index(&mut self, name: &str) -> Result<Option<u32>, NetworkDriverError> {
        self.0.link_index(name)
    }

    fn link_name(&mut self, index: u32) -> Result<Option<String>, NetworkDriverError> {
        self.0.link_name(index)
    }

    fn netns_interface(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<NetnsInterface, NetworkDriverError> {
        self.0.netns_interface(record)
    }

    fn host_interface_states(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Result<Vec<HostInterfaceState>, NetworkDriverError> {
        self.0.host_interface_states(records)
    }

    fn restore_name(&mut self, _: &WorkloadRecord, _: &str) -> Result<(), NetworkDriverError> {
        Ok(())
    }

    fn ensure_forwarding(
        &mut self,
        _: &str,
        _: &SettingsFile,
    ) -> Result<Vec<String>, NetworkDriverError> {
        Ok(Vec::new())
    }

    fn inventory(&mut self, prefix: &str) -> Result<HostInventory, NetworkDriverError> {
        self.0.inventory(prefix)
    }

    fn default_route_mtu(&mut self) -> Result<Option<u32>, NetworkDriverError> {
        self.0.default_route_mtu()
    }

    fn netns_exists(&self, record: &WorkloadRecord) -> bool {
        self.0.netns_exists(record)
    }
}
