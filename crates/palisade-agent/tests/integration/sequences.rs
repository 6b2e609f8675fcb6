//! Random sequences of attach, detach, failures and crashes: nothing leaks and no address is allocated twice.
//!
//! The core runs on a host in memory that outlives it, as a kernel does, and on real files. Every call
//! that changes the host may fail or be the last before a crash; the simulated runtime then reacts as real ones do. At the
//! end every container is deleted, and nothing may be left.

use crate::faulty_ports::{
    CALLS, Died, FaultyDataplane, FaultyNetworkDriver, PortFault, PortFaults,
};

use crate::requests::CoreRequests;
use crate::support::{OnHost, TestHost, host_drivers};
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_api::{CniAddRequest, CniAttachment, CniGcRequest};
use palisade_config::Config;
use palisade_generators::{case_seeds, line};
use palisade_model::{Endpoint, Object, Update};
use palisade_network::network_driver::HostInventory;
use palisade_network::network_driver::{HostInterfaceState, NetnsInterface, NetworkDriverError};
use palisade_node::clock::Clock;
use palisade_node::workload_store::WorkloadRecord;
use palisade_source::UpdateBatch;
use palisade_sys::link::MacAddr;
use palisade_testkit::FakeDataplane;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SEQUENCES: u64 = 10_000;
const OPERATIONS: u64 = 5;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// The host: its links with their workloads' addresses, and which are up.
#[derive(Clone, Default)]
struct Host(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    links: BTreeMap<String, Link>,
    netns: BTreeSet<String>,
    /// Every name that a link has ever had.
    names: BTreeSet<String>,
}

struct Link {
    netns: String,
    addresses: Vec<IpAddr>,
    open: bool,
}

impl Host {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last process of a namespace ends: its links are deleted.
    fn end(&self, netns: &str) {
        let mut state = self.state();
        state.netns.remove(netns);
        state.links.retain(|_, link| link.netns != netns);
    }
}

impl TestHost for Host {
    fn create_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        let mut state = self.state();
        let name = record.interface.to_string();
        if !state.netns.contains(&record.netns) {
            return Err(NetworkDriverError::InterfaceMissing(record.netns.clone()));
        }
        let inside = state.links.values().any(|link| link.netns == record.netns);
        assert!(!inside, "{} has an interface already", record.netns);
        assert!(state.names.insert(name.clone()), "{name} is used again");
        let link = Link {
            netns: record.netns.clone(),
            addresses: Vec::new(),
            open: false,
        };
        state.links.insert(name, link);
        Ok(())
    }

    fn configure_netns(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        let mut state = self.state();
        let taken = |address: &IpAddr| state.links.values().any(|l| l.addresses.contains(address));
        if let Some(twice) = record.addresses.iter().find(|address| taken(address)) {
            panic!("{twice} is given to {} and to another", record.name);
        }
        let link = state.links.get_mut(&*record.interface).unwrap();
        link.addresses.clone_from(&record.addresses);
        Ok(())
    }

    fn bring_up(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        let mut state = self.state();
        let link = state.links.get_mut(&*record.interface);
        let link =
            link.ok_or_else(|| NetworkDriverError::InterfaceMissing(record.interface.to_string()))?;
        link.open = true;
        Ok(())
    }

    fn delete_interface(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        self.state().links.remove(&*record.interface);
        Ok(())
    }

    fn has_interface(&mut self, record: &WorkloadRecord) -> Result<bool, NetworkDriverError> {
        Ok(self.state().links.contains_key(&*record.interface))
    }

    fn link_index(&mut self, name: &str) -> Result<Option<u32>, NetworkDriverError> {
        Ok(self.state().links.contains_key(name).then_some(1))
    }

    fn netns_interface(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<NetnsInterface, NetworkDriverError> {
        let state = self.state();
        let link = state.links.get(&*record.interface);
        let link =
            link.ok_or_else(|| NetworkDriverError::InterfaceMissing(record.inside.clone()))?;
        Ok(NetnsInterface {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            addresses: link.addresses.clone(),
            routes: Vec::new(),
        })
    }

    fn host_interface_states(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Result<Vec<HostInterfaceState>, NetworkDriverError> {
        let state = self.state();
        let look = |record: &WorkloadRecord| match state.links.get(&*record.interface) {
            Some(link) if link.open => HostInterfaceState::Intact,
            Some(_) => HostInterfaceState::Changed(vec!["it is down".to_owned()]),
            None => HostInterfaceState::Missing,
        };
        Ok(records.iter().map(look).collect())
    }

    fn inventory(&mut self, _: &str) -> Result<HostInventory, NetworkDriverError> {
        let state = self.state();
        let open = state.links.iter().filter(|(_, link)| link.open);
        let routes =
            open.flat_map(|(name, link)| link.addresses.iter().map(|a| (*a, name.clone())));
        Ok(HostInventory {
            links: state.links.keys().cloned().collect(),
            routes: routes.collect(),
            ..HostInventory::default()
        })
    }

    fn netns_exists(&self, record: &WorkloadRecord) -> bool {
        self.state().netns.contains(&record.netns)
    }
}

/// A clock shared by all cores that advances by a microsecond whenever it is read.
#[derive(Clone)]
struct Ticking(Arc<AtomicU64>, Instant);

impl Ticking {
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn new() -> Self {
        Ticking(Arc::default(), Instant::now())
    }

    fn advance(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for Ticking {
    fn wall(&self) -> Duration {
        Duration::from_micros(1_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn monotonic(&self) -> Instant {
        self.1 + Duration::from_micros(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// What the runtime knows of a container.
#[derive(Clone)]
struct Container {
    id: String,
    pod: String,
    netns: String,
}

impl Container {
    fn attachment(&self) -> CniAttachment {
        CniAttachment {
            container: self.id.clone(),
            network: "pods".to_owned(),
            interface: "eth0".to_owned(),
        }
    }

    fn request(&self) -> CniAddRequest {
        CniAddRequest {
            container: self.id.clone(),
            network: "pods".to_owned(),
            interface: "eth0".to_owned(),
            netns: self.netns.clone(),
            namespace: "shop".to_owned(),
            name: self.pod.clone(),
            pod: true,
            masquerade: Some(self.id.ends_with('m')),
            ..CniAddRequest::default()
        }
    }
}

struct World {
    dir: PathBuf,
    host: Host,
    dataplane: FakeDataplane,
    clock: Ticking,
    core: Option<Core>,
    /// Every container with an ADD and without a DEL.
    containers: Vec<Container>,
    born: u64,
    faults: PortFaults,
}

impl World {
    fn new(dir: &Path, clock: &Ticking, faults: &PortFaults) -> Self {
        World {
            dir: dir.to_path_buf(),
            host: Host::default(),
            dataplane: FakeDataplane::new(),
            clock: clock.clone(),
            core: None,
            containers: Vec::new(),
            born: 0,
            faults: faults.clone(),
        }
    }

    /// A container whose network namespace exists.
    fn start_container(&mut self, id: String, pod: String) -> Container {
        let netns = format!("ns-{id}");
        self.host.state().netns.insert(netns.clone());
        let container = Container { id, pod, netns };
        self.containers.push(container.clone());
        container
    }

    fn core(&mut self) -> &mut Core {
        if self.core.is_none() {
            let flags = [
                ("state-dir", self.dir.display().to_string()),
                ("ipam-pool", "10.0.0.0/28,10.0.1.0/28,fd00::/120".to_owned()),
                ("ipam-reserved", "10.0.0.4-10.0.0.9".to_owned()),
            ];
            let flags = flags.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
            let mut core = Core::new(CoreParts {
                config: Config::resolve(&flags, |_| None, None).unwrap(),
                dataplane: Box::new(FaultyDataplane(
                    Box::new(self.dataplane.clone()),
                    self.faults.clone(),
                )),
                host: host_drivers(FaultyNetworkDriver(
                    OnHost(self.host.clone()),
                    self.faults.clone(),
                )),
                clock: Box::new(self.clock.clone()),
                sources: vec![("directory".to_owned(), "/x".to_owned())],
            });
            core.restore().unwrap();
            // The source has the first six of the pods 0 to 7.
            let updates = (0..6).map(|n| pod(&format!("p{n}"))).collect();
            core.handle_event(CoreEvent::Source(UpdateBatch {
                updates,
                in_sync: true,
                ..UpdateBatch::default()
            }));
            core.run_queued_deletions().unwrap();
            self.core = Some(core);
        }
        self.core.as_mut().unwrap()
    }

    /// Runs `work` on the core; a crash drops the core.
    fn with<T>(&mut self, work: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let core = self.core();
        match catch_unwind(AssertUnwindSafe(|| work(core))) {
            Ok(done) => Some(done),
            Err(payload) if payload.is::<Died>() => {
                self.core = None;
                None
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Arms a fault at one of the next calls, or blocks the records at once.
    fn arm(&mut self, random: &mut Random) {
        self.core();
        let call = random.below(8);
        match random.below(8) {
            0 => self.faults.block_store(),
            n @ 1..=4 => self.faults.arm(call, PortFault::ALL[n as usize - 1]),
            _ => {}
        }
    }

    fn operation(&mut self, random: &mut Random) {
        self.arm(random);
        let some = match self.containers.len() {
            0 => None,
            n => Some(random.below(n as u64) as usize),
        };
        match (random.below(10), some) {
            (0..4, _) | (_, None) => {
                self.born += 1;
                let id = match random.below(2) {
                    0 => format!("c{}", self.born),
                    _ => format!("c{}m", self.born),
                };
                let container = self.start_container(id, format!("p{}", random.below(8)));
                self.add(&container);
            }
            (4, Some(n)) => {
                let container = self.containers[n].clone();
                self.add(&container);
            }
            (5 | 6, Some(n)) => self.del(n),
            (7, Some(n)) => {
                // While no agent runs, the plugin queues the DEL.
                self.core = None;
                let container = self.containers.remove(n);
                let folder = self.dir.join("cni-queue");
                std::fs::create_dir_all(&folder).unwrap();
                let attachment = container.attachment();
                let file = folder.join(palisade_api::cni_queue::file_name(&attachment));
                let text = serde_json::to_vec(&attachment).unwrap();
                palisade_sys::atomic_file::write_atomically(&file, &text).unwrap();
                self.host.end(&container.netns);
            }
            (8, Some(n)) => {
                let netns = self.containers[n].netns.clone();
                self.host.end(&netns);
            }
            (_, Some(_)) => {
                // GC removes what the runtime has forgotten.
                let valid = self.containers.iter().map(Container::attachment).collect();
                let network = "pods".to_owned();
                let _ = self.with(|core| core.cni_gc(&CniGcRequest { network, valid }));
            }
        }
        self.faults.disarm();
    }

    fn add(&mut self, container: &Container) {
        let request = container.request();
        if let Some(Ok(added)) = self.with(|core| core.cni_add(&request)) {
            let name = added.host_interface;
            let state = self.host.state();
            let link = &state.links[&name];
            let told: Vec<IpAddr> = added
                .addresses
                .iter()
                .map(|a| a.address.split_once('/').unwrap().0.parse().unwrap())
                .collect();
            assert_eq!(link.addresses, told);
            let known = !matches!(&*request.name, "p6" | "p7");
            assert_eq!(link.open, known, "{}", request.name);
        }
    }

    fn del(&mut self, n: usize) {
        let attachment = self.containers[n].attachment();
        if let Some(Ok(_)) = self.with(|core| core.cni_del(&attachment)) {
            let container = self.containers.remove(n);
            self.host.end(&container.netns);
        }
    }

    /// Deletes the remaining containers, without failures; nothing may be left.
    fn end(&mut self) -> Vec<String> {
        while !self.containers.is_empty() {
            self.del(0);
        }
        // Failures are retried automatically, at the latest after ten seconds. A dataplane that has to fail
        // does so once for each retry.
        for _ in 0..=OPERATIONS {
            self.clock.advance(Duration::from_secs(10));
            self.core().retry_failed();
        }
        let check = self.core().ipam_check().unwrap();
        let mut left: Vec<String> = check
            .findings
            .iter()
            .map(|f| format!("{} {}: {}", f.kind, f.object, f.reason))
            .collect();
        left.extend(self.host.state().links.keys().cloned());
        let report = self.core().ipam_report();
        left.extend(report.addresses.into_iter().map(|a| a.address));
        left.extend(
            report
                .pools
                .iter()
                .filter(|p| p.taken > 0)
                .map(|p| p.pool.clone()),
        );
        left.extend(
            self.core()
                .endpoint_list()
                .endpoints
                .into_iter()
                .map(|e| e.name),
        );
        let text = std::fs::read_to_string(self.dir.join("workloads.json")).unwrap_or_default();
        left.extend(
            text.lines()
                .filter(|l| l.contains("netns"))
                .map(str::to_owned),
        );
        left
    }
}

fn pod(name: &str) -> Update {
    Update::Upsert(Object::Endpoint(Endpoint {
        created: 1,
        ..line::endpoint(&format!("shop/{name}"))
    }))
}

/// A directory in memory if possible, because every record is synced to disk.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

#[test]
fn nothing_leaks_whatever_happens() {
    let (dir, clock) = (folder(), Ticking::new());
    let faults = PortFaults::new(dir.path());
    let mut born = 0;
    for seed in case_seeds(0, SEQUENCES) {
        let mut random = Random(seed);
        let mut world = World::new(dir.path(), &clock, &faults);
        world.born = born;
        for _ in 0..OPERATIONS {
            world.operation(&mut random);
        }
        let left = world.end();
        assert!(left.is_empty(), "seed {seed}: {left:#?}");
        born = world.born;
    }
    let happened = faults.happened();
    println!("{SEQUENCES} sequences, {born} containers; faults that happened: {happened:?}");
    assert_eq!(happened.len(), CALLS.len() * PortFault::ALL.len());
}

#[test]
fn a_start_retries_what_it_cannot_remove_without_a_request() {
    let (dir, clock) = (folder(), Ticking::new());
    let faults = PortFaults::new(dir.path());
    let mut world = World::new(dir.path(), &clock, &faults);
    let container = world.start_container("c1".to_owned(), "p1".to_owned());
    world.core();
    faults.arm(0, PortFault::DieAfter);
    world.add(&container);
    assert!(world.core.is_none() && world.host.state().links.len() == 1);
    faults.arm(0, PortFault::Fail);
    world.core();
    assert!(!faults.disarm());
    assert_eq!(world.host.state().links.len(), 1);
    clock.advance(Duration::from_secs(10));
    world.core().retry_failed();
    assert_eq!(world.host.state().links.len(), 0);
    world.containers.clear();
    assert_eq!(world.end(), [""; 0]);
}
