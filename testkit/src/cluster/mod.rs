//! A whole Kubernetes cluster on one machine: etcd, the API server and its controllers in a namespace that is
//! the nodes' network, and nodes of kubelet, containerd and kube-proxy in namespaces of their own.
//!
//! ```text
//!   lan: etcd, kube-apiserver, controllers ── bridge 10.90.0.1, fd00:90::1
//!                                              │            │
//!                       node1 10.90.0.11 ── eth0            eth0 ── node2 10.90.0.12
//! ```
//!
//! The programs are Kubernetes' own, gathered by `scripts/runtimes --cluster`. Dropping the [`Cluster`] ends
//! everything and removes what it made. It never uses the machine's own network, nor its containerd.

mod certificates;
mod conformance;
mod container;
mod control_plane;
mod etcd;
mod etcd_writer;
mod installation;
mod kernel_parameters;
mod kubectl;
mod node;
mod pod;
mod policy_suite;
mod process;

use std::path::Path;

use tempfile::TempDir;

use crate::lab::{LabError, TestNetNs, ip};
use crate::runtimes::{RuntimeError, RuntimePrograms};

use kernel_parameters::KernelParameters;

pub use certificates::{Authority, Identity};
pub use conformance::{SpecOutcome, SpecResult, has_sctp};
pub use control_plane::{ControlPlane, Controllers};
pub use etcd::{EtcdServer, EtcdTls};
pub use etcd_writer::{EtcdChange, EtcdWriter};
pub use installation::PALISADE_NAMESPACE;
pub use kubectl::Kubectl;
pub use node::ClusterNode;
pub use pod::ClusterPod;
pub use policy_suite::PolicySuite;
pub use process::Process;

/// The pools that the controllers divide between the nodes.
pub const POD_RANGES: [&str; 2] = ["10.244.0.0/16", "fd00:10:244::/56"];
/// The addresses of Services.
pub const SERVICE_RANGES: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];

/// A running cluster, until dropped.
#[derive(Debug)]
pub struct Cluster {
    // In the order in which they end.
    nodes: Vec<ClusterNode>,
    _parameters: KernelParameters,
    control_plane: ControlPlane,
    lan: TestNetNs,
    programs: RuntimePrograms,
    dir: TempDir,
}

impl Cluster {
    /// Starts the control plane; nodes are added by [`Self::add_node`]. `name` appears in the namespaces'
    /// names.
    ///
    /// # Errors
    /// If a program does not come up, with the end of its log.
    pub fn start(
        name: &str,
        programs: &RuntimePrograms,
        controllers: Controllers,
    ) -> Result<Self, RuntimeError> {
        let dir = tempfile::Builder::new()
            .prefix("palisade-cluster-")
            .tempdir()
            .map_err(RuntimeError::io_error("making a cluster's folder"))?;
        let lan = TestNetNs::new(&format!("{name}-lan"))?;
        make_lan(&lan)?;
        let folder = dir.path().join("control-plane");
        let control_plane = ControlPlane::start(lan.name(), programs, &folder, controllers)?;
        Ok(Self {
            nodes: Vec::new(),
            _parameters: KernelParameters::read(),
            control_plane,
            lan,
            programs: programs.clone(),
            dir,
        })
    }

    /// Starts another node and waits until its kubelet has registered it; it is ready once it has a network.
    ///
    /// # Errors
    /// If a program does not come up.
    pub fn add_node(&mut self) -> Result<&ClusterNode, RuntimeError> {
        let number = self.nodes.len() + 1;
        let folder = self.dir.path().join(format!("node{number}"));
        let node = ClusterNode::start(
            number,
            &self.lan,
            &self.programs,
            &self.control_plane,
            &folder,
        )?;
        self.nodes.push(node);
        Ok(&self.nodes[number - 1])
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// The control plane.
    pub fn control_plane(&mut self) -> &mut ControlPlane {
        &mut self.control_plane
    }

    /// `kubectl` as the cluster's administrator.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        self.control_plane.kubectl()
    }

    /// The nodes' network, where the control plane is.
    #[must_use]
    pub fn lan(&self) -> &TestNetNs {
        &self.lan
    }

    /// A folder of the cluster's own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The ends of all logs, for a message.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut text = self.control_plane.logs();
        for node in &self.nodes {
            text.push_str(&node.logs());
        }
        text
    }
}

/// The bridge that joins the nodes; the control plane has its address.
fn make_lan(lan: &TestNetNs) -> Result<(), LabError> {
    let commands = [
        "link set lo up",
        "link add lan type bridge mcast_snooping 0",
        "link set lan up",
        "addr add 10.90.0.1/24 dev lan",
        "addr add fd00:90::1/64 dev lan nodad",
    ];
    ip::run(lan.name(), &commands.map(str::to_owned))
}
