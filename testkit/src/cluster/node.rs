//! A node: containerd, kubelet and kube-proxy in namespaces of their own.
//!
//! Its first process ends everything on it. It sees the machine's files, but `/run`, `/opt`, `/etc/cni`,
//! `/var/lib` and `/var/log` are its own. A kubelet changes kernel parameters of the whole machine: the cluster
//! puts them back when its last node has ended.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::control_plane::ControlPlane;
use super::process::{Process, command, sleep};
use super::{POD_RANGES, kubectl::Kubectl};
use crate::lab::{LabError, TestNetNs, ip, netns};
use crate::runtimes::{RuntimeError, RuntimePrograms, remove_groups, run_to_end, write};

const TIMEOUT: Duration = Duration::from_secs(120);

/// A node of a cluster, until dropped.
#[derive(Debug)]
pub struct ClusterNode {
    name: String,
    // In the order in which they end.
    programs: Vec<Process>,
    init: Process,
    netns: TestNetNs,
    runtimes: RuntimePrograms,
    folder: PathBuf,
}

impl ClusterNode {
    pub(super) fn start(
        number: usize,
        lan: &TestNetNs,
        runtimes: &RuntimePrograms,
        control_plane: &ControlPlane,
        folder: &Path,
    ) -> Result<Self, RuntimeError> {
        let name = format!("node{number}");
        for part in ["lib", "log", "cni", "kubelet"] {
            fs::create_dir_all(folder.join(part))
                .map_err(RuntimeError::io_error("making a node's folder"))?;
        }
        let netns = TestNetNs::new(&format!("cluster-{name}"))?;
        let addresses = join_lan(number, lan, &netns)?;
        let mut node = Self {
            init: start_init(&netns, folder, runtimes)?,
            name,
            programs: Vec::new(),
            netns,
            runtimes: runtimes.clone(),
            folder: folder.to_owned(),
        };
        node.start_containerd()?;
        node.import_images(&runtimes.images())?;
        node.start_kubelet(control_plane, addresses)?;
        node.start_kube_proxy(control_plane)?;
        Ok(node)
    }

    /// Its name in the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network.
    #[must_use]
    pub fn netns(&self) -> &TestNetNs {
        &self.netns
    }

    /// Gives containerd every image of a folder of archives, or one archive.
    ///
    /// # Errors
    /// If containerd refuses one.
    pub fn import_images(&self, archives: &Path) -> Result<(), RuntimeError> {
        let mut files = vec![archives.to_owned()];
        if archives.is_dir() {
            let failed = RuntimeError::io_error("looking for images");
            let entries = fs::read_dir(archives).map_err(&failed)?;
            let paths = entries.map(|entry| Ok(entry?.path()));
            files = paths.collect::<Result<_, _>>().map_err(&failed)?;
            files.retain(|file| file.extension().is_some_and(|end| end == "tar"));
        }
        for file in files {
            let mut import = self.command("ctr")?;
            import
                .args(["--namespace", "k8s.io", "images", "import"])
                .arg(file);
            run_to_end(import, "ctr images import")?;
        }
        Ok(())
    }

    /// A command that is to run on the node: a program of the machine or of a container runtime, by name.
    ///
    /// # Errors
    /// If the node is gone.
    pub fn command(&self, program: &str) -> Result<Command, RuntimeError> {
        let mut enter = command(Path::new("nsenter"));
        enter
            .arg(format!("--net=/run/netns/{}", self.netns.name()))
            .arg(format!("--target={}", self.first_process()?))
            .args(["--mount", "--pid", "env"])
            .arg(format!("PATH={}", self.path()))
            .arg(program);
        Ok(enter)
    }

    /// Runs a command on the node to its end; answers with what it printed.
    ///
    /// # Errors
    /// If it fails, with its message.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, RuntimeError> {
        let mut command = self.command(program)?;
        command.args(arguments);
        run_to_end(command, &format!("{program} {}", arguments.join(" ")))
    }

    /// The ends of the logs.
    #[must_use]
    pub fn logs(&self) -> String {
        self.programs.iter().map(Process::log).collect()
    }

    fn path(&self) -> String {
        let root = self.runtimes.root();
        #[allow(
            clippy::disallowed_methods,
            reason = "the programs of the machine, beside those that were gathered"
        )]
        let own = std::env::var("PATH").unwrap_or_default();
        let root = root.display();
        format!(
            "{}:{root}/usr/bin:{root}/usr/sbin:/usr/sbin:/sbin:{own}",
            self.runtimes.programs().display()
        )
    }

    /// The first process of the node's namespaces.
    fn first_process(&self) -> Result<u32, RuntimeError> {
        let parent = self.init.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
            .map_err(RuntimeError::io_error("looking for a node's first process"))?;
        let first = children.split_whitespace().next();
        first
            .and_then(|process| process.parse().ok())
            .ok_or_else(|| RuntimeError::Silent(self.init.log()))
    }

    fn start_program(
        &mut self,
        program: &str,
        arguments: &[String],
    ) -> Result<&mut Process, RuntimeError> {
        let mut command = self.command(program)?;
        command.args(arguments);
        let process = Process::start(program, self.netns.name(), &self.folder, command)?;
        self.programs.push(process);
        let last = self.programs.len() - 1;
        Ok(&mut self.programs[last])
    }

    fn start_containerd(&mut self) -> Result<(), RuntimeError> {
        let file = self.folder.join("containerd.toml");
        write(&file, &containerd_configuration(&self.runtimes))?;
        let mut probe = self.command("ctr")?;
        probe
            .arg("version")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        let namespace = self.netns.name().to_owned();
        let arguments = ["--config".to_owned(), file.display().to_string()];
        let process = self.start_program("containerd", &arguments)?;
        process.wait(TIMEOUT, move || {
            let status = netns::run_in(&namespace, || probe.status());
            matches!(status, Ok(Ok(status)) if status.success())
        })
    }

    fn start_kubelet(
        &mut self,
        control_plane: &ControlPlane,
        addresses: [IpAddr; 2],
    ) -> Result<(), RuntimeError> {
        let group = self.netns.name().to_owned();
        make_group(&group).map_err(RuntimeError::io_error("making a control group"))?;
        let file = |name: &str| self.folder.join("kubelet").join(name);
        let user = format!("system:node:{}", self.name);
        let kubeconfig = file("kubeconfig");
        control_plane.write_kubeconfig(&kubeconfig, &user, Some("system:nodes"))?;
        let identity = control_plane.issue(&self.name, addresses[0])?;
        write(&file("tls.crt"), &identity.certificate)?;
        write(&file("tls.key"), &identity.key)?;
        let configuration = serde_json::json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": false},
                "x509": {"clientCAFile": control_plane.authority_file()},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{group}"),
            "failCgroupV1": false,
            "failSwapOn": false,
            "clusterDNS": ["10.96.0.10"],
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "imageMaximumGCAge": "0s",
            "maxPods": 110,
            "registerNode": true,
            "resolvConf": "",
            "serializeImagePulls": true,
            "staticPodPath": "",
            "tlsCertFile": file("tls.crt"),
            "tlsPrivateKeyFile": file("tls.key"),
        });
        write(&file("config.json"), &configuration.to_string())?;
        let arguments = [
            format!("--config={}", file("config.json").display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={},{}", addresses[0], addresses[1]),
            "--v=1".into(),
        ];
        let name = self.name.clone();
        let kubectl = Kubectl::new(
            &self.runtimes,
            self.netns.name(),
            &control_plane.admin_kubeconfig(),
        );
        let process = self.start_program("kubelet", &arguments)?;
        process.wait(TIMEOUT, || kubectl.run(&["get", "node", &name]).is_ok())
    }

    fn start_kube_proxy(&mut self, control_plane: &ControlPlane) -> Result<(), RuntimeError> {
        let kubeconfig = self.folder.join("kube-proxy.kubeconfig");
        control_plane.write_kubeconfig(&kubeconfig, "system:kube-proxy", None)?;
        let configuration = serde_json::json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": POD_RANGES.join(","),
            "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": kubeconfig},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        });
        let file = self.folder.join("kube-proxy.json");
        write(&file, &configuration.to_string())?;
        let arguments = [format!("--config={}", file.display()), "--v=1".into()];
        self.start_program("kube-proxy", &arguments).map(drop)
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        if let Ok(process) = self.first_process() {
            // The first process of a namespace takes all others with it.
            let process = nix::unistd::Pid::from_raw(process.cast_signed());
            let _ = nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL);
        }
        self.programs.clear();
        if let Err(error) = remove_groups(self.netns.name()) {
            eprintln!("{}: removing its control groups: {error}", self.name);
        }
        // The names of its namespaces' mounts are gone with it.
        sleep(Duration::from_millis(10));
    }
}

/// Joins a node to the bridge; answers with its addresses.
fn join_lan(number: usize, lan: &TestNetNs, node: &TestNetNs) -> Result<[IpAddr; 2], LabError> {
    let last = u8::try_from(number).unwrap_or(u8::MAX).saturating_add(10);
    let v4 = Ipv4Addr::new(10, 90, 0, last);
    let v6 = Ipv6Addr::new(0xfd00, 0x90, 0, 0, 0, 0, 0, last.into());
    ip::run(
        lan.name(),
        &[
            format!(
                "link add port{number} type veth peer name eth0 netns {}",
                node.name()
            ),
            format!("link set port{number} master lan up"),
        ],
    )?;
    ip::run(
        node.name(),
        &[
            "link set lo up".into(),
            "link set eth0 up".into(),
            format!("addr add {v4}/24 dev eth0"),
            format!("addr add {v6}/64 dev eth0 nodad"),
            "route add default via 10.90.0.1".into(),
            "route add ::/0 via fd00:90::1".into(),
        ],
    )?;
    Ok([v4.into(), v6.into()])
}

/// The first process of a node, in mount and process namespaces of its own.
fn start_init(
    netns: &TestNetNs,
    folder: &Path,
    runtimes: &RuntimePrograms,
) -> Result<Process, RuntimeError> {
    let mut init = command(Path::new("unshare"));
    init.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .args(["bash", "-c"])
        .arg(
            "set -e
             mount --make-rshared /
             mkdir -p /etc/cni /opt /run/netns
             mount -t tmpfs tmpfs /run
             mkdir -p /run/netns
             mount --bind \"$1/lib\" /var/lib
             mount --bind \"$1/log\" /var/log
             mount --bind \"$1/cni\" /etc/cni
             mount -t tmpfs tmpfs /opt
             mkdir -p /opt/cni/bin /etc/cni/net.d
             # containerd calls it for each pod, and nodes have it from their distribution.
             cp \"$2\" /opt/cni/bin/
             touch \"$1/ready\"
             set +e
             # Whoever is the first process inherits all others, and has to wait for them.
             trap : CHLD
             while :; do sleep 100000 & wait; done",
        )
        .arg("sh")
        .arg(folder)
        .arg(runtimes.programs().join("loopback"));
    let mut process = Process::start("init", netns.name(), folder, init)?;
    let ready = folder.join("ready");
    process.wait(TIMEOUT, || ready.exists())?;
    Ok(process)
}

/// Makes a control group in each hierarchy, or in the only one.
fn make_group(name: &str) -> std::io::Result<()> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return fs::create_dir_all(root.join(name));
    }
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let group = entry.path().join(name);
        fs::create_dir_all(&group)?;
        // A new group has neither processors nor memory, and can hold no process without them.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let parent = entry.path().join(file);
            if let Ok(value) = fs::read_to_string(&parent) {
                #[allow(
                    clippy::disallowed_methods,
                    reason = "a control group's file, not one that a crash could lose"
                )]
                fs::write(group.join(file), value)?;
            }
        }
    }
    Ok(())
}

fn containerd_configuration(runtimes: &RuntimePrograms) -> String {
    let root = runtimes.root().display().to_string();
    let pause = fs::read_to_string(runtimes.images().join("pause.name")).unwrap_or_default();
    format!(
        r#"version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{root}/usr/sbin/runc"
"#,
        pause = pause.trim(),
    )
}
