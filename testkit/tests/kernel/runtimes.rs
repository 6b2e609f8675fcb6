//! The runtimes themselves, with upstream's plugins only: what a test of ours begins from, and the
//! proof that without Palisade everything passes.

use std::net::IpAddr;
use std::path::Path;

use palisade_testkit::lab::{Lab, NodeId, ProbeFlow, probe};
use palisade_testkit::need_root;
use palisade_testkit::ring::report_skip;
use palisade_testkit::runtimes::{CniNetwork, CniToolAttachment, Containerd, RuntimePrograms};
use serde_json::{Value, json};

/// Upstream's point-to-point plugin, with addresses of both families kept under `state`.
fn ptp(state: &Path) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "control",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": state,
                "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd88::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
            },
        }],
    })
}

fn addresses(result: &Value) -> Vec<IpAddr> {
    let given = result["ips"].as_array().unwrap().iter();
    given
        .map(|ip| {
            ip["address"]
                .as_str()
                .unwrap()
                .split('/')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

/// Whether each of two nodes reaches each of the other's addresses. The first packet may wait for a
/// neighbour longer than a probe does, so it is sent twice.
fn reach(lab: &Lab, nodes: [(NodeId, &[IpAddr]); 2]) -> Vec<bool> {
    let [(one, ones), (other, others)] = nodes;
    let there = others.iter().map(|&to| ProbeFlow::tcp(one, to, 80, other));
    let back = ones.iter().map(|&to| ProbeFlow::tcp(other, to, 80, one));
    let flows: Vec<ProbeFlow> = there.chain(back).collect();
    probe(lab, &flows).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    probe(lab, &flows).unwrap()
}

#[test]
fn cnitool_attaches_what_then_reaches_each_other() {
    if !need_root() {
        return;
    }
    let Some(runtimes) = RuntimePrograms::cni() else {
        return;
    };
    let mut lab = Lab::new("cnitool").unwrap();
    let state = tempfile::tempdir().unwrap();
    let network = CniNetwork::new(&runtimes, &ptp(state.path()), &[]).unwrap();
    let mut joined = Vec::new();
    for name in ["a", "b"] {
        let node = lab.add_namespace(name, vec![]).unwrap();
        let attachment = CniToolAttachment::pod(&lab.namespace_path(node), "shop", name);
        let given = addresses(&network.add(&lab, &attachment).unwrap());
        network.call(&lab, "check", &attachment).unwrap();
        let named = lab
            .adopt(&format!("{name}-joined"), &attachment.netns, given.clone())
            .unwrap();
        joined.push((attachment, named, given));
    }
    let nodes = [0, 1].map(|i: usize| (joined[i].1, &joined[i].2[..]));
    assert_eq!(reach(&lab, nodes), [true; 4]);
    for (attachment, _, _) in &joined {
        network.call(&lab, "del", attachment).unwrap();
        let gone = network.call(&lab, "check", attachment).unwrap_err();
        assert!(gone.to_string().contains("check"), "{gone}");
    }
    assert!(!Path::new("/var/lib/cni").exists() || !holds(Path::new("/var/lib/cni"), "control"));
}

/// Whether a file somewhere under `folder` has `word` in its name.
fn holds(folder: &Path, word: &str) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).any(|path| {
        path.file_name().unwrap().to_string_lossy().contains(word)
            || path.is_dir() && holds(&path, word)
    })
}

#[test]
fn containerd_runs_real_containers() {
    if !need_root() {
        return;
    }
    let Some(runtimes) = RuntimePrograms::containerd() else {
        return;
    };
    let mut lab = Lab::new("containerd").unwrap();
    let group = lab.prefix().to_owned();
    let containerd = match Containerd::start(&lab, &runtimes, &[]) {
        Ok(containerd) => containerd,
        Err(error) => return report_skip(&format!("Debian's containerd does not start: {error}")),
    };
    let unready = containerd.network_status().unwrap().unwrap_err();
    assert!(unready.contains("not initialized"), "{unready}");
    let state = tempfile::tempdir().unwrap();
    containerd.configure(&ptp(state.path())).unwrap();
    let started = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        containerd.network_status().unwrap().ok()
    });
    assert!(started.is_some(), "{}", containerd.log());
    let mut pods = Vec::new();
    for name in ["a", "b"] {
        let pod = match containerd.run_pod("shop", name, &format!("uid-{name}")) {
            Ok(pod) => pod,
            Err(error) => return report_skip(&format!("containers cannot run here: {error}")),
        };
        let given: Vec<IpAddr> = pod.addresses.iter().map(|a| a.parse().unwrap()).collect();
        let seen = containerd.host_path(&pod.netns).unwrap();
        let node = lab.adopt(name, &seen, given.clone()).unwrap();
        pods.push((pod, node, given));
    }
    let nodes = [0, 1].map(|i: usize| (pods[i].1, &pods[i].2[..]));
    assert_eq!(reach(&lab, nodes), [true; 4]);
    let container = containerd
        .run(&pods[0].0, "main", &["/bin/sleep", "600"])
        .unwrap();
    let said = containerd
        .exec(&container, &["/bin/ip", "address"])
        .unwrap();
    assert!(
        said.code == 0 && said.printed.contains(&pods[0].0.addresses[0]),
        "{said:?}"
    );
    assert_eq!(containerd.pods().unwrap().len(), 2);
    containerd.stop_pod(&pods[0].0).unwrap();
    containerd.remove_pod(&pods[0].0).unwrap();
    assert_eq!(containerd.pods().unwrap(), [pods[1].0.clone()]);
    // The other is running still: the end of containerd must take it along.
    drop(containerd);
    assert!(!holds(Path::new("/sys/fs/cgroup/unified"), &group));
    assert!(!holds(Path::new("/sys/fs/cgroup/memory"), &group));
}
