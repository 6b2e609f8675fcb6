//! Files that the core reads while it runs: its configuration, and the queue of CNI DELs.

use super::{Host, config, core, core_with, synced};
use crate::requests::CoreRequests;
use palisade_agent::config::ConfigFile;
use palisade_api::{CniAddRequest, CniAttachment, Health};
use palisade_testkit::FakeDataplane;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
        to.lock().unwrap().push((config.settle, config.api_rate));
    }));
    core.reread_config();
    assert_eq!(*told.lock().unwrap(), [], "there is no file");

    let ms = Duration::from_millis;
    for (text, expected, health) in [
        ("settle: 7\n", vec![(ms(7), 100)], Health::Ready),
        ("settle: 7\n", vec![], Health::Ready),
        ("mtu: 1400\nsettle: 7\n", vec![], Health::Ready),
        ("settle: 8\napi-rate: x\n", vec![], Health::Degraded),
        ("settle: 7\napi-rate: 9\n", vec![(ms(7), 9)], Health::Ready),
    ] {
        std::fs::write(&path, text).unwrap();
        core.reread_config();
        assert_eq!(
            std::mem::take(&mut *told.lock().unwrap()),
            expected,
            "{text}"
        );
        assert_eq!(core.status().health, health, "{text}");
    }
    std::fs::remove_file(&path).unwrap();
    core.reread_config();
    assert_eq!(
        *told.lock().unwrap(),
        [(ms(100), 100)],
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
    let folder = palisade_agent::workloads::deletions::queue_dir(dir.path());
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
