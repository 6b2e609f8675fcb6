//! Failure and death at every call by which attach and detach change the host, on a real kernel: nothing is
//! left afterwards, or only what the next agent removes.

use crate::faulty_ports::{
    CALLS, Died, FaultyDataplane, FaultyNetworkDriver, INJECTED, PortFault, PortFaults,
};

use crate::requests::CoreRequests;
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_agent::driver::open_enforcing_driver;
use palisade_api::{CniAddRequest, CniAddResponse, CniAttachment};
use palisade_config::Config;
use palisade_generators::line;
use palisade_model::{Endpoint, Object, Update};
use palisade_network::network_driver::{HostDrivers, KernelNetworkDriver};
use palisade_node::clock::SystemClock;
use palisade_source::UpdateBatch;
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::need_root;
use palisade_text::error_chain;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;

fn start(state: &Path, faults: &PortFaults) -> Core {
    let flags = [
        ("state-dir", state.display().to_string()),
        ("masquerade", "outside".to_owned()),
        ("own-table", "false".to_owned()),
    ];
    let flags = flags.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
    let config = Config::resolve(&flags, |_| None, None).unwrap();
    let dataplane = open_enforcing_driver(&config).unwrap();
    let sysctl_dir = Path::new("/proc/sys");
    let network = KernelNetworkDriver::current(sysctl_dir).unwrap();
    let mut core = Core::new(CoreParts {
        config,
        dataplane: Box::new(FaultyDataplane(dataplane, faults.clone())),
        host: HostDrivers {
            network: Box::new(FaultyNetworkDriver(network, faults.clone())),
            ..HostDrivers::current(sysctl_dir).unwrap()
        },
        clock: Box::new(SystemClock),
        sources: vec![("directory".to_owned(), "/x".to_owned())],
    });
    core.restore().unwrap();
    let pod = Endpoint {
        created: 1,
        ..line::endpoint("shop/web")
    };
    core.handle_event(CoreEvent::Source(UpdateBatch {
        updates: vec![Update::Upsert(Object::Endpoint(pod))],
        in_sync: true,
        ..UpdateBatch::default()
    }));
    core
}

fn attachment() -> CniAttachment {
    CniAttachment {
        container: "c1".to_owned(),
        network: "pods".to_owned(),
        interface: "eth0".to_owned(),
    }
}

fn request(netns: &Path) -> CniAddRequest {
    CniAddRequest {
        container: "c1".to_owned(),
        network: "pods".to_owned(),
        interface: "eth0".to_owned(),
        netns: netns.display().to_string(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        pod: true,
        ..CniAddRequest::default()
    }
}

/// The agent's interfaces, routes and neighbours on the host, the elements of both tables, and the
/// interfaces inside the pod, as shown by other programs.
fn seen(lab: &Lab, pod: NodeId) -> Vec<String> {
    let inside = |node: NodeId, program: &[&str]| {
        let output = Command::new("ip")
            .args(["netns", "exec", lab.namespace_name(node)])
            .args(program)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let host = lab.host();
    let mut seen = Vec::new();
    let mut keep = |text: String, ours: &dyn Fn(&str) -> bool| {
        seen.extend(text.lines().filter(|l| ours(l)).map(str::to_owned));
    };
    keep(inside(host, &["ip", "-br", "link"]), &|l| {
        l.starts_with("pal")
    });
    for family in ["-4", "-6"] {
        let routes = inside(host, &["ip", family, "route"]);
        keep(routes, &|l| l.contains("dev pal"));
    }
    keep(inside(host, &["ip", "neigh"]), &|l| l.contains("dev pal"));
    let tables = inside(host, &["nft", "list", "tables"]);
    keep(tables, &|l| l.contains("palisade_nat"));
    let judged = inside(
        host,
        &["nft", "list", "set", "inet", "palisade", "p_if_ours"],
    );
    keep(judged, &|l| l.contains("\"pal"));
    keep(inside(pod, &["ip", "-br", "link"]), &|l| l.contains("eth0"));
    seen
}

/// The findings of the core's own check.
fn findings(core: &mut Core) -> Vec<String> {
    let check = core.ipam_check().unwrap();
    let text = check.findings.into_iter();
    let mut all: Vec<String> = text
        .map(|f| format!("{} {}: {}", f.kind, f.object, f.reason))
        .collect();
    all.extend(core.ipam_report().addresses.into_iter().map(|a| a.address));
    all
}

struct Bench<'a> {
    lab: &'a Lab,
    pod: NodeId,
    netns: std::path::PathBuf,
    state: &'a Path,
    faults: PortFaults,
}

impl Bench<'_> {
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.lab.run_in(self.lab.host(), work).unwrap()
    }

    fn assert_nothing(&self, core: &mut Core, when: &str) {
        assert_eq!(findings(core), [""; 0], "{when}");
        assert_eq!(seen(self.lab, self.pod), [""; 0], "{when}");
    }

    fn add(&self, core: &mut Core) -> CniAddResponse {
        let added = core.cni_add(&request(&self.netns)).unwrap();
        assert_eq!(added.closed, None);
        assert_eq!(added.addresses.len(), 2);
        added
    }

    fn start(&self) -> Core {
        start(self.state, &self.faults)
    }

    /// Attaches with a fault at one of its calls; false if it makes fewer calls.
    fn attaches(&self, call: u64, fault: PortFault) -> bool {
        let when = format!("attach: {fault:?} at call {call}");
        let mut core = self.start();
        self.faults.arm(call, fault);
        let attached = catch_unwind(AssertUnwindSafe(|| core.cni_add(&request(&self.netns))));
        let has_happened = !self.faults.disarm();
        match (fault, attached) {
            _ if !has_happened => {}
            (PortFault::DieBefore | PortFault::DieAfter, died) => {
                assert!(died.unwrap_err().is::<Died>(), "{when}");
                core = self.restart(core, &when);
                // The runtime, which got no response, calls DEL.
                core.cni_del(&attachment()).unwrap();
            }
            (PortFault::Fail, attached) => {
                match attached.unwrap_or_else(|died| resume_unwind(died)) {
                    Err(error) => {
                        assert!(error_chain(&error).contains(INJECTED), "{when}: {error}")
                    }
                    // The enforcer read the kernel again and wrote what was missing.
                    Ok(added) => {
                        assert_eq!((call, added.closed), (2, None), "{when}");
                        core.cni_del(&attachment()).unwrap();
                    }
                }
            }
            (PortFault::BlockStore, failed) => {
                let error = failed
                    .unwrap_or_else(|died| resume_unwind(died))
                    .unwrap_err();
                assert!(
                    error_chain(&error).contains("renaming onto"),
                    "{when}: {}",
                    error_chain(&error)
                );
                core.cni_del(&attachment()).unwrap();
            }
        }
        if !has_happened {
            core.cni_del(&attachment()).unwrap();
        }
        self.assert_nothing(&mut core, &when);
        self.add(&mut core);
        assert_eq!(core.cni_del(&attachment()).unwrap().removed.len(), 1);
        self.assert_nothing(&mut core, &format!("deleted after {when}"));
        has_happened
    }

    /// Detaches with a fault at one of its calls; false if it makes fewer calls.
    fn detaches(&self, call: u64, fault: PortFault) -> bool {
        let when = format!("detach: {fault:?} at call {call}");
        let mut core = self.start();
        let before = self.add(&mut core);
        self.faults.arm(call, fault);
        let detached = catch_unwind(AssertUnwindSafe(|| core.cni_del(&attachment())));
        let has_happened = !self.faults.disarm();
        match (fault, detached) {
            _ if !has_happened => {}
            (PortFault::DieBefore | PortFault::DieAfter, died) => {
                assert!(died.unwrap_err().is::<Died>(), "{when}");
                core = self.restart(core, &when);
            }
            (PortFault::Fail | PortFault::BlockStore, failed) => {
                let failed = failed.unwrap_or_else(|died| resume_unwind(died));
                let is_repaired = fault == PortFault::Fail && call == 1;
                assert_eq!(failed.is_ok(), is_repaired, "{when}");
            }
        }
        core.cni_del(&attachment()).unwrap();
        self.assert_nothing(&mut core, &when);
        let added = self.add(&mut core);
        assert_ne!(added.host_interface, before.host_interface);
        core.cni_del(&attachment()).unwrap();
        self.assert_nothing(&mut core, &format!("deleted after {when}"));
        has_happened
    }

    /// The next agent; it finds at most a workload whose interface is gone but whose record is not.
    fn restart(&self, died: Core, when: &str) -> Core {
        drop(died);
        let mut core = self.start();
        let lost = core.endpoint_list().endpoints.into_iter();
        let lost = lost.filter(|e| format!("{:?}", e.state) == "Lost").count();
        let found = findings(&mut core);
        let found_objects = found
            .iter()
            .filter(|f| f.contains(':') && !f.contains("::"));
        assert_eq!(found_objects.count(), lost, "{when}: {found:?}");
        core
    }
}

#[test]
fn whatever_call_fails_or_is_the_last_nothing_is_left() {
    if !need_root() {
        return;
    }
    let mut lab = Lab::new("steps").unwrap();
    let pod = lab.add_namespace("web", Vec::new()).unwrap();
    let state = tempfile::tempdir().unwrap();
    let bench = Bench {
        netns: lab.namespace_path(pod),
        lab: &lab,
        pod,
        state: state.path(),
        faults: PortFaults::new(state.path()),
    };
    for fault in PortFault::ALL {
        let attaches = |call: &u64| bench.inside(|| bench.attaches(*call, fault));
        let calls = (0_u64..).take_while(attaches).count();
        assert_eq!(calls, 5, "calls of an attach that had the fault {fault:?}");
        let detaches = |call: &u64| bench.inside(|| bench.detaches(*call, fault));
        let calls = (0_u64..).take_while(detaches).count();
        assert_eq!(calls, 3, "calls of a detach that had the fault {fault:?}");
    }
    // The records cannot be written from the beginning.
    bench.inside(|| {
        let mut core = bench.start();
        bench.faults.block_store();
        let error = core.cni_add(&request(&bench.netns)).unwrap_err();
        assert!(error_chain(&error).contains("renaming onto"), "{error}");
        bench.faults.disarm();
        core.cni_del(&attachment()).unwrap();
        bench.assert_nothing(&mut core, "the store is blocked from the beginning");
    });
    let happened = bench.faults.happened();
    let calls: BTreeSet<&str> = happened.keys().map(|(call, _)| *call).collect();
    assert_eq!(calls, BTreeSet::from(CALLS));
    println!("faults that happened, and nothing left: {happened:?}");
}
