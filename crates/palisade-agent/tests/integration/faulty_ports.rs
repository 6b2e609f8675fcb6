//! Faults at the calls by which a core changes the host: a call fails, the agent dies before or after it, or
//! the records on disk cannot be written from then on.
//!
//! A death is a panic with [`Died`] that drops the core. Unlike kill -9 it happens at exactly the chosen call;
//! the state of kernel and disk is the same.

use palisade_dataplane::driver::{
    AddressTranslation, ApplyOutcome, Dataplane, DriverCondition, DriverStatus, InstalledObject,
    InstalledPolicy, Interface, InterfaceChange, MasqueradePolicy, PlanPreview, PolicyDriver,
    StepObserver, TamperEvent,
};
use palisade_dataplane::{
    Atomicity, CounterLedger, Counters, DriverError, DriverErrorKind, PacketReportBatch,
    Subscription,
};
use palisade_model::Prefix;
use palisade_network::network_driver::{
    AddressUse, HostInterfaceState, HostInventory, NetnsFacts, NetnsInterface, NetworkDriver,
    NetworkDriverError,
};
use palisade_node::workload_store::WorkloadRecord;
use palisade_sys::netns::{NetNs, NetNsOpener};
use palisade_tables::{Delta, Tables};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The panic payload of a simulated death.
pub(crate) struct Died;

/// The reason of an injected failure.
pub(crate) const INJECTED: &str = "an injected failure";

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PortFault {
    /// The agent dies before it.
    DieBefore,
    /// The agent dies after it.
    DieAfter,
    /// It fails, without effect.
    Fail,
    /// After it the records on disk cannot be written.
    BlockStore,
}

impl PortFault {
    pub(crate) const ALL: [PortFault; 4] = [
        PortFault::DieBefore,
        PortFault::DieAfter,
        PortFault::Fail,
        PortFault::BlockStore,
    ];
}

/// The names of the calls that change the host.
pub(crate) const CALLS: [&str; 6] = [
    "create_interfaces",
    "configure_netns",
    "execute",
    "masquerade",
    "bring_up",
    "delete_interfaces",
];

/// The fault that is armed, shared by all ports of a core.
#[derive(Clone)]
pub(crate) struct PortFaults(Arc<Mutex<FaultState>>);

struct FaultState {
    /// The number of calls before the one that it happens at, and the fault.
    armed: Option<(u64, PortFault)>,
    /// How often each fault happened at each call.
    happened: BTreeMap<(&'static str, PortFault), u64>,
    store: PathBuf,
    is_blocked: bool,
}

impl PortFaults {
    /// No fault, for a core with this state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        PortFaults(Arc::new(Mutex::new(FaultState {
            armed: None,
            happened: BTreeMap::new(),
            store: state_dir.join("workloads.json"),
            is_blocked: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, FaultState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault happens at the call after this many others.
    pub(crate) fn arm(&self, calls: u64, fault: PortFault) {
        self.state().armed = Some((calls, fault));
    }

    /// Ends the fault; true if it has not happened yet.
    pub(crate) fn disarm(&self) -> bool {
        let mut state = self.state();
        if std::mem::take(&mut state.is_blocked) {
            std::fs::remove_dir(&state.store).unwrap();
            let _ = std::fs::rename(kept(&state.store), &state.store);
        }
        state.armed.take().is_some()
    }

    /// From now on the records cannot be written.
    pub(crate) fn block_store(&self) {
        let mut state = self.state();
        let _ = std::fs::rename(&state.store, kept(&state.store));
        std::fs::create_dir(&state.store).unwrap();
        state.is_blocked = true;
    }

    /// How often each fault happened at each call.
    pub(crate) fn happened(&self) -> BTreeMap<(&'static str, PortFault), u64> {
        self.state().happened.clone()
    }

    /// Whether it is the turn of this call.
    fn next(&self, call: &'static str) -> Option<PortFault> {
        let mut state = self.state();
        match state.armed {
            Some((0, fault)) => {
                state.armed = None;
                *state.happened.entry((call, fault)).or_default() += 1;
                Some(fault)
            }
            Some((n, fault)) => {
                state.armed = Some((n - 1, fault));
                None
            }
            None => None,
        }
    }

    /// Makes a call; `failure` is the result of one that fails.
    fn call<T>(
        &self,
        call: &'static str,
        work: impl FnOnce() -> T,
        failure: impl FnOnce() -> T,
    ) -> T {
        let fault = self.next(call);
        match fault {
            Some(PortFault::DieBefore) => resume_unwind(Box::new(Died)),
            Some(PortFault::Fail) => return failure(),
            _ => {}
        }
        let result = work();
        match fault {
            Some(PortFault::DieAfter) => resume_unwind(Box::new(Died)),
            Some(PortFault::BlockStore) => self.block_store(),
            _ => {}
        }
        result
    }
}

fn kept(store: &Path) -> PathBuf {
    store.with_extension("kept")
}

fn network_error() -> NetworkDriverError {
    NetworkDriverError::InterfaceMissing(INJECTED.to_owned())
}

fn driver_error() -> DriverError {
    DriverError::new(DriverErrorKind::Retryable, "writing", "the table", INJECTED)
}

/// A network driver with faults.
pub(crate) struct FaultyNetworkDriver<N>(pub(crate) N, pub(crate) PortFaults);

type NetworkResult<T> = Result<T, NetworkDriverError>;

macro_rules! forward {
    ($($call:ident(&mut self $(, $arg:ident: $kind:ty)*) -> $result:ty;)*) => {
        $(fn $call(&mut self $(, $arg: $kind)*) -> $result {
            self.0.$call($($arg),*)
        })*
    };
}

macro_rules! fail {
    ($error:ident; $($call:ident(&mut self $(, $arg:ident: $kind:ty)*) -> $result:ty;)*) => {
        $(fn $call(&mut self $(, $arg: $kind)*) -> $result {
            let Self(inner, faults) = self;
            faults.call(stringify!($call), || inner.$call($($arg),*), || Err($error()))
        })*
    };
}

impl<N: NetworkDriver> NetworkDriver for FaultyNetworkDriver<N> {
    fail! {
        network_error;
        create_interfaces(&mut self, record: &WorkloadRecord) -> NetworkResult<()>;
        configure_netns(&mut self, record: &WorkloadRecord) -> NetworkResult<()>;
        bring_up(&mut self, record: &WorkloadRecord) -> NetworkResult<()>;
    }

    fn delete_interfaces(&mut self, records: &[WorkloadRecord]) -> Vec<NetworkResult<()>> {
        let Self(inner, faults) = self;
        let failures = || records.iter().map(|_| Err(network_error())).collect();
        let delete = || inner.delete_interfaces(records);
        faults.call("delete_interfaces", delete, failures)
    }

    fn opener(&self) -> Option<NetNsOpener> {
        self.0.opener()
    }

    fn netns_exists(&self, record: &WorkloadRecord) -> bool {
        self.0.netns_exists(record)
    }

    forward! {
        pin_netns(&mut self, netns: Option<NetNs>) -> ();
        netns_facts(&mut self, record: &WorkloadRecord) -> NetworkResult<NetnsFacts>;
        address_use(&mut self, address: IpAddr, pool: Option<Prefix>, include_gateways: bool)
            -> NetworkResult<Option<AddressUse>>;
        link_index(&mut self, name: &str) -> NetworkResult<Option<u32>>;
        link_name(&mut self, index: u32) -> NetworkResult<Option<String>>;
        interfaces(&mut self) -> NetworkResult<Vec<Interface>>;
        interface_addresses(&mut self) -> NetworkResult<Vec<(IpAddr, String)>>;
        has_interface(&mut self, record: &WorkloadRecord) -> NetworkResult<bool>;
        netns_interface(&mut self, record: &WorkloadRecord) -> NetworkResult<NetnsInterface>;
        host_interface_states(&mut self, records: &[WorkloadRecord])
            -> NetworkResult<Vec<HostInterfaceState>>;
        restore_name(&mut self, record: &WorkloadRecord, name: &str) -> NetworkResult<()>;
        inventory(&mut self, prefix: &str) -> NetworkResult<HostInventory>;
        default_route_mtu(&mut self) -> NetworkResult<Option<u32>>;
        veths(&mut self) -> NetworkResult<Vec<(String, u32)>>;
        delete_link(&mut self, name: &str) -> NetworkResult<()>;
        close_link(&mut self, name: &str) -> NetworkResult<()>;
    }
}

/// A driver of policy with faults.
pub(crate) struct FaultyDataplane(pub(crate) Box<dyn Dataplane>, pub(crate) PortFaults);

impl PolicyDriver for FaultyDataplane {
    fail! {
        driver_error;
        execute(&mut self, delta: &Delta, tables: &Tables, ledger: &mut CounterLedger)
            -> Result<ApplyOutcome, DriverError>;
    }

    forward! {
        interfaces_listed(&mut self, interfaces: &[Interface]) -> Result<(), DriverError>;
        interfaces_changed(&mut self, changes: &[InterfaceChange]) -> Result<(), DriverError>;
        observe(&mut self) -> Result<InstalledPolicy, DriverError>;
        preview(&mut self, tables: &Tables) -> Result<PlanPreview, DriverError>;
        resync(&mut self, tables: &Tables, ledger: &mut CounterLedger)
            -> Result<ApplyOutcome, DriverError>;
        verify(&mut self, tables: &Tables, ledger: &mut CounterLedger)
            -> Result<ApplyOutcome, DriverError>;
        counters(&mut self, ledger: &mut CounterLedger) -> Result<Counters, DriverError>;
        installed_objects(&mut self) -> Result<Vec<InstalledObject>, DriverError>;
        remove(&mut self) -> Result<(), DriverError>;
    }

    fn written_tables(&self) -> Option<&Tables> {
        self.0.written_tables()
    }

    fn atomicity(&self) -> Atomicity {
        self.0.atomicity()
    }

    fn set_step_observer(&mut self, observer: Option<StepObserver>) {
        self.0.set_step_observer(observer);
    }

    fn status(&self) -> DriverStatus {
        self.0.status()
    }
}

impl AddressTranslation for FaultyDataplane {
    fn masquerade(&mut self, wanted: &MasqueradePolicy) -> Result<usize, DriverError> {
        let Self(inner, faults) = self;
        let masquerade = || inner.address_translation().unwrap().masquerade(wanted);
        faults.call("masquerade", masquerade, || Err(driver_error()))
    }

    fn preview(&mut self, wanted: &MasqueradePolicy) -> Result<PlanPreview, DriverError> {
        self.0.address_translation().unwrap().preview(wanted)
    }

    fn masqueraded_addresses(&mut self) -> BTreeSet<IpAddr> {
        let inner = self.0.address_translation();
        inner.unwrap().masqueraded_addresses()
    }
}

impl Dataplane for FaultyDataplane {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn check_owner(&mut self) -> Result<(), DriverError> {
        self.0.check_owner()
    }

    fn acquire_lock(&mut self) -> Result<(), DriverError> {
        self.0.acquire_lock()
    }

    fn conditions(&self) -> Vec<DriverCondition> {
        self.0.conditions()
    }

    fn address_translation(&mut self) -> Option<&mut dyn AddressTranslation> {
        if self.0.address_translation().is_some() {
            Some(self)
        } else {
            None
        }
    }

    fn notices_changes(&self) -> bool {
        self.0.notices_changes()
    }

    fn tamper_events(&self) -> Result<Vec<Subscription<TamperEvent>>, DriverError> {
        self.0.tamper_events()
    }

    fn packet_reports(&self) -> Result<Vec<Subscription<PacketReportBatch>>, DriverError> {
        self.0.packet_reports()
    }
}
