//! Interfaces of other plugins: policed while they belong to a workload, closed while they exist
//! without one, and ignored once they are deleted.

use super::{Host, core, remove, synced};
use crate::requests::CoreRequests;
use palisade_agent::core::{Core, CoreEvent};
use palisade_api::{CniAddRequest, CniAttachment, CniGcRequest, CniPrevResult, EndpointState};
use palisade_node::host_changes::HostChanges;
use palisade_sys::link::{Link, LinkEvent};
use palisade_testkit::FakeDataplane;
use std::time::Instant;

fn chained(container: &str) -> CniAddRequest {
    CniAddRequest {
        container: container.to_owned(),
        network: "pods".to_owned(),
        interface: "eth0".to_owned(),
        netns: container.to_owned(),
        namespace: "shop".to_owned(),
        name: container.to_owned(),
        chained: Some(CniPrevResult {
            host_interface: "veth0".to_owned(),
            addresses: vec!["10.89.0.2".to_owned(), "fd89::2".to_owned()],
        }),
        ..CniAddRequest::default()
    }
}

fn attachment(container: &str) -> CniAttachment {
    CniAttachment {
        container: container.to_owned(),
        network: "pods".to_owned(),
        interface: "eth0".to_owned(),
    }
}

/// What the kernel polices: the interfaces, and the number of their points.
fn judged(dataplane: &FakeDataplane) -> (Vec<String>, usize) {
    let held = dataplane.tables().unwrap();
    let interfaces = held.interfaces.iter().map(|name| name.to_string());
    (interfaces.collect(), held.points.len())
}

fn link(index: u32, name: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        kind: Some("veth".to_owned()),
        mac: None,
        mtu: 1500,
        flags: 0,
        peer_index: None,
        peer_netnsid: None,
        master: None,
        qdisc: None,
    }
}

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn noticed(core: &mut Core, event: LinkEvent) {
    let mut changes = HostChanges::default();
    changes.add_event(event);
    let seen = Instant::now();
    core.handle_event(CoreEvent::HostChanged {
        changes,
        detected_at: seen,
    });
}

fn closed(name: &str) -> (Vec<String>, usize) {
    (vec![name.to_owned()], 0)
}

/// However the workload is removed, the interface of another plugin stays closed until it is deleted.
#[test]
fn an_interface_of_another_plugin_is_closed_until_it_goes() {
    type Take = fn(&mut Core);
    let ways: [(&str, Take); 3] = [
        ("DEL", |core| {
            core.cni_del(&attachment("web")).unwrap();
        }),
        ("workload remove", |core| {
            core.remove_workload(&remove("web")).unwrap();
        }),
        ("GC", |core| {
            let network = "pods".to_owned();
            let valid = Vec::new();
            core.cni_gc(&CniGcRequest { network, valid }).unwrap();
        }),
    ];
    for (way, take) in ways {
        let dir = tempfile::tempdir().unwrap();
        let (host, dataplane) = (Host::with(&["web", "api"]), FakeDataplane::new());
        host.0.lock().unwrap().others.insert("veth0".to_owned(), 7);
        let mut before = core(dir.path(), &host, &dataplane);
        synced(&mut before);
        before.cni_add(&chained("web")).unwrap();
        assert_eq!(judged(&dataplane), (vec!["veth0".to_owned()], 4), "{way}");
        take(&mut before);
        assert_eq!(judged(&dataplane), closed("veth0"), "{way}");
        assert!(before.endpoint_list().endpoints.is_empty(), "{way}");
        drop(before);
        let mut after = core(dir.path(), &host, &dataplane);
        after.restore().unwrap();
        synced(&mut after);
        assert_eq!(
            judged(&dataplane),
            closed("veth0"),
            "{way}: after a restart"
        );
        // Another container with the same interface has its own policy.
        after.cni_add(&chained("api")).unwrap();
        assert_eq!(judged(&dataplane), (vec!["veth0".to_owned()], 4), "{way}");
        after.cni_del(&attachment("api")).unwrap();
        assert_eq!(judged(&dataplane), closed("veth0"), "{way}");
        // After a rename it is closed under the new name.
        let renamed = [("veth9".to_owned(), 7)].into();
        host.0.lock().unwrap().others = renamed;
        noticed(&mut after, LinkEvent::Link(link(7, "veth9")));
        assert_eq!(judged(&dataplane), closed("veth9"), "{way}: renamed");
        // It is deleted, and another link has its name.
        host.0.lock().unwrap().others = [("veth9".to_owned(), 8)].into();
        noticed(&mut after, LinkEvent::Link(link(8, "veth9")));
        assert_eq!(judged(&dataplane), (vec![], 0), "{way}: gone");
    }
}

#[test]
fn a_lost_interface_of_another_plugin_leaves_its_name_to_whoever_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let (host, dataplane) = (Host::with(&["web"]), FakeDataplane::new());
    host.0.lock().unwrap().others.insert("veth0".to_owned(), 7);
    let mut core = core(dir.path(), &host, &dataplane);
    synced(&mut core);
    core.cni_add(&chained("web")).unwrap();
    host.0.lock().unwrap().others.clear();
    noticed(&mut core, LinkEvent::LinkRemoved(link(7, "veth0")));
    assert_eq!(core.endpoint_list().endpoints[0].state, EndpointState::Lost);
    assert_eq!(judged(&dataplane), (vec![], 0));
    host.0.lock().unwrap().others.insert("veth0".to_owned(), 8);
    noticed(&mut core, LinkEvent::Link(link(8, "veth0")));
    assert_eq!(judged(&dataplane), (vec![], 0), "it is another's");
    assert_eq!(core.cni_del(&attachment("web")).unwrap().removed.len(), 1);
    assert_eq!(judged(&dataplane), (vec![], 0));
}
