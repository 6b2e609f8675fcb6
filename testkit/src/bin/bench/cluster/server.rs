//! A real API server whose objects are written straight into etcd.

use super::objects::{self, NAMESPACES, PodState};
use crate::agent::processor_seconds;
use crate::stopwatch::now;
use palisade_testkit::cluster::{ControlPlane, Controllers, EtcdChange, EtcdWriter};
use palisade_testkit::lab::Lab;
use palisade_testkit::runtimes::RuntimePrograms;
use std::path::PathBuf;

/// The objects of a cluster.
#[derive(Clone, Copy)]
pub(super) struct ClusterSize {
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) policies: usize,
}

impl ClusterSize {
    /// The number of objects, without the server's own.
    pub(super) fn objects(self) -> usize {
        NAMESPACES + self.nodes + self.pods + self.policies
    }
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The server, in the host namespace of a lab.
pub(super) struct ClusterServer {
    pub(super) plane: ControlPlane,
    pub(super) lab: Lab,
    pub(super) writer: EtcdWriter,
    folder: tempfile::TempDir,
}

impl ClusterServer {
    /// Starts it and writes the objects.
    pub(super) fn start(name: &str, size: ClusterSize) -> Result<Self, String> {
        let programs = RuntimePrograms::control_plane()
            .ok_or("scripts/runtimes --control-plane has not run")?;
        let mut lab = Lab::new(name).map_err(text)?;
        let server = "10.90.0.1".parse().map_err(text)?;
        lab.add_address(lab.host(), server).map_err(text)?;
        let folder = tempfile::tempdir().map_err(text)?;
        let host = lab.namespace_name(lab.host()).to_owned();
        let plane = ControlPlane::start(&host, &programs, folder.path(), Controllers::None);
        let plane = plane.map_err(text)?;
        let mut writer = EtcdWriter::connect(&host).map_err(text)?;
        let began = now();
        let namespaces = (0..NAMESPACES).map(objects::namespace);
        let nodes = (0..size.nodes).map(objects::node);
        let policies = (0..size.policies).map(objects::policy);
        let pods = (0..size.pods).map(|pod| objects::pod(pod, size.nodes, PodState::default()));
        let mut all = namespaces.chain(nodes).chain(policies).chain(pods);
        loop {
            let part: Vec<EtcdChange> = all.by_ref().take(128).collect();
            if part.is_empty() {
                break;
            }
            writer.write(&part).map_err(text)?;
        }
        eprintln!(
            "    {} pods written into etcd in {:.1?}",
            size.pods,
            began.elapsed()
        );
        Ok(Self {
            plane,
            lab,
            writer,
            folder,
        })
    }

    /// A kubeconfig of a user.
    pub(super) fn kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf, String> {
        let path = self.folder.path().join(format!("{user}.kubeconfig"));
        let written = self.plane.write_kubeconfig(&path, user, group);
        written.map_err(text).map(|()| path)
    }

    /// Seconds of processor time that the API server has used.
    pub(super) fn processor_seconds(&self) -> Result<f64, String> {
        let process = self.plane.api_server_process();
        processor_seconds(process.ok_or("the API server does not run")?)
    }

    /// The requests that it has answered; a watch counts when it ends.
    pub(super) fn requests(&self) -> Result<f64, String> {
        let metrics = self.plane.kubectl().run(&["get", "--raw", "/metrics"]);
        let metrics = metrics.map_err(text)?;
        let counts = metrics
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{"));
        Ok(counts
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }
}
