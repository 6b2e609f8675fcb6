//! Random sequences of attach, detach, failures and crashes: nothing leaks and no address is allocated twice.
//!
//! The core runs on a host in memory that outlives it, as a kernel does, and on real files. Every step
//! may fail or be the last before a crash; the simulated runtime then reacts as real ones do. At the
//! end every container is deleted, and nothing may be left.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "support/requests.rs"]
mod requests;
mod support;

use palisade_agent::clock::Clock;
use palisade_agent::config::Config;
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_agent::network_driver::HostInventory;
use palisade_agent::network_driver::{HostInterfaceState, NetnsInterface, NetworkDriverError};
use palisade_agent::workload_store::WorkloadRecord;
use palisade_agent::workloads::steps::AttachStep;
use palisade_api::{CniAddRequest, CniAttachment, CniGcRequest};
use palisade_generators::{case_seeds, line};
use palisade_model::{Endpoint, Object, Update};
use palisade_source::UpdateBatch;
use palisade_sys::link::MacAddr;
use palisade_testkit::FakeDataplane;
use requests::{ATTACH_STEPS, CoreRequests, DETACH_STEPS};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::{OnHost, TestHost};

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
    /// The number of calls until one is rejected.
    refuse: Option<u64>,
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

    /// A change; rejected if it is its turn.
    fn change(&self, what: &str) -> Result<std::sync::MutexGuard<'_, State>, NetworkDriverError> {
        let mut state = self.state();
        match state.refuse {
            Some(0) => {
                state.refuse = None;
                Err(NetworkDriverError::InterfaceMissing(format!(
                    "{what} refused"
                )))
            }
            Some(n) => {
                state.refuse = Some(n - 1);
                Ok(state)
            }
            None => Ok(state),
        }
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
        let mut state = self.change("joining")?;
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
        let mut state = self.change("furnishing")?;
        let taken = |address: &IpAddr| state.links.values().any(|l| l.addresses.contains(address));
        if let Some(twice) = record.addresses.iter().find(|address| taken(address)) {
            panic!("{twice} is given to {} and to another", record.name);
        }
        let link = state.links.get_mut(&*record.interface).unwrap();
        link.addresses.clone_from(&record.addresses);
        Ok(())
    }

    fn bring_up(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        let mut state = self.change("opening")?;
        let link = state.links.get_mut(&*record.interface);
        let link =
            link.ok_or_else(|| NetworkDriverError::InterfaceMissing(record.interface.to_string()))?;
        link.open = true;
        Ok(())
    }

    fn delete_interface(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        self.change("parting")?.links.remove(&*record.interface);
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
    deaths: BTreeMap<AttachStep, u64>,
    failures: BTreeMap<AttachStep, u64>,
}

/// The panic payload of a simulated crash.
struct Died;

impl World {
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
                dataplane: Box::new(self.dataplane.clone()),
                network: Box::new(OnHost(self.host.clone())),
                clock: Box::new(self.clock.clone()),
                source: ("directory".to_owned(), "/x".to_owned()),
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

    /// Makes the core crash before a step, fails the step, or makes the host reject a call.
    fn trouble(&mut self, random: &mut Random) {
        let all: Vec<AttachStep> = ATTACH_STEPS.into_iter().chain(DETACH_STEPS).collect();
        let at = all[random.below(all.len() as u64) as usize];
        match random.below(8) {
            0 | 1 => {
                *self.deaths.entry(at).or_default() += 1;
                self.core()
                    .set_step_hook(Box::new(move |step| match step == at {
                        true => resume_unwind(Box::new(Died)),
                        false => Ok(()),
                    }));
            }
            2 => {
                *self.failures.entry(at).or_default() += 1;
                self.core()
                    .set_step_hook(Box::new(move |step| match step == at {
                        true => Err("asked to".to_owned()),
                        false => Ok(()),
                    }));
            }
            3 => self.host.state().refuse = Some(random.below(6)),
            4 => self.dataplane.fail_next("no room"),
            _ => {}
        }
    }

    fn calm(&mut self) {
        self.host.state().refuse = None;
        if let Some(core) = &mut self.core {
            core.set_step_hook(Box::new(|_| Ok(())));
        }
    }

    fn operation(&mut self, random: &mut Random) {
        self.trouble(random);
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
                let container = Container {
                    netns: format!("ns-{id}"),
                    id,
                    pod: format!("p{}", random.below(8)),
                };
                self.host.state().netns.insert(container.netns.clone());
                self.containers.push(container.clone());
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
        self.calm();
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
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

#[test]
fn nothing_leaks_whatever_happens() {
    let dir = folder();
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    let clock = Ticking(Arc::default(), Instant::now());
    let (mut deaths, mut failures) = (BTreeMap::new(), BTreeMap::new());
    let mut born = 0;
    // 499634104: a start retries what it cannot remove, without a request.
    let named = [499_634_104];
    for seed in case_seeds(0, SEQUENCES).into_iter().chain(named) {
        let mut random = Random(seed);
        let mut world = World {
            dir: dir.path().to_path_buf(),
            host: Host::default(),
            dataplane: FakeDataplane::new(),
            clock: clock.clone(),
            core: None,
            containers: Vec::new(),
            born,
            deaths: std::mem::take(&mut deaths),
            failures: std::mem::take(&mut failures),
        };
        for _ in 0..OPERATIONS {
            world.operation(&mut random);
        }
        let left = world.end();
        assert!(left.is_empty(), "seed {seed}: {left:#?}");
        (deaths, failures, born) = (world.deaths, world.failures, world.born);
    }
    println!(
        "{SEQUENCES} sequences, {born} containers; deaths asked for {deaths:?}, failures {failures:?}"
    );
    let steps = ATTACH_STEPS.len() + DETACH_STEPS.len();
    assert_eq!((deaths.len(), failures.len()), (steps, steps));
}
