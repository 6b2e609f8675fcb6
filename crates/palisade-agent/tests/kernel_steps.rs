//! Failure and death at every step of attach and detach, on a real kernel: nothing is left afterwards,
//! or only what the next agent removes.
//!
//! Death is a panic that drops the core. Unlike kill -9 it happens at exactly the chosen step; the
//! state of kernel and disk is the same.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test: it runs other programs, and fails by panic"
)]

#[path = "support/requests.rs"]
mod requests;

use palisade_agent::clock::SystemClock;
use palisade_agent::config::Config;
use palisade_agent::core::{Core, CoreEvent, CoreParts};
use palisade_agent::driver::{DEFAULT_DRIVER, open_driver};
use palisade_agent::network_driver::KernelNetworkDriver;
use palisade_agent::workloads::steps::AttachStep;
use palisade_api::{CniAddRequest, CniAddResponse, CniAttachment};
use palisade_generators::line;
use palisade_model::{Endpoint, Object, Update};
use palisade_source::UpdateBatch;
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::need_root;
use requests::{ATTACH_STEPS, CoreRequests, DETACH_STEPS};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;

/// The panic payload of a simulated death.
struct Died;

fn start(state: &Path) -> Core {
    let flags = [
        ("state-dir", state.display().to_string()),
        ("masquerade", "outside".to_owned()),
        ("own-table", "false".to_owned()),
    ];
    let flags = flags.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
    let config = Config::resolve(&flags, |_| None, None).unwrap();
    let dataplane = open_driver(DEFAULT_DRIVER, &config).unwrap();
    let mut core = Core::new(CoreParts {
        config,
        dataplane,
        network: Box::new(KernelNetworkDriver::current().unwrap()),
        clock: Box::new(SystemClock),
        source: ("directory".to_owned(), "/x".to_owned()),
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

    /// An attach that fails at a step leaves nothing, and a retry succeeds.
    fn fails_attaching(&self, at: AttachStep) {
        let mut core = start(self.state);
        core.set_step_hook(Box::new(move |step| match step == at {
            true => Err("asked to".to_owned()),
            false => Ok(()),
        }));
        let error = core.cni_add(&request(&self.netns)).unwrap_err().to_string();
        assert_eq!(error, format!("{at}: asked to"));
        self.assert_nothing(&mut core, &format!("failed: {at}"));
        core.set_step_hook(Box::new(|_| Ok(())));
        self.add(&mut core);
        assert_eq!(core.cni_del(&attachment()).unwrap().removed.len(), 1);
        self.assert_nothing(&mut core, &format!("deleted after it failed: {at}"));
    }

    /// A detach that fails at a step succeeds when repeated.
    fn fails_detaching(&self, at: AttachStep) {
        let mut core = start(self.state);
        self.add(&mut core);
        core.set_step_hook(Box::new(move |step| match step == at {
            true => Err("asked to".to_owned()),
            false => Ok(()),
        }));
        core.cni_del(&attachment()).unwrap_err();
        core.set_step_hook(Box::new(|_| Ok(())));
        core.cni_del(&attachment()).unwrap();
        self.assert_nothing(&mut core, &format!("failed: {at}"));
    }

    /// Death before a step: the runtime, which got no response, calls DEL, and nothing is left.
    fn dies(&self, at: AttachStep, detaching: bool) {
        let mut core = start(self.state);
        let before = detaching.then(|| self.add(&mut core));
        core.set_step_hook(Box::new(move |step| match step == at {
            true => resume_unwind(Box::new(Died)),
            false => Ok(()),
        }));
        let died = catch_unwind(AssertUnwindSafe(|| match detaching {
            true => drop(core.cni_del(&attachment())),
            false => drop(core.cni_add(&request(&self.netns))),
        }));
        assert!(died.unwrap_err().is::<Died>());
        drop(core);
        let mut core = start(self.state);
        let lost = core.endpoint_list().endpoints.into_iter();
        let lost: Vec<_> = lost
            .filter(|e| format!("{:?}", e.state) == "Lost")
            .collect();
        // Its interface is gone but its record is not; there must be no other finding.
        let told: Vec<String> = findings(&mut core);
        let told = told.iter().filter(|f| f.contains(':') && !f.contains("::"));
        assert_eq!(told.count(), lost.len(), "{at}: {:?}", findings(&mut core));
        core.cni_del(&attachment()).unwrap();
        self.assert_nothing(&mut core, &format!("died before: {at}"));
        let added = self.add(&mut core);
        if let Some(before) = before {
            assert_ne!(added.host_interface, before.host_interface);
        }
        core.cni_del(&attachment()).unwrap();
        self.assert_nothing(&mut core, &format!("deleted after death before: {at}"));
    }
}

#[test]
fn whatever_step_fails_or_is_the_last_nothing_is_left() {
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
    };
    for step in ATTACH_STEPS {
        bench.inside(|| bench.fails_attaching(step));
        bench.inside(|| bench.dies(step, false));
    }
    for step in DETACH_STEPS {
        bench.inside(|| bench.fails_detaching(step));
        bench.inside(|| bench.dies(step, true));
    }
    let steps = ATTACH_STEPS.len() + DETACH_STEPS.len();
    println!("steps: {steps} failed and {steps} died before, nothing left");
}
