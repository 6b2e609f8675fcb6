//! Files that the core reads while it runs: its configuration, and the queue of CNI DELs.

use super::{Host, config, core, core_with, synced};
use crate::requests::CoreRequests;
use palisade_api::{CniAddRequest, CniAttachment, Health};
use palisade_config::ConfigFile;
use palisade_testkit::FakeDataplane;
use std::sync::{Arc, Mutex};

#[test]
#[allow(clippy::disallowed_methods, reason = "tests write as editors do")]
fn a_configuration_that_is_read_again_counts_or_is_refused_and_listeners_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("palisade.yaml");
    let mut with_file = config(dir.path(), &[]);
    with_file.file = Some(ConfigFile {
        path: path.clone(),
        optional: true,
        exists: false,
    });
    let mut core = core_with(with_file, &Host::default(), &FakeDataplane::new());
    synced(&mut core);
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&told);
    core.add_config_listener(Box::new(move |config| {
        let change = (config.monitor.rate, config.cni.pod_mtu);
        to.lock().unwrap().push(change);
    }));
    core.reread_config();
    assert_eq!(*told.lock().unwrap(), [], "there is no file");

    for (text, expected, health) in [
        ("monitor-rate: 7\n", vec![(7, None)], Health::Ready),
        ("monitor-rate: 7\n", vec![], Health::Ready),
        ("mtu: 1400\nmonitor-rate: 7\n", vec![], Health::Ready),
        ("monitor-rate: 8\npod-mtu: x\n", vec![], Health::Degraded),
        (
            "monitor-rate: 7\npod-mtu: 1300\n",
            vec![(7, Some(1300))],
            Health::Ready,
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        core.reread_config();
        assert_eq!(
            std::mem::take(&mut *told.lock().unwrap()),
            expected,
            "{text}"
        );
        assert_eq!(core.status().health, health, "{text}");
        let in_force = core.config().cni.pod_mtu;
        assert_eq!(core.parts().0.sections.cni.pod_mtu, in_force, "{text}");
    }
    std::fs::remove_file(&path).unwrap();
    core.reread_config();
    assert_eq!(
        *told.lock().unwrap(),
        [(100, None)],
        "nobody named it: as without one"
    );
}

#[test]
fn a_deletion_that_waits_is_carried_out_once() {
    let dir = tempfile::tempdir().unwrap();
    let (host, kernel) = (Host::with(&["web"]), FakeDataplane::new());
    let mut core = core(dir.path(), &host, &kernel);
    core.restore().unwrap();
    synced(&mut core);
    let attachment = CniAttachment {
        container: "c1".to_owned(),
        network: "pods".to_owned(),
        interface: "eth0".to_owned(),
    };
    core.cni_add(&CniAddRequest {
        container: attachment.container.clone(),
        network: attachment.network.clone(),
        interface: attachment.interface.clone(),
        netns: "web".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        ..CniAddRequest::default()
    })
    .unwrap();
    let folder = palisade_workloads::workloads::deletions::queue_dir(dir.path());
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(palisade_api::cni_queue::file_name(&attachment));
    let text = serde_json::to_vec(&attachment).unwrap();
    palisade_sys::atomic_file::write_atomically(&file, &text).unwrap();
    assert_eq!(core.endpoint_list().endpoints.len(), 1);
    assert_eq!(core.run_queued_deletions().unwrap(), 1);
    assert_eq!(core.endpoint_list().endpoints, []);
    assert!(!file.exists());
    assert_eq!(core.run_queued_deletions().unwrap(), 0);
}
