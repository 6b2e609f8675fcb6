//! The core with a recording dataplane and a recording host: which operations it calls on both, and in
//! which order, when workloads are attached and detached, when the kernel rejects writes, and at a
//! restart.

mod chained;
mod driver;
mod files;
mod queued_adds;
mod revisions;

use crate::requests::CoreRequests;
use crate::support::{OnHost, TestHost, host_drivers};
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_api::{
    EndpointState, Health, PacketReason, WorkloadAddRequest, WorkloadRemoveRequest,
};
use palisade_config::Config;
use palisade_dataplane::{
    AddressTranslation, CountAccount, CounterValue, Dataplane, MasqueradePolicy,
};
use palisade_model::Str;
use palisade_network::network_driver::{HostInterfaceState, NetworkDriverError};
use palisade_node::clock::Clock;
use palisade_node::host_changes::HostChanges;
use palisade_node::workload_store::WorkloadRecord;
use palisade_source::UpdateBatch;
use palisade_sys::link::{Link, LinkEvent};
use palisade_tables::ReportReason;
use palisade_testkit::FakeDataplane;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A host in memory: the existing interfaces, the open ones, and every call.
#[derive(Clone, Default)]
struct Host(Arc<Mutex<HostState>>);

#[derive(Default)]
struct HostState {
    joined: BTreeSet<String>,
    open: BTreeSet<String>,
    netns: BTreeSet<String>,
    renamed: BTreeMap<String, String>,
    /// Links of another plugin, with their indexes.
    others: BTreeMap<String, u32>,
    refuse: Option<&'static str>,
    /// Every call about this workload but its removal fails.
    refused_workload: Option<String>,
    /// The removal of this workload fails.
    refused_removal: Option<String>,
    calls: Vec<String>,
}

impl HostState {
    fn index_of(&self, name: &str) -> Option<u32> {
        let ours = self.joined.contains(name).then_some(1);
        self.others.get(name).copied().or(ours)
    }

    fn name_of(&self, index: u32) -> Option<String> {
        let other = self.others.iter().find(|(_, number)| **number == index);
        other.map(|(name, _)| name.clone())
    }
}

impl Host {
    fn with(netns: &[&str]) -> Self {
        let host = Host::default();
        host.0.lock().unwrap().netns = netns.iter().map(|n| (*n).to_owned()).collect();
        host
    }

    fn call(&self, name: &'static str, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        let mut state = self.0.lock().unwrap();
        state.calls.push(format!("{name} {}", record.name));
        let refused = match name {
            "part" => &state.refused_removal,
            _ => &state.refused_workload,
        };
        let is_refused = refused.as_deref() == Some(&*record.name);
        if state.refuse == Some(name) || is_refused {
            return Err(NetworkDriverError::InterfaceMissing(
                record.interface.to_string(),
            ));
        }
        Ok(())
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().calls)
    }
}

impl TestHost for Host {
    fn link_index(&mut self, name: &str) -> Result<Option<u32>, NetworkDriverError> {
        Ok(self.0.lock().unwrap().index_of(name))
    }

    fn link_name(&mut self, index: u32) -> Result<Option<String>, NetworkDriverError> {
        Ok(self.0.lock().unwrap().name_of(index))
    }

    fn create_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        self.call("join", record)?;
        if record.chained {
            return Ok(());
        }
        self.0
            .lock()
            .unwrap()
            .joined
            .insert(record.interface.to_string());
        Ok(())
    }

    fn bring_up(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        self.call("open", record)?;
        self.0
            .lock()
            .unwrap()
            .open
            .insert(record.interface.to_string());
        Ok(())
    }

    fn delete_interface(&mut self, record: &WorkloadRecord) -> Result<(), NetworkDriverError> {
        self.call("part", record)?;
        let mut state = self.0.lock().unwrap();
        state.joined.remove(&*record.interface);
        state.open.remove(&*record.interface);
        Ok(())
    }

    fn has_interface(&mut self, record: &WorkloadRecord) -> Result<bool, NetworkDriverError> {
        if record.chained {
            let index = record.index.unwrap();
            return Ok(self.0.lock().unwrap().name_of(index).is_some());
        }
        Ok(self.0.lock().unwrap().joined.contains(&*record.interface))
    }

    fn host_interface_states(
        &mut self,
        records: &[WorkloadRecord],
    ) -> Result<Vec<HostInterfaceState>, NetworkDriverError> {
        let state = self.0.lock().unwrap();
        let look = |record: &WorkloadRecord| {
            let name = record.interface.to_string();
            if record.chained {
                let now = state.name_of(record.index.unwrap());
                return now.map_or(HostInterfaceState::Missing, |_| HostInterfaceState::Intact);
            }
            match (state.joined.contains(&name), state.open.contains(&name)) {
                (true, true) => HostInterfaceState::Intact,
                (true, false) => HostInterfaceState::Changed(vec!["it was set down".to_owned()]),
                (false, _) => match state.renamed.get(&name) {
                    Some(now) => HostInterfaceState::Renamed(now.clone()),
                    None => HostInterfaceState::Missing,
                },
            }
        };
        Ok(records.iter().map(look).collect())
    }

    fn restore_name(
        &mut self,
        record: &WorkloadRecord,
        _now: &str,
    ) -> Result<(), NetworkDriverError> {
        self.call("rename_back", record)?;
        let mut state = self.0.lock().unwrap();
        state.renamed.remove(&*record.interface);
        state.joined.insert(record.interface.to_string());
        Ok(())
    }

    fn netns_exists(&self, record: &WorkloadRecord) -> bool {
        self.0.lock().unwrap().netns.contains(&record.netns)
    }
}

/// A clock that advances by a millisecond whenever it is read.
struct Ticking(Mutex<u64>, Instant);

impl Ticking {
    #[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
    fn new() -> Self {
        Ticking(Mutex::new(0), Instant::now())
    }

    fn tick(&self) -> Duration {
        let mut now = self.0.lock().unwrap();
        *now += 1;
        Duration::from_millis(*now)
    }
}

impl Clock for Ticking {
    fn wall(&self) -> Duration {
        Duration::from_secs(1_000) + self.tick()
    }

    fn monotonic(&self) -> Instant {
        self.1 + self.tick()
    }
}

fn core(state_dir: &Path, host: &Host, dataplane: &FakeDataplane) -> Core {
    core_with(config(state_dir, &[]), host, dataplane)
}

/// The configuration of a test, with further parameters.
fn config(state_dir: &Path, parameters: &[(&str, &str)]) -> Config {
    let state_dir = [("state-dir", state_dir.to_str().unwrap())];
    let flags = state_dir.iter().chain(parameters);
    let flags: BTreeMap<_, _> = flags
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Config::resolve(&flags, |_| None, None).unwrap()
}

fn core_with(config: Config, host: &Host, dataplane: &FakeDataplane) -> Core {
    Core::new(CoreParts {
        config,
        dataplane: Box::new(dataplane.clone()),
        host: host_drivers(OnHost(host.clone())),
        clock: Box::new(Ticking::new()),
        sources: vec![("directory".to_owned(), "/x".to_owned())],
    })
}

fn synced(core: &mut Core) {
    core.handle_event(CoreEvent::Source(UpdateBatch {
        in_sync: true,
        ..UpdateBatch::default()
    }));
}

fn add(name: &str) -> WorkloadAddRequest {
    WorkloadAddRequest {
        netns: name.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        ..WorkloadAddRequest::default()
    }
}

fn remove(name: &str) -> WorkloadRemoveRequest {
    WorkloadRemoveRequest {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

#[test]
fn a_workload_is_joined_then_enforced_then_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&["web"]), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    assert!(
        core.add_workload(&add("web")).is_err(),
        "not before the source is in sync"
    );
    synced(&mut core);
    host.calls();
    let added = core.add_workload(&add("web")).unwrap();
    assert_eq!(added.addresses, ["10.245.0.2", "fd50:616c:6973::2"]);
    assert_eq!(host.calls(), ["join web", "open web"]);
    assert_eq!(
        core.add_workload(&add("web")).unwrap(),
        added,
        "asking again is no error"
    );
    assert_eq!(host.calls(), [""; 0]);
    assert_eq!(core.status().health, Health::Ready);
    assert!(core.remove_workload(&remove("web")).unwrap().removed);
    assert!(!core.remove_workload(&remove("web")).unwrap().removed);
    assert_eq!(host.calls(), ["part web"]);
    assert_eq!(
        std::fs::read_to_string(dir.path().join("workloads.json"))
            .unwrap()
            .matches("shop")
            .count(),
        0
    );
}

#[test]
fn a_failed_attach_leaves_nothing() {
    for step in ["join", "open"] {
        let dir = tempfile::tempdir().unwrap();
        let (host, dataplane) = (Host::with(&["web"]), FakeDataplane::new());
        let mut core = core(dir.path(), &host, &dataplane);
        synced(&mut core);
        host.0.lock().unwrap().refuse = Some(step);
        assert!(core.add_workload(&add("web")).is_err());
        assert!(host.0.lock().unwrap().joined.is_empty(), "{step}");
        assert!(core.endpoint_list().endpoints.is_empty(), "{step}");
        let text = std::fs::read_to_string(dir.path().join("workloads.json")).unwrap();
        assert!(!text.contains("shop"), "{step}");
        host.0.lock().unwrap().refuse = None;
        let added = core.add_workload(&add("web")).unwrap();
        assert_eq!(
            added.addresses.len(),
            2,
            "{step}: addresses were given back"
        );
    }
}

#[test]
fn a_workload_stays_closed_while_the_kernel_refuses_its_policy() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&["web"]), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    let refuse = |times| (0..times).for_each(|_| dataplane.fail_next("no room"));
    // The write, and the retry from what the kernel holds.
    refuse(2);
    let error = core.add_workload(&add("web")).unwrap_err().to_string();
    assert!(
        error.contains("stays closed") && error.contains("no room"),
        "{error}"
    );
    assert_eq!(host.calls(), ["join web", "part web"]);
    // The rollback fails as well: the agent is degraded until a retry succeeds.
    refuse(3);
    core.add_workload(&add("web")).unwrap_err();
    assert_eq!(core.status().health, Health::Degraded);
    assert!(!host.calls().contains(&"open web".to_owned()));
    core.add_workload(&add("web")).unwrap();
    assert_eq!(core.status().health, Health::Ready);
}

#[test]
fn a_restart_takes_over_what_is_there_and_forgets_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&["web", "api", "db"]), FakeDataplane::new());
    let mut first = core(dir.path(), &host, &dataplane);
    synced(&mut first);
    let web = first.add_workload(&add("web")).unwrap();
    let api = first.add_workload(&add("api")).unwrap();
    first.add_workload(&add("db")).unwrap();
    drop(first);
    {
        let mut state = host.0.lock().unwrap();
        state.netns.remove("db");
        state
            .joined
            .retain(|name| *name == web.host_interface || *name == api.host_interface);
        state.joined.remove(&api.host_interface);
    }
    let mut second = core(dir.path(), &host, &dataplane);
    second.restore().unwrap();
    synced(&mut second);
    let states: Vec<_> = second
        .endpoint_list()
        .endpoints
        .into_iter()
        .map(|e| (e.name, e.state))
        .collect();
    assert_eq!(
        states,
        [
            ("api".to_owned(), EndpointState::Lost),
            ("web".to_owned(), EndpointState::Ready)
        ]
    );
    let next = second
        .add_workload(&WorkloadAddRequest {
            netns: "web".to_owned(),
            ..add("other")
        })
        .unwrap();
    assert!(
        !web.addresses.contains(&next.addresses[0]) && !api.addresses.contains(&next.addresses[0])
    );
}

#[test]
fn given_addresses_and_labels_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&["web"]), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    let mut refuse = |change: &dyn Fn(&mut WorkloadAddRequest)| {
        let mut request = add("web");
        change(&mut request);
        core.add_workload(&request).unwrap_err().to_string()
    };
    assert!(refuse(&|r| r.name = "Web".to_owned()).starts_with("name: "));
    assert!(refuse(&|r| r.addresses = vec!["10.0.0".to_owned()]).starts_with("addresses: "));
    assert!(refuse(&|r| r.addresses = vec!["127.0.0.1".to_owned()]).contains("cannot be"));
    assert!(refuse(&|r| r.ports = vec!["http=0".to_owned()]).starts_with("ports: "));
    assert!(refuse(&|r| r.interface = Some("lo".to_owned())).starts_with("interface: "));
    assert_eq!(host.calls(), [""; 0]);
}

#[test]
fn one_whose_attaching_was_interrupted_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&["web"]), FakeDataplane::new());
    let mut first = core(dir.path(), &host, &dataplane);
    synced(&mut first);
    first.add_workload(&add("web")).unwrap();
    drop(first);
    // The content of the file while the interface is being created.
    let file = dir.path().join("workloads.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let pending = text.replace("\"pending\": false", "\"pending\": true");
    assert_ne!(text, pending);
    palisade_sys::atomic_file::write_atomically(&file, pending.as_bytes()).unwrap();
    host.calls();
    let mut second = core(dir.path(), &host, &dataplane);
    second.restore().unwrap();
    synced(&mut second);
    assert_eq!(host.calls(), ["part web"]);
    assert!(second.endpoint_list().endpoints.is_empty());
    let added = second.add_workload(&add("web")).unwrap();
    assert_eq!(
        added.addresses[0], "10.245.0.2",
        "nothing holds its address"
    );
}

#[test]
fn counts_are_kept_over_a_restart_and_never_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let start = |packets: u64| {
        let (host, kernel) = (Host::with(&["web"]), FakeDataplane::new());
        if packets > 0 {
            let bytes = packets * 10;
            let account = CountAccount::Drop(ReportReason::Spoofed);
            kernel.set_counter(account, CounterValue { packets, bytes });
        }
        let mut core = core(dir.path(), &host, &kernel);
        core.restore().unwrap();
        synced(&mut core);
        assert_eq!(core.status().health, Health::Ready);
        let drops = core.status().dataplane.drops;
        let spoofed = drops
            .iter()
            .find(|drops| drops.reason == PacketReason::Spoofed);
        spoofed.map(|drops| drops.count.packets)
    };
    assert_eq!(start(3), Some(3));
    assert_eq!(start(0), Some(3), "its counter is gone with the table");
    assert_eq!(start(2), Some(5), "and counts on from there");
    let path = dir.path().join("counts.log");
    palisade_sys::atomic_file::write_atomically(&path, b"{\n").unwrap();
    assert_eq!(start(0), None, "counts are no reason not to enforce");
}

#[test]
fn a_driver_without_notices_is_verified_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    for notices in [true, false] {
        let host = Host::with(&["web"]);
        let kernel = if notices {
            FakeDataplane::new()
        } else {
            FakeDataplane::without_notices()
        };
        let events = kernel.tamper_events().unwrap();
        assert_eq!(!events.is_empty(), notices);
        let mut core = core(dir.path(), &host, &kernel);
        core.restore().unwrap();
        synced(&mut core);
        kernel.tamper(None);
        core.verify_unnoticed();
        assert_eq!(kernel.tables().is_some(), !notices);
        assert_eq!(core.status().dataplane.repaired, u64::from(!notices));
    }
}

#[test]
fn a_host_side_that_others_change_is_put_back_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let (host, kernel) = (Host::with(&["web"]), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &kernel);
    core.restore().unwrap();
    synced(&mut core);
    let name = core.add_workload(&add("web")).unwrap().host_interface;
    host.calls();
    let mut changed = |change: &dyn Fn(&mut HostState)| {
        change(&mut host.0.lock().unwrap());
        core.handle_event(CoreEvent::HostChanged {
            changes: HostChanges::all(),
            detected_at: now(),
        });
        let (status, list) = (core.status(), core.endpoint_list());
        (
            host.calls(),
            list.endpoints[0].state,
            status.dataplane.repaired,
        )
    };
    let ready = EndpointState::Ready;
    let nothing = changed(&|_| {});
    assert_eq!(nothing, (vec![], ready, 0), "nothing was wrong");
    let down = changed(&|host| host.open.clear());
    assert_eq!(down, (vec!["open web".to_owned()], ready, 1));
    let renamed = changed(&|host| {
        host.joined.clear();
        host.renamed.insert(name.clone(), "mine".to_owned());
    });
    let calls = vec!["rename_back web".to_owned(), "open web".to_owned()];
    assert_eq!(renamed, (calls, ready, 2));
    let gone = changed(&|host| host.joined.clear());
    assert_eq!(gone, (vec![], EndpointState::Lost, 2));
    let back = changed(&|host| host.joined.extend([name.clone()]));
    assert_eq!(back, (vec!["open web".to_owned()], ready, 2));
    let refused = changed(&|host| {
        host.joined.clear();
        host.renamed.insert(name.clone(), "mine".to_owned());
        host.refuse = Some("rename_back");
    });
    let calls = vec!["rename_back web".to_owned()];
    assert_eq!(refused, (calls, EndpointState::Lost, 2));
}

/// Waiters for the first sync, which then open the socket, are notified only after the kernel is
/// synchronised.
#[test]
fn who_waits_for_the_sync_is_told_when_the_kernel_is_in_line() {
    let dir = tempfile::tempdir().unwrap();
    let (host, kernel) = (Host::default(), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &kernel);
    core.restore().unwrap();
    let (waiting, mut told) = tokio::sync::oneshot::channel();
    core.notify_when_in_sync(waiting);
    assert!(
        told.try_recv().is_err(),
        "told before the kernel is in line"
    );
    assert_eq!(kernel.tables(), None);
    synced(&mut core);
    assert_eq!(told.try_recv(), Ok(()));
    assert!(kernel.tables().is_some());
}

#[test]
fn what_others_change_in_the_table_that_translates_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (host, kernel) = (Host::with(&["web"]), FakeDataplane::new());
    let outside = config(dir.path(), &[("masquerade", "outside")]);
    let mut core = core_with(outside, &host, &kernel);
    core.restore().unwrap();
    synced(&mut core);
    core.add_workload(&add("web")).unwrap();
    let translated = || kernel.clone().masqueraded_addresses();
    let before = translated();
    assert!(!before.is_empty());
    let nothing = MasqueradePolicy::default();
    kernel.clone().masquerade(&nothing).unwrap();
    assert_ne!(translated(), before);
    core.handle_event(CoreEvent::Tampered {
        what: "the table".to_owned(),
        detected_at: now(),
    });
    assert_eq!(translated(), before);
    assert_eq!(core.status().dataplane.repaired, 1);
}

/// A restarted agent knows only a part of the nodes until its source is in sync, and what is masqueraded depends on them.
#[test]
fn a_restart_leaves_what_translates_until_the_source_is_in_sync() {
    let dir = tempfile::tempdir().unwrap();
    let (host, kernel) = (Host::with(&["web"]), FakeDataplane::new());
    let start = || {
        let outside = config(dir.path(), &[("masquerade", "outside")]);
        let mut core = core_with(outside, &host, &kernel);
        core.restore().unwrap();
        core
    };
    let mut first = start();
    synced(&mut first);
    first.add_workload(&add("web")).unwrap();
    drop(first);
    let written = kernel.clone().masqueraded_addresses();
    assert!(!written.is_empty());
    // What the former agent has left differs, so that a write shows.
    kernel
        .clone()
        .masquerade(&MasqueradePolicy::default())
        .unwrap();
    let mut second = start();
    second.handle_event(CoreEvent::HostChanged {
        changes: HostChanges::all(),
        detected_at: now(),
    });
    second.handle_event(CoreEvent::Source(UpdateBatch::default()));
    assert!(kernel.clone().masqueraded_addresses().is_empty());
    synced(&mut second);
    assert_eq!(kernel.clone().masqueraded_addresses(), written);
    assert_eq!(second.status().dataplane.repaired, 0);
}

#[test]
fn the_driver_is_told_of_interfaces_as_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let (host, kernel) = (Host::with(&["web"]), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &kernel);
    core.restore().unwrap();
    synced(&mut core);
    let added = core.add_workload(&add("web")).unwrap();
    let workload = Str::from(added.host_interface.as_str());
    assert_eq!(kernel.interfaces(), [(1, workload.clone())].into());
    let link = |name: &str| Link {
        index: 7,
        name: name.to_owned(),
        kind: None,
        mac: None,
        mtu: 1500,
        flags: 0,
        peer_index: None,
        peer_netnsid: None,
        master: None,
        qdisc: None,
    };
    let mut change = |event| {
        let mut changes = HostChanges::default();
        changes.add_event(event);
        core.handle_event(CoreEvent::HostChanged {
            changes,
            detected_at: now(),
        });
        kernel.interfaces().get(&7).cloned()
    };
    assert_eq!(change(LinkEvent::Link(link("eth7"))), Some("eth7".into()));
    assert_eq!(
        change(LinkEvent::Link(link("wan0"))),
        Some("wan0".into()),
        "renamed"
    );
    assert_eq!(change(LinkEvent::LinkRemoved(link("wan0"))), None);
    assert_eq!(kernel.interfaces(), [(1, workload)].into());
}

#[allow(clippy::disallowed_methods, reason = "any time is valid")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn after_an_error_only_resync_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::default(), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &dataplane);
    dataplane.fail_next("no room");
    synced(&mut core);
    core.handle_event(CoreEvent::Tampered {
        what: "the tables".to_owned(),
        detected_at: Ticking::new().monotonic(),
    });
    let calls = dataplane.calls();
    let are_resyncs: Vec<bool> = calls
        .iter()
        .map(|call| matches!(call, palisade_testkit::DataplaneCall::Resync(_)))
        .collect();
    assert_eq!(are_resyncs, [true, true], "{calls:?}");
}
