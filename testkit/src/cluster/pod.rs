//! A pod of a cluster: where it runs, and its network namespace as this machine sees it.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::Cluster;
use crate::runtimes::RuntimeError;

/// A running pod.
#[derive(Clone, Debug)]
pub struct ClusterPod {
    /// The name of its node.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace; gone with the pod.
    pub network_namespace: PathBuf,
}

impl Cluster {
    /// Waits until every pod of a namespace is ready.
    ///
    /// # Errors
    /// If one is not within three minutes, with their state.
    pub fn wait_for_pods(&self, namespace: &str) -> Result<(), RuntimeError> {
        let kubectl = self.kubectl();
        let wait = ["-n", namespace, "wait", "pod", "--all", "--timeout=180s"];
        let waited = kubectl.run(&[&wait[..], &["--for=condition=Ready"]].concat());
        waited.map(drop).map_err(|error| {
            let state = kubectl.run(&["-n", namespace, "describe", "pod"]);
            RuntimeError::Refused {
                program: error.to_string(),
                said: state.unwrap_or_default(),
            }
        })
    }

    /// A running pod.
    ///
    /// # Errors
    /// If there is none, or none of its processes is found.
    pub fn pod(&self, namespace: &str, name: &str) -> Result<ClusterPod, RuntimeError> {
        let pod = self.kubectl().get(&["-n", namespace, "pod", name])?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let node = text(&pod["spec"]["nodeName"]);
        let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|entry| entry["ip"].as_str()?.parse().ok());
        let process = self.pod_process(&node, &text(&pod["metadata"]["uid"]))?;
        Ok(ClusterPod {
            addresses: addresses.collect(),
            network_namespace: PathBuf::from(format!("/proc/{process}/ns/net")),
            node,
        })
    }

    /// The first process of a pod's containers: it is in the pod's control group.
    pub(super) fn pod_process(&self, node: &str, uid: &str) -> Result<u32, RuntimeError> {
        let nodes = self.nodes().iter();
        let node = nodes.filter(|other| other.name() == node);
        let groups = node.flat_map(|node| {
            let group = node.netns().name();
            ["", "pids"].map(|hierarchy| Path::new("/sys/fs/cgroup").join(hierarchy).join(group))
        });
        let found = groups.filter_map(|group| find_process(&group, &format!("pod{uid}"), false));
        found
            .into_iter()
            .next()
            .ok_or_else(|| RuntimeError::Refused {
                program: format!("looking for the processes of the pod {uid}"),
                said: "no control group has any".into(),
            })
    }
}

/// A process below a control group of this name. Those of its parents are not in a pod.
fn find_process(folder: &Path, pod: &str, inside: bool) -> Option<u32> {
    if inside {
        let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        if let Some(process) = processes.lines().next() {
            return process.parse().ok();
        }
    }
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let folders = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    let mut found = folders.filter_map(|path| {
        let is_pod = path.file_name().is_some_and(|name| name == pod);
        find_process(&path, pod, inside || is_pod)
    });
    found.next()
}
