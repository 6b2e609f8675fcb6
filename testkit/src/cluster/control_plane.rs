//! etcd, the API server and its controllers.
//!
//! Certificates, roles and admission are those of a real cluster: nobody but the administrator may do
//! everything. The server can be killed, stopped and started again, and etcd written behind its back.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;

use super::certificates::{Authority, Identity, token_keys};
use super::etcd::{EtcdServer, EtcdTls};
use super::kubectl::Kubectl;
use super::process::{Process, command};
use super::{POD_RANGES, SERVICE_RANGES};
use crate::runtimes::{RuntimeError, RuntimePrograms, write};

/// Where the nodes reach the server.
pub(super) const SERVER: &str = "https://10.90.0.1:6443";
/// How long a program may take until it answers; a busy machine is slow.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Which controllers a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controllers {
    /// None: the server has what is written to it.
    None,
    /// The controller manager and the scheduler: pods are run by nodes.
    All,
}

/// A control plane.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order in which they end.
    controllers: Vec<Process>,
    api_server: Option<Process>,
    etcd: EtcdServer,
    authority: Authority,
    programs: RuntimePrograms,
    namespace: String,
    folder: PathBuf,
}

impl ControlPlane {
    /// Starts etcd and the API server in the network namespace of a name, which has the server's address
    /// 10.90.0.1, and waits until the server is ready. Everything is kept in `folder`.
    ///
    /// # Errors
    /// If a program does not come up, with the end of its log.
    pub fn start(
        namespace: &str,
        programs: &RuntimePrograms,
        folder: &Path,
        controllers: Controllers,
    ) -> Result<Self, RuntimeError> {
        fs::create_dir_all(folder).map_err(RuntimeError::io_error("making a folder"))?;
        let authority = Authority::new()?;
        write_credentials(&authority, folder)?;
        let etcd = EtcdServer::start(namespace, programs, folder, EtcdTls::Off)?;
        let mut plane = Self {
            controllers: Vec::new(),
            api_server: None,
            etcd,
            authority,
            programs: programs.clone(),
            namespace: namespace.to_owned(),
            folder: folder.to_owned(),
        };
        plane.start_api_server()?;
        if controllers == Controllers::All {
            plane.start_controllers()?;
        }
        Ok(plane)
    }

    /// `kubectl` as the administrator.
    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.programs, &self.namespace, &self.admin_kubeconfig())
    }

    /// The administrator's credentials.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// The certificate of what signed the server's.
    #[must_use]
    pub fn authority_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// Writes the credentials of a user, with a certificate, to a file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_kubeconfig(
        &self,
        path: &Path,
        user: &str,
        group: Option<&str>,
    ) -> Result<(), RuntimeError> {
        let identity = self.authority.issue(user, group, &[], &[])?;
        write(path, &kubeconfig(&self.authority, &identity))
    }

    /// An identity for a server at an address, which the cluster's programs trust.
    pub(super) fn issue(&self, name: &str, address: IpAddr) -> Result<Identity, RuntimeError> {
        self.authority.issue(name, None, &[address], &[name])
    }

    /// Starts the API server, or starts it again, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_api_server(&mut self) -> Result<(), RuntimeError> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut server = command(&self.programs.programs().join("kube-apiserver"));
        server
            .arg(format!("--etcd-servers={}", self.etcd.endpoint()))
            .args(["--secure-port=6443", "--advertise-address=10.90.0.1"])
            .arg(format!(
                "--service-cluster-ip-range={}",
                SERVICE_RANGES.join(",")
            ))
            .args(["--authorization-mode=Node,RBAC", "--allow-privileged=true"])
            .arg("--enable-admission-plugins=NodeRestriction")
            .arg(format!("--client-ca-file={}", file("ca.crt")))
            .arg(format!("--tls-cert-file={}", file("server.crt")))
            .arg(format!("--tls-private-key-file={}", file("server.key")))
            .arg(format!(
                "--kubelet-client-certificate={}",
                file("admin.crt")
            ))
            .arg(format!("--kubelet-client-key={}", file("admin.key")))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", file("tokens.pub")))
            .arg(format!(
                "--service-account-signing-key-file={}",
                file("tokens.key")
            ))
            .arg("--kubelet-preferred-address-types=InternalIP")
            .args(["--profiling=false", "--v=1"]);
        let mut process = Process::start("kube-apiserver", &self.namespace, &self.folder, server)?;
        let kubectl = self.kubectl();
        process.wait(TIMEOUT, || {
            kubectl.run(&["get", "--raw", "/readyz"]).is_ok()
        })?;
        self.api_server = Some(process);
        Ok(())
    }

    /// Kills the API server.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    /// Sends the API server a signal: SIGSTOP makes it silent, SIGCONT ends that.
    pub fn signal_api_server(&self, signal: Signal) {
        if let Some(server) = &self.api_server {
            server.signal(signal);
        }
    }

    /// Forgets the history of etcd: watches that are behind must list again.
    ///
    /// # Errors
    /// If etcd refuses.
    pub fn compact(&self) -> Result<(), RuntimeError> {
        self.etcd.compact()
    }

    /// Writes a value to etcd, behind the server's validation.
    ///
    /// # Errors
    /// If etcd refuses.
    pub fn put_raw(&self, key: &str, value: &str) -> Result<(), RuntimeError> {
        self.etcd.etcdctl(&["put", key], value).map(drop)
    }

    /// Removes a value from etcd.
    ///
    /// # Errors
    /// If etcd refuses.
    pub fn delete_raw(&self, key: &str) -> Result<(), RuntimeError> {
        self.etcd.etcdctl(&["del", key], "").map(drop)
    }

    /// The ends of the logs.
    #[must_use]
    pub fn logs(&self) -> String {
        let others = self.api_server.iter().chain(&self.controllers);
        let logs = std::iter::once(self.etcd.log()).chain(others.map(Process::log));
        logs.collect()
    }

    /// The processor time and the resident memory of the server: its process id.
    #[must_use]
    pub fn api_server_process(&self) -> Option<u32> {
        self.api_server.as_ref().map(Process::id)
    }

    fn start_controllers(&mut self) -> Result<(), RuntimeError> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let mut manager = command(&self.programs.programs().join("kube-controller-manager"));
        manager
            .arg(format!(
                "--kubeconfig={}",
                file("controller-manager.kubeconfig")
            ))
            .args(["--leader-elect=false", "--use-service-account-credentials"])
            .arg("--allocate-node-cidrs")
            .arg(format!("--cluster-cidr={}", POD_RANGES.join(",")))
            .arg(format!(
                "--service-cluster-ip-range={}",
                SERVICE_RANGES.join(",")
            ))
            .arg(format!("--root-ca-file={}", file("ca.crt")))
            .arg(format!(
                "--service-account-private-key-file={}",
                file("tokens.key")
            ))
            // A busy machine is slow to report its nodes.
            .arg("--node-monitor-grace-period=120s")
            .args(["--bind-address=127.0.0.1", "--v=1"]);
        let mut scheduler = command(&self.programs.programs().join("kube-scheduler"));
        scheduler
            .arg(format!("--kubeconfig={}", file("scheduler.kubeconfig")))
            .args(["--leader-elect=false", "--bind-address=127.0.0.1", "--v=1"]);
        for (name, command) in [
            ("kube-controller-manager", manager),
            ("kube-scheduler", scheduler),
        ] {
            let process = Process::start(name, &self.namespace, &self.folder, command)?;
            self.controllers.push(process);
        }
        Ok(())
    }
}

/// The files of the control plane: certificates, keys and the credentials of its programs.
fn write_credentials(authority: &Authority, folder: &Path) -> Result<(), RuntimeError> {
    let addresses = ["10.90.0.1", "10.96.0.1", "127.0.0.1"];
    let addresses: Vec<IpAddr> = addresses.iter().filter_map(|a| a.parse().ok()).collect();
    let hosts = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let server = authority.issue("kube-apiserver", None, &addresses, &hosts)?;
    let admin = authority.issue("admin", Some("system:masters"), &[], &[])?;
    let (private, public) = token_keys()?;
    for (name, text) in [
        ("ca.crt", authority.certificate()),
        ("server.crt", server.certificate),
        ("server.key", server.key),
        ("admin.kubeconfig", kubeconfig(authority, &admin)),
        ("admin.crt", admin.certificate),
        ("admin.key", admin.key),
        ("tokens.key", private),
        ("tokens.pub", public),
    ] {
        write(&folder.join(name), &text)?;
    }
    for name in ["controller-manager", "scheduler"] {
        let identity = authority.issue(&format!("system:kube-{name}"), None, &[], &[])?;
        write(
            &folder.join(format!("{name}.kubeconfig")),
            &kubeconfig(authority, &identity),
        )?;
    }
    Ok(())
}

/// A kubeconfig with a client certificate.
fn kubeconfig(authority: &Authority, identity: &Identity) -> String {
    // JSON is YAML; the data are the PEM in base64.
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": {
            "server": SERVER,
            "certificate-authority-data": STANDARD.encode(authority.certificate()),
        }}],
        "users": [{"name": "user", "user": {
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        }}],
        "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "context",
    })
    .to_string()
}
